"""Guards the pages on bundled tasks: their audit tables say what an audit says. Their Python blocks run in tests/test_readme.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import llm_envs
from llm_envs.testing import audit_rewards

DOCS = Path(__file__).parents[2] / "docs"
BUNDLED = {
    "matching-v0": "tasks/matching.md",
    "split-v0": "tasks/split.md",
    "length-ratio-v0": "tasks/length_ratio.md",
    "travel-v0": "tasks/travel.md",
}
STRICT = {"travel-v0"}
"""Answers have a form that no random text has; their pages say so."""


@pytest.mark.parametrize(
    ("name", "page"), [pytest.param(*one, marks=[pytest.mark.slow] if one[0] == "travel-v0" else []) for one in BUNDLED.items()]
)
def test_the_audit_tables_are_true(name, page):
    """Rows of teams that an audit has, with its mean to two places; those it has not are marked or worked out in the text."""
    audit = audit_rewards(llm_envs.make(name))
    table = (DOCS / page).read_text(encoding="utf-8").split("## What careless teams earn")[1]
    said = {}
    for teams, value in re.findall(r"^\| (.+?) \| ([\d.]+)[^|]*\|$", table, re.MULTILINE):
        for team in re.sub(r" of the prompt| \(.*?\)", "", teams).replace("one agent silent", "one silent").split(", "):
            said[team] = float(value)
    known = {entry.team: round(entry.mean, 2) for entry in audit.teams}
    assert {team: said[team] for team in known} == known
    assert [warning for warning in audit.warnings if name not in STRICT or "no random team ever earns more" not in warning] == []
