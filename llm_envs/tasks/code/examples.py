"""Public examples: what a problem's own text says that calls give, read into checks that feedback may show."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MOST_CHARACTERS = 2_000
"""A call in a text is looked for over so many characters."""

# Longer signs first: "==>" is not "==" with something strange after it.
_GIVES = re.compile(r"\s*(?:#\s*)?(?:===?>|=>|==|->|➞|→|⇒|=|(?:should\s+)?returns?\b|#\s*=>)\s*(.*)")
_PUT_IN = re.compile(
    r"^[ \t]*(?:for|if)[ \t]+(\S.*?),?[ \t]+the\b.*?\b(?:output|result)[ \t]+should[ \t]+be:?[ \t]*(.+)$"
    r"|^[ \t]*input:[ \t]*(\S.*)\n[ \t]*output:[ \t]*(.+)$",
    re.IGNORECASE | re.MULTILINE,
)
_SPELLED = {"true": "True", "false": "False", "none": "None", "null": "None"}


@dataclass(frozen=True)
class Example:
    """A call and the value that it gives, both as Python expressions."""

    call: str
    expected: str

    @property
    def check(self) -> str:
        """A check that fails with a message saying what came instead."""
        return f"_got = {self.call}\nassert _got == {self.expected}, 'gave ' + repr(_got)[:200]"


def read_examples(text: str, entry_point: str, parameters: Sequence[str] = ()) -> list[Example]:
    """The examples of a text that can be read, each once, without those that contradict another.

    Read are `>>> f(1)` with the value on the next line; `f(1) == 2` with any of ==, =, =>, ==>, ->, ➞, "returns" or "should
    return"; `For x = 1 the output should be 2`; `Input: x = 1` with `Output: 2` below. A value is a literal; `true`, `false` and
    `null` are taken for Python's. An expression may stand around the call after `>>>`. What does not parse is no example.

    Args:
        text: of the problem, a docstring.
        entry_point: the function that is called.
        parameters: its names for what it is given; without them the last two forms are not read.
    """
    found = [*_sessions(text, entry_point), *_sentences(text, entry_point), *_inputs(text, entry_point, parameters)]
    values: dict[str, list[str]] = {}
    for call, expected in found:
        values.setdefault(call, []).append(expected)
    return [Example(call, said[0]) for call, said in values.items() if all(_equal(one, said[0]) for one in said)]


def contradicts(example: Example, asserted: Sequence[str], entry_point: str, candidate: str = "candidate") -> bool:
    """Whether an asserting statement says of the same call that it gives another value.

    Args:
        example: what is doubted.
        asserted: statements `assert candidate(...) == value`; others say nothing here.
        entry_point: name of the function in the example.
        candidate: its name in the statements.
    """
    for statement in asserted:
        (node,) = ast.parse(statement).body
        test = node.test if isinstance(node, ast.Assert) else None
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is)):
            call, value = test.left, test.comparators[0]
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == candidate:
                call.func.id = entry_point
                if ast.unparse(call) == example.call and _is_literal(value) and not _equal(ast.unparse(value), example.expected):
                    return True
    return False


def _sessions(text: str, entry_point: str) -> Iterator[tuple[str, str]]:
    """Examples written as at Python's prompt."""
    lines = [line.strip() for line in text.split("\n")]
    for number, line in enumerate(lines):
        if line.startswith(">>>"):
            following = number + 1
            source = line[3:].strip()
            while following < len(lines) and lines[following].startswith("... "):
                source += "\n" + lines[following][4:]
                following += 1
            expression = _expression(source)
            if expression is None or not _calls(expression, entry_point):
                continue
            said = literal(lines[following]) if following < len(lines) else None
            if said is not None:
                yield ast.unparse(expression), said
            elif isinstance(expression, ast.Compare) and isinstance(expression.ops[0], ast.Eq) and len(expression.ops) == 1:
                value = expression.comparators[0]  # `>>> f(1) == 2`, and nothing below
                if _is_literal(value) and _calls(expression.left, entry_point):
                    yield ast.unparse(expression.left), ast.unparse(value)


def _sentences(text: str, entry_point: str) -> Iterator[tuple[str, str]]:
    """Examples written as a call, a sign and a value."""
    opening = re.compile(rf"(?<![\w.]){re.escape(entry_point)}\s*\(")
    for match in opening.finditer(text):
        before = text[: match.start()].rsplit("\n", 1)[-1]
        # Of several calls in a line none is the one that gives the value.
        if before.lstrip().startswith(">>>") or opening.search(before):
            continue
        call, end = _call_at(text, match.start(), match.end())
        # The value stands in the line that the call ends in.
        sign = None if call is None else _GIVES.match(text[end:].split("\n", 1)[0])
        said = None if sign is None else literal(sign[1])
        if call is not None and said is not None:
            yield ast.unparse(call), said


def _inputs(text: str, entry_point: str, parameters: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Examples that name what is put in and what comes out."""
    for match in _PUT_IN.finditer(text):
        call = _expression(f"{entry_point}({match[1] or match[3]})")
        said = literal(match[2] or match[4])
        if isinstance(call, ast.Call) and said is not None:
            named = {one.arg: one.value for one in call.keywords if one.arg is not None}
            values = [named[name] for name in parameters] if set(named) == set(parameters) else [*call.args, *named.values()]
            if len(values) == len(parameters) > 0 and all(map(_is_literal, values)):
                yield ast.unparse(ast.Call(call.func, values, [])), said


def _call_at(text: str, start: int, opened: int) -> tuple[ast.expr | None, int]:
    """The call that starts there, ending at the first parenthesis that completes it, and where it ends."""
    for match in re.finditer(r"\)", text[opened : opened + MOST_CHARACTERS]):
        end = opened + match.end()
        call = _expression(text[start:end])
        if call is not None:
            # Names as arguments (`is_happy(abc)`) are a manner of speaking.
            return (call if isinstance(call, ast.Call) and all(map(_is_literal, call.args)) else None), end
    return None, opened


def literal(text: str) -> str | None:
    """The literal that a text is, as Python writes it; a remark after it and a full stop are no part of it."""
    text = text.strip()
    for candidate in (text.rstrip(". "), text, text.split("#", 1)[0].strip()):
        expression = _expression(_SPELLED.get(candidate, candidate))
        if expression is not None and _is_literal(expression):
            return ast.unparse(expression)
    return None


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _calls(expression: ast.expr, entry_point: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == entry_point for node in ast.walk(expression))


def _is_literal(expression: ast.expr) -> bool:
    return _value(expression) is not _NONE


def _equal(one: str, other: str) -> bool:
    return bool(_value(one) == _value(other))


_NONE = object()


def _value(literal: ast.expr | str) -> Any:
    try:
        return ast.literal_eval(literal)
    except (ValueError, TypeError, SyntaxError):
        return _NONE
