"""Guards that a checkpoint is complete or absent, whatever interrupts its writing, and that damage is noticed."""

import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from learners.checkpoint import CheckpointError, CheckpointStore

META = {"run_id": "run-a"}
FILES = ["manifest.json", "metadata.json", "tensors-00000.safetensors", "tree.json"]


def tree(value):
    return {"weight": torch.full((2000,), float(value)), "step": value}


def contents(path):
    return {file.name: file.read_bytes() for file in Path(path).iterdir()}


def names(directory):
    return sorted(path.name for path in Path(directory).iterdir())


def value_of(store, path="latest"):
    loaded, _ = store.load(path)
    assert torch.equal(loaded["weight"], tree(loaded["step"])["weight"])
    return loaded["step"]


def test_save_and_load(tmp_path):
    store = CheckpointStore(tmp_path / "deep" / "checkpoints")
    assert store.latest() is None
    path = store.save(12, tree(12), {**META, "wandb_id": "x", "limits": (1, float("inf"))})
    assert path.name == "checkpoint-00000012" and names(path) == FILES and names(path.parent) == [path.name]
    assert store.latest() == path
    loaded, metadata = store.load()
    assert torch.equal(loaded["weight"], tree(12)["weight"]) and loaded["step"] == 12
    assert metadata == {"run_id": "run-a", "wandb_id": "x", "limits": (1, float("inf"))} == store.read_metadata()


def test_without_a_checkpoint_latest_cannot_be_loaded(tmp_path):
    store = CheckpointStore(tmp_path / "none")
    with pytest.raises(CheckpointError, match="no complete checkpoint in"):
        store.load()
    with pytest.raises(CheckpointError, match="no such folder"):
        store.load(tmp_path / "checkpoint-00000001")


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, "1"])
def test_a_wrong_limit_is_refused(tmp_path, limit):
    with pytest.raises(ValueError, match="checkpoint_total_limit must be a positive integer or None, got"):
        CheckpointStore(tmp_path, limit)


@pytest.mark.parametrize("step", [-1, True, 1.0])
def test_a_wrong_step_is_refused(tmp_path, step):
    with pytest.raises(ValueError, match="step of a checkpoint"):
        CheckpointStore(tmp_path).save(step, tree(1), META)


@pytest.mark.parametrize("metadata", [{}, {"run_id": ""}, {"run_id": 3}])
def test_the_owner_is_required(tmp_path, metadata):
    with pytest.raises(ValueError, match="run_id"):
        CheckpointStore(tmp_path).save(1, tree(1), metadata)


def test_secrets_are_not_written(tmp_path):
    key = "sk-very-secret"
    config = {"comparator_api_key": key, "comparator_headers": {"x-api-key": key}, "nested": [{"hf_token": key}]}
    store = CheckpointStore(tmp_path)
    path = store.save(1, tree(1), {**META, "config": config})
    assert all(key.encode() not in data for data in contents(path).values())


# Damage


def damage(path, kind):
    if kind == "empty":
        for file in path.iterdir():
            file.unlink()
    elif kind == "weights cut":
        shard = path / "tensors-00000.safetensors"
        shard.write_bytes(shard.read_bytes()[:-100])
    elif kind == "weight file missing":
        (path / "tensors-00000.safetensors").unlink()
    elif kind in ("tree.json cut", "metadata.json cut", "manifest.json cut"):
        file = path / kind.split()[0]
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif kind == "manifest of nothing":
        (path / "manifest.json").write_text('{"format": 1, "run_id": "run-a", "sequence": 2, "files": {}}')
    elif kind == "manifest without checksums":
        (path / "manifest.json").write_text('{"format": 1, "run_id": "run-a", "sequence": 2, "files": {"metadata.json": [""]}}')
    elif kind == "manifest of the future":
        (path / "manifest.json").write_text('{"format": 2}')


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("empty", "manifest.json"),
        ("weights cut", "tensors-00000.safetensors"),
        ("weight file missing", "tensors-00000.safetensors"),
        ("tree.json cut", "tree.json"),
        ("metadata.json cut", "metadata.json"),
        ("manifest.json cut", "manifest.json"),
        ("manifest of nothing", "manifest.json"),
        ("manifest without checksums", "manifest.json"),
        ("manifest of the future", "manifest.json"),
    ],
)
def test_a_damaged_checkpoint_is_an_error_by_path_and_not_listed(tmp_path, kind, file):
    store = CheckpointStore(tmp_path)
    good, bad = store.save(2, tree(2), META), store.save(4, tree(4), META)
    damage(bad, kind)
    with pytest.raises(CheckpointError, match=file):
        store.load(bad)
    with pytest.warns(UserWarning, match=f"skipping an incomplete checkpoint.*{file}"):
        assert store.latest() == good
    with pytest.raises(CheckpointError, match="exists and is not a complete checkpoint of this run"):
        store.save(4, tree(5), META)


@pytest.mark.parametrize("file", ["tensors-00000.safetensors", "tree.json", "metadata.json"])
def test_a_changed_byte_is_noticed(tmp_path, file):
    store = CheckpointStore(tmp_path)
    path = store.save(1, tree(1), META)
    data = bytearray((path / file).read_bytes())
    data[-2] ^= 1
    (path / file).write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"{file} is damaged: its checksum"):
        store.load(path)


# Owners and retention


def test_only_the_newest_of_this_run_are_kept(tmp_path):
    CheckpointStore(tmp_path).save(1, tree(1), {"run_id": "run-b"})
    (tmp_path / "checkpoint-00000002").mkdir()  # not ours, not complete
    (tmp_path / "notes.txt").write_text("mine")
    store = CheckpointStore(tmp_path, total_limit=2)
    for step in (3, 4, 5, 6):
        store.save(step, tree(step), META)
    kept = ["checkpoint-00000001", "checkpoint-00000002", "checkpoint-00000005", "checkpoint-00000006", "notes.txt"]
    assert names(tmp_path) == kept


def test_the_one_resumed_from_is_kept(tmp_path):
    store = CheckpointStore(tmp_path)
    for step in (1, 2, 3):
        store.save(step, tree(step), META)
    resumed = CheckpointStore(tmp_path, total_limit=1)
    resumed.load(os.path.relpath(tmp_path / "checkpoint-00000001"))
    resumed.save(4, tree(4), META)
    resumed.save(5, tree(5), META)
    assert names(tmp_path) == ["checkpoint-00000001", "checkpoint-00000005"]


def test_latest_is_the_one_saved_last_not_the_highest_step(tmp_path):
    store = CheckpointStore(tmp_path, total_limit=2)
    for step in (8, 12):
        store.save(step, tree(step), META)
    store.load(tmp_path / "checkpoint-00000008")
    store.save(10, tree(10), META)
    assert value_of(CheckpointStore(tmp_path)) == 10
    store.save(14, tree(14), META)  # now the abandoned step 12 is the oldest but the protected 8
    assert names(tmp_path) == [f"checkpoint-{step:08d}" for step in (8, 10, 14)]


def test_the_same_step_of_the_same_run_is_replaced(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(4, tree(1), META)
    store.save(4, tree(2), META)
    assert value_of(store) == 2 and names(tmp_path) == ["checkpoint-00000004"]


def test_another_runs_checkpoint_is_never_overwritten(tmp_path):
    path = CheckpointStore(tmp_path).save(4, tree(1), {"run_id": "run-b"})
    before = contents(path)
    with pytest.raises(CheckpointError, match="belongs to run 'run-b'"):
        CheckpointStore(tmp_path, total_limit=1).save(4, tree(2), META)
    assert contents(path) == before and names(tmp_path) == [path.name]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_whatever_else_has_the_name_is_never_overwritten(tmp_path, kind):
    target = tmp_path / "checkpoint-00000004"
    if kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="exists and is not"):
        CheckpointStore(tmp_path).save(4, tree(2), META)
    assert names(tmp_path) == [target.name]


# Interruptions


def test_an_error_at_any_write_leaves_the_earlier_ones_and_nothing_else(tmp_path, monkeypatch):
    """The disk says it is full at the 1st, 2nd, … of the calls that make data durable, for a new step and a repeated one."""
    real, calls = os.fsync, 0

    def fsync(descriptor):
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    for step in (4, 2):
        for failing in range(1, 100):
            directory = tmp_path / f"{step}-{failing}"
            store = CheckpointStore(directory)
            store.save(1, tree(1), META)
            first = store.save(2, tree(2), META)
            before, state = contents(first), tree(9)
            calls = 0
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fsync)
                try:
                    store.save(step, state, META)
                except CheckpointError as error:
                    assert "No space left on device" in str(error) and isinstance(error.__cause__, OSError)
                else:
                    break
            assert torch.equal(state["weight"], tree(9)["weight"])
            assert contents(directory / "checkpoint-00000001")
            # Only the very last call, which makes the finished renaming durable, can fail after the new one is in place.
            assert value_of(store) == 2 or failing == 6
            if failing < 6:
                assert names(directory) == ["checkpoint-00000001", "checkpoint-00000002"] and contents(first) == before
        assert failing == 7, "four files, the folder, its parent"


def test_a_file_that_cannot_be_written_leaves_the_earlier_ones_and_nothing_else(tmp_path):
    """A real refusal in the middle of the weights: the process may not write files beyond 4,000 bytes."""
    store = CheckpointStore(tmp_path)
    path = store.save(2, {"small": torch.zeros(3)}, META)
    before = contents(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="checkpoint-00000004 could not be written: File too large"):
            store.save(4, tree(4), META)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == [path.name] and contents(path) == before


def test_what_cannot_be_stored_leaves_nothing_behind(tmp_path):
    store = CheckpointStore(tmp_path)
    for bad_tree, metadata in (({"a": {1, 2}}, META), (tree(1), {**META, "tensor": torch.zeros(1)})):
        with pytest.raises(TypeError):
            store.save(1, bad_tree, metadata)
    assert names(tmp_path) == []


SAVER = """
import sys, torch
torch.set_num_threads(1)
from learners.checkpoint import CheckpointStore
store = CheckpointStore(sys.argv[1], total_limit=2)
step = 0
while True:
    step += 1
    tree = {"weight": torch.full((2000,), float(step)), "step": step}
    store.save(step % 5, tree, {"run_id": "run-a"})  # every kind of save: new, repeated, with and without retention
    if step == 3:
        print("started", flush=True)
"""


@contextmanager
def saver(directory):
    """A process that saves without end, killed on the way out, whatever happens."""
    with subprocess.Popen([sys.executable, "-c", SAVER, str(directory)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "started\n"
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def check_after_kill(directory, seen):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a folder under a good name is complete
        store = CheckpointStore(directory)
        step = value_of(store)
    assert step >= seen, "the newest complete checkpoint never gets older"
    assert not [name for name in names(directory) if name.startswith(".")]
    for path in directory.iterdir():
        store.load(path)
    return step


def test_a_killed_save_costs_nothing_but_itself(tmp_path):
    with saver(tmp_path):
        pass
    check_after_kill(tmp_path, 2)


@pytest.mark.slow
def test_kills_at_random_moments(tmp_path):
    """Freezes a saving process 60 times at random moments and looks at a copy of what a kill would have left there."""
    draw = random.Random(0)
    seen, moments = 0, set()
    with saver(tmp_path / "live") as process:
        for attempt in range(60):
            time.sleep(draw.uniform(0.0, 0.02))
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            frozen = tmp_path / f"frozen-{attempt}"
            copy_as_of_a_dead_process(tmp_path / "live", frozen)
            moments.add(tuple(name.rsplit(".", 1)[-1] for name in names(frozen) if name.startswith(".")))
            process.send_signal(signal.SIGCONT)
            seen = check_after_kill(frozen, seen)
    check_after_kill(tmp_path / "live", seen)
    assert len(moments) > 1, "no stop fell into a save"


def copy_as_of_a_dead_process(source, target):
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
    dead = subprocess.Popen(["true"])
    dead.wait()
    for path in list(target.iterdir()):
        if path.name.startswith("."):
            name, host, _, process = path.name.split("@")
            path.rename(target / f"{name}@{host}@{dead.pid}@{process}")


def test_a_save_succeeds_after_one_that_left_the_replaced_checkpoint(tmp_path, monkeypatch):
    """The 6th call that makes data durable fails: the new checkpoint is in place, the replaced one still lies beside it."""
    store = CheckpointStore(tmp_path)
    store.save(2, tree(1), META)
    real, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch, pytest.raises(CheckpointError):
        patch.setattr(os, "fsync", fsync)
        store.save(2, tree(2), META)
    assert len(names(tmp_path)) == 2
    store.save(2, tree(3), META)
    assert value_of(store) == 3 and names(tmp_path) == ["checkpoint-00000002"]


def hidden(store, step, kind, *, host=None, pid=None, process="0123abcd"):
    parts = [f".checkpoint-{step:08d}", host or os.uname().nodename, str(pid or os.getpid()), process]
    return store.directory / ("@".join(parts) + f".{kind}")


def test_leftovers_of_dead_processes_are_cleared(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(1, tree(1), META)
    # This process has the number of a dead one, as is usual in containers; the token tells them apart.
    for kind in ("writing", "replaced", "removed"):
        hidden(store, 1, kind).mkdir()
    CheckpointStore(tmp_path)
    assert names(tmp_path) == ["checkpoint-00000001"]


def test_leftovers_of_others_who_may_be_alive_stay(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(1, tree(1), META)
    others = [
        hidden(store, 2, "writing", pid=os.getppid()),
        hidden(store, 2, "writing", host="elsewhere"),
        tmp_path / ".checkpoint-x",
    ]
    for path in others:
        path.mkdir()
    CheckpointStore(tmp_path)
    assert names(tmp_path) == sorted([*(path.name for path in others), "checkpoint-00000001"])


def test_a_kill_between_the_two_renames_of_a_replacement_is_mended(tmp_path):
    store = CheckpointStore(tmp_path)
    path = store.save(4, tree(4), META)
    path.rename(hidden(store, 4, "replaced"))
    hidden(store, 4, "writing").mkdir()
    again = CheckpointStore(tmp_path)
    assert again.latest() == path and value_of(again) == 4 and names(tmp_path) == [path.name]


def test_sequence_numbers_go_on_in_a_new_process(tmp_path):
    CheckpointStore(tmp_path).save(9, tree(9), META)
    path = CheckpointStore(tmp_path).save(3, tree(3), META)
    assert json.loads((path / "manifest.json").read_text())["sequence"] == 2
    assert value_of(CheckpointStore(tmp_path)) == 3
