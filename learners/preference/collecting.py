"""The first part of a round: joint responses are drawn and ranked, and pairs of them kept."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from learners.credit import mean
from learners.phases import Outcome, Sampler, speed
from learners.preference.duel import Duel
from learners.preference.pairs import (
    JointResponse,
    Pair,
    pair_from_record,
    pair_record,
    pairs_between,
    pairs_within,
    responses_of,
    unanswered_comparisons,
)
from learners.tracking import PASS_GROUP
from llm_envs.rollouts import Numbering
from llm_envs.seeding import PREFERENCE, stream
from llm_envs.types import AgentID, EnvStep, Item, Metrics, Policy, RolloutSpec

if TYPE_CHECKING:
    from learners.preference.gathering import Gathering


@dataclass
class PairStore:
    """The pairs of the round under way, as a checkpoint keeps them.

    Attributes:
        gathered: of this round's items so far.
        selected: what is trained on: those gathered, or what a replay buffer gave.
        dropped: comparisons of this round without an answer to compare with.
        total: pairs gathered in all rounds that are over.
    """

    gathered: list[Pair] = field(default_factory=list)
    selected: list[Pair] = field(default_factory=list)
    dropped: int = 0
    total: int = 0

    def begin_round(self) -> None:
        """Forget the last round's pairs."""
        self.gathered, self.selected, self.dropped = [], [], 0

    def state_dict(self) -> dict[str, Any]:
        """Records of the pairs, and counts."""
        gathered, selected = ([pair_record(pair) for pair in pairs] for pairs in (self.gathered, self.selected))
        return {"gathered": gathered, "selected": selected, "dropped": self.dropped, "total": self.total}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Any store's state fits."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.gathered = [pair_from_record(record) for record in state["gathered"]]
        self.selected = [pair_from_record(record) for record in state["selected"]]
        self.dropped, self.total = state["dropped"], state["total"]


class CollectPhase:
    """Draws joint responses to every item and keeps pairs of them.

    Args:
        gathering: what the rounds have in common; its store is filled.
        oracle: gives what collects once the phase has begun; the rewards of its env rank the responses.
        iteration: number of the round, from 1.
    """

    changes_policies = False
    epochs = 1
    unit = "items"

    def __init__(self, gathering: Gathering, oracle: Callable[[], Sampler], iteration: int) -> None:
        self.name = gathering.label(iteration, "collecting pairs")
        self._gathering = gathering
        self._store = gathering.store
        self._config = gathering.config
        self._oracle = oracle
        self._iteration = iteration
        self._duel: Duel | None = None
        self._players: Mapping[AgentID, Policy] = gathering.policies
        candidates = gathering.config.preference_num_candidates
        if gathering.comparator is not None:
            self._duel = Duel(gathering.policies, gathering.comparator, candidates)
            self._players = self._duel.players()
        self._spec = RolloutSpec(candidates + gathering.num_comparisons, later_generations=1)

    def begin(self, env_step: int) -> list[Metrics]:
        """Forget the last round, and let comparator and snapshots see the team as it is."""
        self._gathering.begin_round(self._iteration)
        return []

    def go_on(self) -> list[Metrics]:
        """Nothing: items that were stopped have left nothing."""
        return []

    def num_rows(self) -> int | None:
        """Items."""
        return self._oracle().num_items()

    def rows(self, epoch: int, start: int) -> Iterator[tuple[int, Item]]:
        """Positions and items, in an order of the round's own with `shuffle`."""
        return self._oracle().items(self._iteration - 1, start)

    def chunk_size(self) -> int:
        """Items whose responses are drawn together."""
        return max(1, self._config.collection_batch_size // self._spec.num_generations)

    def train(self, chunk: Sequence[tuple[int, Item]], numbering: Numbering) -> Outcome:
        """Draw the items' responses and keep pairs of them."""
        started = time.perf_counter()
        if self._duel is not None:
            self._duel.first_episode, self._duel.items = numbering.episode, [item for _, item in chunk]
        steps = self._oracle().collect(chunk, self._players, self._spec, numbering)
        candidates = self._config.preference_num_candidates
        by_item = responses_of(steps, self._config.discount)
        for offset, responses in enumerate(by_item):
            self._keep(responses[:candidates], responses[candidates:], steps[0].episode + offset)
        return Outcome([self._candidate_metrics(steps, by_item), speed(steps, time.perf_counter() - started)], steps)

    def _keep(self, team: Sequence[JointResponse], others: Sequence[JointResponse], episode: int) -> None:
        chance = stream(PREFERENCE, (self._config.seed, self._iteration, episode))
        options = (self._config.pair_selection, self._config.preference_pairs_per_sample, chance)
        pairs = pairs_within(team, *options) if self._duel is None else pairs_between(team, others, *options)
        self._store.gathered += pairs
        self._store.dropped += unanswered_comparisons(team, others)
        if self._gathering.distribution is not None:
            self._gathering.distribution.add(team, others, pairs)

    def _candidate_metrics(self, steps: Sequence[EnvStep], by_item: Sequence[Sequence[JointResponse]]) -> Metrics:
        """Rewards and returns of the team's own responses, and beside them those of the comparator."""
        candidates = self._config.preference_num_candidates
        first = [step for step in steps if step.turn == 1]
        own = [step for step in first if next(iter(step.choice.values())) < candidates]
        values = {
            "turn_1/reward_mean": mean([mean(list(step.rewards.values())) for step in own]),
            "turn_1/expected_return": mean([response.reward for responses in by_item for response in responses[:candidates]]),
        }
        others = [response.reward for responses in by_item for response in responses[candidates:]]
        if others:
            values["comparator/expected_return"] = mean(others)
        return Metrics(steps[-1].env_step, values, group="candidates")

    def end_epoch(self, epoch: int, num_rows: int, env_step: int) -> list[Metrics]:
        """Store the round's pairs and select those to train on."""
        self._oracle().require_items(epoch, num_rows)
        store, replay, distribution = self._store, self._gathering.replay, self._gathering.distribution
        if replay is None:
            store.selected = list(store.gathered)
        else:
            replay.store(self._iteration, store.gathered)
            store.selected = replay.select(self._iteration)
        store.total += len(store.gathered)
        if not store.selected:
            warnings.warn(
                f"{self.name}: no two responses to an item differ in reward, so nothing is trained on; draw more candidates "
                f"(preference_num_candidates={self._config.preference_num_candidates}) or at a higher temperature",
                stacklevel=2,
            )
        values: dict[str, float] = {
            "iter/current_iteration": self._iteration,
            "iter/current_preference_pairs": len(store.gathered),
            "iter/total_preference_pairs": store.total,
            "iter/train_preference_pairs": len(store.selected),
            "iter/dropped_comparisons": store.dropped,
        }
        if distribution is not None:
            values |= distribution.end_round(self._iteration)
        return [Metrics(env_step, values, group=PASS_GROUP)]
