"""Reading commands out of completions, strictly: a line is one command or is rejected with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from llm_envs.tasks.fences import fenced_text

Cell: TypeAlias = tuple[int, int, int]
"""x, y, z; y is the height."""


@dataclass(frozen=True)
class Place:
    """Put one block at every cell of a box; air takes blocks away.

    Attributes:
        line: number of the line among those that are read, from 1.
        text: the line.
        low: the box's corner with the smallest coordinates.
        high: the one with the largest, still in the box.
        block: its name, possibly of no block there is.
    """

    line: int
    text: str
    low: Cell
    high: Cell
    block: str


@dataclass(frozen=True)
class Kill:
    """Kill all spiders."""

    line: int
    text: str


@dataclass(frozen=True)
class Rejected:
    """A line that does nothing.

    Attributes:
        line: number of the line, from 1.
        text: the line.
        reason: in a few words.
    """

    line: int
    text: str
    reason: str


Command: TypeAlias = Place | Kill

_COMMAND = re.compile(r"\s*(?:(?:[-*•]|[0-9]{1,4}[.)])\s+)?`*/?(?:minecraft:)?(?:setblock|fill|kill)\b", re.IGNORECASE)
_BULLET = re.compile(r"^(?:[-*•]|[0-9]{1,4}[.)])\s+")
_WHOLE = re.compile(r"-?[0-9]{1,9}")

SYNTAX = {
    "setblock": "/setblock X Y Z BLOCK",
    "fill": "/fill X1 Y1 Z1 X2 Y2 Z2 BLOCK",
    "kill": "/kill spider",
}
"""How each command is written."""


def read_commands(text: str, verbs: tuple[str, ...]) -> Iterator[Command | Rejected]:
    """Each line that is not empty as a command or a rejection, in order.

    Of a text with fenced blocks these are read (`fences`). Bullets and numbers of lists in front of a command are dropped,
    backticks around it and the slash are optional, and letters may be of any case.

    Args:
        text: a completion.
        verbs: the commands there are, out of `SYNTAX`.
    """
    for number, line in enumerate(fenced_text(text, _COMMAND).split("\n"), start=1):
        stripped = line.strip()
        if stripped:
            yield _read(number, stripped, verbs)


def _read(number: int, line: str, verbs: tuple[str, ...]) -> Command | Rejected:
    words = _BULLET.sub("", line, count=1).strip("`").casefold().split()
    verb = words[0].removeprefix("/") if words else ""
    if verb not in SYNTAX:
        return Rejected(number, line, "no command")
    if verb not in verbs:
        return Rejected(number, line, f"there is no /{verb} here")
    if verb == "kill":
        return Kill(number, line) if words[1:] == ["spider"] else Rejected(number, line, f"write {SYNTAX[verb]}")
    count = 3 if verb == "setblock" else 6
    if len(words) != count + 2:
        return Rejected(number, line, f"write {SYNTAX[verb]}")
    if not all(_WHOLE.fullmatch(word) for word in words[1 : count + 1]):
        return Rejected(number, line, "coordinates must be whole numbers")
    x, y, z, *rest = (int(word) for word in words[1 : count + 1])
    corners = list(zip((x, y, z), rest or (x, y, z), strict=True))
    low, high = (_cell(map(pick, corners)) for pick in (min, max))
    return Place(number, line, low, high, words[-1].removeprefix("minecraft:"))


def _cell(values: Iterator[int]) -> Cell:
    x, y, z = values
    return x, y, z


def written(low: Cell, high: Cell, block: str) -> str:
    """The command that puts the block at every cell of the box."""
    if low == high:
        return f"/setblock {low[0]} {low[1]} {low[2]} {block}"
    return f"/fill {low[0]} {low[1]} {low[2]} {high[0]} {high[1]} {high[2]} {block}"
