"""The options of a command, read off signatures and docstrings."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from typing import Any, Literal

from llm_envs.calling import REQUIRED

SECTIONS = ("env", "learner")
"""Sections that are chosen by name: `--env ID` means `--env.name ID`."""

_SCALARS = (int, float, str, bool)


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: with dots where it stands in a section.
        hint: the type its values are checked against.
        default: `REQUIRED` if there is none.
        help: what it does, one paragraph.
    """

    name: str
    hint: Any
    default: Any
    help: str


def dataclass_options(config: type, prefix: str = "") -> list[Option]:
    """An option for every field of a dataclass, with help from the `Attributes:` of its docstring and its bases'."""
    hints = typing.get_type_hints(config)
    docs = _documented(*(base.__doc__ for base in reversed(config.__mro__)))
    return [
        Option(f"{prefix}{entry.name}", hints[entry.name], _field_default(entry), docs.get(entry.name, ""))
        for entry in fields(config)
    ]


def function_options(function: Callable[..., Any], defaults: Mapping[str, Any], prefix: str = "") -> list[Option]:
    """An option for every name in `defaults`, with type and help from the function's signature and docstring."""
    inner = function.func if isinstance(function, partial) else function
    if inspect.isclass(inner):
        documented, annotated = (inner.__doc__, inner.__init__.__doc__), inner.__init__
    elif inspect.isroutine(inner):
        documented, annotated = (inner.__doc__,), inner
    else:
        documented, annotated = (type(inner).__doc__, type(inner).__call__.__doc__), type(inner).__call__
    try:
        hints = typing.get_type_hints(annotated)
    except NameError:  # annotations that only a type checker can read: their options take any value
        hints = {}
    docs = _documented(*documented)
    return [Option(f"{prefix}{name}", hints.get(name, Any), default, docs.get(name, "")) for name, default in defaults.items()]


def _field_default(entry: Field[Any]) -> Any:
    if entry.default is not MISSING:
        return entry.default
    return REQUIRED if entry.default_factory is MISSING else entry.default_factory()


def _documented(*docstrings: str | None) -> dict[str, str]:
    import docstring_parser

    return {
        parameter.arg_name: " ".join((parameter.description or "").split())
        for docstring in docstrings
        if docstring
        for parameter in docstring_parser.parse(inspect.cleandoc(docstring), docstring_parser.DocstringStyle.GOOGLE).params
    }


def parsable(hint: Any) -> Any:
    """The type without what no text can stand for (`torch.dtype` in `str | torch.dtype | None`)."""
    if not _is_union(hint):
        return hint
    members = [
        member for member in typing.get_args(hint) if not inspect.isclass(member) or member in (*_SCALARS, type(None), list, dict)
    ]
    return typing.Union[tuple(members or [Any])]  # noqa: UP007  # built from a list


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _members(hint: Any) -> list[Any]:
    return list(typing.get_args(hint)) if _is_union(hint) else [hint]


def _has_origin(hint: Any, abstract: type) -> bool:
    origins = [typing.get_origin(member) or member for member in _members(hint)]
    return any(inspect.isclass(origin) and origin is not str and issubclass(origin, abstract) for origin in origins)


def takes_list(hint: Any) -> bool:
    """Whether a value may be a list."""
    return _has_origin(hint, Sequence)


def takes_mapping(hint: Any) -> bool:
    """Whether a value may be a mapping."""
    return _has_origin(hint, Mapping)


def short_name(name: str) -> str:
    """What users write for an option: a section's own name stands for its `name`."""
    section = name.removesuffix(".name")
    return section if section in SECTIONS else name


def type_text(hint: Any) -> str:
    """The type in words: `whole number, or none`."""
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "none", Any: "any value"}
    names: list[str] = []
    for member in _members(parsable(hint)):
        if typing.get_origin(member) is Literal:
            names += [str(choice) if not isinstance(choice, bool) else str(choice).lower() for choice in typing.get_args(member)]
        elif member in words:
            names.append(words[member])
        elif takes_mapping(member):
            names.append("a mapping")
        elif takes_list(member):
            inner = typing.get_args(member)
            names.append(
                "a list"
                if not inner or inner[0] not in _SCALARS
                else {str: "a list of texts", int: "a list of whole numbers"}.get(inner[0], "a list")
            )
        else:
            names.append(str(member).removeprefix("typing."))
    return " or ".join(dict.fromkeys(names))
