"""Python's parser and compiler for texts that anybody may have written: an answer instead of an exception, and no warnings."""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# Filters of warnings belong to the process; two threads that change and restore them would leave each other's behind.
_WARNINGS = threading.Lock()
_OTHER_ERRORS = (ValueError, RecursionError, MemoryError)

MOST_DEPTH = 150
"""A program that is nested deeper is not read, so that whoever walks it by recursion, from wherever, comes to an end."""


def parsed(code: str) -> tuple[ast.Module | None, str | None, int]:
    """The tree, or what is wrong and in which line, from 1."""
    try:
        with _silent():
            tree = ast.parse(code)
        deep = _too_deep(tree)
        if deep is not None:
            return None, f"line {deep}: nested more than {MOST_DEPTH} levels deep", deep
        ast.unparse(tree)  # on some versions of Python even less is too deep to be written again
    except SyntaxError as error:
        return None, f"line {error.lineno}, column {error.offset}: {error.msg}", error.lineno or 1
    except _OTHER_ERRORS as error:
        return None, f"{type(error).__name__}: {error}", 1
    return tree, None, 0


def compile_problem(code: str) -> str | None:
    """What the compiler has against a program that parses, such as `await` in a function that is not `async`; None if nothing."""
    try:
        with _silent():
            compile(code, "<answer>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return str(error.msg)
    except _OTHER_ERRORS as error:
        return f"{type(error).__name__}: {error}"
    return None


def _too_deep(tree: ast.AST) -> int | None:
    """The first line with too much in one another, None without any; the branches of an `elif` chain are next to each other."""
    lines: list[int] = []
    waiting: list[tuple[ast.AST, int, int]] = [(tree, 0, 1)]
    while waiting:
        node, depth, line = waiting.pop()
        line = getattr(node, "lineno", line)
        if depth > MOST_DEPTH:
            lines.append(line)
            continue
        chained = node.orelse[0] if isinstance(node, ast.If) and len(node.orelse) == 1 else None
        waiting += [
            (child, depth if child is chained and isinstance(child, ast.If) else depth + 1, line)
            for child in ast.iter_child_nodes(node)
        ]
    return min(lines, default=None)


@contextmanager
def _silent() -> Iterator[None]:
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "\d" in a text is a matter of taste, whatever filters the process has
        yield
