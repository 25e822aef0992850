"""Guards the distributions of rewards: what falls into which bin, on which side, and what is written and logged."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.preference.distributions import NUM_BINS, RewardDistribution, RewardHistogram
from learners.preference.pairs import JointResponse, Pair
from llm_envs.types import Completion

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


def a_round() -> RewardDistribution:
    """Two items. Targets 0, .5 and 1; comparators .25 and one without an answer; pairs of (1, .25) and (.5, .25)."""
    distribution = RewardDistribution((0.0, 1.0))
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
    distribution = RewardDistribution((0.0, 1.0))
    distribution.add([response(0.5), response(1.0)], [], [Pair(response(1.0), response(0.5), 0.75)])
    assert distribution.histograms["selected_pairs"]["target"].count == 0


def test_metrics_are_plain_numbers():
    values = a_round().metrics()
    assert all(isinstance(value, (int, float)) and math.isfinite(value) for value in values.values())
    assert len(values) == 4 * (NUM_BINS + 2)
    prefix = "reward_distribution/candidates/target"
    assert (values[f"{prefix}/mean"], values[f"{prefix}/count"], values[f"{prefix}/bin_08"]) == (0.5, 3, 1)
    assert sum(values[f"{prefix}/bin_{index:02d}"] for index in range(NUM_BINS)) == 3
    empty = RewardDistribution((0.0, 1.0)).metrics()
    assert len(empty) == 4 * (NUM_BINS + 1) and not any(name.endswith("mean") for name in empty)


def test_the_file_of_a_round(tmp_path):
    path = a_round().write(tmp_path / "new", 12)
    assert path == tmp_path / "new" / "iteration_0012.json"
    document = json.loads(path.read_text())
    assert document["iteration"] == 12 and document["reward_range"] == [0.0, 1.0]
    assert document["bin_edges"] == [index / 16 for index in range(17)]
    assert document["candidates"]["comparator"] == {
        "counts": [0, 0, 0, 0, 1, *[0] * 11],
        "count": 1,
        "mean": 0.25,
        "dropped": 0,
    }
    assert document["selected_pairs"]["target"]["mean"] == 0.75
    assert RewardDistribution((0.0, 1.0)).write(tmp_path / "new", 12) == path
    assert json.loads(path.read_text())["candidates"]["target"]["mean"] is None
    assert [entry.name for entry in path.parent.iterdir()] == ["iteration_0012.json"]


def test_a_resumed_round_counts_on(tmp_path):
    state = json.loads(json.dumps(a_round().state_dict()))
    resumed = RewardDistribution((0.0, 1.0))
    resumed.load_state_dict(state)
    straight = a_round()
    for distribution in (straight, resumed):
        distribution.add([response(0.1)], [response(math.nan)], [])
    assert resumed.metrics() == straight.metrics()
    assert resumed.write(tmp_path / "a", 1).read_bytes() == straight.write(tmp_path / "b", 1).read_bytes()
