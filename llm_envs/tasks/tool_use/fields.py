"""Rows of the Berkeley Function Calling Leaderboard: those of a category, and fields, which may be JSON texts, read and checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_envs.types import Item


def field_of(row: Item, name: str, fits: Callable[[Any], bool], expected: str) -> Any:
    """A row's field, read if it is a JSON text.

    Args:
        row: with the field.
        name: of the field.
        fits: whether a value is what it must be.
        expected: what that is, for the message.

    Raises:
        KeyError: without the field.
        ValueError: naming the field and its value.
    """
    value = _parsed(row[name])
    if not fits(value):
        raise ValueError(f"{name!r} must be {expected}, got {value!r:.200}")
    return value


def mappings_in(row: Item, name: str, expected: str) -> list[Mapping[str, Any]]:
    """A row's field as the mappings that it lists, each of which may be a JSON text too.

    Raises:
        KeyError, ValueError: as `field_of`.
    """
    found = [_parsed(one) for one in field_of(row, name, is_list, expected)]
    if not all(isinstance(one, Mapping) for one in found):
        raise ValueError(f"{name!r} must be {expected}, got {found!r:.200}")
    return found


def of_categories(rows: Sequence[Item], categories: Sequence[str] | None) -> list[Item]:
    """The rows of these categories, all for None.

    Raises:
        ValueError: if a category has none.
    """
    if categories is None:
        return list(rows)
    if isinstance(categories, str) or not categories:
        raise ValueError(f"categories must be a list of names, got {categories!r}")
    there = {row["category"] for row in rows}
    missing = [category for category in categories if category not in there]
    if missing:
        raise ValueError(f"no row is of the category {missing[0]!r}; there are {', '.join(sorted(there))}")
    return [row for row in rows if row["category"] in categories]


def is_list(value: Any) -> bool:
    """Whether it is a list or tuple."""
    return isinstance(value, (list, tuple))


def is_mapping(value: Any) -> bool:
    """Whether it is a mapping."""
    return isinstance(value, Mapping)


def is_texts(value: Any) -> bool:
    """Whether it is a list of texts."""
    return is_list(value) and all(isinstance(one, str) for one in value)


def is_messages(value: Any) -> bool:
    """Whether it is a list of lists, one a turn, of messages with `role` and `content`."""
    return is_list(value) and all(is_list(turn) and all(map(_is_message, turn)) for turn in value)


def is_calls(value: Any) -> bool:
    """Whether it is a list of lists, one a turn, of texts."""
    return is_list(value) and all(map(is_texts, value))


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value and "content" in value


def _parsed(value: Any) -> Any:
    """What a JSON text says; any other text, and anything else, as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value  # then it is a text where none may stand, and the message shows it
