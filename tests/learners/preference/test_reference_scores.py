"""Guards what references said of completions: scored once, remembered by content, bounded, restored bit for bit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tabular import TabularPolicy

from learners.config import TrainingConfig
from learners.preference.reference_scores import ReferenceScores
from learners.references import References
from learners.serialization import load_tree, save_tree
from learners.teams import teams_of
from llm_envs.types import Completion


class Counting(TabularPolicy):
    """Counts the completions it scored."""

    scored = 0

    def logprobs(self, completions):
        self.scored += len(completions)
        return super().logprobs(completions)


def word(index, prompt=(0,)):
    return Completion("red", (index,), (0.0,), prompt)


@pytest.fixture
def reference():
    reference = Counting(["red", "blue", "green"])
    reference.logits.data.copy_(torch.tensor([1.0, 2.0, 3.0]))
    return reference


@pytest.fixture
def make(reference):
    """`make(agents=("a_0",), **options)`: fresh scores by the one reference."""

    def make(agents=("a_0",), **options) -> ReferenceScores:
        policies = {agent: TabularPolicy(reference.words) for agent in agents}
        return ReferenceScores(
            References(teams_of(policies, TrainingConfig()), given=dict.fromkeys(policies, reference)), **options
        )

    return make


def test_a_completion_is_scored_once_and_in_order(make, reference):
    scores = make()
    expected = reference.logits.log_softmax(0).tolist()
    assert scores.of("a_0", [word(2), word(0), word(2)]) == pytest.approx([expected[2], expected[0], expected[2]])
    assert scores.of("a_0", [word(0), word(1), word(2)]) == pytest.approx(expected)
    assert reference.scored == 3
    assert scores.of("a_0", []) == []


def test_what_counts_is_agent_prompt_and_tokens(make, reference):
    scores = make(("a_0", "b_0"))
    scores.of("a_0", [word(0), word(0, (1,)), word(0, (1, 1))])
    scores.of("b_0", [word(0)])
    assert reference.scored == 4
    scores.of("a_0", [dataclasses.replace(word(0), text="other", logprobs=(-3.0,), finish_reason="length")])
    assert reference.scored == 4


def test_those_not_asked_for_longest_are_forgotten(make, reference):
    scores = make(most=2)
    scores.of("a_0", [word(0), word(1)])
    scores.of("a_0", [word(0)])
    scores.of("a_0", [word(2)])
    assert (len(scores), reference.scored) == (2, 3)
    scores.of("a_0", [word(0), word(2)])
    assert reference.scored == 3
    scores.of("a_0", [word(1)])
    assert reference.scored == 4


def test_more_at_once_than_are_remembered(make, reference):
    scores = make(most=1)
    assert scores.of("a_0", [word(i) for i in range(3)]) == pytest.approx(reference.logits.log_softmax(0).tolist())
    assert len(scores) == 1


@pytest.mark.parametrize("asked", [0, 3])
def test_restored_from_files_bit_for_bit(make, reference, tmp_path, asked):
    scores = make()
    said = scores.of("a_0", [word(i) for i in range(asked)])
    save_tree(tmp_path, scores.state_dict())
    calls = reference.scored
    restored = make()
    restored.load_state_dict(load_tree(tmp_path))
    assert restored.of("a_0", [word(i) for i in range(asked)]) == said
    assert (len(restored), reference.scored) == (asked, calls)


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(make, reference):
    scores = make()
    said = scores.of("a_0", [word(0)])
    state = scores.state_dict()
    with pytest.raises(ValueError, match=r"expected digests \[S, 16\] and logprobs \[S\]"):
        scores.load_state_dict({**state, "logprobs": np.zeros(2)})
    with pytest.raises(ValueError, match=r"holds references of \['b_0'\]"):
        scores.load_state_dict(make(("b_0",)).state_dict())
    assert scores.of("a_0", [word(0)]) == said
    assert reference.scored == 1
