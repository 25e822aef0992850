"""Rows of `bfcl-multiturn-v0`: what a user says turn by turn, API classes with their initial state, gold calls of each turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from llm_envs.tasks.rows import bundled_rows
from llm_envs.tasks.sources import Sources
from llm_envs.tasks.tool_use import bfcl
from llm_envs.tasks.tool_use.episode import gold_call
from llm_envs.tasks.tool_use.fields import field_of, is_calls, is_mapping, is_messages, is_texts
from llm_envs.types import Item

DEFAULT_CATEGORIES = ("multi_turn_base",)

FIELDS = ("id", "category", "question", "initial_config", "involved_classes", "ground_truth")


_PARTS = {
    "question": (is_messages, "a list of messages for each turn"),
    "initial_config": (is_mapping, "a mapping from API classes to their configuration"),
    "involved_classes": (is_texts, "a list of API classes"),
    "ground_truth": (is_calls, "a list of gold calls as texts for each turn"),
    "missed_function": (is_mapping, "a mapping from turns to functions"),
    "excluded_function": (is_texts, "a list of functions"),
}
"""Fields that may be JSON texts; the last two may be left out."""


def sources(categories: Sequence[str] | None) -> Sources:
    """Where rows come from.

    Args:
        categories: of the package's rows; None for `DEFAULT_CATEGORIES`.
    """
    return Sources(
        family="bfcl-multiturn-v0",
        builtin=builtin_rows,
        fields=FIELDS,
        package=partial(package_rows, tuple(categories or DEFAULT_CATEGORIES)),
        convert=multiturn_row,
    )


def builtin_rows() -> list[Item]:
    """The rows that come with this package."""
    return [multiturn_row(row) for row in bundled_rows("tool_use_multiturn")]


def package_rows(categories: Sequence[str]) -> list[Item]:
    """The rows of bfcl-eval.

    Raises:
        ImportError: without the package.
        ValueError: for an unknown category.
    """
    for category in categories:
        if category not in bfcl.MULTI_TURN:
            raise ValueError(f"categories of bfcl-multiturn-v0 are {', '.join(bfcl.MULTI_TURN)}, got {category!r}")
    return [row for category in categories for row in bfcl.rows(category)]


def multiturn_row(row: Item) -> Item:
    """A row in the form of the task: the benchmark's fields, with `ground_truth` and `category`. Fields may be JSON texts.

    Raises:
        KeyError: without a field.
        ValueError: naming a field of another type; or if turns and gold turns differ in number, no turn has a gold call, or one is
            no call.
    """
    made: dict[str, Any] = {"id": str(row["id"]), "category": str(row.get("category") or "own")}
    for name, (fits, expected) in _PARTS.items():
        if row.get(name) or name in FIELDS:
            made[name] = field_of(row, name, fits, expected)
    if len(made["question"]) != len(made["ground_truth"]) or not any(made["ground_truth"]):
        raise ValueError(f"{len(made['question'])} turns of the user need as many lists of gold calls, not all of them empty")
    for turn in made["ground_truth"]:
        for text in turn:
            gold_call(text)
    return made
