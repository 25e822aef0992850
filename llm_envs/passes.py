"""Which rows `reset` starts episodes from: pass after pass over the rows, each in an order of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from llm_envs.seeding import ORDER, stream
from llm_envs.task import has_length
from llm_envs.types import Item


class Passes:
    """Goes through rows again and again. Rows that have positions are shuffled for each pass, others come as they are.

    Args:
        seed: of the orders. The first row of all is row `seed` modulo their number.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._begin(0)

    def _begin(self, number: int) -> None:
        self._number = number  # of the pass under way
        self._taken = 0  # rows taken in it
        self._order: list[int] = []  # its own, for rows that have positions
        self._rows: Iterator[Item] | None = None  # for rows that have none

    def __getstate__(self) -> dict[str, Any]:
        # An iterator can be neither pickled nor copied; the next row is found again by its position.
        return {**self.__dict__, "_rows": None}

    def next_row(self, items: Sequence[Item] | Iterable[Item]) -> tuple[int, Item]:
        """Position and row.

        Args:
            items: the rows, always the same.

        Raises:
            ValueError: there are none, or an iterable cannot be read again.
        """
        return self._shuffled(items) if has_length(items) else self._as_they_come(items)

    def _shuffled(self, items: Sequence[Item]) -> tuple[int, Item]:
        if self._taken == len(self._order) > 0:
            self._begin(self._number + 1)
        if not self._order:
            order = stream(ORDER, (self._seed, self._number)).permutation(len(items)).tolist()
            # Turned round until it starts with the seed's own row: with few rows, seeds would else often share their order.
            first = order.index(self._seed % len(items)) if self._number == 0 else 0
            self._order = order[first:] + order[:first]
        index = self._order[self._taken]
        self._taken += 1
        return index, items[index]

    def _as_they_come(self, items: Iterable[Item]) -> tuple[int, Item]:
        if self._rows is None:
            self._rows = itertools.islice(iter(items), self._taken, None)
        rows, self._rows = self._rows, None  # Not kept if it fails: the next row is then found again by its position.
        for row in rows:
            self._rows = rows
            self._taken += 1
            return self._taken - 1, row
        if self._taken == 0:
            dry = f"items ran dry after pass {self._number}: it must be iterable more than once"
            raise ValueError(dry if self._number else "items has no rows")
        self._begin(self._number + 1)
        return self._as_they_come(items)


def row_at(items: Sequence[Item] | Iterable[Item], wanted: Any) -> tuple[int, Item]:
    """A position that was asked for, and its row.

    Raises:
        ValueError: the rows have no positions, or not this one.
    """
    if not has_length(items):
        raise ValueError(f"options['item']={wanted!r}: these items have no positions; give the row itself")
    count = len(items)
    if not isinstance(wanted, (int, np.integer)) or isinstance(wanted, bool) or not 0 <= wanted < count:
        raise ValueError(f"options['item'] must be a row or a position from 0 to {count - 1}, got {wanted!r}")
    return int(wanted), items[int(wanted)]
