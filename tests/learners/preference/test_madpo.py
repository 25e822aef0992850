"""Guards a step of MADPO: against DPO by hand and a loop over tokens, golden values, equivalences, cost, options."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from joint import (
    AGENTS,
    Counting,
    assert_close,
    drawn_pairs,
    gradients_of,
    pair_of,
    same,
    table,
    weights_of,
    word,
    word_pair,
)
from tabular import TabularPolicy

from learners.preference.madpo import MADPO, MADPOConfig
from learners.preference.pairs import JointResponse, Pair
from learners.sampling import SamplingConfig
from llm_envs.types import Completion

TEMPERATURE = 0.8
WINDOW = 99
"""Mini-batches an optimiser step where gradients are to stay on the parameters."""


def config(**options: object) -> MADPOConfig:
    return MADPOConfig(**{"agent_learning_rate": 1e-2, "dpo_beta": 0.3, **options})


@pytest.fixture
def make_policies(tiny_policy):
    """`make_policies(agents=AGENTS, shared=False, double=False, first=0, **tiny_policy options)`: one layer, equal at each call."""

    def make(agents=AGENTS, shared=False, double=False, arch="qwen2", first=0, layers=1, **options) -> dict:
        sampling = SamplingConfig(temperature=TEMPERATURE, max_new_tokens=6)
        seeds = range(first, first + (1 if shared else len(agents)))
        policies = [tiny_policy(arch, seed, sampling=sampling, layers=layers, **options) for seed in seeds]
        if double:
            for policy in policies:
                policy.model.double()
        return {agent: policies[0 if shared else i] for i, agent in enumerate(agents)}

    return make


def after_one_step(policies: dict, pairs: Sequence[Pair], references=None, **options) -> tuple[dict, list]:
    """Metrics and gradients: the optimiser waits in an accumulation window, so they stay on the parameters."""
    learner = MADPO(policies, config(gradient_accumulation_steps=WINDOW, **options), references=references)
    return learner.train_step(pairs), gradients_of(policies)


# ---- one step by hand ----


def naive_logprob(policy, completion: Completion) -> torch.Tensor:
    """Sum over all tokens of the completion, from one plain forward and a loop."""
    logits = policy.model(torch.tensor([completion.prompt_ids + completion.token_ids])).logits[0]
    total = torch.zeros((), dtype=logits.dtype)
    for position, token in enumerate(completion.token_ids):
        total = total + torch.log_softmax(logits[len(completion.prompt_ids) + position - 1] / TEMPERATURE, dim=-1)[token]
    return total


def naive_side(policy, agent: str, joint: JointResponse, normalize: bool) -> torch.Tensor:
    written = [turn[agent] for turn in joint.completions]
    total = sum((naive_logprob(policy, completion) for completion in written), torch.zeros(()))
    return total / sum(len(completion.token_ids) for completion in written) if normalize else total


def naive_margin(policies, pair: Pair, normalize: bool) -> torch.Tensor:
    return sum(
        (naive_side(p, a, pair.winner, normalize) - naive_side(p, a, pair.loser, normalize) for a, p in policies.items()),
        torch.zeros(()),
    )


def naive_step(policies, pairs, references, smoothing: float, normalize: bool) -> tuple[float, list[torch.Tensor]]:
    """The mean of −(1−ε) log σ(βΔ) − ε log σ(−βΔ), Δ = Σ over agents, turns and tokens, one graph over everything."""
    losses = []
    for pair in pairs:
        margin = naive_margin(policies, pair, normalize)
        if references is not None:
            margin = margin - naive_margin(references, pair, normalize).detach()
        probability = torch.sigmoid(0.3 * margin)
        losses.append(-(1 - smoothing) * probability.log() - smoothing * (1 - probability).log())
    loss = torch.stack(losses).mean()
    loss.backward()
    return loss.item(), gradients_of(policies)


TEAMS = {1: ("solo_0",), 2: AGENTS, 3: ("a_0", "b_0", "c_0")}
# Agents, turns, length normalisation and smoothing, without references: each two values of two of them together.
EACH_PAIR = {(1, 1, 0, 1), (1, 2, 1, 0), (2, 1, 1, 1), (2, 2, 0, 0), (3, 1, 0, 0), (3, 2, 1, 1)}
CASES = [
    pytest.param(*case, marks=[] if case in EACH_PAIR else pytest.mark.slow)
    for case in itertools.product(TEAMS, (1, 2), (False, True), (False, True))
]


@pytest.mark.parametrize(("agents", "turns", "normalized", "reference_free"), CASES)
def test_a_step_equals_dpo_written_by_hand_in_float64(make_policies, agents, turns, normalized, reference_free):
    """With one agent this is DPO, without references or with them."""
    options = {"length_normalization": True, "label_smoothing": 0.2} if normalized else {}
    # GPT-2, whose norms and positions stay in double precision all the way.
    policies = make_policies(TEAMS[agents], double=True, arch="gpt2")
    references = None if reference_free else make_policies(TEAMS[agents], double=True, arch="gpt2", first=10)
    pairs = drawn_pairs(policies, turns=turns)
    loss, expected = naive_step(policies, pairs, references, options.get("label_smoothing", 0.0), normalized)
    found, gradients = after_one_step(policies, pairs, references, reference_free=reference_free, **options)
    assert found["loss"] == pytest.approx(loss, abs=1e-9)
    assert_close(gradients, expected, rtol=1e-9, atol=1e-10)


def test_golden_values_of_two_agents():
    """Logits are log-probabilities up to a constant that margins lose: δ = (2, −1), β = .1, loss .644397.

    ∂L/∂δ = −.0475021 for both, and the gradient of δ in an agent's logits is +1 at the winner's word, −1 at the loser's.
    """
    policies = {AGENTS[0]: table(2, 0, 5), AGENTS[1]: table(0, 1, 0)}
    found, gradients = after_one_step(policies, [word_pair((0, 0), (1, 1))], dpo_beta=0.1)
    assert found["loss"] == pytest.approx(0.644397, abs=1e-6)
    assert (found["writer_0/margin"], found["editor_0/margin"], found["margin"]) == pytest.approx((2, -1, 1))
    for gradient in gradients:
        assert gradient.tolist() == pytest.approx([-0.0475021, 0.0475021, 0.0], abs=1e-7)


@pytest.mark.parametrize(("winner", "loss", "gradient"), [(0, 0.474077, -0.0377541), (1, 0.974077, -0.0622459)])
def test_a_joint_margin_of_five_and_its_swap(winner, loss, gradient):
    """δ = (1, 4), or both the other way round."""
    policies = {AGENTS[0]: table(1, 0), AGENTS[1]: table(4, 0)}
    found, gradients = after_one_step(policies, [word_pair((winner, winner), (1 - winner, 1 - winner))], dpo_beta=0.1)
    assert found["loss"] == pytest.approx(loss, abs=1e-6)
    assert found["accuracy"] == 1 - winner
    assert [g[winner].item() for g in gradients] == pytest.approx([gradient] * 2, abs=1e-7)


def test_an_identical_pair_costs_log_two_and_moves_nothing():
    policies = {AGENTS[0]: table(1, 0), AGENTS[1]: table(4, 0)}
    found, gradients = after_one_step(policies, [word_pair((0, 1), (0, 1))])
    assert found["loss"] == pytest.approx(math.log(2))
    assert (found["margin"], found["accuracy"]) == (0.0, 0.0)
    assert not any(gradient.any() for gradient in gradients)


def test_a_saturated_margin_has_a_finite_loss_and_gradient():
    """βΔ = −104: loss 104, ∂L/∂δ = −β."""
    policies = {AGENTS[0]: table(0, 1000), AGENTS[1]: table(0, 40)}
    found, gradients = after_one_step(policies, [word_pair((0, 0), (1, 1))], dpo_beta=0.1)
    assert found["loss"] == pytest.approx(104)
    assert [gradient.tolist() for gradient in gradients] == [pytest.approx([-0.1, 0.1])] * 2


def test_references_by_hand():
    """δ = (2, −1), of the references (.5, 1): Δ = 1.5 − 2 = −.5. Log-probabilities are logged as the policy has them."""
    policies = {AGENTS[0]: table(2, 0), AGENTS[1]: table(0, 1)}
    references = {AGENTS[0]: table(0.5, 0), AGENTS[1]: table(1, 0)}
    found, _ = after_one_step(policies, [word_pair((0, 0), (1, 1))], references, dpo_beta=1.0, reference_free=False)
    assert (found["writer_0/margin"], found["editor_0/margin"], found["margin"]) == pytest.approx((1.5, -2, -0.5))
    assert found["loss"] == pytest.approx(math.log(1 + math.exp(0.5)))
    assert found["writer_0/chosen_logprob"] == pytest.approx(2 - math.log(1 + math.e**2))
    assert found["writer_0/rejected_logprob"] == pytest.approx(-math.log(1 + math.e**2))


def test_label_smoothing_by_hand():
    policies = {AGENTS[0]: table(1, 0), AGENTS[1]: table(4, 0)}
    found, gradients = after_one_step(policies, [word_pair((0, 0), (1, 1))], dpo_beta=0.1, label_smoothing=0.1)
    assert found["loss"] == pytest.approx(0.524077, abs=1e-6)
    assert [gradient.tolist() for gradient in gradients] == [pytest.approx([-0.0277541, 0.0277541], abs=1e-7)] * 2


class TestWholeCompletions:
    """Everything that was drawn is scored, over all turns, and nothing else."""

    @staticmethod
    def written(policy, *ids: int) -> dict[str, Completion]:
        (prompt,) = policy.encode(["say"])
        return {"solo_0": Completion("", ids, (0.0,) * len(ids), prompt)}

    def test_the_end_token_is_scored(self, make_policies):
        """The winner stopped where the loser was cut: the margin is log π(end | text), and training raises it."""
        policies = make_policies(("solo_0",))
        policy = policies["solo_0"]
        (end,) = policy.end_token_ids
        winner, loser = self.written(policy, 97, 98, end), self.written(policy, 97, 98)
        expected = (naive_logprob(policy, winner["solo_0"]) - naive_logprob(policy, loser["solo_0"])).item()
        learner = MADPO(policies, config())
        margins = [learner.train_step([pair_of([winner], [loser])])["margin"] for _ in range(3)]
        assert expected < -0.1
        assert margins[0] == pytest.approx(expected, abs=1e-4)
        assert margins[0] < margins[1] < margins[2]

    @pytest.mark.parametrize("length_normalization", [False, True])
    def test_an_answer_of_the_end_token_alone_and_one_without_tokens(self, make_policies, length_normalization):
        policies = make_policies(("solo_0",))
        policy = policies["solo_0"]
        (end,) = policy.end_token_ids
        winner, loser = self.written(policy, end), self.written(policy)
        options = {"length_normalization": length_normalization}
        found, gradients = after_one_step(policies, [pair_of([winner], [loser])], **options)
        assert found["margin"] == pytest.approx(naive_logprob(policy, winner["solo_0"]).item(), abs=1e-4)
        assert found["solo_0/rejected_logprob"] == 0.0
        assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
        empty, _ = after_one_step(policies, [pair_of([loser], [loser])], **options)
        assert empty["loss"] == pytest.approx(math.log(2))

    def test_length_normalisation_divides_by_the_tokens_of_all_turns(self, make_policies):
        policies = make_policies(("solo_0",))
        policy = policies["solo_0"]
        winner = [self.written(policy, 97, 98, 99), self.written(policy, 97)]
        loser = [self.written(policy, 98), self.written(policy, 99, 97)]
        found, _ = after_one_step(policies, [pair_of(winner, loser)], length_normalization=True)
        sides = [sum(naive_logprob(policy, turn["solo_0"]).item() for turn in side) for side in (winner, loser)]
        assert found["margin"] == pytest.approx(sides[0] / 4 - sides[1] / 3, abs=1e-4)
        # What is logged of the sides are whole log-probabilities.
        assert found["solo_0/chosen_logprob"] == pytest.approx(sides[0], abs=1e-4)

    def test_responses_of_different_numbers_of_turns(self):
        """Each turn is log ½: margins of −2 log 2 and +log 2."""
        turn = [{"solo_0": word(0)}]
        found, _ = after_one_step({"solo_0": table(0, 0)}, [pair_of(turn * 3, turn), pair_of(turn, turn * 2)])
        assert found["solo_0/margin"] == pytest.approx(-0.5 * math.log(2))
        assert found["accuracy"] == 0.5


# ---- equivalences ----


@pytest.mark.parametrize("options", [{}, {"reference_free": False}, {"length_normalization": True}])
def test_micro_batches_and_batches_of_one_give_the_gradient_of_the_whole(make_policies, options):
    """Policies that score one completion at a time, and a window of batches of one pair, whose mean is the batch's."""
    whole, split, single = make_policies(), make_policies(policy={"micro_batch_tokens": 1}), make_policies()
    pairs = drawn_pairs(whole, 3, turns=2)
    references = None if options.get("reference_free", True) else make_policies(first=10)
    metrics, expected = after_one_step(whole, pairs, references, **options)
    found, gradients = after_one_step(split, pairs, references, **options)
    assert found == pytest.approx(metrics, rel=1e-4, abs=1e-4)
    assert_close(gradients, expected, rtol=1e-3, atol=1e-5)
    learner = MADPO(single, config(gradient_accumulation_steps=WINDOW, **options), references=references)
    rows = [learner.train_step([pair]) for pair in pairs]
    assert sum(row["loss"] for row in rows) / 3 == pytest.approx(metrics["loss"], abs=1e-5)
    assert_close([gradient / 3 for gradient in gradients_of(single)], expected, rtol=1e-3, atol=1e-5)


def test_padding_changes_nothing(make_policies):
    """A pair alone, and beside one whose prompt and completions are longer: half the gradient each."""
    policies = make_policies()
    pairs = drawn_pairs(policies, 2)
    (first, some), (second, others) = (after_one_step(policies, [pair]) for pair in pairs)
    found, gradients = after_one_step(policies, pairs)
    assert found["loss"] == pytest.approx((first["loss"] + second["loss"]) / 2, abs=1e-5)
    assert_close(gradients, [(a + b) / 2 for a, b in zip(some, others, strict=True)], rtol=1e-3, atol=1e-5)


def test_order_of_agents_and_pairs_changes_nothing(make_policies):
    policies = make_policies()
    pairs = drawn_pairs(policies)
    metrics, gradients = after_one_step(policies, pairs)
    turned, others = after_one_step(dict(reversed(policies.items())), pairs[::-1])
    count = len(gradients) // 2
    assert turned == pytest.approx(metrics, rel=1e-5, abs=1e-5)
    assert_close(others[count:] + others[:count], gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reference_free", [True, False])
def test_agents_that_share_a_policy_get_the_sum_of_what_equal_copies_get(make_policies, reference_free):
    shared = make_policies(shared=True)
    copies = {agent: make_policies(shared=True)[agent] for agent in AGENTS}
    references = None if reference_free else make_policies(first=10)
    pairs = drawn_pairs(shared, turns=2)
    metrics, summed = after_one_step(shared, pairs, references, reference_free=reference_free)
    apart, both = after_one_step(copies, pairs, references, reference_free=reference_free)
    for name in ("loss", "margin", "editor_0/margin"):
        assert metrics[name] == pytest.approx(apart[name], rel=1e-5, abs=1e-5)
    for side in ("chosen_logprob", "rejected_logprob"):
        assert metrics[f"writer_0+editor_0/{side}"] == pytest.approx(sum(apart[f"{agent}/{side}"] for agent in AGENTS), rel=1e-5)
    count = len(summed)
    assert_close(summed, [a + b for a, b in zip(both[:count], both[count:], strict=True)], rtol=1e-3, atol=1e-5)


def test_threads_train_to_the_same_weights(make_policies):
    alone, threaded = make_policies(), make_policies()
    pairs = drawn_pairs(alone)
    straight = MADPO(alone, config(reference_free=False))
    with ThreadPoolExecutor(2) as executor:
        other = MADPO(threaded, config(reference_free=False), executor=executor)
        for _ in range(2):
            assert straight.train_step(pairs) == other.train_step(pairs)
    assert same(weights_of(alone), weights_of(threaded))


def test_all_agents_see_the_margins_before_the_step():
    """Two tables alike, and so are their words: had one been stepped before the other's margin was taken, they would part."""
    policies = {agent: table(0.3, 0, 0) for agent in AGENTS}
    learner = MADPO(policies, config(agent_learning_rate=0.5))
    for _ in range(3):
        learner.train_step([word_pair((0, 0), (1, 1)), word_pair((2, 2), (1, 1))])
    assert torch.equal(policies[AGENTS[0]].logits, policies[AGENTS[1]].logits)
    assert not torch.equal(policies[AGENTS[0]].logits, table(0.3, 0, 0).logits)


# ---- cost ----

EIGHT = [str(index) for index in range(8)]
FOUR_PAIRS = [word_pair((2 * i, 2 * i), (2 * i + 1, 2 * i + 1), prompt=i) for i in range(4)]


@pytest.mark.parametrize(
    ("most", "calls"),
    [
        (1000, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (4, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (3, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (1, [[index] for index in range(8)]),
    ],
)
def test_each_side_is_scored_once_in_micro_batches_of_whole_pairs(most, calls):
    """The other agent could take more, but its graphs are of the same pairs."""
    policies = {AGENTS[0]: Counting(EIGHT, most), AGENTS[1]: Counting(EIGHT)}
    after_one_step(policies, FOUR_PAIRS)
    assert policies[AGENTS[0]].scored == [(True, words) for words in calls]
    assert [words for _, words in policies[AGENTS[1]].scored] == (calls if most > 1 else [[0, 1], [2, 3], [4, 5], [6, 7]])


def test_a_response_that_pairs_have_in_common_is_scored_once():
    """One winner against three losers; the items alternate in the batch and are side by side in the micro-batches."""
    policies = {AGENTS[0]: Counting(EIGHT, 4), AGENTS[1]: Counting(EIGHT)}
    pairs = [word_pair((7 * item, 0), (loser, 1), prompt=item) for loser in (1, 2, 3) for item in (0, 1)]
    found, gradients = after_one_step(policies, pairs)
    assert policies[AGENTS[0]].scored == [(True, [0, 1, 2, 3]), (True, [7, 1, 2, 3])]
    assert [words for _, words in policies[AGENTS[1]].scored] == [[0, 1], [0, 1]]
    assert found["loss"] == pytest.approx(math.log(2))
    # Six pairs of margin 0, ∂L/∂δ = −.15 over 6 each: the second agent wins with word 0 and loses with word 1 each time.
    assert gradients[1].tolist() == pytest.approx([-0.15, 0.15, *[0.0] * 6], abs=1e-6)
    assert gradients[0].tolist() == pytest.approx([-0.075, 0.05, 0.05, 0.05, 0, 0, 0, -0.075], abs=1e-6)


def test_references_score_each_completion_once_in_a_run_and_without_gradient():
    references = {agent: Counting(EIGHT) for agent in AGENTS}
    learner = MADPO({agent: TabularPolicy(EIGHT) for agent in AGENTS}, config(reference_free=False), references=references)
    for _ in range(3):
        learner.train_step(FOUR_PAIRS[:2])
        learner.train_step(FOUR_PAIRS[2:])
    for reference in references.values():
        assert reference.scored == [(False, [0, 1, 2, 3]), (False, [4, 5, 6, 7])]


def test_equal_words_after_different_prompts_are_scored_apart(make_policies):
    policies = make_policies(("solo_0",))
    policy = policies["solo_0"]
    prompts = policy.encode(["say", "tell me"])
    pairs = [pair_of(*([{"solo_0": Completion("", ids, (0.0,), prompt)}] for ids in ((97, 98), (99,)))) for prompt in prompts]
    found, _ = after_one_step(policies, pairs)
    margins = [naive_margin(policies, pair, normalize=False).item() for pair in pairs]
    assert abs(margins[0] - margins[1]) > 0.1
    assert found["margin"] == pytest.approx(sum(margins) / 2, abs=1e-4)


@pytest.mark.parametrize("most", [1000, 2])
def test_references_score_a_batch_or_a_training_set_at_once(most):
    """Whatever the micro-batches of the policies, whose graphs take memory."""
    for before in ([], FOUR_PAIRS):
        references = {agent: Counting(EIGHT) for agent in AGENTS}
        policies = {agent: Counting(EIGHT, most) for agent in AGENTS}
        learner = MADPO(policies, config(reference_free=False), references=references)
        learner.score_references(before)
        learner.train_step(FOUR_PAIRS[:2])
        for reference in references.values():
            assert reference.scored == [(False, list(range(8 if before else 4)))]


# ---- options and metrics ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dpo_beta": 0}, "dpo_beta must be a number above 0, got 0"),
        ({"dpo_beta": float("inf")}, "dpo_beta must be a number above 0, got inf"),
        ({"reference_free": "no"}, "reference_free must be one of True, False, got 'no'"),
        ({"length_normalization": 2}, "length_normalization must be one of True, False, got 2"),
        ({"label_smoothing": -0.1}, "label_smoothing must be a number at least 0, got -0.1"),
        ({"label_smoothing": 0.5}, "label_smoothing must be below 0.5, .* got 0.5"),
        ({"reference_devices": "cpu"}, "reference_devices='cpu' needs reference_free=False"),
        ({"train_batch_size": 0}, "train_batch_size must be a whole number of at least 1, got 0"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_and_value(options, message):
    with pytest.raises(ValueError, match=message):
        config(**options)


def test_every_option_of_the_loss_changes_the_gradient(make_policies):
    policies = make_policies()
    pairs = drawn_pairs(policies)
    variants = [{}, {"dpo_beta": 0.6}, {"length_normalization": True}, {"label_smoothing": 0.2}, {"reference_free": False}]
    gradients = [after_one_step(policies, pairs, **options)[1][0] for options in variants]
    for index, gradient in enumerate(gradients):
        assert not any(torch.allclose(gradient, other, rtol=1e-2, atol=1e-6) for other in gradients[:index])


def test_metrics_of_a_step(make_policies):
    policies = make_policies()
    pairs = drawn_pairs(policies)
    found = MADPO(policies, config()).train_step(pairs)
    by_agent = ("margin", "chosen_logprob", "rejected_logprob", "grad_norm")
    assert set(found) == {"loss", "margin", "accuracy"} | {f"{agent}/{name}" for agent in AGENTS for name in by_agent}
    assert found["margin"] == pytest.approx(sum(found[f"{agent}/margin"] for agent in AGENTS), abs=1e-5)
    for agent in AGENTS:
        # Nothing has been trained yet: what is scored is what was said when it was sampled.
        for name, side in (("chosen", "winner"), ("rejected", "loser")):
            sampled = [sum(getattr(pair, side).completions[0][agent].logprobs) for pair in pairs]
            assert found[f"{agent}/{name}_logprob"] == pytest.approx(sum(sampled) / 3, abs=1e-4)
        assert found[f"{agent}/grad_norm"] > 0
