"""Guards the text space: real completions belong to it, and gymnasium's batching, flattening and shared memory know it."""

from __future__ import annotations

import copy
import multiprocessing
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, is_space_dtype_shape_equiv, unflatten
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.spaces import SAMPLE_LENGTH, UnicodeText, clean_text, is_unicode

TEXTS = ["", " ", "a", "line\nbreak\ttab", "naïve", "中文", "\U0001f600 emoji", "\x00", "\ud7ff\ue000\uffff\U0010ffff", "x" * 40]


def test_real_completions_belong_to_it():
    space = UnicodeText(40)
    assert all(text in space for text in TEXTS)
    assert np.str_("numpy") in space
    for other in ("x" * 41, "half \ud800", "\udfff", b"bytes", None, 3, ["a"], np.array("a")):
        assert other not in space


@pytest.mark.parametrize("max_length", [0, -1, 2.0, True, "9", None])
def test_a_wrong_length_is_refused(max_length):
    with pytest.raises(ValueError, match="max_length must be a whole number of at least 1"):
        UnicodeText(max_length)


def test_samples_are_short_plain_and_seeded():
    space, twin = UnicodeText(2**20, seed=3), UnicodeText(2**20)
    twin.seed(3)
    drawn = [space.sample() for _ in range(200)]
    assert drawn == [twin.sample() for _ in range(200)]
    assert all(text in space and text.isascii() and type(text) is str for text in drawn)
    assert max(map(len, drawn)) == SAMPLE_LENGTH
    assert "" in drawn
    assert max(len(UnicodeText(3, seed=0).sample()) for _ in range(50)) <= 3


def test_samples_under_a_mask():
    """gymnasium's forms: a length, and one entry for each character of the space (here: only "a" and an emoji)."""
    space = UnicodeText(10, seed=0)
    assert len(space.sample(mask=(7, None))) == 7
    mask = np.zeros(len(space.character_set), dtype=np.int8)
    mask[[space.character_index("a"), space.character_index("\U0001f600")]] = 1
    assert set(space.sample(mask=(10, mask))) == {"a", "\U0001f600"}
    assert set(space.sample(probability=(10, mask / 2.0))) == {"a", "\U0001f600"}


def test_the_alphabet_is_a_rule():
    space = UnicodeText(10)
    letters = space.character_list
    assert len(letters) == len(space.character_set) == 0x110000 - 0x800
    for character in ("\x00", "a", "\ud7ff", "\ue000", "\U0010ffff"):
        assert character in space.character_set
        assert letters[int(space.character_index(character))] == character
    assert letters[-1] == "\U0010ffff"
    assert letters[97:100] == ["a", "b", "c"]
    assert "\ud800" not in space.character_set
    assert "ab" not in space.character_set
    assert len(space.characters) == len(letters)
    with pytest.raises(IndexError):
        letters[len(letters)]
    with pytest.raises(KeyError):
        space.character_index("\ud800")


def test_equality_hash_and_copies():
    """As gymnasium's spaces: equal by value, unhashable. A pickle is small, although the alphabet has a million characters."""
    space = UnicodeText(10, seed=1)
    assert space == UnicodeText(10)
    assert space != UnicodeText(11)
    assert space != spaces.Text(10, min_length=0)
    assert spaces.Text(10, min_length=0) != space
    with pytest.raises(TypeError, match="unhashable"):
        hash(space)
    assert len(pickle.dumps(space)) < 1000
    twins = (pickle.loads(pickle.dumps(space)), copy.deepcopy(space))
    drawn = [space.sample() for _ in range(5)]
    for twin in twins:
        assert twin == space
        assert [twin.sample() for _ in range(5)] == drawn, "a copy goes on with the same draws"
    assert repr(space) == "UnicodeText(10)"
    assert len(repr(spaces.Dict({"prompt": space}))) < 100


@given(st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_flattening_there_and_back(text):
    space = UnicodeText(40)
    flat = flatten(space, text)
    assert flat in flatten_space(space)
    assert unflatten(space, flat) == text
    # What gymnasium's own function for `Text` makes of it, character by character.
    assert flat.tolist() == flatten.dispatch(spaces.Text)(space, text).tolist()
    assert unflatten.dispatch(spaces.Text)(space, flat) == text


def test_batching():
    space = UnicodeText(40)
    assert flatdim(space) == 40
    batched = batch_space(space, 3)
    assert batched == spaces.Tuple([UnicodeText(40)] * 3)
    assert len({batched.sample() for _ in range(20)}) > 1
    assert batch_differing_spaces([UnicodeText(40), UnicodeText(5)]) == spaces.Tuple([UnicodeText(40), UnicodeText(5)])
    empty = create_empty_array(space, n=2)
    assert empty == ("", "")
    assert concatenate(space, ["a", "中"], empty) == ("a", "中")
    assert list(iterate(batched, ("a", "b", "c"))) == ["a", "b", "c"]
    assert is_space_dtype_shape_equiv(space, UnicodeText(40))
    assert not is_space_dtype_shape_equiv(space, UnicodeText(41))
    assert not is_space_dtype_shape_equiv(space, spaces.Text(40))


def test_shared_memory():
    space = spaces.Dict({"prompt": UnicodeText(40)})
    memory = create_shared_memory(space, n=2, ctx=multiprocessing)
    view = read_from_shared_memory(space, memory, n=2)
    for first, second in (("a", "\U0001f600 x"), ("", "中文" * 20)):
        write_to_shared_memory(space, 0, {"prompt": first}, memory)
        write_to_shared_memory(space, 1, {"prompt": second}, memory)
        assert tuple(view["prompt"]) == (first, second)
        assert (view["prompt"][0], view["prompt"][-1], len(view["prompt"])) == (first, second, 2)
        assert copy.deepcopy(view) == {"prompt": (first, second)}


class Echo(gymnasium.Env):
    """Reads the last action back, with the env's number and the turn: a text env for vector envs."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, number):
        self.number = number
        self.observation_space = spaces.Dict({"prompt": UnicodeText(60)})
        self.action_space = UnicodeText(40)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return {"prompt": f"{self.number}: start \U0001f600"}, {}

    def step(self, action):
        self.turn += 1
        return {"prompt": f"{self.number}: {self.turn} {action}"}, float(len(action)), self.turn == 2, False, {}


@pytest.mark.parametrize("build", [SyncVectorEnv, AsyncVectorEnv, lambda envs: AsyncVectorEnv(envs, shared_memory=False)])
def test_vector_envs(build):
    """With shared memory too, which gymnasium reads once: plain `Text` observations would stay what they were at the start."""
    env = build([lambda: Echo(0), lambda: Echo(1)])
    try:
        observations, _ = env.reset(seed=0)
        assert observations == {"prompt": ("0: start \U0001f600", "1: start \U0001f600")}
        assert observations in env.observation_space
        first, *_ = env.step(("中", ""))
        second, rewards, terminations, *_ = env.step(("abc", "x"))
        assert first == {"prompt": ("0: 1 中", "1: 1 ")}
        assert second == {"prompt": ("0: 2 abc", "1: 2 x")}
        assert rewards.tolist() == [3.0, 1.0]
        assert terminations.tolist() == [True, True]
    finally:
        env.close()


def test_cleaning():
    for text in TEXTS:
        assert clean_text(text) is text
    for foreign in (np.str_("中"), np.array("中")):
        assert type(clean_text(foreign)) is str
        assert clean_text(foreign) == "中"
    assert clean_text("a\ud800b") == "a\ufffdb"
    assert clean_text("\ud83d\ude00") == "\U0001f600"
    assert clean_text("\ude00\ud83d") == "\ufffd\ufffd"
    assert is_unicode("中") and not is_unicode("\ud800")
    for other in (None, 3, b"bytes", ["a"], np.array(["a"]), np.array(3)):
        with pytest.raises(TypeError, match="this must be a text, got"):
            clean_text(other)


@given(st.lists(st.integers(0, 0x10FFFF).map(chr), max_size=20).map("".join))
def test_whatever_is_cleaned_belongs_to_the_space(text):
    cleaned = clean_text(text)
    assert cleaned in UnicodeText(20)
    assert clean_text(cleaned) == cleaned
