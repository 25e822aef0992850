"""Guards the values everything is made of: conversations as texts, states that cannot be changed, random streams by path."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from llm_envs import ChatPrompt, Policy, State, Turn
from llm_envs.seeding import ENVIRONMENT, ORDER, SAMPLING, stream
from llm_envs.testing import ScriptedPolicy

MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello\nthere"}]


def test_a_conversation_is_a_text_that_carries_its_messages():
    prompt = ChatPrompt(MESSAGES)
    assert prompt == "system: be brief\n\nuser: hello\nthere"
    assert prompt.messages == tuple(MESSAGES)
    MESSAGES[0]["content"] = "be long"
    assert prompt.messages[0]["content"] == "be brief", "the messages are its own"
    MESSAGES[0]["content"] = "be brief"
    for twin in (pickle.loads(pickle.dumps(prompt)), copy.deepcopy(prompt), copy.copy(prompt)):
        assert isinstance(twin, ChatPrompt)
        assert (twin, twin.messages) == (prompt, prompt.messages)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "a chat prompt needs at least one message, got none"),
        (["hello"], "chat message 0 needs the texts 'role' and 'content', got 'hello'"),
        ([MESSAGES[0], {"role": "user", "content": ["parts"]}], "chat message 1 needs the texts"),
    ],
)
def test_a_conversation_is_checked(messages, message):
    with pytest.raises(ValueError, match=message):
        ChatPrompt(messages)


def test_states_are_values():
    state = State(item={"prompt": "p"}, observations={"solo_0": "p"}, key=(1, 0, 2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.terminated = True
    assert (state.turn, state.done, state.inner) == (0, False, None)
    turn = Turn({"solo_0": "p"}, {"solo_0": "a"}, {"solo_0": 1.0})
    for end in ({"terminated": True}, {"truncated": True}):
        assert dataclasses.replace(state, history=(turn,), **end).done
    assert pickle.loads(pickle.dumps(state)) == copy.deepcopy(state) == state
    assert dataclasses.replace(state, inner=state) != state


def test_a_state_says_where_it_is():
    state = State(item={"prompt": "x" * 500}, observations={}, item_index=3)
    assert state.place == "item 3, turn 1"
    assert dataclasses.replace(state, item_index=-1).place.startswith("item {'prompt': 'xxx")
    assert len(dataclasses.replace(state, item_index=-1).place) < 250


def test_a_stream_is_named_by_its_path():
    def numbers(domain, path):
        return stream(domain, path).integers(2**62, size=4).tolist()

    paths = [
        (domain, path)
        for domain in (ENVIRONMENT, SAMPLING, ORDER)
        for path in ((), (0,), (0, 0), (0, 0, 0), (0, 1), (1, 0), (1,), (2**70,))
    ]
    drawn = [numbers(*path) for path in paths]
    assert drawn == [numbers(*path) for path in paths]
    assert len({tuple(one) for one in drawn}) == len(paths), (
        "paths of another length or order, and other domains, are other streams"
    )
    with pytest.raises(ValueError, match=r"only non-negative integers, got \(0, -1\)"):
        stream(ENVIRONMENT, (0, -1))


def test_chance_of_a_state_repeats_and_is_its_own():
    one, two = (State(item={}, observations={}, key=key) for key in ((0, 0, 1), (0, 0, 2)))
    assert isinstance(one.rng(), np.random.Generator)
    assert one.rng().integers(2**62) == one.rng().integers(2**62)
    assert one.rng().integers(2**62) != two.rng().integers(2**62)


def test_whatever_generates_is_a_policy():
    assert isinstance(ScriptedPolicy(["x"]), Policy)
    assert not isinstance("x", Policy)
