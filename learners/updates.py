"""Updates of a learner, mini-batch by mini-batch. One that is stopped in its middle goes on with the mini-batch it was stopped in.

So an error that is caught, or Ctrl-C, loses no samples and trains on none twice, and a run that is saved then goes on as if nothing
had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from learners.config import TrainingConfig
from learners.credit import means
from learners.interrupts import shielded
from llm_envs.seeding import UPDATE, stream
from llm_envs.types import Metrics

Row = TypeVar("Row")


class Updates(Generic[Row]):
    """The updates of a learner, each of rows that it took from its buffer.

    Args:
        train: all rows of the update, and which of them are the mini-batch → what to log. Either every optimiser has ended the
            mini-batch when it returns, or it raises and nothing has changed.
        report: the rows of an update that is over, and means over its mini-batches → what to log.
        batch_size: rows of a mini-batch; None takes all.
        config: for the seed.

    Attributes:
        count: of those that are over.
    """

    def __init__(
        self,
        train: Callable[[Sequence[Row], Sequence[int]], dict[str, float]],
        report: Callable[[Sequence[Row], Mapping[str, float]], list[Metrics]],
        *,
        batch_size: int | None,
        config: TrainingConfig,
    ) -> None:
        self._train = train
        self._report = report
        self._batch_size = batch_size
        self._seed = config.seed
        self.count = 0
        self._rows: list[Row] = []  # of the update under way
        self._batches: list[list[int]] = []  # that it has still to come to
        self._trained: list[dict[str, float]] = []  # what the others gave
        self._reports: list[Metrics] = []  # of updates that are over, until they are handed out

    @property
    def under_way(self) -> bool:
        """Whether an update has been begun and is not over."""
        return bool(self._rows)

    def run(self, take: Callable[[], list[Row] | None]) -> list[Metrics]:
        """Finish the update under way, then make one of all rows that are to be had. Returns what to log.

        Args:
            take: removes the rows of the next update from where they wait; None if there are too few.
        """
        while True:
            with shielded():
                if not self.under_way and (rows := take()):
                    self._begin(rows)
            if not self.under_way:
                reports, self._reports = self._reports, []
                return reports
            self._finish()

    def _begin(self, rows: list[Row]) -> None:
        count = len(rows)
        size = self._batch_size or count
        # Neighbours come from one episode; shuffled, a mini-batch holds several.
        order = stream(UPDATE, (self._seed, self.count)).permutation(count).tolist() if size < count else list(range(count))
        self._rows, self._trained = rows, []
        self._batches = [order[start : start + size] for start in range(0, count, size)]

    def _finish(self) -> None:
        while self._batches:
            with shielded():  # the step and the note of it are one
                self._trained.append(self._train(self._rows, self._batches[0]))
                del self._batches[0]
        with shielded():
            self._reports += self._report(self._rows, means(self._trained))
            self.count += 1
            self._rows, self._trained = [], []

    def state_dict(self, tree: Callable[[Row], Any]) -> dict[str, Any]:
        """How many there were, and the one under way.

        Args:
            tree: a row as plain values.
        """
        return {
            "updates": self.count,
            "under_way": {
                "rows": [tree(row) for row in self._rows],
                "batches": [list(batch) for batch in self._batches],
                "trained": [dict(values) for values in self._trained],
                "reports": [asdict(entry) for entry in self._reports],
            },
        }

    def load_state_dict(self, state: Mapping[str, Any], row: Callable[[Any], Row]) -> None:
        """Go on from a state, in the middle of an update too.

        Args:
            state: of `state_dict`.
            row: what `tree` was made of.
        """
        under_way = state["under_way"]
        self.count = state["updates"]
        self._rows = [row(tree) for tree in under_way["rows"]]
        self._batches = [list(batch) for batch in under_way["batches"]]
        self._trained = [dict(values) for values in under_way["trained"]]
        self._reports = [Metrics(**entry) for entry in under_way["reports"]]
