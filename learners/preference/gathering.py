"""How a run gathers its pairs: once, or round by round against a comparator, with a memory of earlier rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from learners.phases import Sampler
from learners.policy import HFPolicy
from learners.preference.collecting import CollectPhase, PairStore
from learners.preference.comparators import Comparator
from learners.preference.config import PreferenceConfig
from learners.preference.distributions import RewardDistribution
from learners.preference.parts import Part
from learners.preference.replay import ReplayBuffer
from learners.preference.snapshots import Snapshots
from llm_envs.types import AgentID


@dataclass
class Gathering:
    """What the rounds of a run have in common.

    Attributes:
        policies: of the team.
        config: of the learner.
        rounds: how many; 1 is the one-shot form.
        comparator: see `CollectPhase`.
        num_comparisons: responses the comparator draws to an item.
        replay: see `CollectPhase`.
        distribution: see `CollectPhase`.
        snapshots: of the team, before the first round and after each.
        store: of the pairs.
    """

    policies: Mapping[AgentID, HFPolicy]
    config: PreferenceConfig
    rounds: int = 1
    comparator: Comparator | None = None
    num_comparisons: int = 0
    replay: ReplayBuffer | None = None
    distribution: RewardDistribution | None = None
    snapshots: Snapshots | None = None
    store: PairStore = field(default_factory=PairStore)

    def phase(self, oracle: Callable[[], Sampler], iteration: int) -> CollectPhase:
        """The collecting part of a round, counted from 1."""
        return CollectPhase(self, oracle, iteration)

    def label(self, iteration: int, what: str) -> str:
        """Name of a phase."""
        return what if self.rounds == 1 else f"round {iteration} of {self.rounds}: {what}"

    def parts(self) -> dict[str, Part]:
        """What a checkpoint keeps of it."""
        parts: dict[str, Part | None] = {
            "pairs": self.store,
            "comparator": self.comparator,
            "replay": self.replay,
            "distribution": self.distribution,
            "snapshots": self.snapshots,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def begin_round(self, iteration: int) -> None:
        """Forget the last round, and let the comparator see the team as it is.

        Raises:
            ReplayError: the round's file belongs to another run.
            ValueError: the folder of snapshots does.
        """
        if self.snapshots is not None and iteration == 1:
            self.snapshots.save(0)
        if self.replay is not None:
            self.replay.begin_round(iteration)
        self.store.begin_round()
        if self.distribution is not None:
            self.distribution.begin_round()
        if self.comparator is not None:
            self.comparator.begin_round(iteration)

    def end_round(self, iteration: int) -> None:
        """Keep the team that the round has made."""
        if self.snapshots is not None:
            self.snapshots.save(iteration)
