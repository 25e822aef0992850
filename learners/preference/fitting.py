"""Passes over the pairs of a round: what fits the reward model, and what trains the team with MADPO."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from learners.credit import means
from learners.phases import Outcome
from learners.preference.pairs import Pair
from learners.tracking import PASS_GROUP
from llm_envs.rollouts import Numbering
from llm_envs.seeding import PREFERENCE, stream
from llm_envs.types import Metrics


class PairLearner(Protocol):
    """What learns from pairs."""

    def train_step(self, pairs: Sequence[Pair]) -> dict[str, float]:
        """One optimiser step on a batch of pairs; what to log."""
        ...

    def flush(self) -> dict[str, float]:
        """Step on what waits in an unfinished accumulation window."""
        ...


class Meter:
    """What the batches of a pass gave, until their means are logged. A checkpoint keeps it, so that a resumed run logs the same."""

    def __init__(self) -> None:
        self._batches: list[dict[str, float]] = []

    def add(self, values: Mapping[str, float]) -> None:
        """Remember a batch's values."""
        self._batches.append(dict(values))

    def take(self) -> dict[str, float]:
        """The means of all batches since the last time."""
        batches, self._batches = self._batches, []
        return means(batches)

    def state_dict(self) -> dict[str, Any]:
        """The values."""
        return {"batches": list(self._batches)}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Any meter's state fits."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from values."""
        self._batches = [dict(batch) for batch in state["batches"]]


class FitPhase:
    """Trains on pairs in batches, every pass in an order of its own. One entry is logged a pass: the means over its batches.

    Args:
        name: of the phase.
        learner: learns.
        pairs: gives the pairs once the phase has begun.
        epochs: passes over them.
        batch_size: pairs an optimiser step.
        path: `(seed, iteration, …)` of the orders.
        meter: keeps values until they are logged.
        prefix: of the names that are logged.
        changes_policies: whether the learner is the team.
        at_begin: called before the first pass.
        at_end: what else to log after a pass.
        at_finish: called after the last pass.
    """

    unit = "pairs"

    def __init__(
        self,
        name: str,
        learner: PairLearner,
        pairs: Callable[[], Sequence[Pair]],
        *,
        epochs: int,
        batch_size: int,
        path: Sequence[int],
        meter: Meter,
        prefix: str,
        changes_policies: bool,
        at_begin: Callable[[], None] | None = None,
        at_end: Callable[[], Mapping[str, float]] | None = None,
        at_finish: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.epochs = epochs
        self.changes_policies = changes_policies
        self._learner = learner
        self._pairs = pairs
        self._batch_size = batch_size
        self._path = tuple(path)
        self._meter = meter
        self._prefix = prefix
        self._at_begin = at_begin
        self._at_end = at_end
        self._at_finish = at_finish

    def begin(self, env_step: int) -> list[Metrics]:
        """Get the learner ready."""
        if self._at_begin is not None:
            self._at_begin()
        return []

    def go_on(self) -> list[Metrics]:
        """Nothing: a batch that was stopped has changed nothing."""
        return []

    def num_rows(self) -> int:
        """Pairs."""
        return len(self._pairs())

    def rows(self, epoch: int, start: int) -> Iterator[tuple[int, Pair]]:
        """Positions and pairs in the pass's order."""
        pairs = self._pairs()
        order = stream(PREFERENCE, (*self._path, epoch)).permutation(len(pairs)).tolist()
        return ((index, pairs[index]) for index in islice(order, start, None))

    def chunk_size(self) -> int:
        """Pairs an optimiser step."""
        return self._batch_size

    def train(self, chunk: Sequence[tuple[int, Pair]], numbering: Numbering) -> Outcome:
        """An optimiser step."""
        self._meter.add(self._learner.train_step([pair for _, pair in chunk]))
        return Outcome()

    def end_epoch(self, epoch: int, num_rows: int, env_step: int) -> list[Metrics]:
        """The means of the pass. Without pairs there is nothing to tell."""
        if num_rows > 0:
            self._meter.add(self._learner.flush())
        if epoch == self.epochs - 1 and self._at_finish is not None:
            self._at_finish()
        if num_rows == 0:
            return []
        further = dict({} if self._at_end is None else self._at_end())
        values = self._meter.take() | further
        named = {f"{self._prefix}/{name}": value for name, value in values.items()}
        return [Metrics(env_step, {**named, f"{self._prefix}/epoch": epoch + 1}, group=PASS_GROUP)]
