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


def parsed(code: str) -> tuple[ast.Module | None, str | None, int]:
    """The tree, or what is wrong and in which line, from 1."""
    try:
        with _silent():
            tree = ast.parse(code)
        ast.unparse(tree)  # what is nested too deep to be written again is no program for us
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


@contextmanager
def _silent() -> Iterator[None]:
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "\d" in a text is a matter of taste, whatever filters the process has
        yield
