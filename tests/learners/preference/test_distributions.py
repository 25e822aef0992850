"""Guards the distributions of rewards: what falls into which bin, on which side, and what is written and logged."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.preference.distributions import NUM_BINS, RewardDistribution, RewardHistogram, reward_range_of
from learners.preference.pairs import JointResponse, Pair
from llm_envs.env import TaskEnv
from llm_envs.rewards import RewardProcessors, scaled, set_reward_range
from llm_envs.task import Task
from llm_envs.types import Completion
from llm_envs.wrappers import JointAgent, ScoreWith, TransformReward, TurnLimit

SOME = Completion("text", (1,), (-0.5,), (3,))


def response(raw: float, completion: Completion = SOME) -> JointResponse:
    return JointResponse(({"a_0": "p"},), ({"a_0": completion},), -100.0, raw)


def histogram(low: float, high: float, *rewards: float) -> RewardHistogram:
    counted = RewardHistogram(low, high)
    counted.add(rewards)
    return counted


def bins(counted: RewardHistogram) -> dict[int, int]:
    return {index: count for index, count in enumerate(counted.counts) if count}


def test_bins_worked_by_hand():
    """16 bins of width ½ over [−4, 4]: −4 → 0, −3.5 → 1, just below it → 0, 0 → 8, 3.49 → 14, 3.5 and 4 → 15."""
    counted = histogram(-4.0, 4.0, -4.0, -3.5, math.nextafter(-3.5, -math.inf), 0.0, 3.49, 3.5, 4.0)
    assert bins(counted) == {0: 2, 1: 1, 8: 1, 14: 1, 15: 2}
    assert counted.edges == [-4.0 + i / 2 for i in range(17)]


def test_rewards_beyond_the_range_are_clipped_in_and_others_dropped():
    """The mean is that of the rewards as they were: (−9 + 30 + 0) / 3."""
    counted = histogram(0.0, 1.0, -9.0, 30.0, 0.0, math.nan, math.inf, -math.inf)
    assert bins(counted) == {0: 2, 15: 1}
    assert (counted.count, counted.dropped, counted.mean) == (3, 3, 7.0)


def test_nothing_has_no_mean():
    counted = histogram(0.0, 1.0, math.nan)
    assert (counted.count, counted.mean, counted.dropped) == (0, None, 1)


@settings(max_examples=40)
@given(st.lists(st.floats(-3, 4)), st.floats(-2, 0), st.floats(1, 3))
def test_counts_are_those_of_a_plain_loop_over_the_edges(rewards, low, high):
    counted = histogram(low, high, *rewards)
    expected = Counter()
    for reward in rewards:
        clipped = min(max(reward, low), high)
        for index in range(NUM_BINS):
            last = index == NUM_BINS - 1
            if counted.edges[index] <= clipped and (last or clipped < counted.edges[index + 1]):
                expected[index] += 1
    assert bins(counted) == expected and sum(counted.counts) == len(rewards)
    assert len(counted.edges) == NUM_BINS + 1 and (counted.edges[0], counted.edges[-1]) == (low, high)


@given(st.lists(st.floats(-1, 2)), st.integers(0, 10))
def test_counting_in_parts_changes_nothing(rewards, cut):
    parts = histogram(0.0, 1.0, *rewards[:cut])
    parts.add(rewards[cut:])
    assert parts.record() == histogram(0.0, 1.0, *rewards).record()


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.inf)])
def test_faulty_limits_are_refused(low, high):
    with pytest.raises(ValueError, match="a histogram needs finite limits"):
        RewardHistogram(low, high)


def a_round(directory: Path = Path("nowhere")) -> RewardDistribution:
    """Two items. Targets 0, .5 and 1; comparators .25 and one without an answer; pairs of (1, .25) and (.5, .25)."""
    distribution = RewardDistribution((0.0, 1.0), directory)
    first, second = [response(0.0), response(1.0)], [response(0.5)]
    other = response(0.25)
    pairs = [Pair(target, other, 0.5, target.raw_reward, other.raw_reward) for target in (first[1], second[0])]
    distribution.add(first, [other, response(0.75, Completion(""))], pairs[:1])
    distribution.add(second, [], pairs[1:])
    return distribution


def test_candidates_and_selected_pairs_of_both_sides():
    counted = {f"{kind}/{side}": bins(h) for kind, sides in a_round().histograms.items() for side, h in sides.items()}
    assert counted == {
        "candidates/target": {0: 1, 8: 1, 15: 1},
        "candidates/comparator": {4: 1},
        "selected_pairs/target": {8: 1, 15: 1},
        "selected_pairs/comparator": {4: 2},
    }


def test_pairs_of_one_side_alone_have_no_comparison_to_count():
    distribution = RewardDistribution((0.0, 1.0), "nowhere")
    distribution.add([response(0.5), response(1.0)], [], [Pair(response(1.0), response(0.5), 0.75)])
    assert distribution.histograms["selected_pairs"]["target"].count == 0


def test_metrics_are_plain_numbers():
    values = a_round().metrics()
    assert all(isinstance(value, (int, float)) and math.isfinite(value) for value in values.values())
    assert len(values) == 4 * (NUM_BINS + 2)
    prefix = "reward_distribution/candidates/target"
    assert (values[f"{prefix}/mean"], values[f"{prefix}/count"], values[f"{prefix}/bin_08"]) == (0.5, 3, 1)
    assert sum(values[f"{prefix}/bin_{index:02d}"] for index in range(NUM_BINS)) == 3
    empty = RewardDistribution((0.0, 1.0), "nowhere").metrics()
    assert len(empty) == 4 * (NUM_BINS + 1) and not any(name.endswith("mean") for name in empty)


def test_the_file_of_a_round(tmp_path):
    distribution = a_round(tmp_path / "new")
    assert distribution.end_round(12) == a_round().metrics()
    [path] = (tmp_path / "new").iterdir()
    assert path.name == "iteration_0012.json"
    document = json.loads(path.read_text())
    assert document["iteration"] == 12 and document["reward_range"] == [0.0, 1.0]
    assert document["bin_edges"] == [index / 16 for index in range(17)]
    counts = [0, 0, 0, 0, 1, *[0] * 11]
    assert document["candidates"]["comparator"] == {"counts": counts, "count": 1, "mean": 0.25, "dropped": 0}
    assert document["selected_pairs"]["target"]["mean"] == 0.75


def test_a_round_begins_anew_and_replaces_a_file_of_its_number(tmp_path):
    distribution = a_round(tmp_path)
    path = distribution.write(1)
    distribution.begin_round()
    assert distribution.metrics() == RewardDistribution((0.0, 1.0), "nowhere").metrics()
    assert distribution.write(1) == path and distribution.write(2) != path
    assert json.loads(path.read_text())["candidates"]["target"]["mean"] is None
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["iteration_0001.json", "iteration_0002.json"]


def test_the_folder_may_be_known_later(tmp_path):
    folders: list[Path] = []
    distribution = RewardDistribution((0.0, 1.0), lambda: folders[0])
    folders.append(tmp_path)
    assert distribution.write(1).parent == tmp_path


def test_a_resumed_round_counts_on(tmp_path):
    state = json.loads(json.dumps(a_round().state_dict()))
    resumed = RewardDistribution((0.0, 1.0), tmp_path / "a")
    resumed.load_state_dict(state)
    straight = a_round(tmp_path / "b")
    for distribution in (straight, resumed):
        distribution.add([response(0.1)], [response(math.nan)], [])
    assert resumed.metrics() == straight.metrics()
    assert resumed.write(1).read_bytes() == straight.write(1).read_bytes()


def test_a_state_of_another_range_is_refused():
    other = RewardDistribution((0.0, 2.0), "nowhere")
    with pytest.raises(ValueError, match=r"counts rewards in the range \[0.0, 1.0\], this run in \[0.0, 2.0\]"):
        other.load_state_dict(a_round().state_dict())
    assert other.metrics() == RewardDistribution((0.0, 2.0), "nowhere").metrics()


# ---- the range ----


def make_env(reward, num_turns: int = 1) -> TaskEnv:
    transition = (lambda agent_completions: list(agent_completions)) if num_turns > 1 else None
    items = [{"prompt": "one"}]
    return TaskEnv(Task(reward=reward, items=items, agents=("a_0", "b_0"), num_turns=num_turns, transition=transition))


def ranged(low: float, high: float):
    return set_reward_range(lambda first, second: [0.0] * len(first), low, high)


def test_the_range_is_that_of_the_task_whatever_is_around_it():
    env = make_env(ranged(-1, 3))
    wrapped = [env, TurnLimit(env, 1), TransformReward(env, RewardProcessors.scale(10.0)), JointAgent(env)]
    assert [reward_range_of(one) for one in wrapped] == [(-1.0, 3.0)] * 4
    assert reward_range_of(make_env({"some": ranged(0, 1), "more": scaled(2.0, ranged(-1, 0))})) == (-2.0, 1.0)


def test_over_several_turns_the_range_is_that_of_discounted_sums():
    """γ = ½ over 3 turns: 1.75 times as far; rewards that are never below 1 are at least 1."""
    assert reward_range_of(make_env(ranged(-1, 4), 3), 0.5) == (-1.75, 7.0)
    assert reward_range_of(make_env(ranged(1, 4), 3), 0.5) == (1.0, 7.0)
    assert reward_range_of(make_env(ranged(-4, -2), 3), 0.5) == (-7.0, -2.0)
    assert reward_range_of(make_env(ranged(-1, 4), 3), 0.0) == (-1.0, 4.0)


def test_without_a_range_there_are_no_bins():
    plain = make_env(lambda first, second: [0.0])
    learned = ScoreWith(make_env(ranged(0, 1)), lambda prompts, completions: [0.0])
    for env in (plain, learned):
        with pytest.raises(ValueError, match=r"log_reward_distribution=True needs the range .* set_reward_range\(reward_func"):
            reward_range_of(env)
    assert ScoreWith(plain, set_reward_range(lambda prompts, completions: [0.0], 0, 5)).reward_range == (0.0, 5.0)
