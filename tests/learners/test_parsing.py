"""Guards how options are read: off signatures and docstrings, from YAML and words, with errors that name option, value and type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import pytest

from learners.commands.errors import UsageError
from learners.commands.files import read_yaml, to_yaml
from learners.commands.options import Option, dataclass_options, function_options, type_text
from learners.commands.parsing import first_look, parse
from llm_envs.calling import REQUIRED


@dataclass(frozen=True, kw_only=True)
class Base:
    """Shared.

    Attributes:
        rate: how fast, over
            two lines.
        count: how many.
    """

    rate: float = 0.5
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class Full(Base):
    """All kinds.

    Attributes:
        count: how many, said anew.
        mode: which.
        flag: whether.
        either: true, false or scale.
        names: texts.
        devices: one or several.
        extra: anything by name.
    """

    count: int | None = 3
    mode: Literal["fast", "slow"] = "fast"
    flag: bool = False
    either: bool | Literal["scale"] = True
    names: Sequence[str] | None = None
    devices: str | Sequence[str] | None = None
    extra: Mapping[str, object] = field(default_factory=dict)


OPTIONS = [
    Option("env.name", str, "a-v0", "the env"),
    Option("learner.name", str, "x", "the learner"),
    *dataclass_options(Full, "learner."),
]


def values(argv: Sequence[str] = (), config: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    return parse(OPTIONS, argv, config).values


# ---- where options come from ----


def test_dataclass_options_take_types_defaults_and_help_from_the_class_and_its_bases():
    options = {option.name: option for option in dataclass_options(Full, "p.")}
    assert list(options) == [f"p.{n}" for n in ("rate", "count", "mode", "flag", "either", "names", "devices", "extra")]
    assert options["p.rate"] == Option("p.rate", float, 0.5, "how fast, over two lines.")
    assert options["p.count"] == Option("p.count", int | None, 3, "how many, said anew.")
    assert options["p.extra"].default == {}


def factory(*, size: int = 2, must: str) -> None:
    """A factory.

    Args:
        size: of it.
        must: be given.
    """


class Factory:
    """A class.

    Args:
        size: of it.
    """

    def __init__(self, size: float = 1.0) -> None: ...

    def __call__(self, *, size: bool = True) -> None:
        """Called.

        Args:
            size: when called.
        """


@pytest.mark.parametrize(
    ("function", "defaults", "hint", "text"),
    [
        (factory, {"size": 2}, int, "of it."),
        (partial(factory, must="x"), {"size": 2}, int, "of it."),
        (Factory, {"size": 1.0}, float, "of it."),
        (Factory(), {"size": True}, bool, "when called."),
    ],
)
def test_function_options_read_functions_partials_classes_and_objects(function, defaults, hint, text):
    (option,) = function_options(function, defaults, "env.")
    assert option == Option("env.size", hint, defaults["size"], text)


def test_annotations_that_cannot_be_read_take_any_value():
    def odd(*, thing: NotThere = 1) -> None:  # noqa: F821  # the point
        """Odd."""

    (option,) = function_options(odd, {"thing": 1})
    assert option == Option("thing", Any, 1, "")
    assert parse([option], ["--thing", "{a: 1}"]).values == {"thing": {"a": 1}}


# ---- what the user gives ----


@pytest.mark.parametrize(
    ("words", "name", "expected"),
    [
        ("--learner.rate 3e-4", "rate", 3e-4),
        ("--learner.rate=1", "rate", 1.0),
        ("--learner.count 7", "count", 7),
        ("--learner.count none", "count", None),
        ("--learner.count null", "count", None),
        ("--learner.mode slow", "mode", "slow"),
        ("--learner.flag", "flag", True),
        ("--learner.flag true", "flag", True),
        ("--learner.flag false", "flag", False),
        ("--learner.flag --learner.count 1", "flag", True),
        ("--learner.either scale", "either", "scale"),
        ("--learner.either false", "either", False),
        ("--learner.names a b", "names", ["a", "b"]),
        ("--learner.names [a,b]", "names", ["a", "b"]),
        ("--learner.names a", "names", ["a"]),
        ("--learner.names none", "names", None),
        ("--learner.devices cpu", "devices", "cpu"),
        ("--learner.devices cpu cuda:0", "devices", ["cpu", "cuda:0"]),
        ('--learner.extra {"a":1}', "extra", {"a": 1}),
        ("--learner.extra.a 1 --learner.extra.b.c [x]", "extra", {"a": 1, "b": {"c": ["x"]}}),
        ("--learner.count 1 --learner.count 2", "count", 2),
        ("--learner marloo", "name", "marloo"),
        ("--learner.name marloo", "name", "marloo"),
        ("--learner.rate -1", "rate", -1.0),
    ],
)
def test_words(words, name, expected):
    assert values(words.split(" "))[f"learner.{name}"] == expected


@pytest.mark.parametrize(
    ("config", "name", "expected"),
    [
        ({"learner": "marloo"}, "learner.name", "marloo"),
        ({"learner": {"name": "marloo", "count": 1}}, "learner.count", 1),
        ({"learner": {"rate": "3e-4"}}, "learner.rate", 3e-4),  # what YAML 1.1 makes of 3e-4
        ({"learner.count": 1}, "learner.count", 1),
        ({"learner": {"extra": {"a": {"b": 1}}}}, "learner.extra", {"a": {"b": 1}}),
        ({"learner": None}, "learner.count", 3),
        ({"env": "b-v0"}, "env.name", "b-v0"),
    ],
)
def test_config(config, name, expected):
    assert values((), config)[name] == expected


def test_words_win_over_the_config_and_that_over_defaults():
    parsed = parse(OPTIONS, ["--learner.count", "1"], {"learner": {"count": 2, "rate": 9, "extra": {"a": 1}}})
    assert (parsed.values["learner.count"], parsed.values["learner.rate"], parsed.values["learner.mode"]) == (1, 9.0, "fast")
    assert parsed.given == {"learner.count", "learner.rate", "learner.extra"}
    assert parse(OPTIONS, ["--learner.extra.b", "2"], {"learner": {"extra": {"a": 1}}}).values["learner.extra"] == {"a": 1, "b": 2}


def test_new_defaults_give_way_to_what_was_given():
    parsed = parse(OPTIONS, ["--learner.count", "1"]).with_defaults({"learner.count": 8, "learner.rate": 0.1})
    assert (parsed.values["learner.count"], parsed.values["learner.rate"]) == (1, 0.1)


def test_new_defaults_of_a_mapping_are_added_to_what_was_given():
    parsed = parse(OPTIONS, ["--learner.extra.a", "1"]).with_defaults({"learner.extra": {"a": 2, "b": 3}})
    assert parsed.values["learner.extra"] == {"a": 1, "b": 3}


def test_sections_leave_out_their_name():
    section = parse(OPTIONS, []).section("learner")
    assert "name" not in section
    assert section["count"] == 3


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        ("--learner.count x", ["--learner.count", "a whole number or none", "'x'"]),
        ("--learner.count 1.5", ["--learner.count", "a whole number", "'1.5'"]),
        ("--learner.rate fast", ["--learner.rate", "a number", "'fast'"]),
        ("--learner.rate nan", ["--learner.rate", "'nan'"]),
        ("--learner.mode medium", ["--learner.mode", "fast or slow", "'medium'"]),
        ("--learner.flag maybe", ["--learner.flag", "true or false", "'maybe'"]),
        ("--learner.count", ["--learner.count needs a value", "a whole number"]),
        ("--learner.extra 3", ["--learner.extra", "a mapping"]),
        ("--learner.coun 3", ["no option --learner.coun", "did you mean --learner.count"]),
        ("--count 3", ["no option --count", "did you mean --learner.count"]),
        ("--learner.count.x 3", ["no option --learner.count.x"]),
        ("--nothing-like-it 3", ["no option --nothing-like-it"]),
        ("--learner.count 1 2", ["unexpected argument '2'"]),
        ("word", ["unexpected argument 'word'"]),
    ],
)
def test_errors_name_option_value_and_what_is_expected(words, fragments):
    with pytest.raises(UsageError) as caught:
        values(words.split(" "))
    assert [fragment for fragment in fragments if fragment not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("config", "fragment"),
    [
        ({"learner": {"coun": 1}}, "no option --learner.coun (did you mean --learner.count"),
        ({"learnr": {"count": 1}}, "no option --learnr"),
        ({"learner": {"count": "many"}}, "--learner.count must be a whole number or none, got 'many'"),
        ({"learner": {"count": True}}, "--learner.count must be a whole number or none, got True"),
        ({"learner": ["marloo"]}, "--learner must be text"),
    ],
)
def test_errors_in_a_config(config, fragment):
    with pytest.raises(UsageError) as caught:
        values((), config)
    assert fragment in str(caught.value)


def test_an_option_without_default_is_required():
    option = Option("env.must", str, REQUIRED, "be given.")
    with pytest.raises(UsageError, match=r"--env.must is required: be given"):
        parse([option], [])
    assert parse([option], ["--env.must", "x"]).values == {"env.must": "x"}


def test_an_open_section_takes_any_name():
    assert parse(OPTIONS, ["--env.any", "[1, 2]"], {"env": {"other": "x"}}, open_sections=["env"]).section("env") == {
        "any": [1, 2],
        "other": "x",
    }
    with pytest.raises(UsageError, match=r"no option --env\.any"):
        parse(OPTIONS, ["--env.any", "1"])


def test_a_first_look_finds_values_before_the_options_are_known():
    argv = ["--env", "a", "--unknown.x", "--env.name=b", "--config", "c.yaml", "--learner"]
    assert first_look(argv, ("env", "config", "learner", "preset")) == {"env": "b", "config": "c.yaml", "learner": ""}


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (int, "a whole number"),
        (float | None, "a number or none"),
        (Sequence[str], "a list of texts"),
        (bool | Literal["scale"], "true or false or scale"),
        (Mapping[str, object] | None, "a mapping or none"),
        (Any, "any value"),
    ],
)
def test_types_in_words(hint, text):
    assert type_text(hint) == text


# ---- files ----


def test_yaml_is_read_back_as_it_was_written(tmp_path):
    parsed = parse(OPTIONS, ["--learner.names", "a", "b", "--learner.extra.x.y", "1", "--learner.rate", "3e-4"])
    (tmp_path / "run.yaml").write_text(to_yaml(parsed.values))
    assert parse(OPTIONS, [], read_yaml(str(tmp_path / "run.yaml"))).values == parsed.values


@pytest.mark.parametrize(
    ("text", "fragment"),
    [("- a", "must hold options by name, got list"), ("a: [", "is no YAML"), ("", None), (None, "No such file")],
)
def test_configs_that_cannot_be_read(tmp_path, text, fragment):
    path = tmp_path / "run.yaml"
    if text is not None:
        path.write_text(text)
    if fragment is None:
        assert read_yaml(str(path)) == {}
        return
    with pytest.raises(UsageError, match=fragment):
        read_yaml(str(path))
