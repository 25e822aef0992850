"""Two pools for all tests of the folder: to start one costs a second."""

from __future__ import annotations

import pytest

from llm_envs.sandbox import Limits, Report, Sandbox, Trial


@pytest.fixture(scope="session")
def sandbox():
    with Sandbox(Limits(cpu_seconds=1.0, wall_seconds=3.0, output_kb=1), workers=2) as shared:
        yield shared


@pytest.fixture(scope="session")
def tight():
    """With limits that are reached soon, and without a memory of reports."""
    with Sandbox(Limits(cpu_seconds=0.25, wall_seconds=1.0, memory_mb=128), workers=2, cache=0) as shared:
        yield shared


@pytest.fixture
def run(sandbox):
    """Report of a solution on checks; `f` is what they need unless other names are given."""

    def run(solution: str, *checks: str, names: tuple[str, ...] = ("f",), **options) -> Report:
        return sandbox.run(Trial(solution, names, checks=checks, **options))

    return run
