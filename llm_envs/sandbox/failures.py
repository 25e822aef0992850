"""Exceptions that cross: those of the language are made anew, those of a solution's classes are stand-ins that can be raised."""

from __future__ import annotations

import builtins
from typing import Any

from llm_envs.sandbox.codec import MalformedError
from llm_envs.sandbox.remote import COMPARISONS, SPECIAL, Remote, RemoteMeta, There, extend, methods_of, numbered

_MOST_LINES = 1 << 31
GROUP: type = getattr(builtins, "BaseExceptionGroup", type(None))
"""Groups of exceptions; Python 3.10 has none."""


def built_in(name: str) -> type[BaseException]:
    """The language's own exception of that name.

    Raises:
        MalformedError: there is none.
    """
    found = getattr(builtins, name, None)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise MalformedError(f"an exception class {name!r}")
    return found


def failure_of(class_: type) -> str | None:
    """Name of the first of the language's own exceptions that a class extends; None if it is no exception."""
    named = (base.__name__ for base in class_.__mro__ if base.__module__ == "builtins" and issubclass(base, BaseException))
    return next(named, None)


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


# ---- of a solution: stand-ins ----


def make_failure_class(
    name: str, bases: tuple[type, ...], base: str, own: frozenset[str], attributes: dict[str, Any]
) -> RemoteMeta:
    """A class of stand-ins that are exceptions.

    Args:
        name: as it is shown.
        bases: of the class, stand-ins and exceptions of this process.
        base: name of the first of the language's own exceptions that it extends.
        own: special methods that it has.
        attributes: `_remote_…` values of the class.
    """
    errors = tuple(one for one in bases if issubclass(one, BaseException) and not isinstance(one, RemoteMeta))
    # Those of `BaseException` could stand in front of them.
    names: dict[str, Any] = {
        kept: vars(Remote)[kept] for kept in ("__dict__", "__delattr__", "__eq__", "__hash__", "__reduce_ex__")
    }
    names |= {"__setattr__": _set, "__repr__": BaseException.__repr__, "__str__": _text, "_remote_base": built_in(base)}
    if not issubclass(built_in(base), GROUP):
        names |= {there: There(there) for there in dir(built_in(base)) if not hasattr(BaseException, there)}
    return extend(name, bases, errors or (built_in(base),), {**attributes, **names, **methods_of(own & SPECIAL - COMPARISONS)})


def make_failure(class_: type, number: int, args: object, text: str, line: object) -> BaseException:
    """A stand-in for an exception.

    Args:
        class_: of the stand-in.
        number: of the exception.
        args: its arguments.
        text: what `str` said of it.
        line: of the solution that raised it.
    """
    return _noted(numbered(_instance(class_, args), number), text, line)


def _set(self: BaseException, name: str, value: object) -> None:
    # The language itself sets these when an exception is raised.
    (BaseException if name.startswith("__") else Remote).__setattr__(self, name, value)  # type: ignore[arg-type]


# ---- of this process's own making ----


def make_local_class(name: str, bases: tuple[type, ...], base: str) -> type[BaseException]:
    """A class of exceptions of this process that has the name and the bases of one of the other."""
    errors = tuple(one for one in bases if issubclass(one, BaseException)) or (built_in(base),)
    names = {"__module__": "solution", "__str__": _text}
    try:
        return type(name, errors, names)
    except TypeError:
        return type(name, (built_in(base),), names)


def make_local(class_: object, args: object, text: str, line: object, attributes: Any) -> BaseException:
    """An exception of this process, with the attributes of one of the other."""
    if isinstance(class_, RemoteMeta):
        raise MalformedError("an exception without a number whose class is the other side's")
    error = _instance(class_, args)
    for name, value in attributes:
        if isinstance(name, str) and not name.startswith("_") and not hasattr(BaseException, name):
            vars(error)[name] = value
    return _noted(error, text, line)


def _instance(class_: Any, args: Any) -> Any:
    """An exception of the class with these arguments, without calling what a solution's class would do.

    Raises:
        MalformedError: it is no class of exceptions.
    """
    if not (isinstance(class_, type) and issubclass(class_, BaseException)):
        raise MalformedError("an exception whose class is none")
    if class_.__module__ == "builtins":
        try:
            return class_(*args)
        except (TypeError, ValueError):
            return Exception(*args)
    error = class_.__new__(class_, *args)
    BaseException.args.__set__(error, args)  # type: ignore[attr-defined]
    return error


def _noted(error: Any, text: object, line: object) -> Any:
    if line is not None and not (isinstance(line, int) and 0 <= line < _MOST_LINES):
        raise MalformedError(f"a line {line!r}")
    object.__setattr__(error, "_remote_text", str(text))
    object.__setattr__(error, "_remote_line", line)
    return error


def _text(self: BaseException) -> str:
    """What `str` said over there; for one made here, what it says of an exception."""
    said = getattr(self, "_remote_text", None)
    return BaseException.__str__(self) if said is None else said
