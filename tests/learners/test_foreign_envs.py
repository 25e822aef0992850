"""Guards that learners train on other people's environments by the command line, offline, on the tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from learners.cli import main

QUICK = [
    *("--model", "tiny-random", "--env.size", "2", "--env.eval_size", "2", "--learner.num_train_epochs", "1", "--plot", "false"),
    *("--learner.max_new_tokens", "4", "--learner.rollout_buffer_size", "2", "--output_dir", "run", "--quiet"),
]
PRISONERS = ["textarena:IteratedPrisonersDilemma-v0", "--env.options.num_rounds", "1", "--env.options.communication_turns", "1"]


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    """In an empty folder, with a proxy that answers nothing."""
    monkeypatch.chdir(tmp_path)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def recorded() -> list[dict]:
    return [json.loads(line) for line in Path("run/stream.jsonl").read_text().splitlines()]


@pytest.mark.filterwarnings("ignore:a prompt of .* tokens was cut")  # what the team's critic reads is longer than its context
@pytest.mark.parametrize(
    "learner, options",
    [
        ("magrpo", ["--learner.num_generations", "2"]),
        *(pytest.param(other, [], marks=pytest.mark.slow) for other in ("iac", "maac")),
    ],
)
def test_textarena(learner, options):
    """Two turns of talk, one after the other, then both decide at once."""
    pytest.importorskip("textarena")
    assert main(["train", "--env", *PRISONERS, "--env.num_turns", "3", "--learner", learner, *options, *QUICK]) == 0
    steps = recorded()
    assert {tuple(step["completions"]) for step in steps} == {("player_0", "player_1")}
    acted = {(step["turn"], *(info["acted"] for info in step["infos"].values())) for step in steps}
    assert acted == {(1, True, False), (2, False, True), (3, True, True)}


@pytest.mark.parametrize("team", ["check", pytest.param("vote", marks=pytest.mark.slow)])
def test_verifiers(team, monkeypatch):
    pytest.importorskip("verifiers.v1", exc_type=ImportError)
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "llm_envs" / "adapters")
    assert main(["train", "--env", "verifiers:verifiers-sums", "--env.team", team, "--learner", "magrpo", *QUICK]) == 0
    terms = {"reward/rewards.correct", "reward/rewards.short", "reward/metrics.letters"}
    assert all(terms <= set(info) for step in recorded() for info in step["infos"].values())
    assert main(["evaluate", "run"]) == 0


@pytest.mark.parametrize("team", ["check", pytest.param("vote", marks=pytest.mark.slow)])
def test_reasoning_gym(team):
    pytest.importorskip("reasoning_gym")
    assert main(["train", "--env", "reasoning-gym:leg_counting", "--env.team", team, "--learner", "magrpo", *QUICK]) == 0
    terms = {"check": {"reward/solution", "reward/verdict"}, "vote": {"reward/vote", "reward/own"}}[team]
    assert all(terms <= set(info) for step in recorded() for info in step["infos"].values())
    assert main(["evaluate", "run"]) == 0
    assert main(["export", "run", "--format", "preference"]) == 0
