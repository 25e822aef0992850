"""Walls without equal neighbours: a checkerboard, whose halves are divided among agents and their blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from llm_envs.tasks.building.boxes import cells_of
from llm_envs.tasks.building.commands import Cell
from llm_envs.tasks.building.materials import NUMBER, Grid


def touching(blocks: Grid) -> list[tuple[Cell, Cell]]:
    """Pairs of cells of a wall that both have a block and lie side by side or one above the other."""
    cells = cells_of(blocks)
    there = set(cells)
    return [((x, y, z), other) for x, y, z in cells for other in ((x + 1, y, z), (x, y + 1, z)) if other in there]


def checkerboard(target: Grid) -> tuple[list[Cell], list[Cell]]:
    """The cells of a wall in two halves of about the same size, so that no two cells of a half touch.

    Within cells that hang together it is given which ones lie in the same half; each such part is put in whichever way makes the
    halves more equal, the most lopsided part first.
    """
    parts = [_by_parity(part) for part in _connected(target)]
    halves: tuple[list[Cell], list[Cell]] = ([], [])
    for more, less in sorted(parts, key=lambda part: len(part[1]) - len(part[0])):
        smaller = 0 if len(halves[0]) <= len(halves[1]) else 1
        halves[smaller].extend(more)
        halves[1 - smaller].extend(less)
    return sorted(halves[0]), sorted(halves[1])


def _by_parity(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """The cells by whether the sum of their coordinates is even or odd, the larger part first."""
    even, odd = [cell for cell in cells if sum(cell) % 2 == 0], [cell for cell in cells if sum(cell) % 2]
    return (even, odd) if len(even) >= len(odd) else (odd, even)


def _connected(target: Grid) -> list[list[Cell]]:
    """The cells of a wall in parts that hang together."""
    part_of = {cell: [cell] for cell in cells_of(target)}
    for one, two in touching(target):
        if part_of[one] is not part_of[two]:
            part_of[one].extend(part_of[two])
            for cell in part_of[two]:
                part_of[cell] = part_of[one]
    return list({id(part): part for part in part_of.values()}.values())


Share: TypeAlias = tuple[int, str, int]
"""Agent, block, number of cells."""


@lru_cache(maxsize=4096)
def shares_of(
    palettes: tuple[tuple[str, ...], ...], limits: tuple[int, ...], first: int, second: int
) -> tuple[list[Share], list[Share]] | None:
    """How many cells of each half of a checkerboard each agent fills with each of its blocks; None if no way is found.

    Cells of a half never touch, so a wall has no equal neighbours if each block is for one half only. Ways to divide the blocks are
    tried for the one that divides the work best.

    Args:
        palettes: of the agents.
        limits: most cells of each agent.
        first: number of cells of the first half.
        second: number of cells of the second half.
    """
    blocks = sorted({block for palette in palettes for block in palette}, key=lambda name: (NUMBER[name] % 2, NUMBER[name]))
    best: tuple[int, tuple[list[Share], list[Share]]] | None = None
    for chosen in itertools.product((0, 1), repeat=len(blocks)):
        half: dict[str, int] = dict(zip(blocks, chosen, strict=True))
        counts = _divided(palettes, limits, (first, second), half)
        if counts is None:
            continue
        loads = [sum(count for (agent, _), count in counts.items() if agent == one) for one in range(len(palettes))]
        uneven = max(loads) - min(loads)
        if best is None or uneven < best[0]:
            sides: tuple[list[Share], list[Share]] = ([], [])
            for (agent, block), count in counts.items():
                sides[half[block]].append((agent, block, count))
            best = uneven, sides
        if uneven <= 1:
            break
    return None if best is None else best[1]


def _divided(
    palettes: tuple[tuple[str, ...], ...], limits: tuple[int, ...], cells: tuple[int, int], half: dict[str, int]
) -> dict[tuple[int, str], int] | None:
    """Cells for each agent and block, at least one each; one after the other goes to whoever has the fewest."""
    counts = {(agent, block): 1 for agent, palette in enumerate(palettes) for block in palette}
    loads = [len(palette) for palette in palettes]
    for side, total in enumerate(cells):
        users = [key for key in counts if half[key[1]] == side]
        if len(users) > total:
            return None
        for _ in range(total - len(users)):
            free = [key for key in users if loads[key[0]] < limits[key[0]]]
            if not free:
                return None
            chosen = min(free, key=lambda key: (loads[key[0]], counts[key]))
            counts[chosen] += 1
            loads[chosen[0]] += 1
    return counts if all(load <= limit for load, limit in zip(loads, limits, strict=True)) else None
