"""How the raw rewards of a round are distributed: all candidates and the selected pairs, target and comparator side by side.

Plain Python. Counts go to a file a round and, as plain numbers, to wherever metrics go.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from learners.json_files import JSON, dump_json, replace_file
from learners.preference.pairs import JointResponse, Pair
from llm_envs.env import BranchingEnv

NUM_BINS = 16
KINDS = ("candidates", "selected_pairs")
SIDES = ("target", "comparator")


class RewardHistogram:
    """Counts of rewards in 16 equal bins from `low` to `high`, each without its upper edge but the last.

    Attributes:
        edges: [17] of the bins, reward units.
        counts: [16]; rewards beyond the range count in the first or last bin.
        dropped: rewards that were NaN or infinite; they count nowhere else.
    """

    def __init__(self, low: float, high: float) -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"a histogram needs finite limits, the low one below the high one, got [{low}, {high}]")
        width = (high - low) / NUM_BINS
        self.edges = [*(low + bin_ * width for bin_ in range(NUM_BINS)), high]
        self.counts = [0] * NUM_BINS
        self.dropped = 0
        self._sum = 0.0

    def add(self, rewards: Iterable[float]) -> None:
        """Count these too."""
        for reward in rewards:
            if math.isfinite(reward):
                self.counts[min(max(bisect_right(self.edges, reward) - 1, 0), NUM_BINS - 1)] += 1
                self._sum += reward
            else:
                self.dropped += 1

    @property
    def count(self) -> int:
        """Rewards counted."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Mean of the rewards counted, as they were; None without any."""
        return self._sum / self.count if self.count else None

    def record(self) -> dict[str, JSON]:
        """Everything but the edges."""
        return {"counts": list(self.counts), "count": self.count, "mean": self.mean, "dropped": self.dropped}

    def state_dict(self) -> dict[str, Any]:
        """What was counted: plain values."""
        return {"counts": list(self.counts), "dropped": self.dropped, "sum": self._sum}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.counts, self.dropped, self._sum = list(state["counts"]), state["dropped"], state["sum"]


def reward_range_of(env: BranchingEnv, discount: float = 1.0) -> tuple[float, float]:
    """Lowest and highest raw reward of a joint response, from what the env's reward declares for a turn.

    Over H turns the discounted sum reaches Σ_{t<H} γ^t times as far from 0; an episode may also end with its first turn.

    Raises:
        ValueError: the reward function has no range.
    """
    declared = env.reward_range
    if declared is None:
        raise ValueError(
            f"log_reward_distribution=True needs the range of the rewards of {env}: declare it with "
            "set_reward_range(reward_func, low, high), for each of several terms"
        )
    reach = math.fsum(discount**turn for turn in range(env.num_turns))
    low, high = declared
    return low * (reach if low < 0 else 1.0), high * (reach if high > 0 else 1.0)


class RewardDistribution:
    """The raw rewards of one round after the other.

    Args:
        reward_range: lowest and highest raw reward of a joint response, see `reward_range_of`.
        directory: of the rounds' files, or what gives it when it is first needed; made when the first is written.
    """

    def __init__(self, reward_range: tuple[float, float], directory: str | Path | Callable[[], Path]) -> None:
        self.reward_range = reward_range
        self._directory = directory
        self.begin_round()

    def begin_round(self) -> None:
        """Forget the last round."""
        self.histograms = {kind: {side: RewardHistogram(*self.reward_range) for side in SIDES} for kind in KINDS}

    def add(self, targets: Sequence[JointResponse], comparators: Sequence[JointResponse], pairs: Sequence[Pair]) -> None:
        """Count the candidates of an item and the pairs that were selected of them; responses without an answer are left out."""
        candidates, selected = (self.histograms[kind] for kind in KINDS)
        for side, responses in zip(SIDES, (targets, comparators), strict=True):
            candidates[side].add(response.raw_reward for response in responses if response.answered)
        selected["target"].add(pair.target_raw_reward for pair in pairs if pair.target_raw_reward is not None)
        selected["comparator"].add(pair.comparator_raw_reward for pair in pairs if pair.comparator_raw_reward is not None)

    def metrics(self) -> dict[str, float]:
        """Numbers to log as `reward_distribution/<kind>/<side>/<what>`: `mean` if there is one, `count`, `bin_00` to `bin_15`."""
        values: dict[str, float] = {}
        for kind, sides in self.histograms.items():
            for side, histogram in sides.items():
                prefix = f"reward_distribution/{kind}/{side}"
                if histogram.mean is not None:
                    values[f"{prefix}/mean"] = histogram.mean
                values[f"{prefix}/count"] = histogram.count
                values.update({f"{prefix}/bin_{index:02d}": count for index, count in enumerate(histogram.counts)})
        return values

    def end_round(self, iteration: int) -> dict[str, float]:
        """Metrics of the round, whose file is written.

        Raises:
            OSError: the disk refused.
        """
        self.write(iteration)
        return self.metrics()

    def write(self, iteration: int) -> Path:
        """The round's file `iteration_0001.json`, complete; an earlier one is replaced.

            {"iteration", "reward_range": [low, high], "bin_edges": [17 numbers],
             "candidates": {"target": {"counts": [16 numbers], "count", "mean", "dropped"}, "comparator": {…}},
             "selected_pairs": likewise}

        Raises:
            OSError: the disk refused.
        """
        edges = self.histograms["candidates"]["target"].edges
        document: dict[str, JSON] = {
            "iteration": iteration,
            "reward_range": [*self.reward_range],
            "bin_edges": [*edges],
        }
        for kind, sides in self.histograms.items():
            document[kind] = {side: histogram.record() for side, histogram in sides.items()}
        directory = Path(self._directory() if callable(self._directory) else self._directory).expanduser()
        path = directory / f"iteration_{iteration:04d}.json"
        replace_file(path, dump_json(document) + b"\n")
        return path

    def state_dict(self) -> dict[str, Any]:
        """What was counted in the round under way: plain values."""
        counted = {kind: {side: h.state_dict() for side, h in sides.items()} for kind, sides in self.histograms.items()}
        return {"reward_range": list(self.reward_range), **counted}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse a state of other bins.

        Raises:
            ValueError: naming both ranges.
        """
        if list(state["reward_range"]) != list(self.reward_range):
            raise ValueError(
                f"the checkpoint counts rewards in the range {list(state['reward_range'])}, this run in {list(self.reward_range)}"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`.

        Raises:
            ValueError: as `check_state_dict`; nothing is changed.
        """
        self.check_state_dict(state)
        for kind, sides in self.histograms.items():
            for side, histogram in sides.items():
                histogram.load_state_dict(state[kind][side])
