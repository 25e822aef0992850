"""Guards texts as tokens: what is kept, padded and decoded, other tokenizers, and writing token by token."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from view_teams import ROWS, text_env

from llm_envs import ChatPrompt
from llm_envs.wrappers import AutoregressiveTokenView, ByteTokenizer, TokenView, Vocabulary

END, PAD = 256, 257
unicode_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


class Words:
    """Ids of three words; anything else is left out."""

    words = ("yes", "no", "猫")
    vocab_size = 3

    def encode(self, text):
        return [self.words.index(word) for word in text.split() if word in self.words]

    def decode(self, ids):
        return " ".join(self.words[i] for i in ids)


# ---- ids ----


@given(unicode_texts)
def test_bytes_keep_every_text(text):
    vocabulary = Vocabulary()
    ids = [*ByteTokenizer().encode(text), vocabulary.end, *b"ignored"]
    assert vocabulary.text(ids) == text
    assert [i for i in vocabulary.newest(text, 200) if i != PAD] == list(text.encode())


@given(st.lists(st.integers(0, 257), max_size=40))
def test_any_ids_are_a_text(ids):
    """Also bytes that are none: they become U+FFFD, and what comes after an end is ignored."""
    text = Vocabulary().text(ids)
    kept = bytes(i for i in (ids[: ids.index(END)] if END in ids else ids) if i != PAD)
    assert text == kept.decode("utf-8", "replace")
    text.encode()


def test_windows():
    """The newest part of a prompt, padded in front; the first of a candidate, padded behind."""
    vocabulary = Vocabulary()
    assert vocabulary.newest("abc", 5).tolist() == [PAD, PAD, *b"abc"]
    assert vocabulary.newest("abcdefg", 5).tolist() == list(b"cdefg")
    assert vocabulary.newest("", 2).tolist() == [PAD, PAD]
    assert vocabulary.first("abc", 5).tolist() == [*b"abc", PAD, PAD]
    assert vocabulary.first("abcdefg", 5).tolist() == list(b"abcde")
    assert vocabulary.newest("é", 1).tolist() == [0xA9]  # half a character is an id like any other
    assert vocabulary.written([1, END], 3).tolist() == [1, END, PAD]
    assert vocabulary.newest("abc", 5).dtype == np.float32


def test_another_tokenizer():
    view = TokenView(text_env(2, 1), Words(), max_prompt_tokens=4, max_completion_tokens=3)
    assert (view.vocabulary.end, view.vocabulary.pad, view.vocabulary.size) == (3, 4, 5)
    assert view.action_space("solver_0") == spaces.MultiDiscrete([5, 5, 5])
    assert view.observation_space("solver_0") == spaces.Box(0, 4, (4,), np.float32)
    observations, _ = view.reset(seed=0, options={"item": {"prompt": "no 猫 maybe yes no yes"}})
    assert observations["critic_0"].tolist() == [2, 0, 1, 0]
    *_, infos = view.step({"solver_0": [2, 0, 1], "critic_0": [4, 3, 1]})
    assert [info["completion"] for info in infos.values()] == ["猫 yes no", ""]


def test_what_is_no_tokenizer():
    class Wrong(Words):
        vocab_size = 2

    with pytest.raises(TypeError, match="a tokenizer has vocab_size, encode"):
        TokenView(text_env(), object())
    with pytest.raises(ValueError, match=r"Wrong.encode gave ids from 2 to 2, vocab_size is 2: '猫'"):
        TokenView(text_env(), Wrong()).reset(options={"item": {"prompt": "猫"}})
    for size in (0, -1, "3", 2**24):
        Wrong.vocab_size = size
        with pytest.raises(ValueError, match="vocab_size of Wrong must be from 1 to 16777214"):
            Vocabulary(Wrong())


@pytest.mark.parametrize("name", ["max_prompt_tokens", "max_completion_tokens", "max_state_tokens"])
@pytest.mark.parametrize("view", [TokenView, AutoregressiveTokenView])
def test_lengths(view, name):
    for wrong in (0, -1, 1.5, True, None):
        with pytest.raises(ValueError, match=rf"{name} must be a whole number of at least 1, got"):
            view(text_env(), **{name: wrong})


def test_conversations_are_read_as_text():
    env = text_env(1, 1, formatters=lambda item: [{"role": "user", "content": "hi"}])
    view = TokenView(env, max_prompt_tokens=8)
    assert view.reset(seed=0)[0]["solver_0"].tolist() == list(b"user: hi")
    assert isinstance(view.prompt("solver_0"), ChatPrompt)


# ---- whole completions ----


def test_a_whole_completion_is_an_action():
    """Each earns a tenth of its length in characters, not bytes: 0.2 and 0; two turns, then the state as ids."""
    view = TokenView(text_env(2, 2), max_prompt_tokens=12, max_completion_tokens=6, max_state_tokens=40)
    observations, _ = view.reset(seed=0, options={"item": 0})
    assert observations["solver_0"].tolist() == [PAD] * 7 + list(b"short")
    written = {"solver_0": [*"猫é".encode(), END], "critic_0": [END, *b"12345"]}
    observations, rewards, terminations, _, infos = view.step(written)
    assert rewards == {"solver_0": 0.2, "critic_0": 0.0}
    assert not any(terminations.values())
    assert observations["solver_0"].tolist() == list("turn 1: 猫é".encode()[-12:])
    assert infos["solver_0"]["completion"] == "猫é"
    assert view.state().tolist() == list(view.env.state().encode()[-40:])


def test_over_long_prompts_keep_their_end():
    view = TokenView(text_env(1, 1), max_prompt_tokens=4)
    assert view.reset(options={"item": ROWS.index(ROWS[-1])})[0]["solver_0"].tolist() == list(b" END")


# ---- token by token ----


def auto(agents=2, turns=1, **options):
    sizes = {"max_prompt_tokens": 5, "max_completion_tokens": 3, "max_state_tokens": 10}
    view = AutoregressiveTokenView(text_env(agents, turns), **{**sizes, **options})
    return view, view.reset(seed=0, options={"item": 0})[0]


def test_one_token_a_step():
    """`solver_0` writes "a" and ends; `critic_0` writes "bcd" and ends at its third place; rewards are a tenth of the lengths."""
    view, observations = auto()
    assert view.action_space("solver_0") == spaces.Discrete(258)
    assert observations["solver_0"].tolist() == [*b"short", PAD, PAD, PAD]
    steps = [view.step({"solver_0": s, "critic_0": c}) for s, c in [(b"a"[0], b"b"[0]), (END, b"c"[0]), (b"z"[0], b"d"[0])]]
    assert [step[1] for step in steps] == [dict.fromkeys(view.possible_agents, 0.0)] * 2 + [{"solver_0": 0.1, "critic_0": 0.3}]
    assert [set(step[2].values()) for step in steps] == [{False}, {False}, {True}]
    assert [step[0]["solver_0"][5:].tolist() for step in steps] == [[97, PAD, PAD], [97, END, PAD], [97, END, PAD]]
    assert [step[0]["critic_0"][5:].tolist() for step in steps] == [[98, PAD, PAD], [98, 99, PAD], [98, 99, 100]]
    assert [[info["wrote"] for info in step[-1].values()] for step in steps] == [[1, 1], [1, 1], [0, 1]]
    assert [info["completion"] for info in steps[-1][-1].values()] == ["a", "bcd"]
    assert "completion" not in steps[0][-1]["solver_0"]
    assert view.agents == []


def test_the_turn_is_over_with_the_last_agents_end():
    view, _ = auto(3)
    _, rewards, terminations, *_ = view.step(dict.fromkeys(view.possible_agents, END))
    assert rewards == dict.fromkeys(view.possible_agents, 0.0)
    assert all(terminations.values())


def test_a_new_turn_starts_with_nothing_written():
    view, _ = auto(1, 2)
    view.step({"solver_0": b"x"[0]})
    observations, rewards, terminations, *_ = view.step({"solver_0": END})
    assert (rewards, terminations) == ({"solver_0": 0.1}, {"solver_0": False})
    assert observations["solver_0"][:5].tolist() == list(b" 1: x")
    assert observations["solver_0"][5:].tolist() == [PAD] * 3


def test_state_shows_what_is_being_written():
    view, _ = auto()
    view.step({"solver_0": 65, "critic_0": END})
    assert view.state().shape == view.state_space.shape == (10 + 2 * 3,)
    assert view.state()[10:].tolist() == [65, PAD, PAD, END, PAD, PAD]
    assert view.state()[:10].tolist() == list(view.env.state().encode()[-10:])


def test_padding_takes_a_place_and_writes_nothing():
    view, _ = auto(1)
    for token in (PAD, 65):
        view.step({"solver_0": token})
    *_, infos = view.step({"solver_0": PAD})
    assert infos["solver_0"]["completion"] == "A"


def test_a_refused_step_writes_nothing():
    view, observations = auto()
    with pytest.raises(ValueError, match="the action of critic_0 must be from 0 to 257, got 258"):
        view.step({"solver_0": 65, "critic_0": 258})
    assert view.observe("solver_0").tolist() == observations["solver_0"].tolist()


@given(st.data())
def test_both_forms_play_the_same(data):
    """Any ids, token by token and at once: the same completions, rewards and next prompts."""
    whole = TokenView(text_env(2, 2), max_prompt_tokens=9, max_completion_tokens=4)
    single = AutoregressiveTokenView(text_env(2, 2), max_prompt_tokens=9, max_completion_tokens=4)
    whole.reset(seed=1)
    single.reset(seed=1)
    ids = st.lists(st.sampled_from([65, 0xC3, 0xA9, END, PAD]), min_size=4, max_size=4)
    actions = {agent: data.draw(ids) for agent in whole.possible_agents}
    expected = whole.step(actions)
    for place in range(4):
        returned = single.step({agent: tokens[place] for agent, tokens in actions.items()})
        if "completion" in returned[-1]["solver_0"]:
            break
    assert {a: info["completion"] for a, info in returned[-1].items()} == {a: i["completion"] for a, i in expected[-1].items()}
    assert returned[1:4] == expected[1:4]
    assert all(returned[0][agent][:9].tolist() == expected[0][agent].tolist() for agent in actions)
