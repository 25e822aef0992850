"""Guards that options which several tasks have are the same in each: they are written out in every `task()`, for users to read."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import pytest

from llm_envs import list_envs, spec
from llm_envs.tasks.code.assembly import CodeOptions
from llm_envs.tasks.code.options import TurnOptions
from llm_envs.tasks.writing.assembly import WritingOptions

BUILT_IN = [name for name in list_envs() if spec(name).source == "llm_envs"]

EVERYWHERE = {
    "num_turns": int,
    "original_prompt": bool,
    "previous_response": bool,
    "path": str | None,
    "eval_ids": Sequence[str] | None,
    "eval_share": float | None,
    "seed": int,
    "train_rows": int,
    "eval_rows": int,
}
"""What means the same in whatever task has it."""


def options_of(name):
    """Each option's type and default."""
    task = spec(name).load()
    hints = get_type_hints(task)
    return {option: (hints[option], one.default) for option, one in inspect.signature(task).parameters.items()}


@pytest.mark.parametrize("name", BUILT_IN)
def test_common_options_have_one_type(name):
    found = options_of(name)
    for option, kind in EVERYWHERE.items():
        if option in found:
            assert found[option][0] == kind, option
    assert {"eval_ids", "eval_share", "path"} <= set(found) or not {"source", "eval_ids", "eval_share", "path"} & set(found)


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("humaneval-v0", CodeOptions),
        ("coophumaneval-v0", CodeOptions),
        ("mbpp-v0", CodeOptions),
        ("classeval-v0", TurnOptions),
        ("tldr-v0", WritingOptions),
        ("arxiv-v0", WritingOptions),
    ],
)
def test_families_offer_their_shared_options_as_they_are(name, shared):
    found, hints = options_of(name), get_type_hints(shared)
    for field in dataclasses.fields(shared):
        kind, default = found[field.name]
        assert kind == hints[field.name], field.name
        assert field.default is dataclasses.MISSING or default == field.default, field.name


def test_both_writing_tasks_have_the_same_options():
    assert options_of("tldr-v0") == options_of("arxiv-v0")


PAGES = Path(__file__).parents[2] / "docs" / "tasks"


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_option_stands_on_the_page(name):
    """In the table of options of the page that the list of tasks leads to."""
    listed = (PAGES / "README.md").read_text(encoding="utf-8")
    (page,) = re.findall(rf"\[[^]]*`{name}`[^]]*\]\((\w+\.md)\)", listed)
    text = (PAGES / page).read_text(encoding="utf-8")
    tables = "".join(section.partition("\n## ")[0] for section in text.split("\n## Options\n")[1:])
    shown = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in tables.split("\n") if line.startswith("| "))))
    assert set(options_of(name)) <= shown


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_option_is_described(name):
    """Under `Args:`, in the order of the signature: `llm-marl envs` shows it."""
    described = [
        line.strip().partition(":")[0]
        for line in inspect.getdoc(spec(name).load()).partition("\nArgs:\n")[2].split("\n")
        if line.startswith("    ") and not line.startswith("     ")
    ]
    assert described == list(options_of(name))
