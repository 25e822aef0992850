"""The solution's process: runs it and answers the judge. Nothing of the tests is known here but what they pass as arguments."""

from __future__ import annotations

import contextlib
import functools
import random
import socket
import sys
import types
from pathlib import Path

from llm_envs.sandbox import codec, wire
from llm_envs.sandbox.peer import Peer, object_operations


def serve(channel: socket.socket) -> None:
    """Answers the judge until it is gone."""
    forget_us()
    # The depth that a program of its own would have, beyond the frames that are here already.
    sys.setrecursionlimit(1000 + 20)
    peer = Peer(channel, judges=False, operators=True)
    module = types.ModuleType("solution")
    module.__file__ = str(Path.cwd() / "solution.py")
    sys.modules["solution"] = module

    def load(source: str) -> None:
        # The compiler's own warnings would go to the output that is reported.
        exec(compile(source, "<solution>", "exec", dont_inherit=True), vars(module))

    def names(wanted: tuple[str, ...]) -> tuple[tuple[str, str, object], ...]:
        found = [name for name in wanted if name in vars(module)]
        return tuple((name, kind_of(vars(module)[name]), vars(module)[name]) for name in found)

    peer.operations = {**object_operations(peer.mirror), "load": load, "names": names}
    streams = (sys.stdout, sys.stderr)  # as they are now: a solution may put others there
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # in order with standard error

    def flush() -> None:
        for stream in streams:
            # Closed by the solution, or over the limit of a file's size.
            with contextlib.suppress(ValueError, OSError):
                stream.flush()

    peer.before_answers = flush
    try:
        peer.serve()
    except (wire.ClosedError, codec.MalformedError):
        return


def kind_of(value: object) -> str:
    """What a name of the solution is bound to, in a word."""
    if isinstance(value, type):
        return "class"
    return "function" if callable(value) else "value"


def forget_us() -> None:
    """Makes this process a plain interpreter: our modules are not to be found, and chance begins at a fixed point."""
    for name in our_modules():
        sys.modules.pop(name, None)
    seed_chance()


@functools.cache
def our_modules() -> tuple[str, ...]:
    """Names of our modules; a warden finds them before it forks, because to look at all names copies their memory."""
    return tuple(name for name in sys.modules if name.partition(".")[0] == "llm_envs")


def seed_chance() -> None:
    """Starts the global generators from a fixed point, so that a trial that draws from them can be repeated."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
