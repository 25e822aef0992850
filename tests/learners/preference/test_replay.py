"""Guards the rounds of pairs: complete or absent on the disk, this run's alone, and drawn as the replay mode says."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from learners import json_files
from learners.preference.pairs import JointResponse, Pair
from learners.preference.replay import (
    ReplayBuffer,
    ReplayError,
    positions_drawn,
    read_round,
    shard_weights,
)
from learners.preference.replay_options import ReplayOptions, canonical_replay_mode, check_replay_options
from llm_envs.types import ChatPrompt, Completion


def pair(number: float) -> Pair:
    """A pair that is told by its winner's reward."""
    winner, loser = (Completion(f"w{number} \ud83d", (1,), (-0.5,), (2,)), Completion("l", (3,), (-0.0,), (2,)))
    sides = [JointResponse(({"a_0": "p"},), ({"a_0": c},), reward, reward) for c, reward in ((winner, number), (loser, -1.0))]
    return Pair(sides[0], sides[1], 0.5, number, -1.0)


def pairs(iteration: int, count: int) -> list[Pair]:
    return [pair(100.0 * iteration + i) for i in range(count)]


def numbers(selected: list[Pair]) -> list[float]:
    return [chosen.winner.reward for chosen in selected]


def buffer_with(directory: Path, sizes: list[int], mode: str = "all_history", **options: object) -> ReplayBuffer:
    """Rounds 1, 2, … with so many pairs, numbered 100, 101, …, 200, 201, …"""
    buffer = ReplayBuffer(directory, mode, **options)
    for iteration, size in enumerate(sizes, start=1):
        buffer.store(iteration, pairs(iteration, size))
    return buffer


def drawn_rounds(selected: list[Pair]) -> Counter:
    return Counter(int(number // 100) for number in numbers(selected))


# ---- weights and allocation ----


@pytest.mark.parametrize(
    ("decay", "shards", "expected"),
    [
        (0.8, 1, [1.0]),
        (0.8, 2, [0.444444, 0.555556]),
        (0.8, 3, [0.262295, 0.327869, 0.409836]),
        (0.0, 1, [1.0]),
        (0.0, 3, [0.0, 0.0, 1.0]),
        (1.0, 4, [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_golden_weights_from_the_oldest_to_the_newest(decay, shards, expected):
    assert shard_weights("lambda_decay", shards, decay) == pytest.approx(expected, abs=5e-7)


def test_weights_are_powers_of_the_age_over_their_sum():
    for decay in (0.0, 0.3, 0.9, 1.0):
        for shards in range(1, 30):
            weights = shard_weights("lambda_decay", shards, decay)
            total = sum(decay**j for j in range(shards))
            assert weights == pytest.approx([decay**age / total for age in range(shards - 1, -1, -1)])
            assert math.fsum(weights) == pytest.approx(1.0)


@pytest.mark.parametrize("mode", ["nearest_k", "all_history"])
def test_other_modes_weigh_rounds_equally_whatever_their_size(mode):
    assert shard_weights(mode, 4) == [0.25] * 4


def test_weights_of_an_unknown_mode_are_refused():
    with pytest.raises(ValueError, match="preference_replay_mode must be one of 'nearest_k'"):
        shard_weights("current", 2)


@pytest.mark.parametrize(("count", "size"), [(0, 4), (1, 4), (4, 4), (5, 4), (11, 4), (8, 4), (3, 1)])
def test_draws_within_a_round_are_copies_and_a_remainder(count, size):
    """Every pair ⌊count/size⌋ times or once more; each block of `size` draws has each pair once."""
    drawn = positions_drawn(count, size, np.random.default_rng(3))
    assert len(drawn) == count
    for start in range(0, count, size):
        block = drawn[start : start + size]
        assert len(set(block)) == len(block) and set(block) <= set(range(size))
    assert {Counter(drawn)[position] - count // size for position in range(size)} <= {0, 1}


def test_draws_within_a_round_are_uniform():
    """2 of 5 in 2000 draws: each position 800 times expected, σ = 22."""
    counts = Counter(position for seed in range(2000) for position in positions_drawn(2, 5, np.random.default_rng(seed)))
    assert all(abs(counts[position] - 800) < 110 for position in range(5))


# ---- selection ----


def test_current_is_exactly_the_round_in_order(tmp_path):
    buffer = buffer_with(tmp_path, [3, 0, 2], "current")
    assert numbers(buffer.select(1)) == [100, 101, 102]
    assert buffer.select(2) == []
    assert numbers(buffer.select(3)) == [300, 301]


def test_one_round_is_drawn_whole_and_shuffled(tmp_path):
    """Sample size: this round's count."""
    selected = numbers(buffer_with(tmp_path, [40]).select(1))
    assert sorted(selected) == [100.0 + i for i in range(40)] and selected != sorted(selected)


def test_lambda_zero_trains_on_the_newest_round_alone(tmp_path):
    buffer = buffer_with(tmp_path, [4, 4, 3], "lambda_decay", decay=0.0)
    assert sorted(numbers(buffer.select(3))) == [300, 301, 302]


def test_nearest_k_draws_from_the_newest_rounds_that_have_pairs(tmp_path):
    """k = 2 of the sizes 5, 5, 0, 5, 0: rounds 2 and 4."""
    buffer = buffer_with(tmp_path, [5, 5, 0, 5, 0], "nearest_k", k=2, sample_size=200)
    assert set(drawn_rounds(buffer.select(5))) == {2, 4}
    assert set(drawn_rounds(buffer.select(4))) == {2, 4}
    assert set(drawn_rounds(buffer.select(2))) == {1, 2}


def test_nearest_one_is_current_in_another_order(tmp_path):
    buffer = buffer_with(tmp_path, [2, 5], "nearest_k", k=1)
    assert sorted(numbers(buffer.select(2))) == [200, 201, 202, 203, 204]


def test_the_number_of_draws(tmp_path):
    """As configured; else as the round has pairs; else as the newest that has any; with none at all, nothing."""
    assert len(buffer_with(tmp_path / "a", [3, 7], sample_size=5).select(2)) == 5
    buffer = buffer_with(tmp_path / "b", [0, 3, 7, 0, 0])
    assert [len(buffer.select(iteration)) for iteration in range(1, 6)] == [0, 3, 7, 7, 7]


def test_after_an_empty_round_the_newest_earlier_one_has_age_zero(tmp_path):
    buffer = buffer_with(tmp_path, [4, 4, 0], "lambda_decay", decay=0.0, sample_size=8)
    assert set(drawn_rounds(buffer.select(3))) == {2}


def test_draws_beyond_the_pairs_are_whole_copies(tmp_path):
    """10 of 4 pairs: each 2 or 3 times."""
    counts = Counter(numbers(buffer_with(tmp_path, [4], sample_size=10).select(1)))
    assert sorted(counts.values()) == [2, 2, 3, 3]


def test_rounds_are_drawn_for_each_pair_by_weight(tmp_path):
    """λ = ½ over three rounds of unequal size: 1/7, 2/7, 4/7 of 7000 draws; the counts are multinomial, not rounded.

    Standard deviations: √(7000 · w (1 − w)) = 29, 38, 41.
    """
    shares = Counter()
    totals = set()
    for seed in range(20):
        buffer = buffer_with(tmp_path / str(seed), [3, 1, 2], "lambda_decay", decay=0.5, sample_size=350, seed=seed)
        counts = drawn_rounds(buffer.select(3))
        shares += counts
        totals.add(counts[3])
    assert shares.total() == 7000
    for number, expected, sigma in ((1, 1000, 29), (2, 2000, 38), (3, 4000, 41)):
        assert abs(shares[number] - expected) < 5 * sigma
    assert len(totals) > 5  # rounding would always give 200


def test_equal_weights_are_equal_for_large_and_small_rounds(tmp_path):
    """A round of 1 and one of 9 pairs: 1000 of 2000 draws each, σ = 22."""
    counts = drawn_rounds(buffer_with(tmp_path, [1, 9], sample_size=2000).select(2))
    assert abs(counts[1] - 1000) < 110


def test_rounds_are_mixed_in_the_result(tmp_path):
    """Not one round after the other: 100 draws of two rounds change round more than 20 times."""
    rounds = [number // 100 for number in numbers(buffer_with(tmp_path, [50, 50], sample_size=100).select(2))]
    assert sum(a != b for a, b in itertools.pairwise(rounds)) > 20


def test_a_selection_depends_on_seed_and_round_alone(tmp_path):
    first, same, other = (buffer_with(tmp_path / name, [6, 6], seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    second = numbers(first.select(2))
    first.select(1)
    assert numbers(first.select(2)) == second == numbers(same.select(2)) != numbers(other.select(2))


def test_each_round_draws_anew(tmp_path):
    """Two rounds of equal size, each alone: their orders differ."""
    buffer = buffer_with(tmp_path, [30, 30], "nearest_k", k=1)
    assert [number % 100 for number in numbers(buffer.select(1))] != [number % 100 for number in numbers(buffer.select(2))]


def test_rounds_that_come_later_are_not_drawn_from(tmp_path):
    buffer = buffer_with(tmp_path, [6, 6], sample_size=50)
    before = numbers(buffer.select(2))
    buffer.store(3, pairs(3, 6))
    assert numbers(buffer.select(2)) == before


def test_a_round_that_is_not_stored_is_refused(tmp_path):
    for mode in ("current", "all_history"):
        with pytest.raises(ValueError, match=r"iteration 2 is not stored; those that are: \[1\]"):
            buffer_with(tmp_path / mode, [2], mode).select(2)


# ---- files ----


def test_a_round_is_a_file_of_readable_json(tmp_path):
    buffer = ReplayBuffer(tmp_path / "new" / "folder")
    path = buffer.store(7, pairs(7, 2))
    assert path == tmp_path / "new" / "folder" / "iteration_0007.json"
    document = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    assert (document["iteration"], document["num_pairs"], len(document["pairs"])) == (7, 2, 2)
    assert document["pairs"][1]["winner_completions"] == {"a_0": "w701.0 \ud83d"}
    assert repr(read_round(path)) == repr(pairs(7, 2))
    assert path.read_bytes().count(b"\n") == 4  # head, two pairs, tail


def test_an_empty_round_is_written_too(tmp_path):
    path = buffer_with(tmp_path, [0]).path_of(1)
    assert json.loads(path.read_bytes())["num_pairs"] == 0 and read_round(path) == []


def test_numbers_of_rounds_and_pairs(tmp_path):
    buffer = buffer_with(tmp_path, [2, 0, 3])
    assert buffer.num_pairs == 5
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"iteration_000{i}.json" for i in (1, 2, 3)]
    with pytest.raises(ValueError, match="iteration must be a whole number of at least 1, got 0"):
        buffer.store(0, [])


def test_a_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ReplayBuffer("~/rounds").store(1, []) == tmp_path / "rounds" / "iteration_0001.json"


def test_a_round_is_stored_once(tmp_path):
    buffer = buffer_with(tmp_path, [2])
    with pytest.raises(ValueError, match="iteration 1 is stored already"):
        buffer.store(1, pairs(1, 2))


def test_another_runs_round_is_neither_imported_nor_overwritten(tmp_path):
    buffer_with(tmp_path, [2, 2])
    content = (tmp_path / "iteration_0002.json").read_bytes()
    buffer = ReplayBuffer(tmp_path, "all_history")
    assert buffer.num_pairs == 0
    buffer.store(3, pairs(3, 2))
    assert set(drawn_rounds(buffer.select(3))) == {3}
    with pytest.raises(ReplayError, match=r"iteration_0002.json is a round of another run and is not overwritten; choose another"):
        buffer.store(2, pairs(2, 2))
    assert (tmp_path / "iteration_0002.json").read_bytes() == content


def test_a_taken_file_is_found_before_anything_is_drawn(tmp_path):
    buffer_with(tmp_path, [1])
    successor = ReplayBuffer(tmp_path)
    successor.check_vacant(2)
    with pytest.raises(ReplayError, match=r"iteration_0001.json is a round of another run"):
        successor.check_vacant(1)


@pytest.mark.parametrize("content", [b"", b"not JSON", b"[]", b'{"iteration": 1}'])
def test_a_foreign_file_is_not_overwritten(tmp_path, content):
    path = tmp_path / "iteration_0001.json"
    path.write_bytes(content)
    with pytest.raises(ReplayError, match=f"{re.escape(str(path))} exists and is not a round of this run, so it stays"):
        ReplayBuffer(tmp_path).store(1, pairs(1, 1))
    assert path.read_bytes() == content


def test_a_file_cut_anywhere_is_an_error_that_names_it(tmp_path):
    path = buffer_with(tmp_path, [2]).path_of(1)
    whole = path.read_bytes()
    for end in range(0, len(whole) - 2, 7):
        path.write_bytes(whole[:end])
        with pytest.raises(ReplayError, match=re.escape(str(path))):
            read_round(path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_pairs": 3}, "is damaged: it has 2 pairs, and num_pairs is 3"),
        ({"pairs": None}, "lacks 'run' or 'pairs'"),
        ({"pairs": [{}, {}]}, "pair 1: the record of a pair has no 'prompts'"),
        ({"pairs": [1, 2]}, "pair 1: not the record of a pair"),
    ],
)
def test_a_damaged_file_says_where(tmp_path, change, named):
    path = buffer_with(tmp_path, [2]).path_of(1)
    document = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    path.write_bytes(json_files.dump_json(document | change))
    with pytest.raises(ReplayError, match=named):
        read_round(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ReplayError, match=r"iteration_0009.json cannot be read: No such file"):
        read_round(tmp_path / "iteration_0009.json")


def test_a_pair_that_cannot_be_stored_leaves_nothing(tmp_path):
    buffer = ReplayBuffer(tmp_path)
    with pytest.raises(ReplayError, match="pair 2 of iteration 1 cannot be stored: winner_reward must be a finite number, got nan"):
        buffer.store(1, [pair(1.0), pair(math.nan)])
    conversation = ChatPrompt([{"role": "user", "content": "hi", "tool": object()}])
    odd = JointResponse(({"a_0": conversation},), ({"a_0": Completion("")},), 1.0, 1.0)
    with pytest.raises(ReplayError, match=r"pair 1 of iteration 1 cannot be stored: .*object is not JSON serializable"):
        buffer.store(1, [Pair(odd, odd, 1.0)])
    assert list(tmp_path.iterdir()) == [] and buffer.num_pairs == 0


@pytest.mark.parametrize("refused", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_earlier_rounds_and_nothing_else(tmp_path, monkeypatch, refused):
    """The disk refuses once, at each step of writing; the round can then be stored after all."""
    buffer = buffer_with(tmp_path, [2])
    earlier = buffer.path_of(1).read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if refused == "write":
            patch.setattr(Path, "open", full)
        elif refused == "fsync":
            patch.setattr(os, "fsync", full)
        else:
            patch.setattr(Path, "replace", full)
        with pytest.raises(ReplayError, match=r"iteration_0002.json could not be written: No space left on device; earlier rounds"):
            buffer.store(2, pairs(2, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["iteration_0001.json"]
    assert buffer.path_of(1).read_bytes() == earlier and buffer.num_pairs == 2
    assert read_round(buffer.store(2, pairs(2, 2))) == pairs(2, 2)


def test_what_a_killed_process_left_is_replaced(tmp_path):
    (tmp_path / ".iteration_0001.json.writing").write_bytes(b'{"run":"')
    buffer_with(tmp_path, [2])
    assert [path.name for path in tmp_path.iterdir()] == ["iteration_0001.json"]


# ---- resume ----


def resumed(buffer: ReplayBuffer, directory: Path, mode: str = "all_history", **options: object) -> ReplayBuffer:
    """A new buffer that goes on from the other's state, after a trip through JSON."""
    fresh = ReplayBuffer(directory, mode, **options)
    fresh.load_state_dict(json.loads(json.dumps(buffer.state_dict())))
    return fresh


@pytest.mark.parametrize("cache_bytes", [0, 2**28])
def test_a_resumed_run_selects_what_an_uninterrupted_one_does(tmp_path, cache_bytes):
    straight = buffer_with(tmp_path, [4, 0, 5], "lambda_decay", decay=0.7, sample_size=30, seed=9)
    again = resumed(straight, tmp_path, "lambda_decay", decay=0.7, sample_size=30, seed=9, cache_bytes=cache_bytes)
    for iteration in (3, 1, 2, 3):
        assert repr(again.select(iteration)) == repr(straight.select(iteration))
    for buffer in (straight, again):
        assert buffer.num_pairs == 9
    again.store(4, pairs(4, 3))
    assert set(drawn_rounds(again.select(4))) == {1, 3, 4}


def test_rounds_after_the_checkpoint_are_written_again(tmp_path):
    """A killed run has stored round 2 after its checkpoint; its successor stores its own round 2, and round 2 of then is gone."""
    buffer = buffer_with(tmp_path, [3])
    checkpoint = json.loads(json.dumps(buffer.state_dict()))
    buffer.store(2, pairs(2, 4))
    successor = ReplayBuffer(tmp_path, "all_history", sample_size=20)
    successor.load_state_dict(checkpoint)
    assert successor.num_pairs == 3
    successor.store(2, [pair(250.0)])
    assert set(numbers(successor.select(2))) == {100.0, 101.0, 102.0, 250.0}
    with pytest.raises(ReplayError, match=r"iteration_0002.json is not the file that this run stored: its checksum differs"):
        resumed(buffer, tmp_path)


def test_a_state_from_before_the_first_round_fits_too(tmp_path):
    buffer = ReplayBuffer(tmp_path)
    checkpoint = buffer.state_dict()
    buffer.store(1, pairs(1, 2))
    successor = ReplayBuffer(tmp_path)
    successor.load_state_dict(checkpoint)
    successor.store(1, pairs(1, 3))
    assert len(successor.select(1)) == 3


def test_a_missing_or_changed_round_refuses_the_state_and_changes_nothing(tmp_path):
    lost = buffer_with(tmp_path / "lost", [2, 2])
    state = lost.state_dict()
    fresh = buffer_with(tmp_path / "other", [1])
    before = fresh.state_dict()
    with pytest.raises(ReplayError, match=r"iteration_0001.json is not the file that this run stored"):
        fresh.load_state_dict(state)
    with pytest.raises(ReplayError, match=r"iteration_0001.json is not the file that this run stored"):
        fresh.check_state_dict(state)
    lost.path_of(2).unlink()
    with pytest.raises(ReplayError, match=r"iteration_0002.json cannot be read"):
        resumed(lost, tmp_path / "lost")
    assert fresh.state_dict() == before and len(fresh.select(1)) == 1


def test_a_round_changed_after_the_resume_is_noticed(tmp_path):
    buffer = buffer_with(tmp_path, [2])
    again = resumed(buffer, tmp_path)
    path = again.path_of(1)
    path.write_bytes(path.read_bytes().replace(b"100.0", b"100.5"))
    with pytest.raises(ReplayError, match="its checksum differs"):
        again.select(1)


def test_a_loaded_state_does_not_draw_from_what_was_in_memory(tmp_path):
    buffer = buffer_with(tmp_path, [2], "current")
    buffer.path_of(1).unlink()
    other = ReplayBuffer(tmp_path)
    other.store(1, [pair(150.0)])
    buffer.load_state_dict(other.state_dict())
    assert numbers(buffer.select(1)) == [150.0]


# ---- memory ----


def test_rounds_in_memory_are_not_read_again(tmp_path):
    """What was stored or read once is drawn from without its file; what does not fit is read, and found missing."""
    kept = buffer_with(tmp_path / "kept", [2, 2], sample_size=40)
    expected = numbers(kept.select(2))
    again = resumed(kept, tmp_path / "kept", sample_size=40)
    again.select(2)
    small = resumed(kept, tmp_path / "kept", sample_size=40, cache_bytes=0)
    small.select(2)
    for iteration in (1, 2):
        kept.path_of(iteration).unlink()
    assert numbers(kept.select(2)) == expected == numbers(again.select(2))
    with pytest.raises(ReplayError, match="cannot be read"):
        small.select(2)


@pytest.mark.parametrize(("mode", "options"), [("current", {}), ("nearest_k", {"k": 2})])
def test_rounds_that_are_never_drawn_from_again_leave_the_memory(tmp_path, mode, options):
    buffer = buffer_with(tmp_path, [2, 2, 2, 2], mode, **options)
    buffer.path_of(1).unlink()
    buffer.path_of(4).unlink()
    assert len(buffer.select(4)) == 2
    with pytest.raises(ReplayError, match=r"iteration_0001.json cannot be read"):
        buffer.select(1)


# ---- options ----


@pytest.mark.parametrize(
    ("alias", "mode"),
    [
        ("current", "current"),
        ("latest", "current"),
        ("new", "current"),
        ("nearest_k", "nearest_k"),
        ("recent_k", "nearest_k"),
        ("last_k", "nearest_k"),
        ("k", "nearest_k"),
        ("all_history", "all_history"),
        ("lambda_decay", "lambda_decay"),
        ("lambda", "lambda_decay"),
        ("td_lambda", "lambda_decay"),
        ("td-lambda", "lambda_decay"),
        ("Lambda", "lambda_decay"),
    ],
)
def test_names_of_the_modes(alias, mode):
    assert canonical_replay_mode(alias) == mode


@pytest.mark.parametrize("name", ["newest", "", None, 1])
def test_unknown_modes_are_refused(name):
    with pytest.raises(ValueError, match=f"preference_replay_mode must be one of 'current', .*, got {name!r}"):
        canonical_replay_mode(name)


@pytest.mark.parametrize(
    "options",
    [
        ("current", None, None, None),
        ("current", 1, None, None),
        ("nearest_k", 3, None, None),
        ("nearest_k", 1, None, 5),
        ("all_history", None, None, 1),
        ("lambda_decay", None, 0.0, None),
        ("lambda_decay", None, 1, 7),
    ],
)
def test_options_that_go_together(options):
    check_replay_options(*options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("current", 2, None, None), "preference_replay_k goes with preference_replay_mode='nearest_k', got 2 with 'current'"),
        (("current", None, 0.5, None), "preference_replay_lambda goes with preference_replay_mode='lambda_decay', got 0.5"),
        (("current", None, None, 5), "preference_replay_sample_size must be None with preference_replay_mode='current'.*got 5"),
        (("nearest_k", None, None, None), "preference_replay_k must be a whole number of at least 1, got None"),
        (("nearest_k", 0, None, None), "preference_replay_k must be a whole number of at least 1, got 0"),
        (("nearest_k", 1, 0.5, None), "preference_replay_lambda goes with"),
        (("all_history", 1, None, None), "preference_replay_k goes with .* got 1 with 'all_history'"),
        (("all_history", None, None, 0), "preference_replay_sample_size must be a whole number of at least 1 or None, got 0"),
        (("lambda_decay", 1, 0.5, None), "preference_replay_k goes with"),
        (("lambda_decay", None, None, None), "preference_replay_lambda must be a number at least 0 and at most 1, got None"),
        (("lambda_decay", None, 1.5, None), "preference_replay_lambda must be .* got 1.5"),
        (("lambda_decay", None, math.nan, None), "preference_replay_lambda must be .* got nan"),
        (
            ("k", 1, None, None),
            "preference_replay_mode must be one of 'current', 'nearest_k', 'all_history', 'lambda_decay', got 'k'",
        ),
    ],
)
def test_options_that_do_not_go_together(options, named):
    with pytest.raises(ValueError, match=named):
        check_replay_options(*options)


def test_options_of_a_config():
    options = ReplayOptions(preference_replay_mode="td-lambda", preference_replay_lambda=0.5, preference_replay_dir="rounds")
    options.check_replay_options()
    assert options.preference_replay_mode == "lambda_decay"
    ReplayOptions().check_replay_options()
    for given, named in (
        ({"preference_replay_mode": "k"}, "preference_replay_k must be a whole number"),
        ({"preference_replay_dir": 3}, "preference_replay_dir must be a path or None, got 3"),
        ({"log_reward_distribution": "yes"}, "log_reward_distribution must be one of True, False, got 'yes'"),
    ):
        with pytest.raises(ValueError, match=named):
            ReplayOptions(**given).check_replay_options()


def test_a_buffer_of_a_config(tmp_path):
    """In the folder of the options; without one in the default, which need not be known until the first round."""
    options = ReplayOptions(preference_replay_mode="last_k", preference_replay_k=1, preference_replay_sample_size=7)
    options.check_replay_options()
    folders: list[Path] = []
    buffer = ReplayBuffer.from_options(options, lambda: folders[0], seed=4)
    folders.append(tmp_path / "default")
    assert buffer.store(1, pairs(1, 5)).parent == tmp_path / "default"
    same = buffer_with(tmp_path / "same", [5], "nearest_k", k=1, sample_size=7, seed=4)
    assert numbers(buffer.select(1)) == numbers(same.select(1)) and len(buffer.select(1)) == 7
    decayed = ReplayOptions(
        preference_replay_mode="lambda_decay", preference_replay_lambda=0.0, preference_replay_dir=str(tmp_path / "own")
    )
    buffer = ReplayBuffer.from_options(decayed, lambda: tmp_path / "default", seed=4)
    for iteration in (1, 2):
        assert buffer.store(iteration, pairs(iteration, 3)).parent == tmp_path / "own"
    assert set(drawn_rounds(buffer.select(2))) == {2}


def test_a_buffer_checks_its_options(tmp_path):
    with pytest.raises(ValueError, match="preference_replay_k must be"):
        ReplayBuffer(tmp_path, "last_k")
    with pytest.raises(ValueError, match="seed must be"):
        ReplayBuffer(tmp_path, seed=-1)
