"""Guards exported streams: rows worked by hand for trees, cross joint actions and pairs, conversations, files, the command."""

from __future__ import annotations

import dataclasses
import json

import pytest

from learners.cli import main
from learners.exports import export_rows, preference_rows, reward_rows, step_rows, to_dataset, write_rows
from llm_envs import ChatPrompt, RolloutSpec, Task, TaskEnv, collect
from llm_envs.recording import Recorder, RecordingError, read_episodes
from llm_envs.testing import ScriptedPolicy, completion_of

WORTH = {"red": 1.0, "blue": 4.0, "gold": 2.0}


def worth(first, second):
    """writer_0 earns what its own word is worth, editor_0 what both are."""
    return [[WORTH[a], WORTH[a] + WORTH[b]] for a, b in zip(first, second, strict=True)]


def recorded(path, *, mode="aligned", num_turns=1, chat=False, words=(("red", "blue"), ("gold", "gold"))):
    """One episode of two samples: the file, and its steps."""
    task = Task(
        items=[{"prompt": "say a word"}],
        agents=("writer_0", "editor_0"),
        reward=worth,
        formatters=(lambda item: [{"role": "user", "content": item["prompt"]}]) if chat else None,
        num_turns=num_turns,
        external_prompt_passthrough=True,
        transition=(lambda agent_completions: [f"after {word}" for word in agent_completions]) if num_turns > 1 else None,
    )
    env = TaskEnv(task)
    team = dict(zip(env.possible_agents, map(ScriptedPolicy, words), strict=True))
    steps = collect(env, team, env.items, RolloutSpec(2, mode))
    with Recorder(path) as recorder:
        recorder.write(steps)
    return path, steps


def short(rows, *columns):
    return [tuple(row[column] for column in columns) for row in rows]


def test_rewards_of_one_turn(tmp_path):
    """Aligned: red + gold = 1 and 3, blue + gold = 4 and 6."""
    path, _ = recorded(tmp_path / "stream.jsonl")
    rows = export_rows(path, "reward")
    assert short(rows, "agent", "prompt", "completion", "reward") == [
        ("writer_0", "say a word", "red", 1.0),
        ("writer_0", "say a word", "blue", 4.0),
        ("editor_0", "say a word", "gold", 3.0),
        ("editor_0", "say a word", "gold", 6.0),
    ]
    assert rows[0] == {
        "prompt": "say a word",
        "completion": "red",
        "reward": 1.0,
        "agent": "writer_0",
        "episode": 0,
        "turn": 1,
        "state_id": 0,
        "env_step": 2,
    }


def test_rewards_of_two_turns(tmp_path):
    """writer_0 at the root: its word, and half the mean of what it says next, (1 + 4) / 2; in the second turn its word alone."""
    path, _ = recorded(tmp_path / "stream.jsonl", num_turns=2)
    rows = [row for row in export_rows(path, "reward", discount=0.5) if row["agent"] == "writer_0"]
    assert short(rows, "turn", "prompt", "completion", "reward") == [
        (1, "say a word", "red", 1 + 0.5 * 2.5),
        (1, "say a word", "blue", 4 + 0.5 * 2.5),
        (2, "after red", "red", 1.0),
        (2, "after red", "blue", 4.0),
        (2, "after blue", "red", 1.0),
        (2, "after blue", "blue", 4.0),
    ]


def test_a_completion_of_several_joint_actions_is_one_row(tmp_path):
    """Cross: editor_0's red meets red and blue: (1 + 1 + 4 + 1) / 2; its gold (1 + 2 + 4 + 2) / 2."""
    path, _ = recorded(tmp_path / "stream.jsonl", mode="cross", words=(("red", "blue"), ("red", "gold")))
    rows = export_rows(path, "reward", agent="editor_0")
    assert short(rows, "completion", "reward") == [("red", 3.5), ("gold", 4.5)]


def test_pairs(tmp_path):
    """writer_0: blue over red. editor_0 wrote gold twice: no pair, though it was not worth the same."""
    path, _ = recorded(tmp_path / "stream.jsonl")
    (row,) = export_rows(path, "preference")
    assert short([row], "agent", "chosen", "rejected", "chosen_reward", "rejected_reward") == [
        ("writer_0", "blue", "red", 4.0, 1.0)
    ]
    assert export_rows(path, "preference", min_gap=3.0) == []
    assert export_rows(path, "preference", min_gap=2.9) == [row]


def test_all_pairs(tmp_path):
    """Three words: the best and the worst, or three pairs, each with the better one first; ties are none."""
    _, steps = recorded(tmp_path / "stream.jsonl")
    words = ("gold", "red", "blue", "gold")
    group = [
        dataclasses.replace(
            steps[0],
            env_step=number,
            choice=dict.fromkeys(steps[0].choice, number),
            completions=dict.fromkeys(steps[0].completions, completion_of(word)),
            rewards=dict.fromkeys(steps[0].rewards, WORTH[word]),
        )
        for number, word in enumerate(words)
    ]
    best = [row for row in preference_rows([group]) if row["agent"] == "writer_0"]
    assert short(best, "chosen", "rejected") == [("blue", "red")]
    every = [row for row in preference_rows([group], pairs="all") if row["agent"] == "writer_0"]
    assert short(every, "chosen", "rejected") == [
        ("gold", "red"),
        ("blue", "gold"),
        ("blue", "red"),
        ("gold", "red"),
        ("blue", "gold"),
    ]


def test_steps_have_everything(tmp_path):
    path, steps = recorded(tmp_path / "stream.jsonl", num_turns=2)
    rows = export_rows(path, "steps")
    assert rows == list(step_rows([steps])) and len(rows) == 2 * len(steps)
    step, row = steps[0], rows[0]
    completion = step.completions["writer_0"]
    assert row["next_state_id"] == step.next_state_id and row["agent"] == "writer_0"
    assert (row["completion_ids"], row["prompt_ids"]) == (list(completion.token_ids), list(completion.prompt_ids))
    assert json.loads(row["infos"]) == dict(step.infos["writer_0"])


def test_conversations_become_messages(tmp_path):
    path, _ = recorded(tmp_path / "stream.jsonl", chat=True)
    row = export_rows(path, "reward")[0]
    assert row["prompt"] == [{"role": "user", "content": "say a word"}]
    assert row["completion"] == [{"role": "assistant", "content": "red"}]
    (pair,) = export_rows(path, "preference")
    assert pair["chosen"] == [{"role": "assistant", "content": "blue"}]


def test_texts_and_conversations_together_are_texts(tmp_path):
    """A later turn's prompt is a plain text: a column holds one type."""
    path, _ = recorded(tmp_path / "stream.jsonl", chat=True, num_turns=2)
    rows = export_rows(path, "reward")
    assert {type(row["prompt"]) for row in rows} == {str} and {type(row["completion"]) for row in rows} == {str}
    assert rows[0]["prompt"] == str(ChatPrompt([{"role": "user", "content": "say a word"}]))


@pytest.mark.parametrize("format", ["steps", "reward", "preference"])
def test_files_hold_the_rows(tmp_path, format):
    datasets = pytest.importorskip("datasets")
    path, _ = recorded(tmp_path / "stream.jsonl", num_turns=2)
    rows = export_rows(path, format)
    write_rows(rows, tmp_path / "new" / "rows.jsonl")
    assert [json.loads(line) for line in (tmp_path / "new" / "rows.jsonl").read_text().splitlines()] == rows
    write_rows(rows, tmp_path / "rows.parquet")
    assert datasets.Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "cache")).to_list() == rows
    assert to_dataset(rows).to_list() == rows


def test_the_command(tmp_path, capsys):
    recorded(tmp_path / "stream.jsonl")
    assert main(["export", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'reward.jsonl'}: 4 rows\n"
    output = tmp_path / "pairs.jsonl"
    command = ["export", str(tmp_path / "stream.jsonl"), "--format", "preference", "--agent", "writer_0", "--output", str(output)]
    assert main(command) == 0
    assert json.loads(output.read_text())["chosen"] == "blue"


@pytest.mark.parametrize(
    "options, message",
    [
        (["--format", "csv"], "format"),
        (["--agent", "agent_9"], "there are no reward rows of 'agent_9', only of writer_0, editor_0"),
        (["--output", "rows.csv"], "rows are written to a .jsonl or .parquet file"),
        (["--discount", "2"], "discount must be a number from 0 to 1"),
        (["--format", "preference", "--min_gap", "-1"], "min_gap must be a number of at least 0"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, capsys, options, message):
    recorded(tmp_path / "stream.jsonl")
    assert main(["export", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err


def test_what_is_no_recording_is_refused(tmp_path, capsys):
    assert main(["export", str(tmp_path)]) == 2
    assert "there is no recording" in capsys.readouterr().err
    assert main(["export"]) == 2
    (tmp_path / "stream.jsonl").write_text("{}\n")
    assert main(["export", str(tmp_path)]) == 2
    assert "line 1 is no env step" in capsys.readouterr().err
    with pytest.raises(RecordingError):
        list(reward_rows(read_episodes(tmp_path / "stream.jsonl")))


def test_unfinished_trees_are_refused(tmp_path):
    _, steps = recorded(tmp_path / "stream.jsonl", num_turns=2)
    with pytest.raises(ValueError, match="of which there are no steps"):
        list(reward_rows([steps[:2]]))
