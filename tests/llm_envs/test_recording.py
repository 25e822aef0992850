"""Guards the recorded stream: nothing is lost on disk, crashes and resumes, and what a replay changes and keeps."""

from __future__ import annotations

import dataclasses
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.env import TaskEnv
from llm_envs.recording import Recorder, RecordingError, read_episodes, read_steps, replay
from llm_envs.rollouts import EVALUATION, Numbering, collect
from llm_envs.task import Task
from llm_envs.tasks import matching
from llm_envs.types import ChatPrompt, Completion, EnvStep, RolloutSpec
from llm_envs.wrappers import TurnLimit

CHAT = ChatPrompt([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "why? 猫"}])


class Words:
    """A policy whose samples are words of its own stream, so that trees branch and some joint actions end the episode."""

    def generate(self, prompts, n, keys):
        words = ("red", "blue")
        return [
            [
                Completion(words[(sum(key) + k * (key[-1] + 1)) % 2], (k, 7), (-0.1 * k, -1 / 3), (1, 2, 3), "length")
                for k in range(n)
            ]
            for key in keys
        ]


def tree(num_turns=3, items=2, **options):
    """A recorded tree of three turns in aligned mode: some of its branches end early."""
    env = TaskEnv(matching.task(num_turns=num_turns, **options))
    steps = collect(env, dict.fromkeys(env.possible_agents, Words()), list(env.items[:items]), RolloutSpec(3), seed=5)
    assert {step.terminated for step in steps} == {True, False} and {step.turn for step in steps} == {1, 2, 3}
    return env, steps


def a_step(**changes):
    completion = Completion("née\n☃\x00", (5, 1), (-1.5, -(2.0**-1074)), (3,), "stop")
    step = EnvStep(
        env_step=1,
        episode=0,
        state_id=0,
        next_state_id=None,
        turn=1,
        prompts={"agent_0": CHAT},
        completions={"agent_0": completion},
        choice={"agent_0": 2},
        rewards={"agent_0": 0.1 + 0.2},
        terminated=False,
        truncated=True,
        next_prompts={"agent_0": CHAT},
        global_state="a\nb",
        infos={"agent_0": {"turn": 1, "deep": {"list": [1, 2.5, None, True, "x"]}}},
    )
    return dataclasses.replace(step, **changes)


def written(path, steps):
    with Recorder(path) as recorder:
        recorder.write(steps)
    return path


def test_a_step_comes_back_as_it_was(tmp_path):
    (step,) = read_steps(written(tmp_path / "new" / "folder" / "steps.jsonl", [a_step()]))
    assert step == a_step()
    assert type(step.completions["agent_0"].token_ids) is tuple
    for prompts in (step.prompts, step.next_prompts):
        assert isinstance(prompts["agent_0"], ChatPrompt) and prompts["agent_0"].messages == CHAT.messages


def test_a_tree_comes_back_as_it_was(tmp_path):
    _, steps = tree()
    path = written(tmp_path / "steps.jsonl", steps)
    assert list(read_steps(path)) == steps
    assert [[step.episode for step in episode] for episode in read_episodes(path)] == [
        [number] * sum(step.episode == number for step in steps) for number in (0, 1)
    ]


def test_the_state_behind_a_cut_comes_back_and_earlier_recordings_do_without(tmp_path):
    env = TurnLimit(TaskEnv(matching.task(num_turns=3)), 2)
    steps = collect(env, dict.fromkeys(env.possible_agents, Words()), env.items[:2], RolloutSpec(3), seed=5)
    behind = [step.next_global_state for step in steps if step.truncated]
    assert behind and all("[turn 2, agent_0 writes]" in text for text in behind)
    path = written(tmp_path / "steps.jsonl", steps)
    assert list(read_steps(path)) == steps
    assert replay(env, steps) == steps
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    earlier = [{name: value for name, value in line.items() if name != "next_global_state"} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in earlier))
    assert list(read_steps(path)) == [dataclasses.replace(step, next_global_state=None) for step in steps]


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.text(st.characters(exclude_categories=())))
def test_numbers_come_back_bit_for_bit_and_any_text_does(tmp_path_factory, numbers, text):
    path = tmp_path_factory.mktemp("floats") / "steps.jsonl"
    completion = Completion(text, (), tuple(numbers), (), "stop")
    (step,) = read_steps(written(path, [a_step(completions={"agent_0": completion})]))
    back = step.completions["agent_0"]
    assert back.text == text
    assert [struct.pack("d", x) for x in back.logprobs] == [struct.pack("d", x) for x in numbers]


def test_numpy_numbers_in_infos_become_plain_ones(tmp_path):
    info = {
        "f": np.float32(0.1),
        "i": np.int64(3),
        "b": np.bool_(True),
        "s": np.str_("x"),
        "t": (1, np.float64(0.5)),
        "n": math.nan,
    }
    (step,) = read_steps(written(tmp_path / "steps.jsonl", [a_step(infos={"agent_0": info})]))
    back = step.infos["agent_0"]
    assert math.isnan(back.pop("n"))
    assert back == {"f": float(np.float32(0.1)), "i": 3, "b": True, "s": "x", "t": [1, 0.5]}
    assert [type(back[key]) for key in "fibs"] == [float, int, bool, str]


@pytest.mark.parametrize(
    ("info", "named"),
    [
        ({"score": {"parts": [1, {2}]}}, r"env step 1: infos of agent_0\['score'\]\['parts'\]\[1\] is set"),
        ({"array": np.zeros(2)}, r"infos of agent_0\['array'\] is ndarray.*; give numbers, texts or lists"),
        ({"byword": {3: 1}}, r"infos of agent_0\['byword'\] has the key 3: keys must be texts"),
        ({"wide": np.longdouble(1) / 3}, r"infos of agent_0\['wide'\] is (longdouble|float128)"),
    ],
)
def test_an_info_without_a_form_in_json_is_named_and_nothing_is_written(tmp_path, info, named):
    path = tmp_path / "steps.jsonl"
    with Recorder(path) as recorder:
        with pytest.raises(RecordingError, match=named):
            recorder.write([a_step(), a_step(infos={"agent_0": info})])
        with pytest.raises(RecordingError, match=r"env step 7: .*int64"):
            recorder.write([a_step(env_step=7, choice={"agent_0": np.int64(1)})])
        assert recorder.position() == 0
    assert list(read_steps(path)) == []


def test_every_write_reaches_the_file_and_reopening_appends(tmp_path):
    path = tmp_path / "steps.jsonl"
    recorder = Recorder(path)
    recorder.write([a_step(env_step=1)])
    assert recorder.position() == path.stat().st_size
    assert [step.env_step for step in read_steps(path)] == [1]  # before it is closed
    recorder.close()
    recorder.close()
    with Recorder(path) as again:
        assert again.position() == path.stat().st_size
        again.write([a_step(env_step=2)])
    assert [step.env_step for step in read_steps(path)] == [1, 2]


def test_a_half_written_last_line_is_left_out_and_dropped_on_reopening(tmp_path):
    path = written(tmp_path / "steps.jsonl", [a_step(env_step=1), a_step(env_step=2)])
    whole = path.read_bytes()
    for cut in (1, 2, 100, len(whole) // 2 - 1):
        path.write_bytes(whole[:-cut])
        assert [step.env_step for step in read_steps(path)] == [1]
        with Recorder(path) as recorder:
            assert recorder.position() == len(whole) // 2
            recorder.write([a_step(env_step=3)])
        assert [step.env_step for step in read_steps(path)] == [1, 3]
    path.write_bytes(whole[:20])
    assert list(read_steps(path)) == []
    Recorder(path).close()
    assert path.read_bytes() == b""


def test_a_long_half_written_line_is_dropped_too(tmp_path):
    """Longer than a block of the search from the end."""
    path = written(tmp_path / "steps.jsonl", [a_step()])
    whole = path.read_bytes()
    path.write_bytes(whole + b"x" * 200_000)
    Recorder(path).close()
    assert path.read_bytes() == whole


def test_a_corrupt_line_is_an_error_that_names_it(tmp_path):
    path = written(tmp_path / "steps.jsonl", [a_step(env_step=n) for n in (1, 2, 3)])
    lines = path.read_bytes().splitlines(keepends=True)
    record = json.loads(lines[1])
    without = {key: value for key, value in record.items() if key != "turn"}
    for broken in (
        b"{\n",
        b"\xff\n",
        b"3\n",
        b"\n",
        json.dumps(without).encode() + b"\n",
        json.dumps({**record, "more": 1}).encode() + b"\n",
    ):
        path.write_bytes(lines[0] + broken + lines[2])
        reader = read_steps(path)
        assert next(reader).env_step == 1
        with pytest.raises(RecordingError, match=r"steps\.jsonl, line 2 is no env step"):
            next(reader)


def test_going_on_from_a_position_drops_what_came_later(tmp_path):
    path = tmp_path / "steps.jsonl"
    with Recorder(path) as recorder:
        recorder.write([a_step(env_step=1)])
        position = recorder.position()
        recorder.write([a_step(env_step=2), a_step(env_step=3)])
    with Recorder(path, position) as recorder:
        assert recorder.position() == position
        recorder.write([a_step(env_step=20)])
    assert [step.env_step for step in read_steps(path)] == [1, 20]
    Recorder(path, 0).close()
    assert path.read_bytes() == b""


def test_a_position_the_file_does_not_have_is_refused(tmp_path):
    path = written(tmp_path / "steps.jsonl", [a_step()])
    size = path.stat().st_size
    for wrong, message in ((size + 1, f"cannot go on from {size + 1}"), (-1, "cannot go on from -1"), (10, "no line ends at 10")):
        with pytest.raises(RecordingError, match=message):
            Recorder(path, wrong)
    with pytest.raises(RecordingError, match="has 0 bytes of whole lines"):
        Recorder(tmp_path / "none.jsonl", 5)
    assert path.stat().st_size == size


def test_two_runs_in_one_file_are_refused_as_episodes(tmp_path):
    path = written(tmp_path / "steps.jsonl", [a_step(), a_step(episode=1), a_step()])
    with pytest.raises(RecordingError, match="episode 0 comes after episode 1"):
        list(read_episodes(path))


# ---- replay ----


def test_replay_in_the_same_env_gives_the_recording():
    env, steps = tree(agents=3)
    assert replay(env, steps) == steps


def test_replay_reproduces_chance_from_the_seed():
    env = TaskEnv(Task(reward=lambda one: [0.0] * len(one), items=[{"prompt": "x"}] * 3, agents=1, num_turns=3, transition=dice))
    steps = collect(env, {"agent_0": Words()}, env.items, RolloutSpec(2), seed=11)
    assert replay(env, steps, seed=11) == steps
    with pytest.raises(RecordingError, match=r"episode 0, turn 2: agent_0 would read '\d+', but its completions were written for"):
        replay(env, steps, seed=12)


def test_replay_of_an_evaluation_draws_what_it_drew():
    """There the chance of an episode hangs on the item's position and not on the episode's number."""
    env = TaskEnv(Task(reward=lambda one: [0.0] * len(one), items=[{"prompt": "x"}] * 5, agents=1, num_turns=3, transition=dice))
    options = {"seed": 11, "purpose": EVALUATION}
    steps = collect(
        env, {"agent_0": Words()}, env.items[3:], RolloutSpec(2), item_indices=[3, 4], numbering=Numbering(9, 7, 8), **options
    )
    assert replay(env, steps, **options) == steps


def test_replay_of_another_team_is_refused():
    _, steps = tree()
    for agents in (3, ["left_0", "right_0"]):
        with pytest.raises(RecordingError, match="episode 0 was played by agent_0, agent_1, but the env is for"):
            replay(TaskEnv(matching.task(num_turns=3, agents=agents)), steps)
    with pytest.raises(ValueError, match="seed must not be negative"):
        replay(tree()[0], steps, seed=-1)


def dice(state):
    return [str(state.rng().integers(10**9))]


def test_replay_with_a_new_reward_keeps_everything_else():
    env, steps = tree()
    other = TaskEnv(
        dataclasses.replace(env.task, reward=lambda one, two: [float(len(a + b)) for a, b in zip(one, two, strict=True)])
    )
    again = replay(other, steps)
    assert [dataclasses.replace(new, rewards=old.rewards, infos=old.infos) for new, old in zip(again, steps, strict=True)] == steps
    for step in again:
        assert step.rewards["agent_0"] == sum(len(completion.text) for completion in step.completions.values())
        assert step.infos["agent_0"]["raw_reward"] == step.rewards["agent_0"]


def test_replay_where_the_env_ends_sooner_leaves_the_rest_out():
    env, steps = tree()
    shorter = TaskEnv(dataclasses.replace(env.task, num_turns=2))
    again = replay(shorter, steps)
    assert [step.env_step for step in again] == [step.env_step for step in steps if step.turn <= 2]
    assert all(step.terminated and step.next_state_id is None and step.next_prompts is None for step in again if step.turn == 2)


def test_replay_finds_its_rows():
    env, steps = tree()
    rows = {0: env.items[0], 1: env.items[0]}
    assert replay(env, steps, rows) == replay(env, steps, list(env.items[:2])) == steps
    with pytest.raises(RecordingError, match="items has no row for episode 1"):
        replay(env, steps, {0: env.items[0]})
    with pytest.raises(RecordingError, match="episode 1 was on item 1, but there are 1"):
        replay(env, steps, env.items[:1])
    with pytest.raises(
        RecordingError, match=r"agent_0 would read 'pick one word: x y', but its completions were written for 'pick one"
    ):
        replay(env, steps, [{"words": ["x", "y"]}] * 2)


def test_replay_needs_whole_episodes():
    env, steps = tree()
    with pytest.raises(RecordingError, match="episode 0 begins with turn 2"):
        replay(env, [step for step in steps if step.turn > 1])
    second = next(step for step in steps if step.turn == 2)
    with pytest.raises(RecordingError, match=f"nothing leads to state {second.state_id}"):
        replay(env, [step for step in steps if step.next_state_id != second.state_id])
