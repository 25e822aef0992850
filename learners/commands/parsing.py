"""What the user gives: YAML and the command line, checked option by option.

A name with dots stands in a section: `--learner.num_generations 8`, or in YAML `learner: {num_generations: 8}`. A section that can
be chosen (`env`, `learner`) has an option `name`, which the section's name means too: `--learner marloo`, `learner: marloo`.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import yaml

from learners.commands.errors import UsageError, bad_input
from learners.commands.options import SECTIONS, Option, parsable, short_name, takes_list, takes_mapping, type_text
from llm_envs.calling import REQUIRED

_Options = TypeVar("_Options")


@dataclass(frozen=True)
class Parsed:
    """What a command was given.

    Attributes:
        values: of every option, by name.
        given: names that the user gave, in YAML or on the command line.
    """

    values: Mapping[str, Any]
    given: frozenset[str]

    def section(self, prefix: str) -> dict[str, Any]:
        """The values under a prefix, by their names in it; the section's own `name` left out."""
        start = f"{prefix}."
        found = {name.removeprefix(start): value for name, value in self.values.items() if name.startswith(start)}
        return {name: value for name, value in found.items() if name != "name"}

    def built(self, options: type[_Options]) -> _Options:
        """A dataclass of options with the values of their names.

        Raises:
            UsageError: for a value that the dataclass refuses.
        """
        with bad_input():
            return options(**{entry.name: self.values[entry.name] for entry in fields(options)})  # type: ignore[arg-type]

    def with_defaults(self, values: Mapping[str, Any]) -> Parsed:
        """These values in place of those the user did not give; to a mapping they add entries that it lacks."""
        found = dict(self.values)
        for name, value in values.items():
            if isinstance(value, Mapping) and isinstance(found[name], Mapping):
                found[name] = {**value, **found[name]}
            elif name not in self.given:
                found[name] = value
        return replace(self, values=found)


def parse(
    options: Iterable[Option],
    argv: Sequence[str],
    config: Mapping[str, Any] | None = None,
    *,
    open_sections: Sequence[str] = (),
) -> Parsed:
    """The values of all options: the command line wins over the config, that over the defaults.

    Args:
        options: that there are.
        argv: the command line from the first option on.
        config: sections and values, as read from YAML.
        open_sections: prefixes under which any further name is taken.

    Raises:
        UsageError: naming the option, its value and what is expected, or the options like an unknown one.
    """
    known = _Known(options, open_sections)
    given: dict[str, Any] = {}
    for name, value in known.flat(config or {}):
        given[name] = _checked(known.option(name), value, from_text=False)
    for name, texts in _grouped(argv, known):
        option = known.option(name)
        if name == option.name:
            given[name] = _from_words(option, texts)
        else:
            given[option.name] = _with_entry(option, given.get(option.name, option.default), name, texts)
    values = {option.name: given.pop(option.name, option.default) for option in known.options.values()} | given
    missing = [name for name, value in values.items() if value is REQUIRED]
    if missing:
        raise UsageError(f"--{missing[0]} is required: {known.option(missing[0]).help or 'it has no default'}")
    return Parsed(values, known.given)


def first_look(argv: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """The values of a few options, found before anybody knows which options there are; the last one counts."""
    wanted = {written: name for name in names for written in (f"--{name}", f"--{name}.name")}
    found: dict[str, str] = {}
    for index, word in enumerate(argv):
        written, equals, value = word.partition("=")
        if written in wanted:
            following = argv[index + 1 : index + 2]
            if not equals and following and not following[0].startswith("--"):
                value = following[0]
            found[wanted[written]] = value
    return found


class _Known:
    """The options of a command, found by what users write."""

    def __init__(self, options: Iterable[Option], open_sections: Sequence[str]) -> None:
        self.options = {option.name: option for option in options}
        self._open = tuple(f"{section}." for section in open_sections)
        self._given: set[str] = set()

    @property
    def given(self) -> frozenset[str]:
        return frozenset(self._given)

    def option(self, name: str) -> Option:
        """The option of a name, or the one whose mapping the name is an entry of (`model_config.lora.r`)."""
        written = name
        while name not in self.options:
            if "." not in name:
                if written.startswith(self._open):
                    return Option(written, Any, None, "")
                raise UsageError(f"there is no option --{written}{self._hint(written)}")
            name = name.rpartition(".")[0]
        option = self.options[name]
        if name != written and not takes_mapping(option.hint):
            raise UsageError(f"there is no option --{written}{self._hint(written)}")
        self._given.add(option.name)
        return option

    def resolve(self, written: str) -> str:
        """The full name: a section's own name stands for its `name`."""
        return f"{written}.name" if written in SECTIONS else written

    def flat(self, config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
        """The config's entries by full names."""
        found: list[tuple[str, Any]] = []
        for key, value in config.items():
            name = f"{prefix}{key}"
            section = any(option.startswith(f"{name}.") for option in self.options)
            if name not in self.options and section and isinstance(value, Mapping):
                found += self.flat(value, f"{name}.")
            elif name not in self.options and section and value is None:
                continue
            else:
                found.append((self.resolve(name), value))
        return found

    def _hint(self, written: str) -> str:
        last = written.rpartition(".")[2]
        same = [name for name in self.options if name.rpartition(".")[2] == last]
        longer = [name for name in self.options if name.startswith(written)]
        close = same or longer or difflib.get_close_matches(written, self.options)
        # Users leave the section out more often than they misspell it.
        close = close or [name for name in self.options if difflib.get_close_matches(last, [name.rpartition(".")[2]], cutoff=0.8)]
        return f" (did you mean {', '.join(f'--{name}' for name in close[:3])}?)" if close else ""


def leading_words(argv: Sequence[str]) -> list[str]:
    """The words before the first option: what a command is about."""
    first = next((index for index, word in enumerate(argv) if word.startswith("--")), len(argv))
    return list(argv[:first])


def _grouped(argv: Sequence[str], known: _Known) -> list[tuple[str, list[str]]]:
    """Every option with the words that are its value."""
    found: list[tuple[str, list[str]]] = []
    index = 0
    while index < len(argv):
        word = argv[index]
        index += 1
        if not word.startswith("--"):
            raise UsageError(f"unexpected argument {word!r}: options start with --")
        written, equals, value = word.removeprefix("--").partition("=")
        name = known.resolve(written)
        option = known.option(name)
        texts = [value] if equals else leading_words(argv[index:])
        if not equals and not takes_list(option.hint):
            texts = texts[:1]
        index += 0 if equals else len(texts)
        found.append((name, texts))
    return found


def _from_words(option: Option, texts: Sequence[str]) -> Any:
    if not texts:
        if option.hint is bool:
            return True
        raise UsageError(f"--{short_name(option.name)} needs a value: {type_text(option.hint)}")
    if len(texts) == 1:
        try:
            return _checked(option, texts[0], from_text=True)
        except UsageError:
            # One word for a list of one.
            if not takes_list(option.hint) or texts[0].startswith("["):
                raise
    return _checked(option, list(texts), from_text=False)


def _with_entry(option: Option, current: Any, name: str, texts: Sequence[str]) -> dict[str, Any]:
    """The option's mapping with the entry that a longer name stands for."""
    if len(texts) != 1:
        raise UsageError(f"--{name} needs one value")
    merged: dict[str, Any] = dict(current) if isinstance(current, Mapping) else {}
    place = merged
    *path, last = name.removeprefix(f"{option.name}.").split(".")
    for part in path:
        place[part] = dict(place.get(part) or {})
        place = place[part]
    place[last] = yaml.safe_load(texts[0])
    return _checked(option, merged, from_text=False)


def _checked(option: Option, value: Any, *, from_text: bool) -> Any:
    """The value as its type wants it."""
    from jsonargparse import ArgumentError, ArgumentParser

    hint = parsable(option.hint)
    if from_text and isinstance(value, str) and value.lower() in ("none", "null") and type(None) in typing.get_args(hint):
        return None
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=hint)
    try:
        return (parser.parse_args([f"--value={value}"]) if from_text else parser.parse_object({"value": value})).value
    except ArgumentError as error:
        raise UsageError(f"--{short_name(option.name)} must be {type_text(option.hint)}, got {value!r}") from error
