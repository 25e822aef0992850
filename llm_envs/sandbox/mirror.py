"""Two processes' view of the same values: what each has shown to the other, by number.

Lists, mappings and sets that cross are *shared*: both sides have one, and each message carries the contents of those that were
changed since the last. A test may thus keep a list that the solution changes, or change one that the solution keeps, as in one
process. Objects, functions and classes stay where they are and get a stand-in on the other side.
"""

from __future__ import annotations

import builtins
import datetime
import json
import sys
import weakref
from collections.abc import Callable
from typing import Any

from llm_envs.sandbox import codec
from llm_envs.sandbox.codec import MalformedError, NotPlainError, Tree
from llm_envs.sandbox.outcomes import text_of
from llm_envs.sandbox.remote import SPECIAL, Remote, RemoteMeta, make, make_class, number_of

MOST_CLASSES = 10_000
MOST_NAME = 200
"""Characters of a class's name; more are cut."""
_MOST_LINES = 1 << 31
_DUMP: Callable[[Tree], str] = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


class _Hidden:
    """What the other side has in hand when it names a class that it may not use."""


class _Shared:
    """A container that both sides have, and its contents when they last agreed."""

    __slots__ = ("kind", "text", "value")

    def __init__(self, value: object, kind: str) -> None:
        self.value = value
        self.kind = kind
        self.text = ""


def _counted_alone() -> int:
    lone = _Shared([], "list")
    return sys.getrefcount(lone.value)


class Mirror:
    """Writes messages and reads those of the other side.

    Args:
        first: 1 or 2; each side numbers what it shows from its own on, in steps of 2.
        ask: sends a question about an object of the other side.
        operators: see `remote`.
        forgets: whether this side lets go of shared containers that nobody else here has; the other is told to.
        reveals: whether the other side may use a class that it has only seen as that of an object, or as a base.
    """

    def __init__(
        self,
        first: int,
        ask: Callable[..., Any],
        *,
        operators: bool,
        forgets: bool,
        reveals: Callable[[type], bool] = lambda class_: True,
    ) -> None:
        self._reveals = reveals
        self._class_numbers: dict[int, tuple[int, type]] = {}
        self._first = self._next = first
        self._common = {"_remote_ask": staticmethod(ask), "_remote_operators": operators}
        self._forgets = forgets
        self._shared: dict[int, _Shared] = {}
        self._shared_numbers: dict[int, int] = {}
        self._own: dict[int, object] = {}
        self._own_numbers: dict[int, int] = {}
        self._stand_ins: weakref.WeakValueDictionary[int, Remote] = weakref.WeakValueDictionary()
        self._classes: dict[int, type] = {}
        self._dropped: list[int] = []
        self._fresh: list[int] = []
        self._new_classes: list[Tree] = []
        self._sent_classes: list[Tree] = []
        self._alone = _counted_alone()
        self.changed = False
        """Whether the last message told of containers that are new or have changed."""

    # ---- writing ----

    def write(self, body: tuple[object, ...]) -> str:
        """The text of a message."""
        self._fresh.clear()
        known = list(self._shared)
        tree = codec.pack(body, self._refer)
        changed, forgotten = [], []
        for number in known:  # a container before those in it, so that one pass forgets all of them
            shared = self._shared[number]
            text = self._text(number, shared)
            if text != shared.text:
                shared.text = text
                changed.append(text)
            elif self._forgets and sys.getrefcount(shared.value) <= self._alone:
                forgotten.append(number)
                del self._shared_numbers[id(shared.value)], self._shared[number]
        for number in self._fresh:  # grows while it is read
            shared = self._shared[number]
            shared.text = self._text(number, shared)
            changed.append(shared.text)
        self.changed = bool(changed)
        dropped, self._dropped[:] = forgotten + self._dropped, []
        self._sent_classes, self._new_classes = self._new_classes, []
        return f"[{_DUMP(tree)},[{','.join(changed)}],{_DUMP(self._sent_classes)},{_DUMP(dropped)}]"

    def take_back(self) -> None:
        """Forgets what the last message would have shown: it was not sent."""
        self._new_classes = self._sent_classes + self._new_classes
        for number in self._fresh:
            del self._shared_numbers[id(self._shared.pop(number).value)]
        self._fresh.clear()

    def _text(self, number: int, shared: _Shared) -> str:
        entries = codec.contents(shared.value, shared.kind, self._pack)
        return _DUMP([number, shared.kind, codec.extra(shared.value, shared.kind), entries])

    def _pack(self, value: object) -> Tree:
        return codec.pack(value, self._refer)

    def _refer(self, value: object) -> Tree:
        """The tree of a value that is no immutable plain data."""
        if isinstance(value, Remote):
            return ["y", number_of(value)]
        if isinstance(value, type):
            tree = self._class_tree(value)
            if tree[0] == "k":  # shown for its own sake
                self._own[tree[1]] = value
            return tree
        if id(value) in codec.KNOWN_NAMES:
            return ["B", codec.KNOWN_NAMES[id(value)]]
        if id(value) in self._own_numbers:
            return self._object(value)
        kind = codec.container_kind(type(value))
        if kind is not None:
            return ["S", self._share(value, kind)]
        if isinstance(value, BaseException):
            return self.exception_tree(value)
        if isinstance(value, tuple) and type(value).__bases__ == (tuple,) and hasattr(type(value), "_fields"):
            columns = list(vars(type(value))["_fields"])
            return ["N", type(value).__name__, columns, *map(self._pack, tuple.__iter__(value))]
        if _plain_base(type(value)) is not None:
            return self._pack(plain(value))
        return self._object(value)

    def _share(self, value: object, kind: str) -> int:
        number = self._shared_numbers.get(id(value))
        if number is None:
            number = self._number()
            self._shared[number] = _Shared(value, kind)
            self._shared_numbers[id(value)] = number
            self._fresh.append(number)
        return number

    def _number(self) -> int:
        number, self._next = self._next, self._next + 2
        return number

    def _object(self, value: object) -> Tree:
        return ["o", self._show(value), self._described(type(value))]

    def show(self, value: object) -> None:
        """Makes a value of a solution's class an object of its own, even if that class extends one of plain data.

        It was made by calling the class, so whoever called wants its methods.
        """
        if id(type(value)) not in codec.KNOWN_NAMES and not isinstance(value, BaseException):
            self._show(value)

    def _show(self, value: object) -> int:
        number = self._own_numbers.get(id(value))
        if number is None:
            number = self._number()
            self._own[number] = value
            self._own_numbers[id(value)] = number
        return number

    def _class_tree(self, class_: type) -> Tree:
        if isinstance(class_, RemoteMeta):
            return ["y", number_of(class_)]
        if id(class_) in codec.KNOWN_NAMES:
            return ["B", codec.KNOWN_NAMES[id(class_)]]
        return self._described(class_)

    def _described(self, class_: type) -> Tree:
        """The number of a class, with a description for the other side if it is new."""
        if id(class_) not in self._class_numbers:
            number = self._number()
            self._class_numbers[id(class_)] = (number, class_)
            self._own[number] = class_ if self._reveals(class_) else _Hidden
            self._new_classes.append(self._description(class_, number))
        return ["k", self._class_numbers[id(class_)][0]]

    def _description(self, class_: type, number: int) -> Tree:
        bases = [self._class_tree(base) for base in class_.__bases__ if base is not object]
        special = [name for name in SPECIAL if _has(class_, name)]
        data = codec.container_kind(class_) is not None or _plain_base(class_) is not None
        built_in = next(
            (base for base in class_.__mro__ if base.__module__ == "builtins" and issubclass(base, BaseException)), None
        )
        failure = built_in.__name__ if built_in is not None else None
        return [number, class_.__name__, bases, sorted(special), class_.__eq__ is not object.__eq__, data, failure]

    def exception_tree(self, error: BaseException) -> Tree:
        """The tree of an exception: its class, arguments, text, line and attributes."""
        args = tuple(self._simple(value) for value in error.args)
        attributes = {name: self._simple(value) for name, value in vars(error).items() if not name.startswith("_")}
        pairs = codec.pack(tuple(attributes.items()), self._refer)
        return ["e", self._class_tree(type(error)), codec.pack(args, self._refer), text_of(error), line_of(error), pairs]

    def _simple(self, value: object) -> object:
        """The value if it can be written, otherwise its text."""
        try:
            self._pack(value)
        except NotPlainError as error:
            return f"<{type(value).__name__}: {error}>"
        return value

    # ---- reading ----

    def read(self, text: str) -> tuple[Any, ...]:
        """The body of a message.

        Raises:
            MalformedError: it is none.
        """
        try:
            body, changed, classes, dropped = json.loads(text)
            for description in classes:
                self._learn(*description)
            for number, kind, more, _ in changed:
                if number not in self._shared:
                    self._accept(number, kind, more)
            for number, _, _, entries in changed:
                shared = self._shared[number]
                codec.refill(shared.value, shared.kind, entries, self._unpack)
            for number, _, _, _ in changed:
                self._shared[number].text = self._text(number, self._shared[number])
            for number in dropped:
                self._drop(number)
            value = codec.unpack(body, self._resolve)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, MemoryError) as error:
            raise MalformedError(f"{type(error).__name__}: {error}"[:300]) from None
        if not (isinstance(value, tuple) and value and isinstance(value[0], str)):
            raise MalformedError("neither a question nor an answer")
        return value

    def own(self, number: object) -> Any:
        """The object of this side that has a number.

        Raises:
            MalformedError: no such object was shown.
        """
        if number not in self._own:
            raise MalformedError(f"no object {number!r} was shown")
        return self._own[number]  # type: ignore[index]

    def _unpack(self, tree: Tree) -> object:
        return codec.unpack(tree, self._resolve)

    def _accept(self, number: object, kind: str, more: Tree) -> None:
        if not isinstance(number, int) or number % 2 == self._first % 2:
            raise MalformedError(f"a container with the number {number!r}")
        shared = _Shared(codec.empty(kind, more), kind)
        self._shared[number] = shared
        self._shared_numbers[id(shared.value)] = number

    def _drop(self, number: int) -> None:
        if number in self._shared:
            shared = self._shared.pop(number)
            del self._shared_numbers[id(shared.value)]
        elif number in self._own and not isinstance(self._own[number], type):
            del self._own_numbers[id(self._own.pop(number))]

    def _resolve(self, tag: str, rest: list[Tree]) -> object:
        if tag == "S":
            return self._shared[rest[0]].value
        if tag == "y":
            return self.own(rest[0])
        if tag == "k":
            return self._classes[rest[0]]
        if tag == "o":
            return self._stand_in(rest[0], rest[1])
        if tag == "e":
            return self._exception(*rest)
        raise MalformedError(f"a tag {tag!r}")

    def _stand_in(self, number: int, class_tree: Tree) -> object:
        known = self._stand_ins.get(number)
        if known is not None:
            return known
        if not isinstance(number, int) or number % 2 == self._first % 2:
            raise MalformedError(f"an object with the number {number!r}")
        class_ = self._unpack(class_tree)
        if not isinstance(class_, RemoteMeta):
            raise MalformedError("an object whose class is no class of objects")
        stand_in = make(class_, number)
        self._stand_ins[number] = stand_in
        if number in self._dropped:
            self._dropped.remove(number)
        return stand_in

    def _attributes(self, number: int, *, equal: bool, data: bool) -> dict[str, Any]:
        more = {"_remote_class_number": number, "_remote_equal": equal, "_remote_data": data, "_remote_dropped": self._dropped}
        return {**self._common, **more}

    def _learn(self, number: int, name: str, bases: list[Tree], special: list[str], equal: bool, data: bool, failure: str) -> None:
        if len(self._classes) > MOST_CLASSES or number in self._classes or number % 2 == self._first % 2:
            raise MalformedError(f"a class with the number {number!r}")
        known = tuple(base for base in map(self._unpack, bases) if isinstance(base, type))
        name = name[:MOST_NAME] if name.isidentifier() else "object"
        if failure is not None:
            self._classes[number] = _exception_class(name, known, failure)
            return
        remote = tuple(base for base in known if isinstance(base, RemoteMeta))
        attributes = self._attributes(number, equal=bool(equal), data=bool(data))
        self._classes[number] = make_class(name, remote, frozenset(special), attributes)

    def _exception(self, class_tree: Tree, args: Tree, text: str, line: int | None, attributes: Tree) -> BaseException:
        class_ = self._unpack(class_tree)
        if not (isinstance(class_, type) and issubclass(class_, BaseException)):
            raise MalformedError("an exception whose class is none")
        error = _instance(class_, self._unpack(args))  # type: ignore[arg-type]
        for name, value in self._unpack(attributes):  # type: ignore[attr-defined]
            if isinstance(name, str) and not name.startswith("_") and not hasattr(BaseException, name):
                vars(error)[name] = value
        if line is not None and not (isinstance(line, int) and 0 <= line < _MOST_LINES):
            raise MalformedError(f"a line {line!r}")
        vars(error).update(_remote_text=str(text), _remote_line=line)
        return error


def _plain_base(class_: type) -> type | None:
    """The class of immutable plain data that a class extends."""
    return next((base for base in _CONVERT if issubclass(class_, base)), None)


def plain(value: Any) -> object:
    """A copy of a value as the plain data that its class extends; its own methods are not asked.

    Raises:
        TypeError: it extends none.
    """
    kind = codec.container_kind(type(value))
    if kind is not None:
        copy = codec.empty(kind, codec.extra(value, kind))
        codec.refill(copy, kind, codec.contents(value, kind, lambda entry: entry), lambda entry: entry)
        return copy
    base = _plain_base(type(value))
    if base is None:
        raise TypeError(f"a {type(value).__name__} is no plain data")
    return _CONVERT[base](value)


def _date_time(value: Any) -> object:
    if isinstance(value, datetime.datetime):
        parts = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, value.tzinfo)
        return datetime.datetime(*parts, fold=value.fold)
    return datetime.date(value.year, value.month, value.day)


_CONVERT: dict[type, Callable[[Any], object]] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes(memoryview(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    datetime.date: _date_time,
}


def _has(class_: type, name: str) -> bool:
    inherited = getattr(object, name, None)
    return getattr(class_, name, None) not in (None, inherited)


def _exception_class(name: str, bases: tuple[type, ...], failure: str) -> type:
    built_in = getattr(builtins, failure)
    if not (isinstance(built_in, type) and issubclass(built_in, BaseException)):
        raise MalformedError(f"an exception class {failure!r}")
    errors = tuple(base for base in bases if issubclass(base, BaseException)) or (built_in,)
    try:
        return type(name, errors, {"__module__": "solution", "__str__": _remote_text})
    except TypeError:
        return type(name, (built_in,), {"__module__": "solution", "__str__": _remote_text})


def _remote_text(self: BaseException) -> str:
    """What `str` said over there; for one made here, what it says of an exception."""
    return vars(self).get("_remote_text", BaseException.__str__(self))


def _instance(class_: type[BaseException], args: tuple[object, ...]) -> BaseException:
    """An exception of the class with these arguments, without calling what a solution's class would do."""
    if class_.__module__ == "builtins":
        try:
            return class_(*args)
        except (TypeError, ValueError):
            return Exception(*args)
    error = (
        class_.__new__(class_, *args) if not issubclass(class_, getattr(builtins, "BaseExceptionGroup", ())) else Exception(*args)
    )
    error.args = args
    return error


def line_of(error: BaseException) -> int | None:
    """The last line of the solution in an exception's traceback; None if it never was there."""
    if isinstance(error, SyntaxError) and error.filename == "<solution>":
        return error.lineno
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<solution>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return line
