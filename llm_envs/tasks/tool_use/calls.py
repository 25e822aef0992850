"""Function calls in completions: read by Python's parser without running anything, or as JSON; and written back."""

from __future__ import annotations

import ast
import json
import keyword
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_envs.tasks.fences import fenced_text

_MARKER = r"\s*(?:[-*+•]\s+)?(?:\d{1,3}\s*[:.)]\s*)?"
_ITEM = re.compile(rf"{_MARKER}(?=\S)")
_LINE_OF_CALLS = re.compile(rf"{_MARKER}`?(?:[\[({{]|[^\W\d][\w.]*\s*\()")
# Anything else is not given to Python's parser, which warns about some texts that are no program.
_CALL_LIKE = re.compile(r"[\[(]?\s*[^\W\d][\w.]*\s*\(")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_KNOWN_ESCAPES = frozenset("\n\\'\"abfnrtvxuUN01234567")
_RAW_TEXT = re.compile(r"\b[rR][bBfF]?['\"]")

# What Python's parser, or the conversion of what it found, raises for texts that are no program.
_UNREADABLE = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)


@dataclass(frozen=True)
class Call:
    """One function call.

    Attributes:
        name: of the function, dots included.
        arguments: by parameter.
        positional: values given without a name, where no schema says what they are.
    """

    name: str
    arguments: Mapping[str, Any]
    positional: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return render_call(self)


@dataclass(frozen=True)
class Parsed:
    """What stands in a completion.

    Attributes:
        calls: in order.
        rejected: pieces of text that are no call.
    """

    calls: tuple[Call, ...] = ()
    rejected: tuple[str, ...] = ()


class NoCallError(ValueError):
    """A text is no function call."""


def parse_calls(text: str, parameters: Mapping[str, Sequence[str]] | None = None) -> Parsed:
    """The calls in a text. Nothing is evaluated, and anything that is not wholly a call is rejected, not guessed at.

    Read are, of a text with fenced blocks only in these (`fences`): JSON objects `{"name": …, "arguments": {…}}` (or
    `"parameters"`) or `{name: {…}}`, alone, in a list or one a line; and Python calls `name(key=value, …)`, alone, in a list, or
    one a line. Values are literals; a bare word is its own text, as in the benchmark. Bullets and numbers in front of a line and
    backticks around it are dropped. An empty text, `[]` and `none` are no calls.

    Args:
        text: of the completion.
        parameters: names of each function's parameters, in order: what values without a name belong to. Without them such values
            stay positional.
    """
    body = body_of(text)
    if body.casefold() in ("", "[]", "none"):
        return Parsed()
    order = parameters or {}
    for read in (_json_calls, _python_calls):
        found = _all_of(read, [body], order)
        if found is not None:
            return Parsed(tuple(found))
    calls: list[Call] = []
    rejected: list[str] = []
    for line in filter(None, (line.strip() for line in body.splitlines())):
        piece = _ITEM.sub("", line, count=1).strip("`")
        found = _all_of(_json_calls, [piece], order)
        found = _all_of(_python_calls, [piece], order) if found is None else found
        calls.extend(found or ())
        if found is None:
            rejected.append(line)
    return Parsed(tuple(calls), tuple(rejected))


def body_of(text: str) -> str:
    """The text that is read, without blanks around it: what stands in fenced blocks (`fences`), or else all of it.

    A text that is calls as it stands is read as it is: fences in it are in texts that it hands on.
    """
    if any(fence in text for fence in ("```", "~~~")) and _all_of(_python_calls, [text.strip()], {}) is not None:
        return text.strip()
    return fenced_text(text, _LINE_OF_CALLS).strip()


def _all_of(read: Any, texts: Iterable[str], order: Mapping[str, Sequence[str]]) -> list[Call] | None:
    """Every call of all the texts; None if one of them is anything else."""
    try:
        return [_named(call, order) for text in texts for call in read(text)]
    except _UNREADABLE:
        return None


def _named(call: Call, order: Mapping[str, Sequence[str]]) -> Call:
    """The call with its positional values named, where the function is known."""
    if not call.positional or call.name not in order:
        return call
    names = list(order[call.name])[: len(call.positional)]
    if len(names) < len(call.positional) or set(names) & set(call.arguments):
        raise NoCallError(f"{call.name} has no place for its positional values")
    return Call(call.name, {**dict(zip(names, call.positional, strict=True)), **call.arguments})


# ---- JSON ----


def _json_calls(text: str) -> list[Call]:
    found = json.loads(text, parse_constant=_refuse)
    return [_json_call(one) for one in (found if isinstance(found, list) else [found])]


def _refuse(constant: str) -> Any:
    raise NoCallError(f"{constant} is no value")


def _json_call(found: Any) -> Call:
    if isinstance(found, Mapping):
        name, arguments = None, None
        if set(found) in ({"name", "arguments"}, {"name", "parameters"}):
            name, arguments = found["name"], found.get("arguments", found.get("parameters"))
        elif len(found) == 1:
            ((name, arguments),) = found.items()
        if isinstance(arguments, Mapping) and isinstance(name, str):
            return Call(name, dict(arguments))
    raise NoCallError(f"no call: {found!r:.100}")


# ---- Python ----


def _python_calls(text: str) -> list[Call]:
    if not _CALL_LIKE.match(text):
        raise NoCallError("no call")
    statements = ast.parse(_quiet(text)).body
    calls: list[Call] = []
    for statement in statements:
        if not isinstance(statement, ast.Expr):
            raise NoCallError(f"no call: {type(statement).__name__}")
        node = statement.value
        calls.extend(_python_call(one) for one in (node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]))
    return calls


def _quiet(text: str) -> str:
    """The text with unknown escapes written as what they mean, a backslash: Python warns about them, once a completion."""
    if "\\" not in text or _RAW_TEXT.search(text):
        return text
    return _ESCAPE.sub(lambda match: match.group() if match.group(1) in _KNOWN_ESCAPES else "\\" + match.group(), text)


def _python_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise NoCallError(f"no call: {type(node).__name__}")
    arguments: dict[str, Any] = {}
    for given in node.keywords:
        if given.arg is None or given.arg in arguments:
            raise NoCallError("** in a call, or an argument given twice")
        arguments[given.arg] = _value(given.value)
    return Call(_name(node.func), arguments, tuple(_value(value) for value in node.args))


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    raise NoCallError(f"a function's name cannot be a {type(node).__name__}")


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.List):
        return [_value(one) for one in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(one) for one in node.elts)
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise NoCallError("** in a dictionary")
        return {_value(key): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        sign, node = (-1 if isinstance(node.op, ast.USub) else 1), node.operand
        if not (isinstance(node, ast.Constant) and type(node.value) in (int, float)):
            raise NoCallError("a sign without a number")
    if not isinstance(node, ast.Constant) or not isinstance(node.value, (str, int, float, type(None))):
        raise NoCallError(f"no literal: {type(node).__name__}")
    value = node.value
    if isinstance(value, float) and not math.isfinite(value):
        raise NoCallError(f"{value} is no value")
    return -value if sign < 0 and isinstance(value, (int, float)) else value


# ---- writing ----


def render_call(call: Call) -> str:
    """The call as Python writes it, or as a JSON object where a name is none that Python allows."""
    words = [*call.name.split("."), *call.arguments]
    if all(word.isidentifier() and not keyword.iskeyword(word) for word in words):
        values = [repr(value) for value in call.positional] + [f"{key}={value!r}" for key, value in call.arguments.items()]
        return f"{call.name}({', '.join(values)})"
    if call.positional:
        raise ValueError(f"a call of {call.name!r} with positional values cannot be written")
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
