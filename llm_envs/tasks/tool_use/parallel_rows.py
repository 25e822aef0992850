"""Rows of `bfcl-parallel-v0`: a request, functions and gold calls, in one form whatever they are read from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from llm_envs.tasks.rows import load_data
from llm_envs.tasks.sources import HubData, Sources
from llm_envs.tasks.tool_use import bfcl
from llm_envs.tasks.tool_use.calls import parse_calls
from llm_envs.tasks.tool_use.matching import TYPES, gold_name
from llm_envs.types import Item

HUB = HubData("OpenMLRL/BFCL-V4-Parallel-Native")

DEFAULT_CATEGORIES = ("parallel", "parallel_multiple")

FLAT_CATEGORIES = ("multi_turn_base", "multi_turn_long_context")
"""Multi-turn categories that can be flattened: one row for each turn with at least `FLAT_CALLS` calls."""

FLAT_CALLS = 2


def sources(categories: Sequence[str] | None) -> Sources:
    """Where rows come from.

    Args:
        categories: of the package's rows; None for `DEFAULT_CATEGORIES`.
    """
    return Sources(
        family="bfcl-parallel-v0",
        builtin=builtin_rows,
        fields=("id", "category", "prompt", "function", "ground_truth"),
        package=partial(package_rows, categories or DEFAULT_CATEGORIES),
        hub=HUB,
        convert=parallel_row,
    )


def builtin_rows() -> list[Item]:
    """The rows that come with this package."""
    return [parallel_row(row) for row in cast("list[Item]", load_data("tool_use_parallel")["rows"])]


def package_rows(categories: Sequence[str]) -> list[Item]:
    """The rows of bfcl-eval.

    Raises:
        ImportError: without the package.
        ValueError: for an unknown category.
    """
    known = (*bfcl.PARALLEL, *FLAT_CATEGORIES)
    found: list[Item] = []
    for category in categories:
        if category not in known:
            raise ValueError(f"categories of bfcl-parallel-v0 are {', '.join(known)}, got {category!r}")
        rows = bfcl.rows(category)
        found.extend(rows if category in bfcl.PARALLEL else [flat for row in rows for flat in flat_rows(row)])
    return found


def parallel_row(row: Item) -> Item:
    """A row in the form of the task.

    It has either the benchmark's fields (`question`, `function`, `ground_truth`, `id`) or those of the hub's data set
    (`user_prompt` or `prompt`, `official_category`). Functions and gold calls may be JSON texts. Fields of nested mappings that are
    None are what data libraries fill in, and are dropped.

    Raises:
        KeyError: without a field.
        ValueError: for gold calls of functions that the row does not describe, or a type BFCL does not know.
    """
    functions = [_filled(_parsed(function)) for function in _parsed(row["function"])]
    gold = [_filled(_parsed(one)) for one in _parsed(row["ground_truth"])]
    prompt = row.get("user_prompt") or row.get("prompt") or _request(_parsed(row["question"]))
    _check(functions, gold)
    made = {
        "id": str(row.get("id") or _digest(prompt, functions, gold)),
        "category": str(row.get("category") or row.get("official_category") or "own"),
        "prompt": prompt,
        "function": functions,
        "ground_truth": gold,
    }
    return {**made, "ordered": True} if row.get("ordered") else made


def flat_rows(row: Item) -> list[Item]:
    """A row for each turn with at least `FLAT_CALLS` gold calls: earlier requests and their gold calls are told, nothing is run."""
    functions = [doc for api in row["involved_classes"] for doc in bfcl.functions(api)]
    functions = [doc for doc in functions if doc["name"] not in row.get("excluded_function", ())]
    order = {doc["name"]: list(doc["parameters"]["properties"]) for doc in functions}
    told: list[str] = []
    found: list[Item] = []
    for turn, (messages, calls) in enumerate(zip(row["question"], row["ground_truth"], strict=True)):
        request = _request([messages])
        if len(calls) >= FLAT_CALLS:
            gold = [_gold_of(call, order) for call in calls]
            found.append(
                {
                    "id": f"{row['id']}-turn-{turn}",
                    "category": row["category"],
                    "prompt": "\n".join([*told, f"user: {request}"]) if told else request,
                    "function": functions,
                    "ground_truth": gold,
                    "ordered": True,
                }
            )
        told += [f"user: {request}", *(f"called: {call}" for call in calls)]
    return found


def _gold_of(text: str, order: Mapping[str, Sequence[str]]) -> dict[str, dict[str, list[Any]]]:
    (call,) = parse_calls(text, order).calls
    return {call.name: {key: [_listed(value)] for key, value in call.arguments.items()}}


def _listed(value: Any) -> Any:
    """The value with dictionaries in the gold's form, a list of allowed values for each key."""
    return {key: [one] for key, one in value.items()} if isinstance(value, Mapping) else value


def _request(question: Sequence[Any]) -> str:
    """The messages of the one turn as text; a single message is its content."""
    messages = [message for turn in question for message in turn]
    if not messages:
        raise ValueError("a question needs a message")
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _filled(value: Any) -> Any:
    """Without the keys of mappings whose value is None; a None in a list is a value."""
    if isinstance(value, Mapping):
        return {key: _filled(one) for key, one in value.items() if one is not None}
    return [_filled(one) for one in value] if isinstance(value, (list, tuple)) else value


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _check(functions: Sequence[Mapping[str, Any]], gold: Sequence[Mapping[str, Any]]) -> None:
    schemas = {function["name"]: function["parameters"]["properties"] for function in functions}
    if not gold:
        raise ValueError("a row needs at least one gold call")
    for one in gold:
        if len(one) != 1 or gold_name(one) not in schemas:
            raise ValueError(f"each gold call must name one of the functions {', '.join(schemas)}, got {one!r}")
        for parameter, allowed in one[gold_name(one)].items():
            if not isinstance(allowed, list) or not allowed:
                raise ValueError(f"{gold_name(one)}: {parameter!r} must list allowed values, got {allowed!r}")
    for name, properties in schemas.items():
        for parameter, schema in properties.items():
            types = [schema.get("type"), *([schema["items"].get("type")] if "items" in schema else [])]
            unknown = [kind for kind in types if kind not in TYPES]
            if unknown:
                raise ValueError(f"{name}: {parameter!r} has the type {unknown[0]!r}; BFCL knows {', '.join(TYPES)}")
