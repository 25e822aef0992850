"""Guards MADPO over several steps: accumulation windows, errors that leave everything as it was, resume, learning."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from joint import AGENTS, Counting, distinct_parameters, drawn_pairs, response, same, scaled, weights_of, word, word_pair
from tabular import TabularPolicy

from learners.preference.madpo import MADPO, MADPOConfig
from learners.sampling import SamplingConfig
from learners.serialization import load_tree, save_tree
from llm_envs.types import Completion


def config(**options: object) -> MADPOConfig:
    return MADPOConfig(**{"agent_learning_rate": 1e-2, "dpo_beta": 0.3, **options})


@pytest.fixture
def make_policies(tiny_policy):
    """`make_policies(shared=False, **tiny_policy options)`: a policy of one layer for each agent, equal at each call."""

    def make(shared=False, layers=1, **options) -> dict:
        sampling = SamplingConfig(temperature=0.8, max_new_tokens=6)
        policies = [
            tiny_policy(seed=seed, sampling=sampling, layers=layers, **options) for seed in range(1 if shared else len(AGENTS))
        ]
        return {agent: policies[0 if shared else i] for i, agent in enumerate(AGENTS)}

    return make


def test_a_window_ends_by_itself_or_by_flush(make_policies):
    policies = make_policies()
    pairs = drawn_pairs(policies)
    learner = MADPO(policies, config(gradient_accumulation_steps=2))
    before = weights_of(policies)
    assert "writer_0/grad_norm" not in learner.train_step(pairs)
    assert same(before, weights_of(policies))
    assert "writer_0/grad_norm" in learner.train_step(pairs)
    after = weights_of(policies)
    assert not same(before, after)
    learner.train_step(pairs)
    assert set(learner.flush()) == {f"{agent}/grad_norm" for agent in AGENTS}
    assert not same(after, weights_of(policies))
    assert learner.flush() == {}


class TestErrors:
    def test_a_margin_that_is_not_finite_leaves_everything_untouched(self, make_policies):
        """The second agent is spoiled in one place; the first one's gradient must not be applied either."""
        policies = make_policies()
        pairs = drawn_pairs(policies)
        learner = MADPO(policies, config(gradient_accumulation_steps=2))
        learner.train_step(pairs)
        learner.train_step(pairs)
        learner.train_step(pairs)
        before = copy.deepcopy(learner.state_dict()["teams"])
        spoiled = next(parameter for parameter in policies[AGENTS[1]].parameters() if parameter.dim() == 1)
        good = spoiled.detach().clone()
        spoiled.data[0] = math.nan
        with pytest.raises(FloatingPointError, match=r"margins of editor_0 are not finite: .*nan.*weights are unchanged"):
            learner.train_step(pairs)
        spoiled.data.copy_(good)
        for name, team in learner.state_dict()["teams"].items():
            assert same(list(team["policy"].values()), list(before[name]["policy"].values()))
            found, expected = team["optimizer"], before[name]["optimizer"]
            assert (found["updates"], found["mini_batches"], found["unfinished"]) == (1, 1, False)
            # The window's first mini-batch is still there.
            assert same(list(found["gradients"].values()), list(expected["gradients"].values()))
            assert found["gradients"]
            for moments, others in zip(found["moments"].values(), expected["moments"].values(), strict=True):
                assert same(list(moments.values()), list(others.values()))

    def test_a_gradient_that_is_not_finite_leaves_all_agents_untouched(self, make_policies):
        policies = make_policies()
        pairs = drawn_pairs(policies)
        before = weights_of(policies)
        hook = policies[AGENTS[1]].parameters()[0].register_hook(lambda gradient: gradient * math.inf)
        learner = MADPO(policies, config())
        with pytest.raises(FloatingPointError, match=r"the gradient of update 1 is (nan|inf)"):
            learner.train_step(pairs)
        assert same(before, weights_of(policies))
        assert all(parameter.grad is None for parameter in distinct_parameters(policies))
        hook.remove()
        other = make_policies()
        assert learner.train_step(pairs) == MADPO(other, config()).train_step(pairs)
        assert same(weights_of(policies), weights_of(other))

    def test_what_stops_a_batch_in_its_middle_leaves_no_gradient_behind(self):
        """The second of two micro-batches cannot be scored: there is no word 99."""
        policies = {agent: Counting(["0", "1"], most=2) for agent in AGENTS}
        broken = dataclasses.replace(word_pair((0, 0), (1, 1), prompt=1), loser=response([dict.fromkeys(AGENTS, word(99, 1))]))
        with pytest.raises(IndexError):
            MADPO(policies, config()).train_step([word_pair((0, 0), (1, 1)), broken])
        assert [words for _, words in policies[AGENTS[1]].scored] == [[0, 1]]
        assert all(policy.logits.grad is None for policy in policies.values())

    def test_pairs_that_cannot_be_trained_on_are_refused_and_the_window_stays(self, make_policies):
        policies = make_policies()
        pairs = drawn_pairs(policies)
        learner = MADPO(policies, config(gradient_accumulation_steps=2))
        learner.train_step(pairs)
        (played,) = pairs[1].loser.completions
        silent = response([{**played, "editor_0": Completion("")}])
        others = response([{"writer_0": played["writer_0"], "critic_0": played["writer_0"]}])
        for wrong, message in [
            ([], "a batch needs at least one pair, got none"),
            ([pairs[0], dataclasses.replace(pairs[1], loser=silent)], "pair 1 has no answer of editor_0 to be scored"),
            (
                [dataclasses.replace(pairs[0], winner=others)],
                "pair 0 has answers of writer_0, critic_0, expected writer_0, editor_0",
            ),
        ]:
            with pytest.raises(ValueError, match=message):
                learner.train_step(wrong)
        assert "writer_0/grad_norm" in learner.train_step(pairs)

    def test_references_without_use_and_the_policy_as_its_own_reference(self, make_policies):
        policies = make_policies()
        with pytest.raises(ValueError, match="references are given, but reference_free=True"):
            MADPO(policies, config(), references=make_policies())
        with pytest.raises(ValueError, match="reference of writer_0, editor_0 is the policy itself"):
            MADPO(policies, config(reference_free=False), references=policies)


# ---- references and resume ----


def test_references_start_as_the_policies_and_stay(make_policies):
    """Margins to a reference that equals the policy are 0, whatever the pair; after a step they are not."""
    policies = make_policies()
    pairs = drawn_pairs(policies)
    learner = MADPO(policies, config(reference_free=False))
    before = weights_of(policies)
    first, second = (learner.train_step(pairs) for _ in range(2))
    assert first["margin"] == pytest.approx(0.0, abs=1e-4)
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert second["margin"] > 0.1
    weights = learner.state_dict()["references"]["weights"]
    assert same(before, [tensor for agent in AGENTS for tensor in weights[agent].values()])


@pytest.mark.parametrize("reference_free", [True, False])
def test_resuming_in_mid_window_equals_going_on_bit_for_bit(make_policies, tmp_path, reference_free):
    options = {"reference_free": reference_free, "gradient_accumulation_steps": 2, "warmup_steps": 2}
    straight = make_policies()
    pairs = drawn_pairs(straight, 6)
    batches = [pairs[:2], pairs[2:5], pairs[3:6], pairs[::2], pairs[1::2]]
    learner = MADPO(straight, config(**options))
    for batch in batches[:3]:
        learner.train_step(batch)
    save_tree(tmp_path, learner.state_dict())
    # Other weights, so that nothing agrees by chance with what is to be restored.
    resumed = scaled(make_policies(), 0.5)
    other = MADPO(resumed, config(**options))
    other.load_state_dict(load_tree(tmp_path))
    for batch in batches[3:]:
        assert learner.train_step(batch) == other.train_step(batch)
    assert learner.flush() == other.flush() != {}
    assert same(weights_of(straight), weights_of(resumed))


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(make_policies):
    learner = MADPO(make_policies(), config(reference_free=False))
    learner.train_step(drawn_pairs(learner.policies))
    before = copy.deepcopy(learner.state_dict())
    fitting, shared = (
        MADPO(policies, config(reference_free=False)).state_dict()
        for policies in (scaled(make_policies(), 0.5), make_policies(shared=True))
    )
    wrong = [
        (shared, r"holds the teams writer_0\+editor_0"),
        (MADPO(make_policies(hidden=16), config(reference_free=False)).state_dict(), "shape"),
        (MADPO(make_policies(), config()).state_dict(), "holds no references, but this learner has reference_free=False"),
        ({**fitting, "references": {**fitting["references"], "logprobs": np.zeros(1)}}, "expected digests"),
        ({**fitting, "references": shared["references"]}, r"holds references of \['writer_0'\]"),
    ]
    for state, message in wrong:
        with pytest.raises(ValueError, match=message):
            learner.load_state_dict(state)
    after = learner.state_dict()
    for name, team in before["teams"].items():
        assert same(list(team["policy"].values()), list(after["teams"][name]["policy"].values()))
    assert np.array_equal(before["references"]["digests"], after["references"]["digests"])
    with pytest.raises(ValueError, match="holds references, but this learner has reference_free=True"):
        MADPO(make_policies(), config()).load_state_dict(before)


# ---- learning ----


def share_of_the_word(reference_free: bool, shuffled: bool, seed: int = 0) -> float:
    """Mean probability of the word 0 in two tables after 60 steps on responses of random words; more 0s win. Chance is .25."""
    policies = {agent: TabularPolicy(["0", "1", "2", "3"]) for agent in AGENTS}
    options = {"agent_learning_rate": 0.1, "weight_decay": 0.0, "dpo_beta": 1.0, "reference_free": reference_free}
    learner = MADPO(policies, config(**options))
    chance = np.random.default_rng(seed)
    for _ in range(60):
        pairs = []
        while len(pairs) < 8:
            better, worse = sorted(chance.integers(0, 4, size=(2, 2)).tolist(), key=lambda words: -words.count(0))
            if better.count(0) > worse.count(0):
                pairs.append(word_pair(worse, better) if shuffled and chance.random() < 0.5 else word_pair(better, worse))
        learner.train_step(pairs)
    return sum(float(torch.softmax(policy.logits.detach(), 0)[0]) for policy in policies.values()) / len(policies)


@pytest.mark.parametrize("reference_free", [True, False])
def test_two_tables_learn_the_word_that_wins(reference_free):
    assert share_of_the_word(reference_free, shuffled=False) > 0.9


@pytest.mark.parametrize("reference_free", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_nothing_is_learned_from_shuffled_preferences(reference_free):
    shares = [share_of_the_word(reference_free, shuffled=True, seed=seed) for seed in range(3)]
    assert sum(shares) / len(shares) < 0.5
