"""What a solution may do to objects of the tests. Everything that is not listed here is refused.

Nothing is decided by a name that an object gives itself: classes are compared by identity, and those of the tests are known by
the class statements that made them.
"""

from __future__ import annotations

import builtins
import collections.abc
import enum
import functools
import io
import operator
import pathlib
import sqlite3
import tempfile
import types
import typing
import unittest
import unittest.mock
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from llm_envs.sandbox import codec
from llm_envs.sandbox.remote import OPERATORS, SOURCES

_OWN: dict[int, type] = {}

_SAFE = frozenset((
    *("__iter__", "__next__", "__reversed__", "__len__", "__length_hint__", "__getitem__", "__contains__", "__enter__", "__exit__"),
    *("__fspath__", "__eq__", "__str__", "__repr__", "__format__", "__bool__", "__int__", "__float__", "__index__", "__complex__"),
))  # fmt: skip
_CLOSED = (unittest.TestCase, types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)
_BASES = {
    id(base): base
    for base in (object, enum.Enum, typing.Generic, *(getattr(collections.abc, name) for name in collections.abc.__all__))
}
_FILE = frozenset(
    ("read", "write", "readline", "readlines", "writelines", "close", "closed", "name", "seek", "tell", "flush", "getvalue")
)
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO, io.StringIO, io.BytesIO)
_QUERIES = ("execute", "executemany", "executescript", "close", "row_factory")
# No `write` or `parse` of a tree, and no extensions of a connection: those open whatever they are told to.
_SHOWN: dict[type, frozenset[str]] = {
    **dict.fromkeys((*_FILES, tempfile._TemporaryFileWrapper), _FILE),
    sqlite3.Connection: frozenset(
        (*_QUERIES, "cursor", "commit", "rollback", "total_changes", "in_transaction", "isolation_level")
    ),
    sqlite3.Cursor: frozenset((*_QUERIES, "fetchone", "fetchmany", "fetchall", "rowcount", "lastrowid", "description")),
    sqlite3.Row: frozenset(("keys",)),
    ElementTree.Element: frozenset((
        *("tag", "text", "tail", "attrib", "find", "findall", "findtext", "iter", "iterfind", "itertext", "get", "set", "keys"),
        *("items", "append", "extend", "insert", "remove", "clear"),
    )),
    ElementTree.ElementTree: frozenset(("getroot", "find", "findall", "findtext", "iter", "iterfind")),
}  # fmt: skip
_MAY_BE_SET: dict[type, frozenset[str]] = {
    sqlite3.Connection: frozenset(("row_factory", "isolation_level")),
    ElementTree.Element: frozenset(("text", "tail", "tag")),
}
# A mock's controls belong to the tests: how it was called, what it answers, what is asserted of it.
_CONTROLS = frozenset(name for name in dir(unittest.mock.AsyncMock()) if not name.startswith("_"))
_FUNCTION_MODULES = frozenset(("math", "cmath", "_operator", "_bisect", "_heapq", "time"))
_CONVERTERS = (int, float, complex, str, bytes, bool, list, tuple, set, frozenset, dict)


def note_classes() -> None:
    """Notes from now on each class that a class statement of the tests makes. For the judge's process, which has but one trial."""
    build = builtins.__build_class__

    @functools.wraps(build)
    def noting(function: Any, *args: Any, **options: Any) -> Any:
        made = build(function, *args, **options)
        if function.__code__.co_filename in SOURCES and isinstance(made, type):
            _OWN[id(made)] = made
        return made

    builtins.__build_class__ = noting


def is_own(class_: type) -> bool:
    """Whether a class statement of the tests made it."""
    return _OWN.get(id(class_)) is class_


def allows(value: object, operation: str, args: tuple[Any, ...]) -> bool:
    """Whether a solution may do that to an object of the tests; `args` are those of the operation."""
    if isinstance(value, _CLOSED):
        return False
    if isinstance(value, type):
        return _allows_class(value, operation, args)
    if operation == "special":
        return _allows_special(value, args[0])
    if operation == "contains":
        return _allows_special(value, "__contains__")
    if operation in ("get", "set", "delete"):
        return _allows_attribute(value, operation, args[0])
    if operation == "copy":
        return is_own(type(value)) or isinstance(value, types.FunctionType)
    return operation == "dir" and is_own(type(value))


def _allows_class(class_: type, operation: str, args: tuple[Any, ...]) -> bool:
    if not is_own(class_) or issubclass(class_, _CLOSED):
        return False
    if operation == "special":
        return issubclass(class_, enum.Enum) and args[0] in ("__iter__", "__len__", "__getitem__")
    if operation != "new":
        return False
    if issubclass(class_, enum.Enum):
        return len(args[0]) == 1 and not args[1]  # with more it makes a class
    maker = _definer(class_, "__init__"), _definer(class_, "__new__")
    return all(_is_safe(base) or issubclass(base, BaseException) for base in maker)


def _definer(class_: type, name: str) -> type:
    """The class that a name of a class is from; `object` if from none."""
    return next((base for base in class_.__mro__ if name in vars(base)), object)


def _is_safe(class_: type) -> bool:
    return is_own(class_) or id(class_) in _BASES


def _allows_special(value: object, name: object) -> bool:
    class_ = type(value)
    if name == "__call__":
        return may_be_called(value)
    if isinstance(value, _PLAIN_CALLABLES):
        return name == "__eq__"
    if isinstance(name, str) and is_own(class_) and _definer(class_, name) is not object:
        return name in _SAFE or _is_safe(_definer(class_, name))
    if isinstance(value, unittest.mock.NonCallableMock):
        return name in _SAFE or name in ("__setitem__", "__delitem__")
    return name in _SAFE or (isinstance(value, pathlib.PurePath) and name in OPERATORS)


def _allows_attribute(value: object, operation: str, name: object) -> bool:
    class_ = type(value)
    if not isinstance(name, str) or name.startswith("_"):
        return False
    if isinstance(value, unittest.mock.NonCallableMock):
        return name not in _CONTROLS and not name.startswith("assert")
    if is_own(class_):
        return _allows_own_attribute(value, name)
    return name in (_SHOWN if operation == "get" else _MAY_BE_SET).get(class_, ())


def _allows_own_attribute(value: object, name: str) -> bool:
    """What the class of the tests says, or the object has; not what it inherits from a class of a library."""
    definer = next((base for base in type(value).__mro__ if name in vars(base)), None)
    if definer is not None:
        return _is_safe(definer) or name in _shown_by_bases(type(value))
    return True


def _shown_by_bases(class_: type) -> frozenset[str]:
    return next((_SHOWN[base] for base in class_.__mro__ if base in _SHOWN), frozenset())


_PLAIN_CALLABLES = (
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodDescriptorType, functools.partial),
    *(types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType, types.GenericAlias),
)


def may_be_called(value: Any) -> bool:
    """Whether calling a value of the tests does only what the tests wrote, or a harmless function of a library."""
    kind = type(value)
    # The getters take what the test has fixed. Not `methodcaller`: a solution's text could format the rest.
    if kind in (types.FunctionType, operator.itemgetter, operator.attrgetter):
        return True
    if kind is types.MethodType:
        return may_be_called(value.__func__)
    if kind is functools.partial:
        return may_be_called(value.func) or any(value.func is one for one in _CONVERTERS)
    if kind is functools._lru_cache_wrapper:
        return may_be_called(value.__wrapped__)
    if kind is types.BuiltinFunctionType:
        return _is_harmless(value)
    if kind is types.MethodDescriptorType:
        owner = value.__objclass__
        return id(owner) in codec.KNOWN_NAMES and owner not in (type, object) and not value.__name__.startswith(("_", "format"))
    if isinstance(value, unittest.mock.NonCallableMock):
        return True
    return _OWN.get(id(_definer(kind, "__call__"))) is not None


def _is_harmless(function: types.BuiltinFunctionType) -> bool:
    owner: Callable[..., Any] | object = function.__self__
    if function.__name__.startswith("_"):
        return False
    if isinstance(owner, types.ModuleType):
        return owner.__name__ in _FUNCTION_MODULES and function.__name__ != "call"
    if isinstance(owner, type):
        return id(owner) in codec.KNOWN_NAMES and owner not in (type, object)
    return type(owner) not in _SHOWN or function.__name__ in _SHOWN[type(owner)]
