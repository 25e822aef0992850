"""Plain data as JSON trees: the only thing that crosses between a solution and its judge.

Texts, numbers, None, True and False are themselves; anything else is a list that begins with a tag. What has an identity
(containers that can change, objects, functions, classes) is left to the caller's `refer` and `resolve`. Nothing here looks up a
name that came from the other side but in the fixed tables below.
"""

from __future__ import annotations

import base64
import builtins
import collections
import datetime
import decimal
import fractions
import functools
import math
import uuid
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

Tree: TypeAlias = Any
Refer: TypeAlias = Callable[[object], Tree]
Resolve: TypeAlias = Callable[[str, list[Tree]], object]

MOST_DEPTH = 100
"""Of tuples in tuples. Lists and mappings refer to each other by number and nest as deeply as they like."""

_EXACT_INTEGERS = 1 << 62

_FUNCTIONS = (
    *("abs", "all", "any", "ascii", "bin", "callable", "chr", "divmod", "format", "hash", "hex", "id", "iter", "len", "max", "min"),
    *("next", "oct", "ord", "pow", "print", "repr", "round", "sorted", "sum"),
)
_MODULES = {
    "datetime": (datetime, ("date", "datetime", "time", "timedelta", "timezone", "tzinfo")),
    "decimal": (decimal, ("Decimal", "InvalidOperation", "DivisionByZero")),
    "fractions": (fractions, ("Fraction",)),
    "collections": (collections, ("Counter", "OrderedDict", "defaultdict", "deque")),
    "uuid": (uuid, ("UUID",)),
}
KNOWN: dict[str, object] = {
    # Not `type`: a solution that gives it to a function of the tests could have a class made in the judge.
    **{name: value for name, value in vars(builtins).items() if isinstance(value, type) and value is not type},
    **{name: getattr(builtins, name) for name in _FUNCTIONS},
    **{f"{module}.{name}": getattr(there, name) for module, (there, names) in _MODULES.items() for name in names},
}
"""Classes and functions that both sides have, by name."""
KNOWN_NAMES = {id(value): name for name, value in KNOWN.items() if name not in ("EnvironmentError", "IOError", "WindowsError")}


class MalformedError(ValueError):
    """What came from the other side is no message."""


class NotPlainError(TypeError):
    """A value that cannot be written."""


def pack(value: object, refer: Refer, depth: int = 0) -> Tree:
    """The tree of a value; what is no immutable plain data is given to `refer`.

    Raises:
        NotPlainError: tuples are nested too deeply.
    """
    kind = type(value)
    if value is None or kind is str or kind is bool or kind is float:
        return value
    if kind is int:
        return value if -_EXACT_INTEGERS < value < _EXACT_INTEGERS else ["i", hex(value)]  # type: ignore[operator,arg-type]
    if depth > MOST_DEPTH:
        raise NotPlainError(f"tuples in tuples, more than {MOST_DEPTH} deep")
    if kind is tuple:
        return ["t", *(pack(entry, refer, depth + 1) for entry in value)]  # type: ignore[attr-defined]
    packer = _PACKERS.get(kind)
    if packer is None:
        packer = _numpy_packer(kind)
    if packer is None:
        return refer(value)
    return packer(value, lambda entry: pack(entry, refer, depth + 1))


def unpack(tree: Tree, resolve: Resolve, depth: int = 0) -> object:
    """The value of a tree; tags that are not of plain data are given to `resolve`.

    Raises:
        MalformedError: for a tree that `pack` does not write.
    """
    if not isinstance(tree, list):
        if isinstance(tree, dict):
            raise MalformedError("a mapping where a value was expected")
        return tree
    if not tree or not isinstance(tree[0], str) or depth > MOST_DEPTH + 1:
        raise MalformedError("a list without a tag, or too deep")
    tag, *rest = tree
    if tag == "t":
        return tuple([unpack(entry, resolve, depth + 1) for entry in rest])
    unpacker = _UNPACKERS.get(tag)
    if unpacker is None:
        return resolve(tag, rest)
    return unpacker(rest, lambda entry: unpack(entry, resolve, depth + 1))


_PACKERS: dict[type, Callable[[Any, Refer], Tree]] = {
    complex: lambda value, _: ["c", value.real, value.imag],
    bytes: lambda value, _: ["b", base64.b64encode(value).decode()],
    frozenset: lambda value, inner: ["f", *(inner(entry) for entry in value)],
    range: lambda value, inner: ["r", inner(value.start), inner(value.stop), inner(value.step)],
    slice: lambda value, inner: ["s", inner(value.start), inner(value.stop), inner(value.step)],
    datetime.datetime: lambda value, inner: [
        *("D", value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, value.fold),
        inner(value.utcoffset()),
    ],
    datetime.date: lambda value, _: ["d", value.year, value.month, value.day],
    datetime.time: lambda value, inner: [
        *("h", value.hour, value.minute, value.second, value.microsecond, value.fold),
        inner(value.utcoffset()),
    ],
    datetime.timedelta: lambda value, _: ["l", value.days, value.seconds, value.microseconds],
    datetime.timezone: lambda value, inner: ["z", inner(value.utcoffset(None))],
    decimal.Decimal: lambda value, _: ["m", str(value)],
    fractions.Fraction: lambda value, inner: ["q", inner(value.numerator), inner(value.denominator)],
    uuid.UUID: lambda value, inner: ["u", value.hex],
    type(...): lambda value, _: ["."],
    type(NotImplemented): lambda value, _: ["!"],
}


def _zone(offset: object) -> datetime.timezone | None:
    return None if offset is None else datetime.timezone(offset)  # type: ignore[arg-type]


def _many(build: Callable[..., object]) -> Callable[[list[Tree], Refer], object]:
    return lambda rest, inner: build(*map(inner, rest))


_UNPACKERS: dict[str, Callable[[list[Any], Refer], object]] = {
    "i": lambda rest, _: int(rest[0], 16),
    "c": lambda rest, _: complex(*rest),
    "b": lambda rest, _: base64.b64decode(rest[0], validate=True),
    "f": lambda rest, inner: frozenset([inner(entry) for entry in rest]),
    "r": _many(range),
    "s": _many(slice),
    "D": lambda rest, inner: datetime.datetime(*rest[:7], fold=rest[7], tzinfo=_zone(inner(rest[8]))),
    "d": lambda rest, _: datetime.date(*rest),
    "h": lambda rest, inner: datetime.time(*rest[:4], fold=rest[4], tzinfo=_zone(inner(rest[5]))),
    "l": lambda rest, _: datetime.timedelta(*rest),
    "z": lambda rest, inner: _zone(inner(rest[0])),
    "m": lambda rest, _: decimal.Decimal(rest[0]),
    "q": _many(fractions.Fraction),
    "u": lambda rest, _: uuid.UUID(rest[0]),
    ".": lambda rest, _: ...,
    "!": lambda rest, _: NotImplemented,
    "B": lambda rest, _: KNOWN[rest[0]],
    "a": lambda rest, _: _array(*rest),
    "n": lambda rest, _: _array(rest[0], [], rest[1])[()],
    "N": lambda rest, inner: _named_tuple(rest[0], tuple(rest[1]))(*map(inner, rest[2:])),
}


@functools.lru_cache(maxsize=256)
def _named_tuple(name: str, columns: tuple[str, ...]) -> Callable[..., object]:
    return collections.namedtuple(name, columns)  # type: ignore[return-value]


def _numpy_packer(kind: type) -> Callable[[Any, Refer], Tree] | None:
    if kind.__module__ != "numpy":
        return None
    import numpy as np

    if issubclass(kind, np.ndarray) and kind is np.ndarray:
        return lambda value, inner: _array_tree(value, inner)
    if issubclass(kind, np.generic) and not issubclass(kind, (np.void, np.object_)):
        return lambda value, _: ["n", value.dtype.str, base64.b64encode(value.tobytes()).decode()]
    return None


def _array_tree(value: Any, inner: Refer) -> Tree:
    if value.dtype.kind in "biufcSUmM":
        return ["a", value.dtype.str, list(value.shape), base64.b64encode(value.tobytes()).decode()]
    raise NotPlainError(f"a numpy array of {value.dtype}")


def _array(kind: str, shape: list[int], data: str) -> Any:
    import numpy as np

    dtype = np.dtype(kind)
    raw = base64.b64decode(data, validate=True)
    if dtype.kind not in "biufcSUmM" or math.prod(shape) * dtype.itemsize != len(raw):
        raise MalformedError("an array whose size is not that of its data")
    return np.frombuffer(raw, dtype).reshape(shape).copy()


# ---- containers that can change ----

CONTAINERS: dict[str, type] = {
    "OrderedDict": collections.OrderedDict,
    "defaultdict": collections.defaultdict,
    "Counter": collections.Counter,
    "dict": dict,
    "list": list,
    "set": set,
    "deque": collections.deque,
    "bytearray": bytearray,
}
"""By name, special ones before what they extend."""
_EXACT_CONTAINERS = {kind: name for name, kind in CONTAINERS.items()}


def container_kind(class_: type) -> str | None:
    """Name of the container that objects of a class are or extend; None for something else."""
    exact = _EXACT_CONTAINERS.get(class_)
    if exact is not None:
        return exact
    return next((name for name, kind in CONTAINERS.items() if issubclass(class_, kind)), None)


def contents(value: Any, kind: str) -> list[Any]:
    """What is in a container, keys and values in turn; a subclass's own methods are not asked."""
    if isinstance(value, dict):
        return [entry for pair in _mapping(kind).items(value) for entry in pair]
    if kind == "bytearray":
        return [bytes(value).decode("latin-1")]
    return list(CONTAINERS[kind].__iter__(value))


def extra(value: Any, kind: str) -> Tree:
    """What a container needs when it is made: a deque's length, the name of a default's class."""
    if kind == "deque":
        return value.maxlen
    if kind == "defaultdict":
        return KNOWN_NAMES.get(id(value.default_factory))
    return None


def empty(kind: str, more: Tree) -> Any:
    """A new container.

    Raises:
        MalformedError: for one that is not known.
    """
    if kind == "deque":
        return collections.deque(maxlen=more)
    if kind == "defaultdict":
        return collections.defaultdict(KNOWN[more] if more is not None else None)  # type: ignore[arg-type]
    if kind not in CONTAINERS:
        raise MalformedError(f"a container {kind!r}")
    return CONTAINERS[kind]()


def refill(value: Any, kind: str, entries: list[Tree], unpack_one: Callable[[Tree], object]) -> None:
    """Puts these contents in place of a container's own."""
    if kind == "bytearray":
        value[:] = entries[0].encode("latin-1")
        return
    new = [unpack_one(entry) for entry in entries]
    if isinstance(value, dict):
        _mapping(kind).clear(value)
        for key, entry in _pairs(new):
            _mapping(kind).__setitem__(value, key, entry)
    elif kind == "list":
        list.__setitem__(value, slice(None), new)
    elif kind == "set":
        set.clear(value)
        set.update(value, new)
    else:
        collections.deque.clear(value)
        collections.deque.extend(value, new)


def _mapping(kind: str) -> type[dict[Any, Any]]:
    """The class whose own methods keep a mapping right: an ordered one has an order of its own beside that of `dict`."""
    return collections.OrderedDict if kind == "OrderedDict" else dict


def _pairs(entries: list[object]) -> Iterable[tuple[object, object]]:
    if len(entries) % 2:
        raise MalformedError("a mapping with a key that has no value")
    return zip(entries[::2], entries[1::2], strict=True)
