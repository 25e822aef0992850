"""Guards the behaviour of every registered environment: a readable transcript of each is kept and compared line by line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import llm_envs
from llm_envs.env import TaskEnv
from llm_envs.registry import list_envs
from llm_envs.task import Task
from llm_envs.tasks import matching, split
from llm_envs.testing import ScriptedPolicy, transcript
from llm_envs.testing.__main__ import main
from llm_envs.testing.transcripts import compare_transcripts

FOLDER = Path(__file__).parents[1] / "transcripts"


@pytest.mark.parametrize("name", list_envs())
def test_behaviour_is_as_recorded(name):
    """If the change is meant: `python -m llm_envs.testing transcripts --write`, and read the difference."""
    assert compare_transcripts(FOLDER, [name]) == {}


def test_no_transcript_is_missing_or_left_over():
    assert sorted(path.stem for path in FOLDER.iterdir()) == list_envs()


def test_rows_are_shown_without_anything_invisible():
    env = TaskEnv(Task(items=[{"prompt": "p", "note": "half \ud800, turned \u202e, é"}], reward=lambda one: [0.0], agents=1))
    text = transcript(env, [{"agent_0": "\u202e"}])
    assert text.startswith('row 0: {"prompt": "p", "note": "half \\ud800, turned \\u202e, é"}\n')
    assert "agent_0 writes | \\u202e\n" in text


def test_a_transcript_by_hand():
    """Three agents, two of three agree: (2 − 1)/(3 − 1) = ½, which counts half in the first of two turns."""
    env = TaskEnv(matching.task(agents=3, num_turns=2, words=["x", "y"]))
    first = {"agent_0": "x", "agent_1": "x \n", "agent_2": "y"}
    actions = [first, dict.fromkeys(first, "y")]
    assert transcript(env, actions) == (
        'row 0: {"words": ["x", "y"]}\n'
        "\n"
        "turn 1\n"
        "  all read | pick one word: x y\n"
        "  agent_0 writes | x\n"
        "  agent_1 writes | x\\x20\n"
        "                 |\n"
        "  agent_2 writes | y\n"
        "  reward: 0.25\n"
        "turn 2\n"
        "  agent_0 reads | you said x. others said x y. pick one word: x y\n"
        "  agent_1 reads | you said x. others said x y. pick one word: x y\n"
        "  agent_2 reads | you said y. others said x x. pick one word: x y\n"
        "  agent_0 writes | y\n"
        "  agent_1 writes | y\n"
        "  agent_2 writes | y\n"
        "  reward: 0.5\n"
        "terminated after turn 2\n"
    )


def test_terms_per_agent_rewards_invisible_characters_and_foreign_rows():
    task = Task(
        reward={"length": lambda one, two: [[len(a), len(b)] for a, b in zip(one, two, strict=True)]}, items=[{"prompt": "p"}]
    )
    env = TaskEnv(task)
    text = transcript(env, [{"agent_0": "a\x00b", "agent_1": "é"}], [{"prompt": "q", "odd": {1}}])
    assert 'row 0: {"prompt": "q", "odd": "{1}"}' in text
    assert "agent_0 writes | a\\x00b\n" in text and "agent_1 writes | é\n" in text
    assert "  reward: agent_0 3, agent_1 1\n  reward/length: agent_0 3, agent_1 1\n" in text


def test_policies_rows_and_seeds():
    env = TaskEnv(split.task(num_turns=2))
    policies = dict.fromkeys(env.possible_agents, ScriptedPolicy(lambda prompt, k, key: str(key)))
    text = transcript(env, policies, rows=2, seed=9)
    assert "agent_1 writes | (9, 0, 0, 1)" in text and "agent_1 writes | (9, 0, 1, 0, 1)" in text
    with pytest.raises(ValueError, match="at least one joint action"):
        transcript(env, [])


def test_the_command_writes_and_compares(tmp_path, capsys):
    folder = tmp_path / "transcripts"
    command = ["transcripts", "matching-v0", "split-v0", "--folder", str(folder)]
    assert main(command) == 1
    assert "matching-v0.txt is missing" in capsys.readouterr().out
    assert main([*command, "--write"]) == 0
    assert main(command) == 0
    capsys.readouterr()
    path = folder / "split-v0.txt"
    path.write_text(path.read_text().replace("reward: 1\n", "reward: 2\n", 1))
    assert main(command) == 1
    changed = capsys.readouterr().out
    assert "\n-  reward: 2\n+  reward: 1\n" in changed and "matching" not in changed
    (folder / "gone-v0.txt").write_text("")
    assert main(["transcripts", "--folder", str(folder)]) == 1
    assert "gone-v0.txt belongs to no environment" in capsys.readouterr().out


def test_a_changed_reward_shows():
    env = llm_envs.make("matching-v0")
    doubled = TaskEnv(
        dataclasses.replace(env.task, reward=lambda one, two: [2.0 * (a == b) for a, b in zip(one, two, strict=True)])
    )
    actions = [dict.fromkeys(env.possible_agents, "red")]
    assert transcript(env, actions).replace("reward: 1", "reward: 2") == transcript(doubled, actions)
