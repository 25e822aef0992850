"""How a user's function is called: settled once, when the task is built. The only place that reads signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True)
class SettledCall:
    """A function together with the one way it is called.

    Attributes:
        function: the user's function.
        name: how errors name it.
        order: what goes by position: an argument's index, or a keyword's name.
        slots: parameter names that take arguments by keyword, with the argument's index.
        rest: index from which all further arguments go to `*args`; None without one.
        keywords: keywords that go by name.
        required: those of the keywords that have no default.
    """

    function: Callable[..., Any]
    name: str
    order: tuple[int | str, ...]
    slots: tuple[tuple[str, int], ...]
    rest: int | None
    keywords: tuple[str, ...]
    required: frozenset[str]

    def takes(self, keyword: str) -> bool:
        """Whether the function is given this keyword."""
        return keyword in self.keywords or keyword in self.order

    def __call__(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The function's value for these arguments; keywords it does not name are left out."""
        positional = [arguments[key] if isinstance(key, int) else keywords[key] for key in self.order]
        if self.rest is not None:
            positional += arguments[self.rest :]
        named = {name: arguments[index] for name, index in self.slots}
        named.update((name, keywords[name]) for name in self.keywords if name in keywords)
        return self.function(*positional, **named)


def settle(function: Callable[..., Any], *, role: str, arguments: Sequence[str], keywords: Collection[str]) -> SettledCall:
    """The one way to call `function` with all `arguments` and those `keywords` that it names or takes through `**kwargs`.

    Args:
        function: the user's function.
        role: what it is for, in errors: "reward function".
        arguments: a word for each positional argument, in order; all must be taken.
        keywords: names offered; a parameter of that name gets it, wherever it stands and whatever its kind.

    Raises:
        TypeError: if it is no function, its signature cannot be read, or it cannot be called so.
    """
    name = f"{role} {function_name(function)}"
    if not callable(function):
        raise TypeError(f"{role} must be callable, got {function!r}")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError as error:
        raise TypeError(f"{name}: its signature cannot be read; wrap it in a def") from error
    star = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    offered = [p for p in parameters if p.name in keywords and p.kind in (_EITHER, _KEYWORD_ONLY)]
    free = [p for p in parameters if p not in offered and p.kind in (_POSITIONAL_ONLY, _EITHER)]
    _refuse_unknown(name, parameters, free, offered, arguments, keywords, star)
    required = [p for p in free if p.default is p.empty]
    spare = [p for p in free if p.default is not p.empty]
    filled = sorted((required + spare)[: len(arguments)], key=parameters.index)
    by_name = tuple(p.name for p in offered) if not takes_any else tuple(sorted(keywords))
    needed = frozenset(p.name for p in offered if p.default is p.empty)
    if star:
        # Parameters before *args can only be filled by position, the offered keywords among them too.
        order: list[int | str] = []
        for parameter in parameters:
            if parameter in filled:
                order.append(filled.index(parameter))
            elif parameter in offered and parameter.kind is _EITHER:
                order.append(parameter.name)
        return SettledCall(function, name, tuple(order), (), len(filled), tuple(k for k in by_name if k not in order), needed)
    order = [i for i, p in enumerate(filled) if p.kind is _POSITIONAL_ONLY]
    slots = tuple((p.name, i) for i, p in enumerate(filled) if p.kind is _EITHER)
    return SettledCall(function, name, tuple(order), slots, None, by_name, needed)


def _refuse_unknown(name, parameters, free, offered, arguments, keywords, star) -> None:
    required = [p for p in free if p.default is p.empty]
    unknown = [p.name for p in required[len(arguments) :]]
    unknown += [p.name for p in parameters if p.kind is _KEYWORD_ONLY and p not in offered and p.default is p.empty]
    if unknown:
        raise TypeError(
            f"{name} requires {', '.join(map(repr, unknown))}, which it would not be given: "
            f"it gets {_listing(arguments) or 'no arguments'} and may name {', '.join(sorted(keywords))}"
        )
    if len(free) < len(arguments) and not star:
        raise TypeError(f"{name} takes {len(free)} of the {len(arguments)} arguments it is given: {_listing(arguments)}")


def _listing(arguments: Sequence[str]) -> str:
    return ", ".join(arguments)


def function_name(function: object) -> str:
    """A function's name for messages: its qualified name, or its type's for callable objects."""
    if inspect.isroutine(function) or inspect.isclass(function):
        return f"{function.__qualname__!r}"
    inner = function.func if hasattr(function, "func") else function
    return f"{inner.__qualname__!r}" if inspect.isroutine(inner) else f"{type(function).__qualname__!r}"
