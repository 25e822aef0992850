"""Questions and answers between a solution and its judge: one side asks and serves what it is asked until the answer is there."""

from __future__ import annotations

import copy
import datetime
import operator
import socket
import threading
from collections.abc import Callable
from typing import Any

from llm_envs.sandbox import codec, wire
from llm_envs.sandbox.mirror import Mirror
from llm_envs.sandbox.outcomes import caught
from llm_envs.sandbox.plain import ABSENT, found
from llm_envs.sandbox.remote import SPECIAL

Operation = Callable[..., object]


class Peer:
    """One end of the channel.

    Args:
        channel: to the other end.
        judges, operators, reveals: see `Mirror`.
    """

    def __init__(
        self,
        channel: socket.socket,
        *,
        judges: bool,
        operators: bool,
        reveals: Callable[[type], bool] = lambda class_: True,
    ) -> None:
        self._channel = channel
        self._thread = threading.get_ident()
        self.mirror = Mirror(self.ask, judges=judges, operators=operators, reveals=reveals)
        self.operations: dict[str, Operation] = {}
        self.before_answers: Callable[[], None] = lambda: None
        self.asked = 0

    def ask(self, operation: str, *args: object) -> Any:
        """The other side's answer.

        Raises:
            BaseException: what it raised.
            ClosedError: it is gone.
            MalformedError, TooLargeError, UnicodeDecodeError: it sent something else.
        """
        if threading.get_ident() != self._thread:
            raise RuntimeError("objects of the tests can be used in the main thread only")
        self.asked += 1
        wire.send(self._channel, self.mirror.write(("q", operation, *args)))
        while True:
            what, *rest = self.mirror.read(wire.receive(self._channel))
            if what == "r" and len(rest) == 1:
                return rest[0]
            if what == "x" and len(rest) == 1 and isinstance(rest[0], BaseException):
                raise self.raised(operation, args, rest[0])
            if what != "q":
                raise codec.MalformedError(f"an answer {what!r}")
            self.answer(*rest)

    def raised(self, operation: str, args: tuple[object, ...], error: BaseException) -> BaseException:
        """What an exception of the other side is here."""
        return error

    def serve(self) -> None:
        """Answers questions until the other side is gone."""
        while True:
            try:
                text = wire.receive(self._channel)
            except wire.ClosedError:
                return
            what, *rest = self.mirror.read(text)
            if what == "q":
                self.answer(*rest)

    def answer(self, operation: object = "", *args: object) -> None:
        """Does what was asked and sends the result, or the exception."""
        texts: list[str] = []
        error = caught(lambda: texts.append(self.mirror.write(("r", self.operations[operation](*args)))))  # type: ignore[index]
        if isinstance(error, (wire.ClosedError, codec.MalformedError)):
            raise error
        # All others belong to the side that asked.
        text = texts[0] if error is None else self.mirror.write(("x", error))
        self.before_answers()
        try:
            wire.send(self._channel, text)
        except wire.TooLargeError as error:
            self.mirror.take_back()
            wire.send(self._channel, self.mirror.write(("x", ValueError(str(error)))))


def object_operations(mirror: Mirror) -> dict[str, Operation]:
    """What can be done to objects of this side, without asking whether it should be."""

    def special(number: int, name: str, args: tuple[object, ...], options: tuple[tuple[str, object], ...] = ()) -> object:
        if name not in SPECIAL:
            raise AttributeError(f"{name!r} is no method that the language calls")
        value = mirror.own(number)
        method: Any = found(type(value), name)  # as the language looks for it: not in the class of the class
        if method is ABSENT or method is None:
            return NotImplemented
        bound = method.__get__(value, type(value)) if hasattr(type(method), "__get__") else method
        return bound(*args, **dict(options))

    def replace(number: int, args: tuple[object, ...], options: tuple[tuple[str, object], ...]) -> object:
        value = mirror.own(number)
        base = datetime.datetime if isinstance(value, datetime.datetime) else datetime.date
        return base.replace(value, *args, **dict(options))  # type: ignore[arg-type]

    return {
        "replace": replace,
        "get": lambda number, name: getattr(mirror.own(number), name),
        "set": lambda number, name, value: setattr(mirror.own(number), name, value),
        "delete": lambda number, name: delattr(mirror.own(number), name),
        "special": special,
        "new": lambda number, args, options: mirror.own(number)(*args, **dict(options)),
        "contains": lambda number, value: operator.contains(mirror.own(number), value),
        "compare": lambda number, name, other: {"__eq__": operator.eq, "__ne__": operator.ne}[name](mirror.own(number), other),
        "dir": lambda number: dir(mirror.own(number)),
        "copy": lambda number, how: {"copy": copy.copy, "deepcopy": copy.deepcopy}[how](mirror.own(number)),
    }
