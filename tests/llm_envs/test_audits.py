"""Guards what careless teams earn on every registered task: little, and what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import llm_envs
from llm_envs.testing import audit_rewards
from llm_envs.testing.__main__ import main

PAGE = Path(__file__).parents[2] / "docs" / "tasks" / "README.md"
CARELESS = ("empty", "constant", "copied prompt", "longest", "keywords", "random text", "random words", "swapped")
MOST = {"length-ratio-v0": 1.0, "split-v0": 0.3}
"""Share of the reference's return that a careless team may earn on average: elsewhere a fifth, 0.3 with another row's answer."""


@pytest.mark.slow
@pytest.mark.parametrize("name", llm_envs.list_envs())
def test_careless_teams_earn_little(name):
    audit = audit_rewards(llm_envs.make(name), rows=8, episodes_per_row=1)
    earned = {entry.team: entry.mean / audit["reference"].mean for entry in audit.teams}
    assert max(earned.values()) == 1.0
    for team in CARELESS:
        assert earned.get(team, 0.0) <= MOST.get(name, 0.3 if team == "swapped" else 0.2), team


@pytest.mark.slow
def test_the_table_is_true(capsys):
    assert main(["audit", "--rows", "4"]) == 0
    (table,) = re.findall(r"<!-- audit -->\n(.*?)<!-- /audit -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert table == capsys.readouterr().out


def test_other_environments_have_no_audit():
    with pytest.raises(ValueError, match="no env 'nowhere-v0'"):
        main(["audit", "nowhere-v0"])
