"""Rows of `bfcl-parallel-v0`: a request, functions and gold calls, in one form whatever they are read from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from llm_envs.tasks.rows import bundled_rows
from llm_envs.tasks.sources import HubData, Sources
from llm_envs.tasks.tool_use import bfcl
from llm_envs.tasks.tool_use.calls import parse_calls
from llm_envs.tasks.tool_use.fields import field_of, is_messages, mappings_in
from llm_envs.tasks.tool_use.matching import TYPES, check_gold, gold_name
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
    return [parallel_row(row) for row in bundled_rows("tool_use_parallel")]


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
        ValueError: naming a field of another type, for gold calls of functions that the row does not describe or that cannot be
            made so, or a type BFCL does not know.
    """
    functions = [_filled(one) for one in mappings_in(row, "function", "a list of functions' descriptions")]
    gold = [_filled(one) for one in mappings_in(row, "ground_truth", "a list of gold calls, {name: {parameter: [values]}}")]
    prompt = _prompt(row)
    _check(functions, gold)
    made = {
        "id": str(row.get("id") or _digest(prompt, functions, gold)),
        "category": str(row.get("category") or row.get("official_category") or "own"),
        "prompt": prompt,
        "function": functions,
        "ground_truth": gold,
    }
    return {**made, "ordered": True} if row.get("ordered") else made


def _prompt(row: Item) -> str:
    """The request of a row."""
    prompt = row.get("user_prompt") or row.get("prompt")
    if prompt is None and row.get("question") is None:
        raise ValueError("a row needs 'prompt' (or 'user_prompt'), a text, or 'question', the user's messages: it has neither")
    if prompt is not None and not isinstance(prompt, str):
        raise ValueError(f"'prompt' must be a text, got {prompt!r:.200}")
    return prompt or _request(field_of(row, "question", is_messages, "a list of messages for each turn"))


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


def _filled(value: Any) -> Any:
    """Without the keys of mappings whose value is None; a None in a list is a value."""
    if isinstance(value, Mapping):
        return {key: _filled(one) for key, one in value.items() if one is not None}
    return [_filled(one) for one in value] if isinstance(value, (list, tuple)) else value


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _check(functions: Sequence[Mapping[str, Any]], gold: Sequence[Mapping[str, Any]]) -> None:
    for function in functions:
        parameters = function.get("parameters")
        described = isinstance(parameters, Mapping) and isinstance(parameters.get("properties"), Mapping)
        if not described or not isinstance(function.get("name"), str):
            raise ValueError(f"a 'function' must have a name and parameters with properties, got {function!r:.200}")
    schemas = {function["name"]: function["parameters"]["properties"] for function in functions}
    if not gold:
        raise ValueError("a row needs at least one gold call")
    for one in gold:
        if len(one) != 1 or gold_name(one) not in schemas:
            raise ValueError(f"each gold call must name one of the functions {', '.join(schemas)}, got {one!r}")
        if not isinstance(one[gold_name(one)], Mapping):
            raise ValueError(f"'ground_truth' must give {gold_name(one)} allowed values by parameter, got {one!r:.200}")
        for parameter, allowed in one[gold_name(one)].items():
            _check_allowed(f"{gold_name(one)}: {parameter!r}", allowed)
    for name, properties in schemas.items():
        for parameter, schema in properties.items():
            types = [schema.get("type"), *([schema["items"].get("type")] if "items" in schema else [])]
            unknown = [kind for kind in types if kind not in TYPES]
            if unknown:
                raise ValueError(f"{name}: {parameter!r} has the type {unknown[0]!r}; BFCL knows {', '.join(TYPES)}")
    described = {function["name"]: function for function in functions}
    for one in gold:
        check_gold(one, described[gold_name(one)])


def _check_allowed(what: str, allowed: Any) -> None:
    """Nothing, for a list of values; a dictionary among them, also one in a list, has such a list for each of its keys."""
    if not isinstance(allowed, list) or not allowed:
        raise ValueError(f"{what} must list allowed values, got {allowed!r}")
    for value in allowed:
        for one in value if isinstance(value, list) else [value]:
            for key, inner in one.items() if isinstance(one, Mapping) else ():
                if not isinstance(inner, list):
                    raise ValueError(f"{what}, {key!r} must list allowed values, got {inner!r}")
