"""The blocks of the building tasks: names as in Minecraft, and what they look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

AIR = "air"
"""No block: placing it takes one away."""

Grid: TypeAlias = NDArray[np.int8]
"""[x, y, z] numbers of blocks, `NUMBER`; 0 is air. y is the height."""


@dataclass(frozen=True)
class Block:
    """What one kind of block looks like.

    Attributes:
        name: as commands write it.
        symbol: one character of a layer's picture.
        color: red, green, blue, 0 to 255.
    """

    name: str
    symbol: str
    color: tuple[int, int, int]


BLOCKS = (
    Block("oak_planks", "P", (176, 138, 82)),
    Block("stone", "S", (126, 126, 126)),
    Block("white_concrete", "W", (222, 226, 228)),
    Block("obsidian", "O", (40, 28, 62)),
    Block("stone_bricks", "B", (98, 108, 98)),
    Block("glass", "G", (156, 210, 226)),
    Block("stone_stairs", "T", (150, 120, 120)),
    Block("red_wool", "R", (178, 54, 46)),
)
"""All blocks but air; the number of block i is i + 1. Each has a texture of its own."""

NUMBER = {AIR: 0, **{block.name: number for number, block in enumerate(BLOCKS, start=1)}}
NAMES = tuple(NUMBER)
SYMBOLS = "".join([".", *(block.symbol for block in BLOCKS)])
"""The symbol of each number."""


def checked_materials(option: str, names: object) -> tuple[str, ...]:
    """The names if they are different blocks.

    Raises:
        ValueError: naming the option.
    """
    known = [block.name for block in BLOCKS]
    if not isinstance(names, (list, tuple)) or not names or not all(name in known for name in names):
        raise ValueError(f"{option} must be a list of blocks out of {', '.join(known)}, got {names!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"{option} must name each block once, got {names!r}")
    return tuple(names)
