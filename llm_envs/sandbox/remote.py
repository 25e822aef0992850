"""Stand-ins for objects of the other process: what is done to one is done there; the result is data or another stand-in.

A stand-in is never equal to plain data, and unless `operators` are allowed it takes no part in arithmetic, ordering or `in`
with it: an object that says so itself would equal anything. Nor can it then be one number now and another later; the judge
keeps what it was told (see `llm_envs.sandbox.session`). Objects whose class extends plain data are that data here, and the
same holds for it (see `llm_envs.sandbox.extended`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

CONVERSIONS = (
    *("__str__", "__repr__", "__bool__", "__len__", "__int__", "__float__", "__complex__", "__index__", "__abs__", "__neg__"),
    *("__pos__", "__invert__", "__round__", "__trunc__", "__floor__", "__ceil__", "__format__"),
)
LASTING = frozenset(CONVERSIONS) - {"__str__", "__repr__", "__bool__", "__len__", "__format__"}
"""Conversions to numbers: an object that is one stays that one."""
PROTOCOLS = (
    *("__call__", "__iter__", "__next__", "__reversed__", "__getitem__", "__setitem__", "__delitem__", "__enter__", "__exit__"),
    *("__length_hint__", "__fspath__", "__missing__"),
)
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "or", "xor", "matmul")
OPERATORS = (
    *(f"__{side}{name}__" for name in _ARITHMETIC for side in ("", "r", "i") if (side, name) != ("i", "divmod")),
    *("__lt__", "__le__", "__gt__", "__ge__"),
)
SPECIAL = frozenset((*CONVERSIONS, *PROTOCOLS, *OPERATORS, "__contains__", "__eq__"))
"""Methods that the language calls and that are forwarded if the object has them."""
COMPARISONS = frozenset(("__eq__", "__ne__", "__hash__"))
_OPERANDS = frozenset(("__torch_function__", "__dlpack__", "__dlpack_device__", "__cuda_array_interface__"))

SOURCES = ("<setup>", "<check>")
"""Files that the code of the tests says it is from."""
# What a library that judges (`assertSetEqual`) calls with what a test expects.
_JUDGING = frozenset(
    ("difference", "symmetric_difference", "intersection", "union", "issubset", "issuperset", "isdisjoint", "count", "index")
)

Ask = Callable[..., Any]
"""`ask(operation, number of the object, …)`."""


def number_of(stand_in: object) -> int:
    """The number of the object that a stand-in (or a class of such) stands for."""
    return object.__getattribute__(stand_in, "_remote_number") if isinstance(stand_in, Remote) else _class_number(stand_in)


def is_object(value: object) -> bool:
    """Whether a value is an object of the other process for operators: not if its class only extends plain data."""
    return isinstance(value, Remote) and type(value)._remote_trusted


def is_hook(name: str) -> bool:
    """Whether a library looks for that attribute to hand over the other operand too, or to read memory: NumPy and its like."""
    return name in _OPERANDS or (name.startswith("__array_") and name != "__array__")


def asked_by_tests(calls: int) -> bool:
    """Whether the code of the tests is what asks, so many calls above the caller's, and not a library that they use to judge."""
    frame = sys._getframe(calls + 1)
    # A mock keeps or passes on what the tests have it ask.
    return frame.f_code.co_filename in SOURCES or frame.f_globals.get("__name__") == "unittest.mock"


def _class_number(stand_in: object) -> int:
    return type.__getattribute__(stand_in, "_remote_class_number")  # type: ignore[arg-type]


class RemoteMeta(type):
    """The class of stand-ins for classes: calling one makes an object over there."""

    _remote_ask: Ask
    _remote_class_number: int
    _remote_data: bool
    _remote_fields: dict[str, int]

    def __new__(mcs, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> RemoteMeta:  # noqa: D102
        if bases and "_remote_class_number" not in names:
            raise TypeError(f"a class of the other process cannot be extended here: {name}")
        return super().__new__(mcs, name, bases, names)

    def __call__(cls, *args: object, **options: object) -> Any:  # noqa: D102
        return cls._remote_ask("new", cls._remote_class_number, args, tuple(options.items()))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_remote_") or name == "__isabstractmethod__" or is_hook(name):
            raise AttributeError(name)
        if name in SPECIAL and cls._remote_data:  # looked for by the language itself; what there is has been made here
            raise AttributeError(name)
        return cls._remote_ask("get", cls._remote_class_number, name)

    def __setattr__(cls, name: str, value: object) -> None:
        # The language itself sets these, on `isinstance` and the like.
        if name.startswith(("_abc_", "__")):
            type.__setattr__(cls, name, value)
        else:
            cls._remote_ask("set", cls._remote_class_number, name, value)

    def __delattr__(cls, name: str) -> None:
        cls._remote_ask("delete", cls._remote_class_number, name)

    def __iter__(cls) -> Iterator[Any]:
        return iter(cls._remote_ask("special", cls._remote_class_number, "__iter__", ()))

    def __len__(cls) -> int:
        return cls._remote_ask("special", cls._remote_class_number, "__len__", ())

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: object) -> Any:
        return cls._remote_ask("special", cls._remote_class_number, "__getitem__", (key,))

    def __contains__(cls, value: object) -> bool:
        return any(entry is value or entry == value for entry in cls)


class Remote(metaclass=RemoteMeta):
    """A stand-in for an object.

    Attributes of its class, set for each one of the other process:
        _remote_judged: whether it is one of the solution, and this is the judge's process.
        _remote_busy: not empty while a message is read or written, when nothing can be asked: no two in a set or mapping are equal.
        _remote_base: the class of plain data that it extends, or the language's exception; None for any other.
        _remote_data: whether it extends plain data.
        _remote_trusted: whether the tests want what its own methods say: not if it extends plain data and they do not name it.
        _remote_fields: positions of a named tuple's fields in its data.
        _remote_equal: whether it has an `__eq__` of its own.
    """

    # A slot would keep classes from extending plain data as well.
    __dict__ = property(lambda self: self._remote_ask("get", self._remote_number, "__dict__"))  # type: ignore[assignment]

    _remote_ask: Ask
    _remote_class_number: int
    _remote_number: int
    _remote_dropped: list[int]
    _remote_operators: bool
    _remote_equal: bool
    _remote_judged: bool
    _remote_base: type | None = None
    _remote_data: bool = False
    _remote_trusted: bool = True
    _remote_busy: list[None] = []  # noqa: RUF012
    _remote_fields: dict[str, int] = {}  # noqa: RUF012  # of the class of stand-ins, and never changed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_remote_") or is_hook(name):
            raise AttributeError(name)
        if name in _JUDGING and self._remote_judged and not asked_by_tests(1):
            raise AttributeError(f"{name!r} of an object of the solution is for the tests' own code to ask")
        return self._remote_ask("get", self._remote_number, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._remote_ask("set", self._remote_number, name, value)

    def __delattr__(self, name: str) -> None:
        self._remote_ask("delete", self._remote_number, name)

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        if not isinstance(other, Remote) or other._remote_data:
            return NotImplemented
        if self._remote_number == other._remote_number:
            return True
        if self._remote_busy:
            return False
        if not (self._remote_equal or other._remote_equal):
            return False
        return self._remote_ask("special", self._remote_number, "__eq__", (other,)) is True

    def __hash__(self) -> int:
        # Objects that may be equal must have one hash; what the other process would say of it does not matter here.
        return hash(self._remote_class_number if self._remote_equal else ("remote", self._remote_number))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object>"

    def __dir__(self) -> list[str]:
        return self._remote_ask("dir", self._remote_number)

    def __del__(self) -> None:
        self._remote_dropped.append(self._remote_number)

    def __copy__(self) -> Any:
        return self._remote_ask("copy", self._remote_number, "copy")

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        return self._remote_ask("copy", self._remote_number, "deepcopy")

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError(f"a {type(self).__name__} of the other process cannot be pickled here")


def make(class_: RemoteMeta, number: int) -> Remote:
    """A stand-in of this class for an object."""
    return numbered(object.__new__(class_), number)


def numbered(stand_in: Any, number: int) -> Any:
    """A stand-in that has just been made, which now stands for the object of that number."""
    object.__setattr__(stand_in, "_remote_number", number)
    return stand_in


def make_class(name: str, bases: tuple[type, ...], special: frozenset[str], attributes: dict[str, Any]) -> RemoteMeta:
    """A class of stand-ins whose objects have these special methods and no others.

    Args:
        name: as it is shown.
        bases: stand-ins for the bases; none for `Remote` itself.
        special: names of special methods that the objects have.
        attributes: `_remote_…` values of the class.
    """
    methods = methods_of(special)
    if "__iter__" in methods and "__contains__" not in methods:
        methods["__contains__"] = _contains
    if "__bool__" not in methods and "__len__" not in methods:
        methods["__bool__"] = _true
    return extend(name, bases, (), {**attributes, **methods})


def extend(name: str, bases: tuple[type, ...], more: tuple[type, ...], names: dict[str, Any]) -> RemoteMeta:
    """A class of stand-ins.

    Args:
        name: as it is shown.
        bases: among which those that are stand-ins are its bases.
        more: classes of this process that it extends too, where none of its bases does.
        names: what its names are bound to.
    """
    names = {**names, "__slots__": (), "__module__": "solution"}
    remote = tuple(base for base in bases if isinstance(base, RemoteMeta)) or (Remote,)
    lacking = tuple(one for one in more if not any(issubclass(base, one) for base in remote))
    try:
        return RemoteMeta(name, (*remote, *lacking), names)
    except TypeError:  # bases that the language cannot put in an order here, or that extend something else
        return RemoteMeta(name, (Remote, *more), names)


def methods_of(special: frozenset[str]) -> dict[str, Any]:
    """The methods of stand-ins for those that the language calls."""
    return {method: _METHODS[method] for method in sorted(special) if method in _METHODS}


def _true(self: Remote) -> bool:
    return True


def _contains(self: Remote, value: object) -> bool:
    if self._remote_operators or (isinstance(value, Remote) and not value._remote_data):
        return bool(self._remote_ask("contains", self._remote_number, value))
    # Compared here, so that no object can claim to contain everything.
    return any(entry is value or entry == value for entry in iter(self))  # type: ignore[call-overload]


def forward(name: str) -> Callable[..., Any]:
    """A method that is asked of the object, whatever it is given."""

    def method(self: Remote, *args: object, **options: object) -> Any:
        return self._remote_ask("special", self._remote_number, name, args, tuple(options.items()))

    method.__name__ = name
    return method


def _exit(self: Remote, kind: object, error: object, traceback: object) -> Any:
    # A traceback leads to the frames of the tests.
    return self._remote_ask("special", self._remote_number, "__exit__", (kind, error, None))


def _operator(name: str) -> Callable[..., Any]:
    def method(self: Remote, *args: object) -> Any:
        if self._remote_operators or all(map(is_object, args)):
            return self._remote_ask("special", self._remote_number, name, args)
        return NotImplemented

    method.__name__ = name
    return method


class There:
    """An attribute that is asked of the object, or of its class."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, stand_in: Remote | None, class_: RemoteMeta) -> Any:
        return class_._remote_ask("get", class_._remote_class_number if stand_in is None else stand_in._remote_number, self.name)


_METHODS: dict[str, Callable[..., Any]] = {
    **{name: forward(name) for name in (*CONVERSIONS, *PROTOCOLS)},
    **{name: _operator(name) for name in OPERATORS},
    "__contains__": _contains,
    "__exit__": _exit,
}
