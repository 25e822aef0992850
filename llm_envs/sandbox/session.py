"""The judge's side of a solution's process: starting it, asking it, and knowing how it ended."""

from __future__ import annotations

import signal
import socket
import types
from collections.abc import Callable
from typing import Any

from llm_envs.sandbox import codec, guard, wire
from llm_envs.sandbox.outcomes import caught, cut, outcome_of
from llm_envs.sandbox.peer import Operation, Peer, object_operations
from llm_envs.sandbox.remote import CONVERSIONS, LASTING
from llm_envs.sandbox.trial import Limits, Outcome, SandboxError, Status

TESTS = "tests"
"""Name of the module that setup and checks run in."""


class GuestGone(BaseException):
    """The solution's process has ended, or no longer talks sense."""


class StepTimeout(BaseException):
    """The test itself has used its CPU time."""


class JudgePeer(Peer):
    """The judge's end of the channel."""

    def __init__(self, channel: socket.socket, *, operators: bool) -> None:
        super().__init__(channel, judges=True, operators=operators, reveals=guard.is_own)
        self.operations = guarded_operations(self)
        self.fault: str | None = None
        self._operators = operators
        self._numbers: dict[tuple[object, ...], object] = {}
        self._others: dict[tuple[object, ...], object] = {}

    def ask(self, operation: str, *args: object) -> Any:
        """As `Peer.ask`; but an object cannot be converted to one thing now and to another then, unless `operators` are allowed.

        Numbers stay for good. Texts, lengths and truth stay until the test does something else than convert, or changes a
        container that both sides have.

        Raises:
            GuestGone: the solution's process is gone, or sent what is no answer.
        """
        if operation != "special" or args[1] not in CONVERSIONS or self._operators:
            self._others.clear()
            return self._answer(operation, *args)
        known = self._numbers if args[1] in LASTING else self._others
        key = (args[0], args[1], repr(args[2:]))
        if key in self._numbers:
            return self._numbers[key]
        answer = self._answer(operation, *args)
        if self.mirror.changed:
            self._others.clear()
        return known.setdefault(key, answer)

    def _answer(self, operation: str, *args: object) -> Any:
        if self.fault is not None:
            raise GuestGone(self.fault)
        try:
            return super().ask(operation, *args)
        except wire.ClosedError:
            self.fault = ""
            raise GuestGone("the solution's process ended") from None
        except (codec.MalformedError, wire.TooLargeError, UnicodeDecodeError) as error:
            self.fault = f"sent what is no answer: {error}"
            raise GuestGone(self.fault) from None

    def raised(self, operation: str, args: tuple[object, ...], error: BaseException) -> BaseException:
        """An exception of the solution as the tests meet it.

        One that ends loops or generators silently does so only where the language expects it.
        """
        expected = operation == "special" and args[1] in ("__next__", "__iter__")
        if isinstance(error, (StopIteration, StopAsyncIteration, GeneratorExit)) and not expected:
            replaced = RuntimeError(f"the solution raised {type(error).__name__}")
            vars(replaced).update(_remote_line=getattr(error, "_remote_line", None))
            return replaced
        return error


def guarded_operations(peer: Peer) -> dict[str, Operation]:
    """What a solution may do to objects of the tests, see `guard`: other things would lead it to expected values, or forge some."""
    unguarded = object_operations(peer.mirror)

    def guarded(name: str) -> Operation:
        def operation(number: int, *args: Any) -> object:
            value = peer.mirror.own(number)
            if name == "get" and args[:1] == ("__name__",) and isinstance(value, (type, types.FunctionType, types.MethodType)):
                return str(value.__name__)
            if not guard.allows(value, name, args):
                raise AttributeError(f"a {type(value).__name__} of the tests does not show {args[:1]}")
            return unguarded[name](number, *args)

        return operation

    return {name: guarded(name) for name in unguarded}


class Session:
    """The solution's process, started anew after it has ended.

    Args:
        warden: the process that starts and watches it.
        limits: of a step.
        operators: see `Trial`.
    """

    def __init__(self, warden: socket.socket, limits: Limits, *, operators: bool) -> None:
        self._warden = warden
        self._limits = limits
        self._operators = operators
        self._late = self._armed = False
        self.peer: JudgePeer | None = None
        self.deaths = 0
        signal.signal(signal.SIGPROF, self._stop)

    @property
    def alive(self) -> bool:
        """Whether the solution's process answers, as far as is known."""
        return self.peer is not None and self.peer.fault is None

    def start(self) -> None:
        """Starts the process; ends one that no longer answers.

        Raises:
            SandboxError: the system did not let us.
        """
        if self.peer is not None:
            self._end()
        wire.send_order(self._warden, {"order": "spawn"})
        answer, descriptors = wire.receive_order(self._warden)
        if not descriptors:
            raise SandboxError(f"no process for the solution: {answer['fault']}")
        self.peer = JudgePeer(socket.socket(fileno=descriptors[0]), operators=self._operators)

    def step(self, name: str, act: Callable[[], None], folder: str) -> Outcome:
        """How something ended that uses the solution; the process is gone if that ended it."""
        wire.send_order(self._warden, {"order": "step"})
        self._late, self._armed = False, True
        # Again each second, because a test may catch the first.
        signal.setitimer(signal.ITIMER_PROF, self._limits.cpu_seconds, 1.0)
        error = caught(act)
        self._armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        return self._outcome(name, error, folder)

    def _stop(self, *_: object) -> None:
        if self._armed:
            self._late = True
            raise StepTimeout

    def _outcome(self, name: str, error: BaseException | None, folder: str) -> Outcome:
        if self._late:
            self._end()
            return Outcome(name, "timeout", message=f"the test used more than {self._limits.cpu_seconds:g} s of CPU time")
        if self.peer is None or self.peer.fault is not None:
            fault = self.peer.fault if self.peer is not None else ""
            status, reason = self._end()
            return Outcome(name, "error", "ProtocolError", cut(fault, folder)) if fault else Outcome(name, status, message=reason)
        if error is None:
            return Outcome(name, "passed")
        return outcome_of(name, error, folder)

    def _end(self) -> tuple[Status, str]:
        """Ends the process and says how it ended."""
        self.deaths += 1
        self.peer = None
        wire.send_order(self._warden, {"order": "end"})
        answer, _ = wire.receive_order(self._warden)
        return answer["status"], answer["message"]
