"""Shapes as few boxes: what commands are written from, and how prompts and feedback name many cells shortly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from llm_envs.tasks.building.commands import Cell
from llm_envs.tasks.building.materials import NAMES, Grid


@dataclass(frozen=True)
class Box:
    """Cells from `low` to `high`, both in it, all of one block."""

    low: Cell
    high: Cell
    block: str

    @property
    def volume(self) -> int:
        """Number of cells."""
        return math.prod(high - low + 1 for low, high in zip(self.low, self.high, strict=True))

    def cells(self) -> Iterator[Cell]:
        """Its cells: along x first, then z, then y."""
        (x0, y0, z0), (x1, y1, z1) = self.low, self.high
        return ((x, y, z) for y in range(y0, y1 + 1) for z in range(z0, z1 + 1) for x in range(x0, x1 + 1))

    def __str__(self) -> str:
        ranges = zip("xyz", self.low, self.high, strict=True)
        return " ".join(f"{name}={low}" if low == high else f"{name}={low}..{high}" for name, low, high in ranges)


def listed(boxes: Sequence[Box]) -> list[str]:
    """A line for each kind of block: `stone: x=0 y=1 z=0..3; x=4 y=0 z=0`."""
    kinds = dict.fromkeys(box.block for box in boxes)
    return [f"{kind}: {'; '.join(str(box) for box in boxes if box.block == kind)}" for kind in kinds]


def cells_of(grid: Grid) -> list[Cell]:
    """The cells that are not 0, along x first, then z, then y."""
    return [(x, y, z) for y, z, x in np.argwhere(grid.transpose(1, 2, 0)).tolist()]


def boxes_of(grid: Grid, chosen: Iterable[Cell] | None = None) -> list[Box]:
    """Boxes that hold every cell once, each of one block: greedy, each as long as it gets along x, then z, then y.

    Args:
        grid: numbers of blocks.
        chosen: the cells to hold, air too; those that are not air by default.
    """
    todo = np.zeros(grid.shape, dtype=np.bool_)
    cells = cells_of(grid) if chosen is None else sorted(chosen, key=lambda cell: (cell[1], cell[2], cell[0]))
    for cell in cells:
        todo[cell] = True
    found = []
    for low in cells:
        if not todo[low]:
            continue
        fits = todo & (grid == grid[low])
        x, y, z = low
        x1, y1, z1 = x + 1, y + 1, z + 1
        while x1 < grid.shape[0] and fits[x1, y, z]:
            x1 += 1
        while z1 < grid.shape[2] and fits[x:x1, y, z1].all():
            z1 += 1
        while y1 < grid.shape[1] and fits[x:x1, y1, z:z1].all():
            y1 += 1
        todo[x:x1, y:y1, z:z1] = False
        found.append(Box(low, (x1 - 1, y1 - 1, z1 - 1), NAMES[grid[low]]))
    return found
