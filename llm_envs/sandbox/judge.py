"""The judge's process: runs setup and checks, which are trusted, and says how each ended. The solution is elsewhere."""

from __future__ import annotations

import json
import socket
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from llm_envs.sandbox import guard, wire
from llm_envs.sandbox.extended import trust
from llm_envs.sandbox.guest import seed_chance
from llm_envs.sandbox.outcomes import caught
from llm_envs.sandbox.session import TESTS, Session
from llm_envs.sandbox.suite import Suite
from llm_envs.sandbox.trial import Limits, NameKind, Outcome, SandboxError, Trial

Tell: TypeAlias = Callable[[str, Any], None]

MOST_DEATHS = 3
"""After these the remaining checks are not run."""


def judge(host: socket.socket, warden: socket.socket, limits: Limits, prepare: Callable[[], None]) -> None:
    """Reads a trial from the host and answers with outcomes, one by one; `prepare` makes this process a judge's."""

    def tell(what: str, value: object) -> None:
        wire.send(host, json.dumps([what, value]))

    try:
        prepare()
        trial = Trial(**json.loads(wire.receive(host)))
        seed_chance()
        guard.note_classes()
        sys.setrecursionlimit(3000)
        Bench(trial, Session(warden, limits, operators=trial.operators), tell).run()
    except SandboxError as fault:
        tell("fault", str(fault))
    except Exception:
        tell("fault", f"the judge failed:\n{traceback.format_exc()}")
        raise
    tell("done", None)


class Bench:
    """A trial under way.

    Args:
        trial: what is tried.
        session: the solution's process.
        tell: sends a part of the report.
    """

    def __init__(self, trial: Trial, session: Session, tell: Tell) -> None:
        self._trial = trial
        self._session = session
        self._tell = tell
        self._folder = str(Path.cwd())
        self._setup = compiled(trial.setup, "<setup>")
        self._checks = [compiled(check, "<check>") for check in trial.checks]
        self._names: dict[str, NameKind] = {}

    def run(self) -> None:
        """Loads, sets up and checks, and tells how each ended."""
        loaded, setup, namespace = self._open(self._tell)
        checks = self._plan(namespace)
        self._tell("plan", [name for name, _ in checks])
        ready = loaded.passed and setup.passed
        for name, act in checks:
            if ready and not self._session.alive:
                ready, namespace = self._again()
            if not ready:
                return
            outcome = self._session.step(name, lambda act=act, there=namespace: act(there), self._folder)
            self._tell("check", vars(outcome))

    def _open(self, tell: Tell) -> tuple[Outcome, Outcome, dict[str, Any]]:
        """Starts the solution and tells; how loading and setup ended, and the setup's namespace."""
        self._session.start()
        module = types.ModuleType(TESTS)
        namespace = vars(module)
        namespace["__file__"] = str(Path(self._folder, "tests.py"))
        sys.modules[TESTS] = module
        loaded = self._session.step("load", lambda: self._load(namespace), self._folder)
        tell("loaded", vars(loaded))
        tell("names", self._names)
        setup = Outcome("setup", "not run")
        if loaded.passed:
            setup = self._set_up(namespace)
        elif self._trial.unittest:
            self._list_tests(namespace)
        tell("setup", vars(setup))
        return loaded, setup, namespace

    def _again(self) -> tuple[bool, dict[str, Any]]:
        """Starts a solution anew whose process has ended; whether that went as before."""
        if self._session.deaths >= MOST_DEATHS:
            return False, {}
        loaded, setup, namespace = self._open(lambda what, value: None)
        return loaded.passed and setup.passed, namespace

    def _load(self, namespace: dict[str, Any]) -> None:
        peer = self._session.peer
        assert peer is not None
        peer.ask("load", self._trial.solution)
        for name, kind, value in peer.ask("names", self._trial.names):
            if name in self._trial.names and kind in ("function", "class", "value"):
                namespace[name] = value
                trust(value)
                self._names[name] = kind

    def _set_up(self, namespace: dict[str, Any]) -> Outcome:
        peer = self._session.peer
        assert peer is not None
        asked = peer.asked
        outcome = self._session.step("setup", lambda: exec(self._setup, namespace), self._folder)
        if not (outcome.passed or peer.asked > asked or outcome.status == "timeout"):
            # A name that is bound to data is used without a question. Without any name it fails as well if that is its own fault.
            self._list_tests({"__name__": TESTS, "__file__": namespace["__file__"]})
        return outcome

    def _list_tests(self, namespace: dict[str, Any]) -> None:
        """Runs the setup without a solution, so that the tests that cannot run are at least known."""
        error = caught(lambda: exec(self._setup, namespace))
        if error is not None and not (isinstance(error, NameError) and error.name in self._trial.names):
            raise SandboxError(f"the setup failed by itself: {type(error).__name__}: {error}") from error

    def _plan(self, namespace: dict[str, Any]) -> list[tuple[str, Callable[[dict[str, Any]], None]]]:
        if self._trial.unittest:
            suite = Suite()
            return [(name, suite.test(name)) for name in suite.names(namespace)]
        return [
            (str(number), lambda namespace, check=check: exec(check, dict(namespace))) for number, check in enumerate(self._checks)
        ]


def compiled(source: str, name: str) -> types.CodeType:
    """The code of trusted source.

    Raises:
        SandboxError: it is none.
    """
    try:
        return compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise SandboxError(f"{name} is no Python: {error}") from error
