"""Random houses: floor, walls, posts, door, windows, stairs and a roof, in blocks that are drawn as well."""

from __future__ import annotations

import numpy as np

from llm_envs.tasks.building.commands import Cell
from llm_envs.tasks.building.materials import NUMBER, SYMBOLS, Grid

LEAST = 5
"""Cells along each side of the smallest house."""

_SOLID = ("oak_planks", "white_concrete", "obsidian", "stone_bricks")
_ROOFS = ("flat", "terrace", "gable", "hip")


def draw_house(rng: np.random.Generator, size: Cell) -> Grid:
    """[x, y, z] a house that fills the size's box; at least 5 cells along each side.

    Drawn are the blocks of floor, walls, posts and roof, the kind of roof and its height, windows, the side and place of the
    door, and the side that the stairs inside go up on.
    """
    width, height, depth = size
    house = np.zeros(size, dtype=np.int8)
    wall, post, roof = (NUMBER[str(name)] for name in rng.permutation(_SOLID)[:3])
    floor = NUMBER[str(rng.choice([name for name in _SOLID if NUMBER[name] != wall]))]
    roof_height = int(rng.integers(1, min(height - 3, (min(width, depth) + 1) // 2) + 1))
    top = height - roof_height  # first height of the roof
    house[:, 0, :] = floor
    house[:, 1:top, :] = wall
    for x in (0, width - 1):
        for z in (0, depth - 1):
            house[x, 1:top, z] = post
    house[1:-1, 1:top, 1:-1] = 0
    _cut_windows(rng, house, top)
    door_side = _cut_door(rng, house)
    _add_stairs(rng, house, top, door_side)
    _add_roof(rng, house, top, roof)
    return house


def _side(house: Grid, side: int) -> Grid:
    """A view of the house turned so that the side lies at z = 0, [along, height, inward]."""
    return np.rot90(house, k=side, axes=(0, 2))


def _cut_windows(rng: np.random.Generator, house: Grid, top: int) -> None:
    for side in range(4):
        view = _side(house, side)
        step = int(rng.integers(2, 4))
        low = 2 if top > 3 else 1
        high = int(rng.integers(low, max(low, top - 2) + 1))
        for along in range(int(rng.integers(1, 3)), view.shape[0] - 1, step):
            if rng.random() < 0.75:
                view[along, low : high + 1, 0] = NUMBER["glass"]


def _cut_door(rng: np.random.Generator, house: Grid) -> int:
    """The side that has the door."""
    side = int(rng.integers(4))
    view = _side(house, side)
    along = int(rng.integers(1, view.shape[0] - 1))
    view[along, 1:3, 0] = 0
    return side


def _add_stairs(rng: np.random.Generator, house: Grid, top: int, door_side: int) -> None:
    """One step higher with each cell along a wall that has no door."""
    side = (door_side + 1 + int(rng.integers(3))) % 4
    view = _side(house, side)
    along = list(range(1, view.shape[0] - 1))
    if rng.random() < 0.5:
        along.reverse()
    for step, place in enumerate(along[: int(rng.integers(1, len(along) + 1))], start=1):
        if step < top:
            view[place, step, 1] = NUMBER["stone_stairs"]


def _add_roof(rng: np.random.Generator, house: Grid, top: int, block: int) -> None:
    """A closed layer, and on it rings that get smaller; the last one is closed, but for the parapet of a flat roof."""
    kind = str(rng.choice(_ROOFS))
    along_x = bool(rng.integers(2))
    width, height, depth = house.shape
    house[:, top, :] = block
    for step, y in enumerate(range(top + 1, height), start=1):
        in_x, in_z = {"flat": (0, 0), "hip": (step, step)}.get(kind, (step, 0) if along_x else (0, step))
        out_x, out_z = (0, 0) if kind == "terrace" else (in_x, in_z)
        layer = house[in_x : width - out_x, y, in_z : depth - out_z]
        layer[:] = block
        if kind == "flat" or y < height - 1:
            layer[1:-1, 1:-1] = 0


def target_of(layers: object, *, what: str) -> Grid:
    """[x, y, z] the house that pictures of layers show.

    Args:
        layers: for each height from the ground, a row of symbols for each z.
        what: for messages.

    Raises:
        ValueError: if they are no box of known symbols with at least one block.
    """
    listed = layers if isinstance(layers, (list, tuple)) and all(isinstance(layer, (list, tuple)) for layer in layers) else []
    rows = [row for layer in listed for row in layer]
    text = "".join(rows) if all(isinstance(row, str) for row in rows) else ""
    even = len({len(layer) for layer in listed}) == len({len(row) for row in rows}) == 1 if text else False
    if not even or not set(text) <= set(SYMBOLS) or set(text) <= {"."}:
        raise ValueError(f"{what} must be layers of equal rows of the symbols {SYMBOLS}, with a block in them, got {layers!r:.200}")
    numbers = np.array(list(map(SYMBOLS.index, text)), dtype=np.int8)
    return numbers.reshape(len(listed), len(listed[0]), len(rows[0])).transpose(2, 0, 1)
