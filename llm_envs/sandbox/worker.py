"""The host's end of a warden: starting it, giving it trials, reading reports, ending it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_envs.sandbox import wire
from llm_envs.sandbox.children import environment
from llm_envs.sandbox.clearing import remove_folder
from llm_envs.sandbox.isolation import unprivileged_id
from llm_envs.sandbox.trial import Limits, Outcome, Report, SandboxError, Status, Trial

START_SECONDS = 120.0
"""For an interpreter on a busy machine."""
PATIENCE_FACTOR = 40
"""After so many times the waiting time of a step nobody waits any more: something is broken."""

# The packages' own `__init__` would load all of ours into the process that solutions are forked from.
_BOOT = """
import sys
sys.path[:] = filter(None, sys.path)  # -I would do so, but would not hear of PYTHONHASHSEED either
import types
for name, folder in (("llm_envs", {package!r}), ("llm_envs.sandbox", {folder!r})):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from llm_envs.sandbox.warden import main
main({control})
"""
_SLOTS = itertools.count()


class Worker:
    """A warden, for one trial at a time.

    Args:
        without: layers of isolation not to take.

    Raises:
        SandboxError: it could not be started.
    """

    def __init__(self, without: Collection[str] = ()) -> None:
        self.closed = False
        self._folder = tempfile.mkdtemp(prefix="llm-envs-sandbox-")
        uid = unprivileged_id(os.getpid() + next(_SLOTS)) if os.geteuid() == 0 else None
        self._control, theirs = socket.socketpair()
        try:
            self._process = self._start(theirs)
        finally:
            theirs.close()
        self.layers: Mapping[str, bool] = self._greet(uid, without)

    def _start(self, control: socket.socket) -> subprocess.Popen[bytes]:
        here = Path(__file__).parent
        boot = _BOOT.format(package=str(here.parent), folder=str(here), control=control.fileno())
        with Path(self._folder, "errors").open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-s", "-c", boot],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[control.fileno()],
                cwd=self._folder,
                env=environment(self._folder),
                start_new_session=True,
            )

    def _failed(self, what: str, error: BaseException) -> SandboxError:
        """Ends the warden; the error to raise, with what it wrote last."""
        said = Path(self._folder, "errors").read_text(encoding="utf-8", errors="replace")[-2000:]
        self.close()
        return SandboxError(f"{what}: {type(error).__name__}: {error}\n{said}".strip())

    def _greet(self, uid: int | None, without: Collection[str]) -> Mapping[str, bool]:
        self._control.settimeout(START_SECONDS)
        try:
            wire.send_order(self._control, {"folder": self._folder, "uid": uid, "without": list(without)})
            answer, _ = wire.receive_order(self._control)
        except (wire.ClosedError, TimeoutError) as error:
            raise self._failed(f"the sandbox's process did not start with {sys.executable}", error) from error
        if "fault" in answer:
            self.close()
            raise SandboxError(f"solutions cannot be isolated here: {answer['fault']}")
        return answer["layers"]

    def run(self, trial: Trial, limits: Limits) -> Report:
        """The report of a trial.

        Raises:
            SandboxError: something other than the solution failed; the worker is closed unless that was the setup or a check.
        """
        said: list[tuple[str, Any]] = []
        try:
            answer = self._exchange(trial, limits, said)
        except BaseException as error:
            # Interrupted, too: an answer that nobody has read would be taken for that of the next trial.
            failure = self._failed("the sandbox's process failed", error)
            if isinstance(error, (OSError, ValueError, TypeError)):
                raise failure from error
            raise
        return report_of(trial, parts_of(trial, said, answer["reason"]), answer)

    def _exchange(self, trial: Trial, limits: Limits, said: list[tuple[str, Any]]) -> dict[str, Any]:
        """What the warden says of a trial that has ended; all that the judge said, to the end of its process, goes into `said`."""
        deadline = time.monotonic() + PATIENCE_FACTOR * limits.wall_seconds + START_SECONDS
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                wire.send_order(self._control, {"limits": vars(limits)}, [theirs.fileno()])
            ours.settimeout(deadline - time.monotonic())
            with contextlib.suppress(wire.ClosedError):  # then the warden says why
                wire.send(ours, json.dumps(vars(trial)))
                while True:
                    what, value = json.loads(wire.receive(ours))
                    said.append((what, value))
            self._control.settimeout(max(1.0, deadline - time.monotonic()))
            return wire.receive_order(self._control)[0]

    def close(self) -> None:
        """Ends the warden and everything under it, and removes its folder."""
        self.closed = True
        self._control.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if Path(self._folder).exists():
            remove_folder(self._folder)


_ORDER = ("loaded", "names", "setup", "plan")
"""What a judge says before the outcomes of checks."""


def parts_of(trial: Trial, said: Sequence[tuple[str, Any]], reason: str) -> dict[str, Any]:
    """What a judge said, by kind, the outcomes of checks in a list.

    Raises:
        SandboxError: it names a fault, or did not say what a judge says, once and in order, and then end as it should: somebody
            else may have written that.
    """
    words = [what for what, _ in said]
    if "fault" in words:
        raise SandboxError(said[words.index("fault")][1])
    done = words[-1:] == ["done"]
    if reason != ("ended" if done else "timeout"):
        raise SandboxError(f"the judge's process has not ended as it should: {reason}")
    parts = dict(said[: len(_ORDER)])
    outcomes = said[len(_ORDER) : len(said) - done]
    plan = parts.get("plan", [])
    known = plan if trial.unittest else [str(number) for number in range(len(trial.checks))]
    in_order = tuple(parts) == _ORDER[: len(parts)] and (not done or len(parts) == len(_ORDER))
    named = [outcome["name"] if what == "check" else None for what, outcome in outcomes]
    if not in_order or ("plan" in parts and plan != known) or named != plan[: len(named)]:
        raise SandboxError(f"the judge said {', '.join(words)}, which is no report of {len(known)} checks")
    return {**parts, "check": [outcome for _, outcome in outcomes], **({"done": None} if done else {})}


def report_of(trial: Trial, parts: Mapping[str, Any], answer: Mapping[str, Any]) -> Report:
    """The report that the judge's words and the warden's make; the first outcome that is missing is that of what took too long."""
    too_long: tuple[Status, str] = ("timeout", "the test itself took too long")
    late = iter([too_long] if "done" not in parts else [])

    def outcome(name: str, said: Mapping[str, Any] | None) -> Outcome:
        if said is not None:
            return Outcome(**said)
        ended = next(late, None)
        return Outcome(name, "not run") if ended is None else Outcome(name, ended[0], message=ended[1])

    loaded, setup = (outcome(name, parts.get(key)) for key, name in (("loaded", "load"), ("setup", "setup")))
    names = parts.get("plan") or [str(number) for number in range(len(trial.checks))]
    said = [*parts["check"], *[None] * (len(names) - len(parts["check"]))]
    checks = tuple(outcome(name, one) for name, one in zip(names, said, strict=True))
    return Report(loaded, parts.get("names", {}), setup, checks, answer["output"], answer["cpu_seconds"])
