"""Guards chains and what critics are trained towards along them: hand-worked values, naive sums, reductions, refusal of trees."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.actor_critic.samples import Sample, normalized
from learners.chains import chains, explained_variance, lambda_targets, suffix_sums
from llm_envs.types import Completion, EnvStep

numbers = st.floats(-100, 100, allow_nan=False)
units = st.floats(0, 1, allow_nan=False)
histories = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8)


def step(number: int, state: int, next_state: int | None = None, turn: int = 1, episode: int = 0) -> EnvStep:
    return EnvStep(
        env_step=number,
        episode=episode,
        state_id=state,
        next_state_id=next_state,
        turn=turn,
        prompts={"a_0": "p"},
        completions={"a_0": Completion("c")},
        choice={"a_0": 0},
        rewards={"a_0": 0.0},
        terminated=next_state is None,
        truncated=False,
        next_prompts=None,
        global_state="",
    )


def sample(advantage: float, turn: int = 1) -> Sample:
    return Sample(turn, 1, Completion("c"), (1,), 0.0, 0.0, advantage, 0.0, 0.0, None, {}, False)


# ---- chains ----


def two_episodes() -> list[EnvStep]:
    """Three turns through states 0, 2, 3 and two through 1, 4: numbered by episode, as the collector does."""
    first = [step(1, 0, 2), step(2, 2, 3, turn=2), step(3, 3, turn=3)]
    second = [step(4, 1, 4, episode=1), step(5, 4, turn=2, episode=1)]
    return [*first, *second]


def test_turns_are_followed_and_their_order_in_the_stream_does_not_matter():
    steps = two_episodes()
    expected = [[1, 2, 3], [4, 5]]
    for seed in range(20):
        shuffled = random.Random(seed).sample(steps, len(steps))
        assert [[s.env_step for s in chain] for chain in chains(shuffled)] == expected


def test_samples_of_one_turn_are_chains_of_one_step():
    """K = 3 at state 0 and 2 at state 1, none of which goes on."""
    steps = [step(1, 0), step(2, 0), step(3, 0), step(4, 1, episode=1), step(5, 1, episode=1)]
    shuffled = [steps[i] for i in (3, 0, 4, 2, 1)]
    assert [[s.env_step for s in chain] for chain in chains(shuffled)] == [[1], [2], [3], [4], [5]]


def test_no_steps_are_no_chains():
    assert chains([]) == []


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([step(1, 0, 1), step(2, 0, 2), step(3, 1, turn=2), step(4, 1, turn=2), step(5, 2, turn=2)], "state 1 with 2 steps"),
        ([step(1, 0, 1), step(2, 0, 1), step(3, 1, turn=2)], "two env steps lead to one state"),
        ([step(1, 0, 7)], "env step 1 leads to state 7 with 0 steps"),
        ([step(2, 1, turn=2)], "nothing leads to env step 2 of turn 2"),
    ],
    ids=["tree", "merging", "later step missing", "earlier step missing"],
)
def test_trees_and_broken_chains_are_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        chains(steps)


# ---- targets ----


def test_temporal_differences_by_hand():
    """γ = .9: 1 + .9·.7 = 1.63, 2 + .9·.9 = 2.81, 3 and nothing follows; advantages less .5, .7, .9. Logged returns 1+2+3, 2+3, 3.

    Advantages have mean 1.78, deviations −.65, .33, .32, population std √(.6338/3) = .459638.
    """
    found = lambda_targets([1.0, 2.0, 3.0], [0.5, 0.7, 0.9], 0.0, 0.9)
    assert found.targets == pytest.approx((1.63, 2.81, 3.0), abs=1e-12)
    assert found.advantages == pytest.approx((1.13, 2.11, 2.10), abs=1e-12)
    assert suffix_sums([1.0, 2.0, 3.0]) == [6.0, 5.0, 3.0]
    scaled = [s.advantage for s in normalized([sample(advantage) for advantage in found.advantages])]
    assert scaled == pytest.approx([-1.41416, 0.71796, 0.69620], abs=5e-6)


def test_half_a_lambda_by_hand():
    """λ = .5: y₂ = 3; y₁ = 2 + .9(.5·.9 + .5·3) = 3.755; y₀ = 1 + .9(.5·.7 + .5·3.755) = 3.00475."""
    found = lambda_targets([1.0, 2.0, 3.0], [0.5, 0.7, 0.9], 0.0, 0.9, 0.5)
    assert found.targets == pytest.approx((3.00475, 3.755, 3.0), abs=1e-12)


@pytest.mark.parametrize(("bootstrap", "last"), [(0.0, (1.0, 0.6)), (2.0, (2.8, 2.4))], ids=["terminated, or both", "truncated"])
def test_a_truncated_end_bootstraps_and_a_terminated_does_not(bootstrap, last):
    """γ = .9, rewards 1, 1, values .5, .4, behind the end 2.0: turn 0 has 1 + .9·.4 = 1.36 either way, the last 1 or 1 + .9·2."""
    found = lambda_targets([1.0, 1.0], [0.5, 0.4], bootstrap, 0.9)
    assert (found.targets[0], found.advantages[0]) == pytest.approx((1.36, 0.86))
    assert (found.targets[1], found.advantages[1]) == pytest.approx(last)


@given(histories, numbers, units)
def test_lambda_0_is_td_0(history, bootstrap, discount):
    rewards, values = zip(*history, strict=True)
    found = lambda_targets(rewards, values, bootstrap, discount, 0.0)
    following = [*values[1:], bootstrap]
    assert found.targets == pytest.approx([r + discount * v for r, v in zip(rewards, following, strict=True)])


@given(histories)
def test_lambda_1_undiscounted_is_the_monte_carlo_return(history):
    rewards, values = zip(*history, strict=True)
    found = lambda_targets(rewards, values, 0.0, 1.0, 1.0)
    assert found.targets == pytest.approx(suffix_sums(rewards), abs=1e-9)


@given(histories, numbers, units, units)
def test_equals_the_mixture_of_n_step_returns(history, bootstrap, discount, gae_lambda):
    """The forward view: (1 − λ) Σ_n λ^{n−1} G^(n) over the returns of n steps that stay inside, and λ^{N−1} of the longest."""
    rewards, values = zip(*history, strict=True)
    beyond = [*values, bootstrap]
    end = len(rewards)
    for turn, target in enumerate(lambda_targets(rewards, values, bootstrap, discount, gae_lambda).targets):
        mixture = 0.0
        for n in range(1, end - turn + 1):
            n_step = sum(discount**i * rewards[turn + i] for i in range(n)) + discount**n * beyond[turn + n]
            mixture += gae_lambda ** (n - 1) * (1.0 if turn + n == end else 1 - gae_lambda) * n_step
        assert target == pytest.approx(mixture, abs=1e-8)


@given(histories, numbers, units, units)
def test_advantages_are_discounted_sums_of_temporal_differences(history, bootstrap, discount, gae_lambda):
    """A_t = Σ_l (γλ)^l δ_{t+l}: generalised advantage estimation."""
    rewards, values = zip(*history, strict=True)
    following = [*values[1:], bootstrap]
    deltas = [r + discount * v_next - v for r, v, v_next in zip(rewards, values, following, strict=True)]
    for turn, advantage in enumerate(lambda_targets(rewards, values, bootstrap, discount, gae_lambda).advantages):
        summed = sum((discount * gae_lambda) ** lag * delta for lag, delta in enumerate(deltas[turn:]))
        assert advantage == pytest.approx(summed, abs=1e-8)


def test_values_for_other_rewards_are_refused():
    with pytest.raises(ValueError, match="2 rewards and 1 values"):
        lambda_targets([1.0, 2.0], [0.5], 0.0)
    with pytest.raises(ValueError, match="0 rewards"):
        lambda_targets([], [], 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_raises(bad):
    for rewards, values, bootstrap in [([bad], [0.0], 0.0), ([0.0], [bad], 0.0), ([0.0], [0.0], bad)]:
        with pytest.raises(FloatingPointError, match="should be finite"):
            lambda_targets(rewards, values, bootstrap)


# ---- normalisation and statistics ----


def test_advantages_are_normalised_within_their_turn():
    """Turn 1: 1, 3 → −1, 1. Turn 2: 10, 10 → 0, 0. Turn 3: a single one keeps its value."""
    samples = [sample(1.0, 1), sample(10.0, 2), sample(3.0, 1), sample(10.0, 2), sample(7.0, 3)]
    assert [s.advantage for s in normalized(samples)] == [-1.0, 0.0, 1.0, 0.0, 7.0]


def test_a_spread_below_the_floor_is_not_blown_up():
    """Deviations of 1e-9 around 5 are divided by 1e-6, not by themselves."""
    found = [s.advantage for s in normalized([sample(5.0 - 1e-9), sample(5.0 + 1e-9)])]
    assert found == pytest.approx([-1e-3, 1e-3], rel=1e-5)


def test_explained_variance_by_hand():
    """Targets 1, 2, 3 (variance 2/3); values 1, 2, 2 leave errors 0, 0, 1 (variance 2/9): 1 − 1/3. An offset is not seen."""
    targets = [1.0, 2.0, 3.0]
    assert explained_variance([1.0, 2.0, 2.0], targets) == pytest.approx(2 / 3)
    assert explained_variance(targets, targets) == 1.0
    assert explained_variance([11.0, 12.0, 13.0], targets) == pytest.approx(1.0)
    assert explained_variance([5.0, 5.0, 5.0], targets) == pytest.approx(0.0)
    assert explained_variance([3.0, 2.0, 1.0], targets) == pytest.approx(-3.0)
    assert math.isnan(explained_variance([1.0, 2.0], [4.0, 4.0]))
