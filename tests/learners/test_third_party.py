"""Guards that a learner of another distribution is found once it is installed, and trained by the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "third_party_learner"


def test_the_package_is_short():
    assert (PACKAGE / "moving_baseline.py").read_text(encoding="utf-8").count("\n") < 100


@pytest.mark.slow
def test_an_installed_learner_trains(tmp_path):
    """Built, installed into a folder of its own, and run as a user would."""
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(PACKAGE)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    path = os.pathsep.join([str(ROOT), str(site)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    options = ["--learner.num_train_epochs", "1", "--learner.max_new_tokens", "4", "--learner.baseline_decay", "0.5"]
    run = [sys.executable, "-m", "learners.cli", "train", "--env", "matching-v0", "--model", "tiny-random", "--quiet"]
    command = [*run, "--learner", "moving-baseline", *options, "--output_dir", "run", "--plot", "false"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("MovingBaseline on matching-v0: 2 agents (tiny-random)")
    chosen = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["learner"]
    assert chosen["name"] == "moving-baseline" and chosen["baseline_decay"] == 0.5
    assert "agent_0/baseline" in (tmp_path / "run" / "metrics.jsonl").read_text()
    assert (tmp_path / "run" / "agents" / "agent_1").is_dir()
