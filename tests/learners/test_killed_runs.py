"""Guards resume against SIGKILL: a run killed anywhere, again and again, ends bit for bit as one that ran through."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from learners.checkpoint import CheckpointStore

SCRIPT = Path(__file__).with_name("killable_run.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_SILENT": "true"}


def start(folder: Path, learner: str) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), learner],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "started\n":
        raise AssertionError(process.communicate()[1])
    return process


def finish(folder: Path, learner: str) -> None:
    _, errors = (process := start(folder, learner)).communicate(timeout=120)
    assert process.returncode == 0, errors


def metrics(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if not any(name.startswith("time/") for name in line)]


def wandb_id(folder: Path) -> str:
    return CheckpointStore(folder / "checkpoints").read_metadata("latest")["wandb"]["id"]


def rounds(folder: Path) -> list[dict]:
    """Files of preference pairs, but for the name of the run."""
    documents = [json.loads(path.read_text()) for path in sorted((folder / "preference_replay").glob("*.json"))]
    return [{key: value for key, value in document.items() if key != "run"} for document in documents]


@pytest.mark.slow
@pytest.mark.parametrize(("learner", "num_rounds"), [("magrpo", 0), ("madpo-iter", 3), ("marlhf-iter", 3)])
def test_a_run_killed_anywhere_ends_as_one_that_ran_through(tmp_path, learner, num_rounds):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(whole, learner)
    chance = random.Random(0)
    kills, ids = 0, set()
    for _ in range(6):
        process = start(killed, learner)
        try:
            process.wait(chance.uniform(0.05, 1.5))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
        process.communicate()
        if any((killed / "checkpoints").glob("checkpoint-*")):
            ids.add(wandb_id(killed))
        time.sleep(0.01)
    finish(killed, learner)
    assert kills >= 3
    assert len(ids | {wandb_id(killed)}) == 1
    assert metrics(killed) == metrics(whole)
    assert (killed / "stream.jsonl").read_bytes() == (whole / "stream.jsonl").read_bytes()
    assert rounds(killed) == rounds(whole)
    assert len(rounds(whole)) == num_rounds
    for agent in ("agent_0", "agent_1"):
        expected = load_file(whole / "agents" / agent / "model.safetensors")
        found = load_file(killed / "agents" / agent / "model.safetensors")
        assert expected.keys() == found.keys()
        assert all(expected[name].equal(found[name]) for name in expected)
