"""What plain data a class extends, and a value as that data: asked of the value's memory and never of its class's own methods."""

from __future__ import annotations

import collections
import datetime
import decimal
import functools
from collections.abc import Callable, Iterable
from typing import Any

from llm_envs.sandbox import codec
from llm_envs.sandbox.remote import COMPARISONS, SPECIAL

_FIELD: Any = type(vars(collections.namedtuple("_Sample", "x"))["x"])
ABSENT = object()
"""What a name is bound to that a class has not."""


_DAY = ("year", "month", "day")
_MOMENT = (*_DAY, "hour", "minute", "second", "microsecond", "tzinfo")


def _date_time(value: Any) -> object:
    # A class may have properties of these names.
    if not isinstance(value, datetime.datetime):
        return datetime.date(*(getattr(datetime.date, name).__get__(value) for name in _DAY))
    fold, *parts = (getattr(datetime.datetime, name).__get__(value) for name in ("fold", *_MOMENT))
    return datetime.datetime(*parts, fold=fold)


_IMMUTABLE: dict[type, Callable[[Any], object]] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes(memoryview(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    datetime.datetime: _date_time,
    datetime.date: _date_time,
    decimal.Decimal: decimal.Decimal,
}
"""Classes of immutable plain data that others extend, special ones before what they extend; how to get at the data."""


def built(class_: Any, base: Any, value: Any) -> Any:
    """An object of a class that extends this class of immutable plain data, made without calling the class."""
    if base is datetime.datetime:
        return base.__new__(class_, *(getattr(value, name) for name in _MOMENT), fold=value.fold)
    return base.__new__(class_, value.year, value.month, value.day) if base is datetime.date else base.__new__(class_, value)


BASES: dict[str, type] = {**codec.CONTAINERS, **{kind.__name__: kind for kind in _IMMUTABLE}}
"""Every class of plain data that others extend, by name."""


def plain_base(class_: type) -> type | None:
    """The class of immutable plain data that a class extends."""
    return next((base for base in _IMMUTABLE if issubclass(class_, base)), None)


def plain(value: Any) -> object:
    """A copy of a value as the plain data that its class extends; its own methods are not asked.

    Raises:
        TypeError: it extends none.
    """
    kind = codec.container_kind(type(value))
    if kind is not None:
        copy = codec.empty(kind, codec.extra(value, kind))
        codec.refill(copy, kind, codec.contents(value, kind), lambda entry: entry)
        return copy
    base = plain_base(type(value))
    if base is None:
        raise TypeError(f"a {type(value).__name__} is no plain data")
    return _IMMUTABLE[base](value)


def extended_by(class_: type) -> type | None:
    """The class of plain data that a class extends without being one itself; else None."""
    if id(class_) in codec.KNOWN_NAMES:
        return None
    kind = codec.container_kind(class_)
    return codec.CONTAINERS[kind] if kind is not None else plain_base(class_)


def found(class_: type, name: str) -> object:
    """What a name of a class is bound to, as the class statement left it; `ABSENT` if to nothing."""
    return next((vars(base)[name] for base in class_.__mro__ if name in vars(base)), ABSENT)


@functools.cache
def names_of(base: type) -> frozenset[str]:
    """Names of plain data that a class may give another meaning: public ones, and methods that the language calls."""
    public = (name for name in dir(base) if not name.startswith("_"))
    return SPECIAL | COMPARISONS | frozenset(public)


def own_names(class_: type, base: type, names: Iterable[str]) -> list[str]:
    """Those names that a class has and that mean something else than in a class which it extends, in order."""
    values = [(name, found(class_, name)) for name in sorted(names)]
    return [name for name, value in values if not (value is ABSENT or value is None or value is found(base, name))]


def fields_of(class_: type) -> dict[str, int]:
    """Positions of a named tuple's fields, by name: those that the class reads from the tuple and that are no names of it."""
    if not issubclass(class_, tuple) or found(class_, "__getattribute__") is not found(tuple, "__getattribute__"):
        return {}
    names: dict[str, Any] = {name: found(class_, name) for base in class_.__mro__ for name in vars(base) if is_field(name)}
    return {name: value.__reduce__()[1][0] for name, value in names.items() if type(value) is _FIELD}


def is_field(name: str) -> bool:
    """Whether a field that only the data decides may have that name."""
    return name.isidentifier() and not name.startswith("_") and name not in names_of(tuple)
