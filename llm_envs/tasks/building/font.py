"""A font of 5 × 5 cells, drawn for this package: capital letters and digits, no two alike."""

from __future__ import annotations

import string

import numpy as np
from numpy.typing import NDArray

SIZE = 5
GAP = 2
"""Empty columns between two letters."""

LONGEST = 12
"""Letters of the longest text: 36¹² texts still have numbers of 64 bits."""

# Rows from the top, separated by slashes.
_DRAWN = """
A ..#../.#.#./#...#/#####/#...#    B ####./#...#/####./#...#/####.    C .####/#..../#..../#..../.####
D ####./#...#/#...#/#...#/####.    E #####/#..../###../#..../#####    F #####/#..../###../#..../#....
G .####/#..../#..##/#...#/.####    H #...#/#...#/#####/#...#/#...#    I .###./..#../..#../..#../.###.
J ..###/...#./...#./#..#./.##..    K #...#/#..#./###../#..#./#...#    L #..../#..../#..../#..../#####
M #...#/##.##/#.#.#/#...#/#...#    N #...#/##..#/#.#.#/#..##/#...#    O .###./#...#/#...#/#...#/.###.
P ####./#...#/####./#..../#....    Q .###./#...#/#.#.#/#..#./.##.#    R ####./#...#/####./#..#./#...#
S .####/#..../.###./....#/####.    T #####/..#../..#../..#../..#..    U #...#/#...#/#...#/#...#/.###.
V #...#/#...#/.#.#./.#.#./..#..    W #...#/#...#/#.#.#/##.##/#...#    X #...#/.#.#./..#../.#.#./#...#
Y #...#/#...#/.###./..#../..#..    Z #####/...#./..#../.#.../#####
0 .###./#..##/#.#.#/##..#/.###.    1 ..#../.##../..#../..#../.###.    2 ####./....#/.###./#..../#####
3 ####./....#/.###./....#/####.    4 #..#./#..#./#####/...#./...#.    5 #####/#..../####./....#/####.
6 .###./#..../####./#...#/.###.    7 #####/....#/...#./..#../..#..    8 .###./#...#/.###./#...#/.###.
9 .###./#...#/.####/....#/.###.
"""

_WORDS = _DRAWN.split()
GLYPHS: dict[str, tuple[str, ...]] = {
    letter: tuple(rows.split("/")) for letter, rows in zip(_WORDS[::2], _WORDS[1::2], strict=True)
}
"""Rows of `#` and `.` from the top, by letter."""

ALPHABET = string.ascii_uppercase + string.digits


def checked_text(text: object) -> str:
    """The text if it can be drawn.

    Raises:
        ValueError: for anything but a text of at most `LONGEST` capital letters and digits.
    """
    if not isinstance(text, str) or not text or any(letter not in GLYPHS for letter in text):
        raise ValueError(f"a text to build must be capital letters A-Z and digits, at least one, got {text!r}")
    if len(text) > LONGEST:
        raise ValueError(f"a text to build must have at most {LONGEST} letters, got {len(text)}: {text!r:.200}")
    return text


def drawn(text: str) -> NDArray[np.bool_]:
    """[columns, 5] where the text has blocks: column 0 on the left, row 0 at the bottom.

    Raises:
        ValueError: as `checked_text`.
    """
    grid = np.zeros((len(checked_text(text)) * (SIZE + GAP) - GAP, SIZE), dtype=np.bool_)
    for number, letter in enumerate(text):
        for from_top, row in enumerate(GLYPHS[letter]):
            left = number * (SIZE + GAP)
            grid[left : left + SIZE, SIZE - 1 - from_top] = [mark == "#" for mark in row]
    return grid
