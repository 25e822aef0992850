"""Outcomes of exceptions, in words that are the same in each run."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import TracebackType

from llm_envs.sandbox.trial import Outcome, Status

MOST_TEXT = 2000
"""Characters of a message."""
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


def caught(act: Callable[[], object]) -> BaseException | None:
    """What foreign code raised, of whatever class; None if nothing. The one place here where no exception goes on."""
    try:
        act()
    except BaseException as error:
        return error
    return None


def text_of(error: BaseException) -> str:
    """What `str` says of an exception; a solution's own `__str__` may do anything."""
    said: list[str] = []
    second = caught(lambda: said.append(str(error)))
    return said[0] if second is None else f"<no text: {type(second).__name__}>"


class Skipped(Exception):  # noqa: N818
    """The test said that it cannot run here."""


def outcome_of(name: str, error: BaseException, folder: str) -> Outcome:
    """The outcome of an exception; one that only the tests can raise is a failure."""
    text = getattr(error, "_remote_text", None)
    remote = text is not None or hasattr(error, "_remote_line")
    status: Status = "error"
    if isinstance(error, AssertionError) and not remote:
        status = "failed"
    elif isinstance(error, MemoryError):
        status = "memory"
    elif isinstance(error, SystemExit):
        status = "exited"
    elif isinstance(error, Skipped):
        status = "not run"
    message = text_of(error) if text is None else text
    line = getattr(error, "_remote_line", None) or line_in_tests(error.__traceback__)
    return Outcome(name, status, cut(type(error).__name__, folder), cut(message, folder), line)


def cut(text: str, folder: str) -> str:
    """A text as a report has it: the same in each run, and not long."""
    text = steady(text, folder)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def steady(text: str, folder: str) -> str:
    """A text without what differs between runs: addresses of objects, and the name of the trial's folder."""
    return _ADDRESS.sub("at 0x…", text.replace(folder, "."))


def line_in_tests(traceback: TracebackType | None) -> int | None:
    """The last line of a check or setup in a traceback."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename in ("<check>", "<setup>"):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
