"""Guards the examples: each one runs from a fresh process, without warnings, and prints what its page promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# What each example prints among other things. Those that take more than a few seconds are marked slow.
PRINTED = {
    "own_task.py": ["rules hold for the environment", "reference             1", "agent_1 writes | I take 6"],
    "own_reward.py": ["step 1: 1.00 -> 2.00 (ratio 1, topic 1)", "step 3: 1.00 -> 1.00 (ratio 1, topic 0)"],
}
SLOW: frozenset[str] = frozenset()


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PRINTED])
def test_example_runs(name, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for text in PRINTED[name]:
        assert text in done.stdout


def test_no_example_is_left_out():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(PRINTED)
