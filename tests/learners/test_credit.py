"""Guards the credit maths: tree returns, credit of completions, KL shaping, advantages; hand-worked values and naive loops."""

import dataclasses
import itertools
import math
import random
import statistics
import struct
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.credit import (
    ADVANTAGE_MODES,
    advantages,
    completion_returns,
    completions_of,
    groups,
    joint_action_counts,
    rewards_of,
    spread,
    step_means,
    subtract_reference_kl,
    term_means,
    tree_returns,
    zero_spread,
)
from llm_envs.types import Completion, EnvStep

finite = st.floats(-1e3, 1e3, allow_nan=False)


def step(number, state, rewards, *, turn=1, next_state=None, choice=None, episode=0, texts=None):
    """An `EnvStep` of the agents named in `rewards` (a number means one agent, `a_0`)."""
    rewards = rewards if isinstance(rewards, dict) else {"a_0": rewards}
    choice = choice or dict.fromkeys(rewards, 0)
    texts = texts or {agent: f"{agent} state {state} sample {choice[agent]}" for agent in rewards}
    return EnvStep(
        env_step=number,
        episode=episode,
        state_id=state,
        next_state_id=next_state,
        turn=turn,
        prompts=dict.fromkeys(rewards, "p"),
        completions={agent: Completion(texts[agent]) for agent in rewards},
        choice=choice,
        rewards=rewards,
        terminated=next_state is None,
        truncated=False,
        next_prompts=None if next_state is None else dict.fromkeys(rewards, "p"),
        global_state="",
    )


def aligned(state, rewards, *, first, turn, children=None):
    """Siblings of one agent: sample k earns `rewards[k]` and leads to `children[k]`."""
    children = children or [None] * len(rewards)
    return [
        step(first + k, state, reward, turn=turn, next_state=child, choice={"a_0": k})
        for k, (reward, child) in enumerate(zip(rewards, children, strict=True))
    ]


def random_tree(rng, *, agents=2, samples=2, turns=3, cross=False, stop=0.2):
    """A ragged tree of random rewards, different for each agent, its steps shuffled."""
    numbers, states = itertools.count(1), itertools.count(100)
    names = [f"a_{i}" for i in range(agents)]
    steps = []
    frontier = [(next(states), 1)]
    while frontier:
        state, turn = frontier.pop()
        tuples = itertools.product(range(samples), repeat=agents) if cross else ((k,) * agents for k in range(samples))
        for indices in tuples:
            grows = turn < turns and rng.random() > stop
            child = next(states) if grows else None
            rewards = {name: rng.uniform(-2, 2) for name in names}
            choice = dict(zip(names, indices, strict=True))
            steps.append(step(next(numbers), state, rewards, turn=turn, next_state=child, choice=choice))
            if grows:
                frontier.append((child, turn + 1))
    rng.shuffle(steps)
    return steps


def naive_return(steps, one, agent, discount):
    """The definition, by recursion."""
    following = [s for s in steps if s.state_id == one.next_state_id]
    total = one.rewards[agent]
    if following:
        total += discount * sum(naive_return(steps, s, agent, discount) for s in following) / len(following)
    return total


class TestGroups:
    def test_siblings_come_together_in_order_of_first_appearance(self):
        steps = [step(4, 7, 0.0), step(1, 3, 0.0), step(9, 7, 1.0, choice={"a_0": 1}), step(2, 3, 2.0, choice={"a_0": 1})]
        found = groups(steps)
        assert [(g.state_id, [s.env_step for s in g.steps], g.env_step) for g in found] == [(7, [4, 9], 9), (3, [1, 2], 2)]

    def test_place_is_kept(self):
        (group,) = groups([step(1, 5, 0.0, turn=3, episode=8)])
        assert (group.turn, group.episode) == (3, 8)

    @pytest.mark.parametrize("other", [{"turn": 2}, {"episode": 1}])
    def test_siblings_of_different_places_are_refused(self, other):
        with pytest.raises(ValueError, match="state 5 appears at several"):
            groups([step(1, 5, 0.0), step(2, 5, 0.0, **other)])

    def test_empty(self):
        assert groups([]) == []
        assert tree_returns([]) == {}


class TestTreeReturns:
    def two_turns(self):
        """Root rewards [1, 2]; its children earn [10, 20] and [0, 4]."""
        return [
            *aligned(0, [1.0, 2.0], first=1, turn=1, children=[11, 12]),
            *aligned(11, [10.0, 20.0], first=3, turn=2),
            *aligned(12, [0.0, 4.0], first=5, turn=2),
        ]

    def test_two_turn_tree(self):
        """Undiscounted: 1 + mean(10, 20) = 16 and 2 + mean(0, 4) = 4."""
        returns = tree_returns(self.two_turns())
        assert [returns[n]["a_0"] for n in range(1, 7)] == [16.0, 4.0, 10.0, 20.0, 0.0, 4.0]

    def test_discount_follows_edges(self):
        """γ = .9. Below the root's one step (reward 1) two children: 2 → leaves 1, 3; 4 → leaves 5, 7.

        2 + .9·2 = 3.8; 4 + .9·6 = 9.4; root 1 + .9·6.6 = 6.94. A flat backward pass in level order would give 15.409837.
        """
        steps = [
            step(1, 0, 1.0, turn=1, next_state=1),
            *aligned(1, [2.0, 4.0], first=2, turn=2, children=[2, 3]),
            *aligned(2, [1.0, 3.0], first=4, turn=3),
            *aligned(3, [5.0, 7.0], first=6, turn=3),
        ]
        returns = tree_returns(steps, 0.9)
        assert [returns[n]["a_0"] for n in (1, 2, 3)] == pytest.approx([6.94, 3.8, 9.4], abs=1e-12)

        by_state = {g.state_id: advantages(completion_returns(g, returns, "a_0"), "mean", False) for g in groups(steps)}
        assert by_state[1] == pytest.approx([-2.8, 2.8], abs=1e-12)
        assert by_state[2] == [-1.0, 1.0]  # each within its own parent, not [-3, -1, 1, 3] over the level
        assert by_state[3] == [-1.0, 1.0]

    def test_siblings_of_other_parents_do_not_leak(self):
        before = tree_returns(self.two_turns())
        raised = [
            *aligned(0, [1.0, 2.0], first=1, turn=1, children=[11, 12]),
            *aligned(11, [10.0, 20.0], first=3, turn=2),
            *aligned(12, [0.0, 104.0], first=5, turn=2),
        ]
        after = tree_returns(raised)
        assert {n for n in before if before[n] != after[n]} == {2, 6}
        assert after[2]["a_0"] == 54.0

    def test_one_child_a_node_is_the_discounted_sum(self):
        """Rewards [0, 0, 1], γ = .9 → [.81, .9, 1]."""
        chain = [step(t, t, r, turn=t, next_state=t + 1 if t < 3 else None) for t, r in ((1, 0.0), (2, 0.0), (3, 1.0))]
        returns = tree_returns(chain, 0.9)
        assert [returns[t]["a_0"] for t in (1, 2, 3)] == pytest.approx([0.81, 0.9, 1.0], abs=1e-12)

    @pytest.mark.parametrize("cross", [False, True])
    @pytest.mark.parametrize("seed", range(5))
    def test_equals_the_recursive_definition_for_each_agent(self, seed, cross):
        steps = random_tree(random.Random(seed), cross=cross)
        for discount in (0.0, 0.7, 1.0):
            returns = tree_returns(steps, discount)
            assert returns.keys() == {s.env_step for s in steps}
            for one in steps:
                for agent in one.rewards:
                    assert returns[one.env_step][agent] == pytest.approx(naive_return(steps, one, agent, discount), abs=1e-12)

    def test_order_of_the_stream_changes_nothing(self):
        steps = random_tree(random.Random(1), samples=3)
        reference = tree_returns(steps, 0.9)
        for seed in range(3):
            returns = tree_returns(random.Random(seed).sample(steps, len(steps)), 0.9)
            assert all(returns[n] == pytest.approx(of_step, abs=1e-14) for n, of_step in reference.items())

    def test_agents_with_different_rewards_have_different_returns(self):
        steps = [
            step(1, 0, {"a_0": 1.0, "a_1": -1.0}, next_state=1),
            step(2, 1, {"a_0": 3.0, "a_1": 5.0}, turn=2),
        ]
        assert tree_returns(steps, 0.5)[1] == {"a_0": 2.5, "a_1": 1.5}

    def test_a_chain_far_deeper_than_the_call_stack(self):
        depth = 5 * sys.getrecursionlimit()
        chain = [step(t, t, 1.0, turn=t, next_state=t + 1 if t < depth else None) for t in range(1, depth + 1)]
        assert tree_returns(chain)[1]["a_0"] == depth

    def test_a_reached_state_without_steps_is_an_error(self):
        with pytest.raises(ValueError, match="env step 1 leads to state 9, of which there are no steps"):
            tree_returns([step(1, 0, 0.0, next_state=9)])

    def test_a_child_at_no_later_turn_is_an_error(self):
        with pytest.raises(ValueError, match="turn 1 leads to state 0 of turn 1"):
            tree_returns([step(1, 0, 0.0, next_state=0)])

    def test_a_number_used_twice_is_an_error(self):
        with pytest.raises(ValueError, match="two steps have the number 1"):
            tree_returns([step(1, 0, 0.0), step(1, 1, 0.0)])

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_a_reward_that_is_no_number_is_an_error(self, bad):
        with pytest.raises(FloatingPointError, match=f"reward of 'a_0' at env step 4 is {bad}"):
            tree_returns([step(4, 0, bad)])


def crossed(returns):
    """A group of two agents with 2 samples each in which joint action (i, j) has the return `returns[2 i + j]`."""
    pairs = list(itertools.product(range(2), repeat=2))
    steps = [step(10 + n, 0, {"a_0": 0.0, "a_1": 0.0}, choice={"a_0": i, "a_1": j}) for n, (i, j) in enumerate(pairs)]
    return steps, {10 + n: {"a_0": value, "a_1": value} for n, value in enumerate(returns)}


class TestCompletionCredit:
    def test_aligned_credit_is_the_returns_in_order_of_samples(self):
        steps = aligned(0, [5.0, -1.0, 2.0], first=1, turn=1)
        (group,) = groups([steps[2], steps[0], steps[1]])
        assert completion_returns(group, tree_returns(steps), "a_0") == [5.0, -1.0, 2.0]
        assert joint_action_counts(group, "a_0") == [1, 1, 1]

    def test_cross_credit_is_the_sum_over_joint_actions(self):
        """G(i, j): 1 2 / 4 8. Agent 0: rows 3, 12. Agent 1: columns 5, 10."""
        steps, returns = crossed([1.0, 2.0, 4.0, 8.0])
        (group,) = groups(steps)
        assert completion_returns(group, returns, "a_0") == [3.0, 12.0]
        assert completion_returns(group, returns, "a_1") == [5.0, 10.0]
        assert joint_action_counts(group, "a_0") == joint_action_counts(group, "a_1") == [2, 2]

    @pytest.mark.parametrize("agents", [1, 2, 3])
    @pytest.mark.parametrize("samples", [2, 3])
    def test_cross_credit_equals_a_loop_over_the_choices(self, agents, samples):
        steps = random_tree(random.Random(samples), agents=agents, samples=samples, turns=1, cross=True)
        returns = tree_returns(steps)
        (group,) = groups(steps)
        for agent in steps[0].rewards:
            naive = [0.0] * samples
            for one in steps:
                naive[one.choice[agent]] += returns[one.env_step][agent]
            assert completion_returns(group, returns, agent) == pytest.approx(naive, abs=1e-12)
            assert joint_action_counts(group, agent) == [samples ** (agents - 1)] * samples

    def test_completions_come_once_each_in_order_of_samples(self):
        steps, _ = crossed([0.0] * 4)
        (group,) = groups(list(reversed(steps)))
        assert [c.text for c in completions_of(group, "a_1")] == ["a_1 state 0 sample 0", "a_1 state 0 sample 1"]

    def test_a_missing_sample_is_an_error(self):
        (group,) = groups(aligned(0, [1.0, 2.0, 3.0], first=1, turn=1)[::2])
        for call in (completions_of, joint_action_counts, lambda g, a: completion_returns(g, rewards_of(g.steps), a)):
            with pytest.raises(ValueError, match=r"state 0: samples of 'a_0' should be numbered 0\.\.1, got \[0, 2\]"):
                call(group, "a_0")

    def test_one_sample_with_two_texts_is_an_error(self):
        (group,) = groups([step(1, 0, 0.0, texts={"a_0": "x"}), step(2, 0, 0.0, texts={"a_0": "y"})])
        with pytest.raises(ValueError, match="sample 0 of 'a_0' stands for two completions"):
            completions_of(group, "a_0")


class TestReferenceKL:
    def test_the_penalty_is_taken_off(self):
        """Reward 1, β = .1, k3 sum .7370125 → .92629875."""
        assert subtract_reference_kl([1.0], [0.7370125], [1], 0.1) == pytest.approx([0.92629875], abs=1e-9)

    @pytest.mark.parametrize("samples", [2, 3, 5])
    def test_in_cross_mode_its_weight_does_not_depend_on_k(self, samples):
        """With every joint return 1 and every KL .5, a completion's credit is K · (1 − .1 · .5): reward and penalty keep 20 : 1."""
        pairs = itertools.product(range(samples), repeat=2)
        steps = [step(n, 0, {"a_0": 1.0, "a_1": 1.0}, choice={"a_0": i, "a_1": j}) for n, (i, j) in enumerate(pairs)]
        (group,) = groups(steps)
        credit = completion_returns(group, tree_returns(steps), "a_0")
        shaped = subtract_reference_kl(credit, [0.5] * samples, joint_action_counts(group, "a_0"), 0.1)
        assert [value / samples for value in shaped] == pytest.approx([0.95] * samples, abs=1e-12)

    def test_lengths_must_agree(self):
        with pytest.raises(ValueError, match="got 1 and 2 for 2"):
            subtract_reference_kl([1.0, 2.0], [0.1], [1, 1], 0.1)

    def test_a_kl_that_is_no_number_is_an_error(self):
        with pytest.raises(FloatingPointError, match=r"finite, got \[0.1, nan\]"):
            subtract_reference_kl([1.0, 2.0], [0.1, math.nan], [1, 1], 0.1)


def by_definition(returns, mode):
    """Every baseline as its sentence says."""
    count = len(returns)
    if mode == "raw":
        return list(returns)
    if mode == "mean":
        return [r - sum(returns) / count for r in returns]
    if mode == "max":
        return [r - max(returns) for r in returns]
    return [r - sum(returns[:k] + returns[k + 1 :]) / (count - 1) for k, r in enumerate(returns)]


class TestAdvantages:
    @pytest.mark.parametrize(
        ("returns", "mode", "expected"),
        [
            ([1, 2, 5, 4], "mean", [-2, -1, 2, 1]),
            ([1, 2, 5, 4], "raw", [1, 2, 5, 4]),
            ([1, 2, 5, 4], "max", [-4, -3, 0, -1]),
            ([1, 2, 5, 4], "rloo", [-8 / 3, -4 / 3, 8 / 3, 4 / 3]),
            ([1, 2, 3, 6], "mean", [-2, -1, 0, 3]),
            ([1, 2, 3, 6], "raw", [1, 2, 3, 6]),
            ([1, 2, 3, 6], "max", [-5, -4, -3, 0]),
            ([1, 2, 3, 6], "rloo", [-8 / 3, -4 / 3, 0, 4]),
            ([1, 1, 1, 0, 0, 0, 0, 0], "mean", [0.625] * 3 + [-0.375] * 5),
            ([1, 1, 1, 0, 0, 0, 0, 0], "raw", [1] * 3 + [0] * 5),
            ([1, 1, 1, 0, 0, 0, 0, 0], "max", [0] * 3 + [-1] * 5),
            # 1 − 2/7 and 0 − 3/7
            ([1, 1, 1, 0, 0, 0, 0, 0], "rloo", [5 / 7] * 3 + [-3 / 7] * 5),
            # an empty text that earned 0 among three that earned 1
            ([0, 1, 1, 1], "mean", [-0.75, 0.25, 0.25, 0.25]),
        ],
    )
    def test_exact_values_without_normalisation(self, returns, mode, expected):
        assert advantages(returns, mode, False) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("mode", ADVANTAGE_MODES)
    @pytest.mark.parametrize(
        ("returns", "expected"),
        [
            # σ² = (4 + 1 + 4 + 1)/4 = 2.5
            ([1, 2, 5, 4], [-2 / 2.5**0.5, -1 / 2.5**0.5, 2 / 2.5**0.5, 1 / 2.5**0.5]),
            # σ² = (4 + 1 + 0 + 9)/4 = 3.5, divisor K and not K − 1
            ([1, 2, 3, 6], [-1.0690449676, -0.5345224838, 0, 1.6035674514]),
            # p = 3/8: σ² = p(1 − p) = 15/64
            ([1, 1, 1, 0, 0, 0, 0, 0], [1.2909944487] * 3 + [-0.7745966692] * 5),
        ],
    )
    def test_normalised_values_are_those_of_every_mode(self, mode, returns, expected):
        assert advantages(returns, mode, True) == pytest.approx(expected, abs=1e-9)
        assert advantages(returns, mode, True) == advantages(returns, "mean", True)

    @pytest.mark.parametrize(
        ("mode", "expected"),
        [
            ("raw", [0.5345224838, 1.0690449676, 1.6035674514, 3.2071349029]),
            ("max", [-2.6726124191, -2.1380899353, -1.6035674514, 0]),
            ("mean", [-1.0690449676, -0.5345224838, 0, 1.6035674514]),
            ("rloo", [-1.0690449676, -0.5345224838, 0, 1.6035674514]),
        ],
    )
    def test_scale_divides_without_centring(self, mode, expected):
        """[1, 2, 3, 6] has σ = √3.5 = 1.870829 (rloo: the advantages' own, K/(K−1) as large)."""
        assert advantages([1, 2, 3, 6], mode, "scale") == pytest.approx(expected, abs=1e-9)

    @pytest.mark.parametrize("mode", ADVANTAGE_MODES)
    @pytest.mark.parametrize("normalization", [True, False, "scale"])
    @pytest.mark.parametrize("count", [2, 3, 7, 48])
    def test_equal_returns_leave_no_residue(self, mode, normalization, count):
        """.35 as float32 is not representable: a float32 mean is off in the last bit and dividing by the residue's σ gives ±1."""
        value = struct.unpack("f", struct.pack("f", 0.35))[0]
        expected = value if mode == "raw" and normalization is not True else 0.0
        assert advantages([value] * count, mode, normalization) == [expected] * count

    @pytest.mark.parametrize("mode", ADVANTAGE_MODES)
    @pytest.mark.parametrize("normalization", [True, "scale"])
    def test_rounding_noise_is_not_blown_up(self, mode, normalization):
        """.1 + .2 and .3 differ by 5.6e-17. Divided by the floor 1e-6 that is 3e-11; divided by its own σ it would be ±1."""
        result = advantages([0.1 + 0.2, 0.3, 0.3], mode, normalization)
        level = 0.3 if mode == "raw" and normalization == "scale" else 0.0
        assert result == pytest.approx([level] * 3, abs=1e-9)

    @pytest.mark.parametrize("normalization", [True, False, "scale"])
    def test_one_completion(self, normalization):
        assert advantages([0.7], "raw", normalization) == [0.7]
        assert advantages([0.7], "mean", normalization) == [0.0]
        assert advantages([0.7], "max", normalization) == [0.0]
        with pytest.raises(ValueError, match="num_generations of at least 2, got 1"):
            advantages([0.7], "rloo", normalization)

    @pytest.mark.parametrize("mode", ADVANTAGE_MODES)
    @settings(max_examples=40)
    @given(returns=st.lists(finite, min_size=2, max_size=12))
    def test_baselines_equal_their_definitions(self, mode, returns):
        assert advantages(returns, mode, False) == pytest.approx(by_definition(returns, mode), abs=1e-9)

    @pytest.mark.parametrize("mode", ADVANTAGE_MODES)
    @settings(max_examples=40)
    @given(returns=st.lists(finite, min_size=2, max_size=12))
    def test_normalised_advantages_equal_the_statistics_of_the_baselined(self, mode, returns):
        baselined = by_definition(returns, mode)
        sigma = statistics.pstdev(baselined)
        if sigma < 1e-3:
            return  # the naive version has no floor
        centre = statistics.fmean(baselined)
        assert advantages(returns, mode, True) == pytest.approx([(a - centre) / sigma for a in baselined], abs=1e-6)

    @given(returns=st.lists(finite, min_size=1, max_size=12), normalization=st.sampled_from([True, False, "scale"]))
    def test_never_nan(self, returns, normalization):
        for mode in ADVANTAGE_MODES[: 4 if len(returns) > 1 else 2]:
            assert all(math.isfinite(value) for value in advantages(returns, mode, normalization))

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_returns_that_are_no_numbers_are_named(self, bad):
        with pytest.raises(FloatingPointError, match=rf"returns of a node should be finite, got \[1.0, {bad}\]"):
            advantages([1.0, bad])

    def test_an_overflow_is_not_passed_on(self):
        with pytest.raises(FloatingPointError, match="not finite"):
            advantages([1e308, -1e308], "mean", False)

    def test_wrong_options_are_named(self):
        with pytest.raises(ValueError, match="advantage_mode must be one of mean, raw, rloo, max, got 'best'"):
            advantages([1.0, 2.0], "best")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="True, False or 'scale', got 'yes'"):
            advantages([1.0, 2.0], "mean", "yes")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="at least one return"):
            advantages([])


class TestMetrics:
    def test_spread_is_the_population_deviation(self):
        assert spread([1.0, 2.0, 3.0, 6.0]) == pytest.approx(3.5**0.5, abs=1e-12)
        assert spread([0.1] * 7) == 0.0

    def test_zero_spread(self):
        assert zero_spread([0.3, 0.1 + 0.2])
        assert zero_spread([4.0])
        assert not zero_spread([0.0, 1e-5])

    def test_step_means_by_turn(self):
        """Turn 1: rewards (1, 3), (2, 2) → 2; turn 2: (4, 8) → 6."""
        steps = [
            step(3, 1, {"a_0": 4.0, "a_1": 8.0}, turn=2),
            step(1, 0, {"a_0": 1.0, "a_1": 3.0}, next_state=1),
            step(2, 0, {"a_0": 2.0, "a_1": 2.0}, choice={"a_0": 1, "a_1": 1}),
        ]
        assert list(step_means(steps, rewards_of(steps)).items()) == [(1, 2.0), (2, 6.0)]
        # returns of turn 1: (1 + 4, 3 + 8), (2, 2) → 5
        assert step_means(steps, tree_returns(steps)) == {1: 5.0, 2: 6.0}

    def test_term_means_over_steps_and_agents(self):
        """Style 1, 3 and 2, 6 → 3; other entries of the infos are no terms."""
        steps = [
            dataclasses.replace(step(n, 0, {"a_0": 0.0, "a_1": 0.0}, choice={"a_0": n, "a_1": n}), infos=infos)
            for n, infos in enumerate(
                [
                    {"a_0": {"turn": 1, "reward/style": 1.0}, "a_1": {"turn": 1, "reward/style": 3.0}},
                    {"a_0": {"turn": 1, "reward/style": 2.0}, "a_1": {"turn": 1, "reward/style": 6.0}},
                ]
            )
        ]
        assert term_means(steps) == {"reward/style": 3.0}
        assert term_means([]) == term_means([step(1, 0, 0.0)]) == {}
