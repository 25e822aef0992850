"""Guards that metrics reach their sinks at the right env steps, and that a failing sink is reported and stops nothing."""

import json
import math
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from learners.logs import append_position, truncate_to
from learners.tracking import JsonlSink, LoggingGate, TensorBoardSink, Tracker, WandbSink, read_metrics
from llm_envs.types import Metrics


class ListSink:
    def __init__(self):
        self.rows, self.closed = [], 0

    def log(self, env_step, values):
        self.rows.append((env_step, dict(values)))

    def close(self):
        self.closed += 1


class BrokenSink(ListSink):
    """Works twice, then its server is away."""

    def log(self, env_step, values):
        super().log(env_step, values)
        if len(self.rows) > 2:
            raise ConnectionError("server is away")


# The gate


def passed(gate, *entries):
    return [step for step, group in entries if gate.admits(Metrics(step, {}, group))]


def test_entries_of_a_group_are_at_least_logging_steps_apart():
    """Gap 50 over 8, 16, …, 160: 8 is first; 8 + 50 = 58 is reached by 64; 64 + 50 = 114 by 120; the next would be 176."""
    assert passed(LoggingGate(50), *[(step, "train") for step in range(8, 161, 8)]) == [8, 64, 120]


def test_a_gap_of_exactly_logging_steps_passes():
    assert passed(LoggingGate(10), (5, "a"), (14, "a"), (15, "a"), (24, "a"), (25, "a")) == [5, 15, 25]


def test_groups_do_not_hold_each_other_back():
    gate = LoggingGate(50)
    entries = [(step, group) for step in (10, 20, 60) for group in ("turn_1", "turn_2")]
    assert passed(gate, *entries) == [10, 10, 60, 60]


def test_one_lets_everything_pass_even_at_the_same_env_step():
    assert passed(LoggingGate(1), (3, "a"), (3, "a"), (4, "a")) == [3, 3, 4]
    assert passed(LoggingGate(2), (3, "a"), (3, "a"), (4, "a"), (5, "a")) == [3, 5]


def test_evaluations_always_pass():
    assert passed(LoggingGate(100), (0, "eval"), (0, "a"), (4, "eval"), (4, "a"), (8, "eval")) == [0, 0, 4, 8]


def test_a_gate_goes_on_from_its_state():
    gate = LoggingGate(10)
    passed(gate, (5, "a"), (7, "b"))
    again = LoggingGate(10)
    again.load_state_dict(json.loads(json.dumps(gate.state_dict())))
    assert passed(again, (14, "a"), (15, "a"), (16, "b"), (17, "b")) == [15, 17]
    assert passed(gate, (14, "a")) == []


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "1"])
def test_a_wrong_logging_steps_is_refused(steps):
    with pytest.raises(ValueError, match="logging_steps must be a positive integer, got"):
        LoggingGate(steps)


# The tracker


def test_every_sink_gets_what_passes_the_gate():
    sinks = [ListSink(), ListSink()]
    tracker = Tracker(sinks, LoggingGate(10))
    for step in (1, 5, 11):
        tracker.log(Metrics(step, {"x": step / 2}))
    tracker.close()
    assert all(sink.rows == [(1, {"x": 0.5}), (11, {"x": 5.5})] and sink.closed == 1 for sink in sinks)


def test_a_failing_sink_is_reported_once_and_left_out():
    broken, sound = BrokenSink(), ListSink()
    tracker = Tracker([broken, sound], LoggingGate(1))
    for step in (1, 2):
        tracker.log(Metrics(step, {}))
    with pytest.warns(UserWarning, match=r"logging to BrokenSink failed.*training goes on.*server is away") as caught:
        tracker.log(Metrics(3, {}))
    assert len(caught) == 1
    for step in (4, 5):
        tracker.log(Metrics(step, {}))
    tracker.close()
    assert [step for step, _ in broken.rows] == [1, 2, 3] and [step for step, _ in sound.rows] == [1, 2, 3, 4, 5]
    assert broken.closed == sound.closed == 1


def test_a_sink_that_fails_to_close_is_reported():
    class Clingy(ListSink):
        def close(self):
            raise OSError("still busy")

    sound = ListSink()
    with pytest.warns(UserWarning, match=r"logging to Clingy failed.*still busy"):
        Tracker([Clingy(), sound], LoggingGate(1)).close()
    assert sound.closed == 1


def test_an_interrupt_by_the_user_is_not_a_failing_sink():
    class Interrupted(ListSink):
        def log(self, env_step, values):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Tracker([Interrupted()], LoggingGate(1)).log(Metrics(1, {}))


# metrics.jsonl


def test_a_line_holds_env_step_and_the_metrics_by_name(tmp_path):
    sink = JsonlSink(tmp_path / "run" / "metrics.jsonl")
    sink.log(8, {"turn_1/reward_mean": 0.1, "updates": 3, "numpy": np.float32(0.5), "torch": torch.tensor(0.25)})
    text = (tmp_path / "run" / "metrics.jsonl").read_text()  # without closing: a kill loses nothing
    assert text == '{"env_step": 8, "turn_1/reward_mean": 0.1, "updates": 3, "numpy": 0.5, "torch": 0.25}\n'
    sink.close()


def test_what_is_not_finite_is_a_text_that_json_can_hold(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.log(1, {"a": math.nan, "b": math.inf, "c": -math.inf})
    sink.close()

    def no_constant(name):
        raise AssertionError(name)

    assert json.loads(path.read_text(), parse_constant=no_constant) == {
        "env_step": 1,
        "a": "NaN",
        "b": "Infinity",
        "c": "-Infinity",
    }
    (entry,) = read_metrics(path)
    assert math.isnan(entry.values["a"]) and entry.values["b"] == math.inf and entry.values["c"] == -math.inf


def test_floats_are_written_exactly(tmp_path):
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    values = {str(index): value for index, value in enumerate([0.1, 1 / 3, 5e-324, 1e300, -0.0])}
    sink.log(1, values)
    sink.close()
    (entry,) = read_metrics(tmp_path / "metrics.jsonl")
    assert {name: value.hex() for name, value in entry.values.items()} == {name: value.hex() for name, value in values.items()}


def test_a_metric_cannot_take_the_place_of_the_axis(tmp_path):
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="env_step"):
        sink.log(1, {"env_step": 3.0})
    sink.close()


@pytest.mark.parametrize("cut", ['{"env_st', "x" * 10_000])
@pytest.mark.parametrize("before", ["", '{"env_step": 1, "x": 0.5}\n', '{"env_step": 1, "x": 0.5}\n' + "{}\n".rjust(4096)])
def test_an_interrupted_file_is_continued_on_a_line_of_its_own(tmp_path, before, cut):
    path = tmp_path / "metrics.jsonl"
    path.write_text(before + cut)
    sink = JsonlSink(path)
    sink.log(2, {"x": 1.0})
    sink.close()
    assert path.read_text() == before + '{"env_step": 2, "x": 1.0}\n'


def test_a_resumed_file_equals_an_uninterrupted_one(tmp_path):
    def run(path, steps):
        sink = JsonlSink(path)
        for step in steps:
            sink.log(step, {"x": step / 7})
        return sink

    run(tmp_path / "straight.jsonl", range(10)).close()
    sink = run(tmp_path / "resumed.jsonl", range(5))
    position = append_position(sink.path)  # a checkpoint, then two more entries, then the end
    for step in (5, 6):
        sink.log(step, {"x": step / 7})
    sink.close()
    truncate_to(sink.path, position)
    run(sink.path, range(5, 10)).close()
    assert sink.path.read_bytes() == (tmp_path / "straight.jsonl").read_bytes()


@pytest.mark.parametrize("line", ['{"x": 1}\n', '{"env_step": "1"}\n', '{"env_step": 1, "x": "fast"}\n', "[]\n"])
def test_what_is_no_file_of_metrics_is_refused(tmp_path, line):
    (tmp_path / "other.jsonl").write_text(line)
    with pytest.raises(ValueError):
        read_metrics(tmp_path / "other.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_stops_the_file_and_not_the_run():
    tracker = Tracker([JsonlSink("/dev/full"), sound := ListSink()], LoggingGate(1))
    with pytest.warns(UserWarning, match=r"JsonlSink failed.*No space left"):
        tracker.log(Metrics(1, {"x": 1.0}))
    tracker.log(Metrics(2, {"x": 1.0}))
    assert len(sound.rows) == 2


# Weights & Biases


@pytest.fixture
def offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    return {"mode": "offline", "dir": str(tmp_path / "runs"), "project": "team"}


def written(directory, run_id, *texts):
    """The raw records of all parts of a run, as soon as they hold the texts: wandb's own process writes them a little later."""
    for _ in range(200):
        files = sorted(directory.glob(f"wandb/offline-run-*-{run_id}/run-{run_id}.wandb"))
        data = b"".join(file.read_bytes() for file in files)
        if all(text in data for text in texts):
            return data
        time.sleep(0.1)
    raise AssertionError([text for text in texts if text not in data])


def test_a_run_is_written_under_an_id_known_beforehand(tmp_path, offline):
    state = random.getstate()
    sections = {"dataset": {"name": "arxiv", "type": "summary"}, "reward": {"api_key": "sk-secret"}}
    sink = WandbSink({**offline, "config_sections": sections, "tags": ["one"]}, {"discount": 0.875})
    identity = sink.identity()
    assert identity["project"] == "team" and identity["id"]
    sink.close()  # nothing was logged: nothing happens
    assert not (tmp_path / "runs").exists()
    sink.log(8, {"turn_1/reward_mean": 0.5})
    sink.log(8, {"eval/turn_1/reward_mean": math.nan})
    sink.log(4, {"late": 0.125})  # the order is free
    sink.close()
    names = (b"eval/turn_1/reward_mean", b"late", b"env_step", b"dataset_name", b"arxiv", b"dataset_type", b"discount", b"0.875")
    assert b"sk-secret" not in written(tmp_path / "runs", identity["id"], *names)
    assert random.getstate() == state, "logging does not touch the random numbers of rewards"


@pytest.mark.slow
def test_a_run_is_continued_under_its_id(tmp_path, offline):
    sink = WandbSink(offline)
    sink.log(8, {"before": 1.0})
    sink.close()
    time.sleep(1.1)  # offline, wandb names the folder of each part of a run by the second
    resumed = WandbSink(offline)
    resumed.resume(sink.identity())
    resumed.log(16, {"after": 1.0})
    resumed.close()
    time.sleep(1.1)
    sink.log(24, {"again": 1.0})  # a closed sink opens its run again
    with pytest.raises(RuntimeError, match="is open already"):
        sink.resume({"id": "other", "project": None, "entity": None})
    sink.close()
    written(tmp_path / "runs", sink.identity()["id"], b"before", b"after", b"again")


def test_a_run_of_the_user_is_neither_used_nor_finished(tmp_path, offline):
    import wandb

    theirs = wandb.init(project="theirs", id="theirs00", dir=str(tmp_path), mode="offline")
    try:
        sink = WandbSink(offline)
        sink.log(1, {"x": 1.0})
        assert wandb.run is theirs
        sink.close()
        assert wandb.run is theirs
        theirs.log({"still": "open"})
        clash = Tracker([WandbSink({**offline, "id": "theirs00"})], LoggingGate(1))
        with pytest.warns(UserWarning, match="theirs00 was opened by another part of this process"):
            clash.log(Metrics(1, {}))
    finally:
        theirs.finish()
    written(tmp_path, "theirs00", b"still")


def test_what_the_config_says_goes_before_the_checkpoint(offline):
    saved = {"id": "saved", "project": "old", "entity": "me"}
    plain, explicit = WandbSink({"mode": "offline"}), WandbSink({**offline, "id": "mine", "resume": "must"})
    plain.resume(saved)
    explicit.resume(saved)
    assert plain.identity() == saved
    assert explicit.identity() == {"id": "mine", "project": "team", "entity": "me"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"projekt": "x"}, r"unknown keys \['projekt'\].*project.*entity.*name.*run_name.*tags.*dir.*id.*resume.*config_sections"),
        ({"tags": "one"}, r"tags.*list of texts, got 'one'"),
        ({"tags": [1]}, "tags"),
        ({"config_sections": ["x"]}, "config_sections"),
        ({"name": "a", "run_name": "b"}, "name='a' and run_name='b'"),
    ],
)
def test_a_wrong_wandb_config_is_refused(config, message):
    with pytest.raises(ValueError, match=message):
        WandbSink(config)


@pytest.mark.parametrize("package", ["wandb", "tensorboard"])
def test_a_missing_package_is_named_with_its_install_line(tmp_path, monkeypatch, package):
    for name in [name for name in sys.modules if name.split(".")[0] == package or name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'llm-envs\[{package}\]'"):
        WandbSink({}) if package == "wandb" else TensorBoardSink(tmp_path)


def test_importing_the_module_imports_no_sink():
    code = "import sys, learners.tracking, learners.progress, learners.report, learners.curves\n"
    code += "print([name for name in ('wandb', 'tensorboard', 'rich', 'matplotlib') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


# TensorBoard


def test_tensorboard_gets_a_curve_for_every_name(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def points(name):
        events = EventAccumulator(str(tmp_path))
        events.Reload()
        return [(event.step, event.value) for event in events.Scalars(name)]

    sink = TensorBoardSink(tmp_path)
    for step in (4, 8, 12, 14):
        sink.log(step, {"turn_1/reward_mean": step / 16, "eval/x": 0.5})
    sink.close()
    assert points("turn_1/reward_mean") == [(4, 0.25), (8, 0.5), (12, 0.75), (14, 0.875)]
    resumed = TensorBoardSink(tmp_path)  # the checkpoint was taken at env step 8
    resumed.log(8, {"eval/y": 1.0})
    resumed.log(12, {"turn_1/reward_mean": 1.0})
    resumed.close()
    resumed.log(16, {"turn_1/reward_mean": 0.0})  # a closed sink goes on
    resumed.close()
    assert points("turn_1/reward_mean") == [(4, 0.25), (8, 0.5), (12, 1.0), (16, 0.0)]
    assert points("eval/y") == [(8, 1.0)]
