"""Ctrl-C held back where something is half done, and let through where stopping costs nothing.

Python raises KeyboardInterrupt between any two instructions of the main thread: between an optimiser's step and the note of it too,
and a run that went on from there would train on the same samples again.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Hold:
    """What is known of Ctrl-C in this process; the main thread's alone.

    Attributes:
        closed: whether it has to wait, for each block under way, the innermost last.
        waiting: whether one does.
        handler: who had it before.
    """

    closed: list[bool] = field(default_factory=list)
    waiting: bool = False
    handler: Callable[[int, Any], Any] = signal.default_int_handler


_hold = _Hold()


@contextmanager
def shielded() -> Iterator[None]:
    """Ctrl-C waits until the end of the block or until an `interruptible` part of it. A second one waits no longer.

    Nothing changes in other threads than the main one, which alone are told of signals, and where a program ignores Ctrl-C.
    """
    if not _is_main() or not (_hold.closed or _take_over()):
        yield
        return
    depth = len(_hold.closed)
    try:
        _hold.closed.append(True)
        yield
    finally:
        del _hold.closed[depth:]
        if not _hold.closed:
            signal.signal(signal.SIGINT, _hold.handler)
        if not (_hold.closed and _hold.closed[-1]):
            _let_through()


@contextmanager
def interruptible() -> Iterator[None]:
    """A part of a shielded block that may be stopped anywhere, by a Ctrl-C that has waited too. Without a shield it is nothing."""
    if not _is_main() or not _hold.closed:
        yield
        return
    depth = len(_hold.closed)
    try:
        _hold.closed.append(False)
        _let_through()
        yield
    finally:
        del _hold.closed[depth:]


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _take_over() -> bool:
    """Whether Ctrl-C is ours now."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        return False
    if handler is not _on_signal:  # it is where an interrupt came just before it was given back
        _hold.handler = handler
    _hold.waiting = False
    signal.signal(signal.SIGINT, _on_signal)
    return True


def _on_signal(number: int, frame: Any) -> None:
    if _hold.closed and _hold.closed[-1] and not _hold.waiting:
        _hold.waiting = True
        return
    _hold.waiting = False
    _hold.handler(number, frame)


def _let_through() -> None:
    if _hold.waiting:
        _hold.waiting = False
        _hold.handler(signal.SIGINT, None)
