"""Worlds as text and as images, drawn with numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from llm_envs.tasks.building.boxes import cells_of
from llm_envs.tasks.building.materials import BLOCKS, SYMBOLS, Grid
from llm_envs.tasks.building.project import Project, last_world
from llm_envs.types import State

Image: TypeAlias = NDArray[np.uint8]
"""[H, W, 3] red, green, blue."""

CELL = 12
"""Pixels along the side of a wall's cell."""

HALF = 8
"""Pixels of half the width of a cube, which is also its height."""

SKY, EDGE, WANTED = (232, 240, 246), 0.75, (96, 120, 160)


@dataclass(frozen=True)
class WallText:
    """A wall as text: what was built last beside the picture that is wanted."""

    project: Project

    def __call__(self, state: State) -> str:
        """Some lines, from the top of the wall."""
        world, target = last_world(self.project, state), self.project.target(state.item)
        rows = [
            f"y={y} {_row(world.blocks[:, y, 0])}   {''.join('.#'[wanted] for wanted in target[:, y, 0])}"
            for y in reversed(range(target.shape[1]))
        ]
        return "\n".join([_head(self.project, state, world.killed), *rows])


@dataclass(frozen=True)
class HouseText:
    """A house as text: each layer as it was built last, beside the blueprint's."""

    project: Project

    def __call__(self, state: State) -> str:
        """Some lines, from the ground."""
        world, target = last_world(self.project, state), self.project.target(state.item)
        lines = [_head(self.project, state, world.killed)]
        for y in range(target.shape[1]):
            lines.append(f"y={y}")
            lines += [f"{_row(world.blocks[:, y, z])}   {_row(target[:, y, z])}" for z in range(target.shape[2])]
        return "\n".join(lines)


def _head(project: Project, state: State, killed: bool) -> str:
    score = project.score(state.item, last_world(project, state)).total
    spiders = ", spiders killed" if killed else ""
    return f"after turn {state.turn} of {project.num_turns}, score {score:.4f}{spiders}; built, then wanted:"


def _row(numbers: Sequence[int] | Grid) -> str:
    return "".join(SYMBOLS[number] for number in numbers)


def pictures(grid: Grid, layers: Sequence[int]) -> list[str]:
    """The layers' heights, each followed by its rows of symbols."""
    lines = []
    for y in layers:
        lines += [f"y={y}", *(_row(grid[:, y, z]) for z in range(grid.shape[2]))]
    return lines


@dataclass(frozen=True)
class WallImage:
    """A wall as an image: the picture that is wanted above what was built last."""

    project: Project

    def __call__(self, state: State) -> Image:
        """[H, W, 3] one square for each cell."""
        target = self.project.target(state.item)
        wanted = squares(target[:, :, 0], np.array([SKY, WANTED]))
        built = squares(last_world(self.project, state).blocks[:, :, 0], np.array([SKY, *(block.color for block in BLOCKS)]))
        return np.concatenate([wanted, np.full((CELL, *wanted.shape[1:]), 255, dtype=np.uint8), built])


def squares(wall: NDArray[np.int8], colors: NDArray[np.int64]) -> Image:
    """[5 · CELL, columns · CELL, 3] a wall's cells as squares with a darker edge.

    Args:
        wall: [columns, rows] index of each cell's colour, row 0 at the bottom.
        colors: [number of colours, 3].
    """
    image = colors[wall.T[::-1]].repeat(CELL, axis=0).repeat(CELL, axis=1).astype(np.float64)
    edge = np.zeros((CELL, CELL), dtype=np.bool_)
    edge[0], edge[:, 0] = True, True
    image[np.tile(edge, wall.T.shape)] *= EDGE
    return image.astype(np.uint8)


@dataclass(frozen=True)
class HouseImage:
    """A house as an image from above and aside: what was built last on the left, the blueprint's house on the right."""

    project: Project

    def __call__(self, state: State) -> Image:
        """[H, W, 3] cubes in parallel perspective."""
        built = cubes(last_world(self.project, state).blocks)
        return np.concatenate([built, cubes(self.project.target(state.item))], axis=1)


def cubes(grid: Grid) -> Image:
    """[H, W, 3] the grid's blocks in isometric projection: x to the lower right, z to the lower left, y up."""
    width, height, depth = grid.shape
    image = np.empty(((width + depth) * HALF // 2 + (height + 2) * HALF, (width + depth + 2) * HALF, 3), dtype=np.uint8)
    image[:] = SKY
    top, left, right = _faces()
    # Cubes nearer to the eye come later and cover the others.
    for x, y, z in sorted(cells_of(grid), key=sum):
        row, column = (x + z) * HALF // 2 + (height - 1 - y) * HALF + HALF // 2, (x - z + depth) * HALF
        sprite = image[row : row + 2 * HALF, column : column + 2 * HALF]
        color = np.array(BLOCKS[grid[x, y, z] - 1].color)
        for face, light in ((top, 1.0), (left, 0.8), (right, 0.6)):
            sprite[face] = (color * light).astype(np.uint8)
    return image


def _faces() -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """[2 · HALF, 2 · HALF] where the top, the left and the right face of a cube are."""
    row, column = np.mgrid[: 2 * HALF, : 2 * HALF] + 0.5
    aside = np.abs(column - HALF)  # from the middle
    upper, lower = aside / 2, HALF - aside / 2  # edges of the top
    top = (row >= upper) & (row < lower)
    side = (row >= lower) & (row < lower + HALF)
    return top, side & (column < HALF), side & (column > HALF)
