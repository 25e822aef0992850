"""What is wrong with rows of ClassEval itself, found by running all of its reference solutions. Everything here is by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from llm_envs.types import Item

_NO_METHOD = "calls a method that the skeleton does not have"

KNOWN_FAULTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "ClassEval_17": {
            "CalendarTestGetUpcomingEvents.test_get_upcoming_events_5": "expects events of 2024 to lie in the future",
        },
        "ClassEval_25": {
            "CookiesUtilTestSetCookies.test_set_cookies": _NO_METHOD,
        },
        "ClassEval_35": {
            "EightPuzzleTestSolve.test_solve_3": "takes ClassEval's own solution a dozen seconds",
        },
        "ClassEval_48": {
            "IpUtilTestGetHostname.test_get_hostname_3": "expects the name of its author's computer",
        },
        "ClassEval_49": {
            "JobMarketplaceTestMatchesRequirements.test_matches_requirements": _NO_METHOD,
            "JobMarketplaceTestMatchesRequirements.test_matches_requirements_2": _NO_METHOD,
            "JobMarketplaceTestMatchesRequirements.test_matches_requirements_3": _NO_METHOD,
            "JobMarketplaceTestMatchesRequirements.test_matches_requirements_4": _NO_METHOD,
            "JobMarketplaceTestMatchesRequirements.test_matches_requirements_5": _NO_METHOD,
            "JobMarketplaceTestMain.test_main": _NO_METHOD,
        },
    }
)
"""Tests that a right class fails, by row, with the reason."""

REPAIRS: Mapping[str, tuple[tuple[str, str, str], ...]] = MappingProxyType(
    {
        "ClassEval_48": (("skeleton", "import netifaces\n", ""),),
        "ClassEval_49": (
            (
                "solution_code",
                'self.matches_requirements(resume, job["requirements"])',
                'all(skill in job["requirements"] for skill in resume["skills"])',
            ),
        ),
        "ClassEval_51": (
            ("solution_code", "np.mat(", "np.asmatrix("),
            ("solution_code", "float(ysum * xsum)", "float((ysum * xsum)[0, 0])"),
        ),
    }
)
"""By row: field, text, text in its place. #48 imports a package that nothing uses; #49's solution uses a method that its skeleton
lacks; #51's solution uses what NumPy 2 has no more."""

UNPLAYABLE: Mapping[str, str] = MappingProxyType(
    {
        "ClassEval_45": "its tests hand Pillow's images to the class, which are no plain data and cannot leave the tests' process",
        "ClassEval_52": "it needs corpora of nltk, which come with no package",
    }
)
"""Rows that cannot be judged here whatever is installed, with the reason."""


def repaired(row: Item) -> Item:
    """A row of ClassEval with its repairs; every other row is as it was."""
    changed = dict(row)
    for field, old, new in REPAIRS.get(str(row.get("task_id")), ()):
        changed[field] = changed[field].replace(old, new)
    return changed
