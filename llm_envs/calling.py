"""How a user's function is called: settled once, when the task is built. The only place that reads signatures."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

FAILURES: Final = (Exception, SystemExit)
"""What counts as a failure of a user's function: also an exit, which would end the run as if it had succeeded."""


class SettledCall:
    """A user's function together with the one way it is called: with `arguments`, and with those of `keywords` that it wants.

    A parameter named as a keyword is given that keyword, wherever it stands and whatever its kind; `**kwargs` is given all the
    others. The arguments go to the remaining parameters in their order, and what is left to `*args`.

    Args:
        function: the user's.
        role: what it is for, in errors: "reward function".
        arguments: a word for each positional argument, in order; all must be taken.
        keywords: names offered.

    Attributes:
        name: how errors name it.
        required: those of the keywords that it has no default for.

    Raises:
        TypeError: if it is no function, is async, its signature cannot be read, or it cannot be called so.
    """

    def __init__(self, function: Callable[..., Any], *, role: str, arguments: Sequence[str], keywords: Sequence[str]) -> None:
        if not callable(function):
            raise TypeError(f"{role} must be callable, got {function!r}")
        self.function = function
        self.role = role
        self.name = f"{role} {function_name(function)}"
        self._arguments = tuple(arguments)
        self._keywords = tuple(keywords)
        asynchronous = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        if any(check(one) for check in asynchronous for one in (function, type(function).__call__)):
            raise TypeError(f"{self.name} is async: make it a plain function, nothing here awaits it")
        try:
            self._signature = inspect.signature(function)
        except ValueError as error:
            raise TypeError(f"{self.name}: its signature cannot be read; wrap it in a def") from error
        parameters = list(self._signature.parameters.values())
        self._rest = _name_of(parameters, inspect.Parameter.VAR_POSITIONAL)
        self._others = _name_of(parameters, inspect.Parameter.VAR_KEYWORD)
        self._named = [p for p in parameters if p.name in self._keywords and p.name not in (self._rest, self._others)]
        free = [p for p in parameters if p not in self._named and p.kind in _POSITIONAL]
        self._check(parameters, free)
        self._filled = [p.name for p in free[: len(arguments)]]
        self.required = frozenset(p.name for p in self._named if p.default is p.empty)

    def takes(self, keyword: str) -> bool:
        """Whether the function is given this keyword."""
        return self._others is not None or any(p.name == keyword for p in self._named)

    def __call__(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The function's value; of the offered keywords any may be left out that it has a default for."""
        values = dict(zip(self._filled, arguments, strict=False))
        values.update((p.name, keywords[p.name]) for p in self._named if p.name in keywords)
        if self._rest is not None:
            values[self._rest] = tuple(arguments[len(self._filled) :])
        if self._others is not None:
            values[self._others] = {name: value for name, value in keywords.items() if name not in values}
        bound = inspect.BoundArguments(self._signature, values)
        bound.apply_defaults()  # else what comes after one left out could not go by position
        return self.function(*bound.args, **bound.kwargs)

    def __reduce__(self) -> tuple[Callable[..., SettledCall], tuple[Any, ...]]:
        # A signature holds default values, which need not survive pickling where the function does.
        return _settled_again, (self.function, self.role, self._arguments, self._keywords)

    def _check(self, parameters: Sequence[inspect.Parameter], free: Sequence[inspect.Parameter]) -> None:
        given = ", ".join(self._arguments) or "no arguments"
        offered = f"may name {', '.join(self._keywords)}" if self._keywords else "nothing else"
        unknown = [p.name for p in free if p.default is p.empty][len(self._arguments) :]
        unknown += [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p not in self._named and p.default is p.empty]
        if unknown:
            raise TypeError(
                f"{self.name} requires {', '.join(map(repr, unknown))}, which it would not be given: it gets {given} and {offered}"
            )
        if len(free) < len(self._arguments) and self._rest is None:
            raise TypeError(f"{self.name} takes {len(free)} of the {len(self._arguments)} arguments it is given: {given}")


def check_arguments(function: Callable[..., Any], role: str, *arguments: str) -> None:
    """Refuse a function that cannot be called with these arguments alone, by position.

    One whose signature cannot be read, as of some written in C, is let pass.

    Raises:
        TypeError: as `SettledCall`.
    """
    if callable(function):
        try:
            inspect.signature(function)
        except ValueError:
            return
    SettledCall(function, role=role, arguments=arguments, keywords=())


def _settled_again(function: Callable[..., Any], role: str, arguments: Sequence[str], keywords: Sequence[str]) -> SettledCall:
    return SettledCall(function, role=role, arguments=arguments, keywords=keywords)


def _name_of(parameters: Sequence[inspect.Parameter], kind: object) -> str | None:
    return next((p.name for p in parameters if p.kind is kind), None)


class _Required(enum.Enum):
    REQUIRED = "required"

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required.REQUIRED
"""Stands for the default of an option that has none."""


@dataclass(frozen=True)
class Options:
    """What a factory may be given by name.

    Attributes:
        defaults: every named option with its default, `REQUIRED` without one.
        open_ended: whether it takes any other name as well (`**kwargs`).
    """

    defaults: Mapping[str, Any]
    open_ended: bool


def keyword_options(function: Callable[..., Any]) -> Options:
    """The options of a function that is called with keywords only.

    Raises:
        TypeError: if its signature cannot be read, or it needs an argument that has no name for callers.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError as error:
        raise TypeError(f"{function_name(function)}: its signature cannot be read; wrap it in a def") from error
    unnamed = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    if unnamed:
        raise TypeError(f"{function_name(function)} needs {unnamed[0]!r} by position; options are given by name")
    named = (p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    defaults = {p.name: REQUIRED if p.default is p.empty else p.default for p in named}
    return Options(defaults, open_ended=any(p.kind is p.VAR_KEYWORD for p in parameters))


def parameters_of(function: Callable[..., Any]) -> Mapping[str, tuple[Any, Any]]:
    """Each parameter's annotation and default, `REQUIRED` without one; a text where the annotation is written as one.

    Raises:
        TypeError: if its signature cannot be read.
    """
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:
        raise TypeError(f"{function_name(function)}: its signature cannot be read; wrap it in a def") from error
    empty = inspect.Parameter.empty
    return {name: (one.annotation, REQUIRED if one.default is empty else one.default) for name, one in parameters.items()}


def named_arguments(
    function: Callable[..., Any], positional: Sequence[Any], keywords: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The arguments of a call by parameter; None if the function cannot be called so."""
    try:
        return inspect.signature(function).bind(*positional, **keywords).arguments
    except TypeError:
        return None


def owned(value: Any) -> Any:
    """A copy of the value that a user's function may keep or change: nested mappings, lists, tuples and sets are copied with it.

    Anything else is shared. Not `copy.deepcopy`: a row may hold what cannot be copied, or what is dear to copy.
    """
    if isinstance(value, Mapping):
        return {key: owned(entry) for key, entry in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(map(owned, value))
    return value


def function_name(function: object) -> str:
    """A function's name for messages: its qualified name; a `partial`'s is its function's, another callable object's its type's."""
    inner = function.func if isinstance(function, functools.partial) else function
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return repr(inner.__qualname__)
    return repr(type(inner).__qualname__)
