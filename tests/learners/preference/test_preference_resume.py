"""Guards resume of preference runs: stopped at any place of any part, they end bit for bit as runs that went through."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rounds import (
    ITEMS,
    StoppedError,
    kinds,
    logged,
    make_trainer,
    recorded,
    reward,
    round_files,
    same,
    stop_in,
    weights,
)

from learners.checkpoint import CheckpointStore
from llm_envs.rewards import set_reward_range

EVERYTHING: dict[str, dict[str, Any]] = {
    "madpo": {"gradient_accumulation_steps": 2, "reference_free": False, "train_batch_size": 2},
    "marlhf": {
        "rl_algorithm": "iac",
        "reward_num_train_epochs": 2,
        "use_separate_critic": False,
        "rollout_buffer_size": 3,
        "rl_options": {"critic_warmup_updates": 1},
    },
    "madpo-iter": {"comparator_policy": "history", "preference_replay_mode": "all_history", "log_reward_distribution": True},
    "marlhf-iter": {
        "comparator_policy": "current_copy",
        "preference_scoring_reward": "reward_model",
        "preference_replay_mode": "lambda_decay",
        "preference_replay_lambda": 0.5,
    },
}
"""Options with as much state as there is, by kind."""

SMALL = {
    "shuffle": True,
    "num_train_epochs": 2,
    "eval_interval": 4,
    "eval_num_samples": 1,
    "preference_pairs_per_sample": 1,
    "collection_batch_size": 1,
}


@pytest.fixture
def make(tmp_path):
    """`make(kind, folder="run", **options)`: equal trainers, that record and shuffle."""

    def trainer(kind: str, folder: str = "run", **options: Any) -> Any:
        given = {"reward": ranged, "parts": {"record": True}, **SMALL, **EVERYTHING[kind], **options}
        return make_trainer(kind, tmp_path / folder, **given)

    return trainer


def ranged(first: Sequence[str], second: Sequence[str]) -> list[float]:
    return reward(first, second)


set_reward_range(ranged, -3.0, 3.0)


def checkpoints(trainer: Any) -> Path:
    return trainer.output_dir / "checkpoints"


def go(trainer: Any, interval: int | None = None) -> bool:
    """Train, from the latest checkpoint if there is one; whether the run came to its end."""
    latest = "latest" if any(checkpoints(trainer).glob("checkpoint-*")) else None
    try:
        trainer.train(latest, checkpoint_dir=checkpoints(trainer), checkpoint_interval=interval)
    except (StoppedError, KeyboardInterrupt):
        return False
    return True


def assert_equal_runs(found: Any, expected: Any) -> None:
    assert same(weights(found), weights(expected))
    assert found.numbering == expected.numbering
    assert logged(found) == logged(expected)
    assert recorded(found) == recorded(expected)
    assert round_files(found) == round_files(expected)


def places(trainer: Any) -> list[tuple[int, int, int]]:
    """Make a trainer note where it trains: phase, epoch, row."""
    noted = []
    for phase in trainer.phases:

        def train(*arguments: Any, original: Any = phase.train) -> Any:
            position = trainer.position
            noted.append((position.phase, position.epoch, position.item))
            return original(*arguments)

        phase.train = train
    return noted


@pytest.mark.parametrize("kind", kinds("marlhf", "madpo-iter"))
def test_a_run_stopped_after_every_step_of_every_part(make, kind):
    """A fresh trainer goes on after every single step: in a pass, between passes, between parts and rounds."""
    whole = make(kind, "whole")
    stations = places(whole)
    whole.train()
    for number in itertools.count():
        stopped = make(kind)
        visited = places(stopped)
        stop_in(stopped, "train", 1)
        done = go(stopped, 1)
        if done:
            break
        assert visited == [stations[number]]
    assert number == len(stations) - 1
    assert_equal_runs(stopped, whole)


@pytest.mark.parametrize("kind", kinds("marlhf"))
def test_a_run_stopped_where_its_last_checkpoint_is_some_steps_ago(make, kind):
    """In the middle of a part, before the next one, before the end of a pass: what was done since the checkpoint is done again."""
    whole = make(kind, "whole")
    whole.train()
    for member, after in itertools.cycle([("train", 5), ("begin", 1), ("end_epoch", 1)]):
        stopped = make(kind)
        stop_in(stopped, member, after)
        if go(stopped, 4):
            break
    assert_equal_runs(stopped, whole)


class Counting:
    """A reward that counts the joint responses it was given, and stops a run at one of them."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.count = 0
        self.stop_at = stop_at

    def __call__(self, first: Sequence[str], second: Sequence[str]) -> list[float]:
        self.count += len(first)
        if self.stop_at is not None and self.count >= self.stop_at:
            raise KeyboardInterrupt
        return reward(first, second)


@pytest.mark.parametrize("kind", kinds("marlhf"))
def test_pairs_are_not_sampled_again_once_they_are_stored(make, kind):
    """With checkpoints at the ends of passes alone, and stopped as the next phase begins."""
    options = {"eval_interval": 0, "num_train_epochs": 1}
    if kind.endswith("iter"):
        options["log_reward_distribution"] = False
    total = Counting()
    make(kind, "whole", reward=total, **options).train()
    before, after = Counting(), Counting()
    stopped = make(kind, reward=before, **options)
    stop_in(stopped, "begin", 0, phases=[1])
    assert not go(stopped)
    per_item = 6 if kind.endswith("iter") else 3
    assert before.count == per_item * len(ITEMS)
    assert go(make(kind, reward=after, **options))
    assert before.count + after.count == total.count
    assert (after.count == 0) == (kind == "madpo")


@pytest.mark.parametrize("kind", kinds("madpo-iter"))
def test_a_run_stopped_by_its_reward(make, kind):
    """In the middle of an item's responses, as the last round collects."""
    options = {"num_train_epochs": 1, **({"log_reward_distribution": False} if kind.endswith("iter") else {})}
    seen = Counting()
    whole = make(kind, "whole", reward=seen, **options)
    phase = [phase for phase in whole.phases if "collecting" in phase.name][-1]
    counts = []
    collecting = phase.train
    phase.train = lambda *arguments: (counts.append(seen.count), collecting(*arguments))[1]
    whole.train()
    assert len(counts) > 2
    assert not go(make(kind, reward=Counting(stop_at=counts[2] + 1), **options), 2)
    resumed = make(kind, reward=Counting(), **options)
    assert go(resumed)
    assert_equal_runs(resumed, whole)


def test_a_comparator_remembers_over_a_resume_what_the_team_was(make):
    """In the third round it writes with the weights of the second one's beginning: they are in the checkpoint alone."""
    options = {"num_iterations": 3, "num_train_epochs": 1, "eval_interval": 0}
    whole = make("madpo-iter", "whole", **options)
    whole.train()
    stopped = make("madpo-iter", **options)
    stop_in(stopped, "train", 1, phases=[4])
    assert not go(stopped, 1)
    resumed = make("madpo-iter", **options)
    assert go(resumed, 1)
    assert_equal_runs(resumed, whole)


@pytest.mark.parametrize(("kind", "parts"), [("madpo-iter", 2), pytest.param("marlhf-iter", 3, marks=pytest.mark.slow)])
def test_a_run_goes_on_with_more_rounds(make, kind, parts):
    """As one that was asked for them at once."""
    options = {"eval_interval": 0, "num_train_epochs": 1}
    whole = make(kind, "whole", num_iterations=3, **options)
    whole.train()
    for rounds in (2, 3):
        trainer = make(kind, num_iterations=rounds, **options)
        assert go(trainer)
    assert_equal_runs(trainer, whole)
    with pytest.raises(ValueError, match=f"the run has {2 * parts} phases, the checkpoint is in number {3 * parts}"):
        go(make(kind, num_iterations=2, **options))


class TestCheckpointsThatDoNotFit:
    """They are refused, and nothing is changed."""

    @pytest.fixture
    def saved(self, make):
        """`saved(kind, **options)`: a checkpoint from the middle of collecting."""

        def save(kind: str, **options: Any) -> Path:
            trainer = make(kind, "saved", **options)
            stop_in(trainer, "train", 3)
            assert not go(trainer, 1)
            found = CheckpointStore(checkpoints(trainer)).latest()
            assert found is not None
            return found

        return save

    @pytest.mark.parametrize(
        ("kind", "options", "other", "others", "message"),
        [
            ("madpo", {}, "madpo-iter", {}, "learner: 'MADPO' in the checkpoint, 'MADPOIter' now"),
            ("madpo-iter", {}, "marlhf-iter", {}, "learner: 'MADPOIter' in the checkpoint, 'MARLHFIter' now"),
            ("madpo-iter", {}, "madpo-iter", {"comparator_policy": "current"}, "comparator_policy: 'history' in the checkpoint"),
            ("madpo-iter", {}, "madpo-iter", {"comparator_history_k": 2}, "comparator_history_k: None in the checkpoint, 2 now"),
            (
                "marlhf",
                {},
                "marlhf",
                {"rl_algorithm": "magrpo", "use_separate_critic": None, "rl_options": {}},
                "rl_algorithm: 'iac'",
            ),
            ("marlhf", {}, "marlhf", {"reward_train_batch_size": 1}, "reward_train_batch_size: 3 in the checkpoint, 1 now"),
        ],
    )
    def test_other_options(self, make, saved, kind, options, other, others, message):
        checkpoint = saved(kind, **options)
        trainer = make(other, "other", **others)
        before = weights(trainer)
        with pytest.raises(ValueError, match=message):
            trainer.train(checkpoint)
        assert same(before, weights(trainer))
        assert (trainer.numbering.env_step, trainer.position.phase) == (0, 0)
        assert not trainer.output_dir.exists()

    @pytest.mark.parametrize("part", ["comparator", "reward_model", "replay", "learner"])
    def test_one_part_of_several_that_does_not_fit(self, make, saved, part):
        """Whichever it is, none of the others has taken over its state."""
        tree, _ = CheckpointStore(saved("marlhf-iter").parent).load()
        trainer = make("marlhf-iter", "other")
        state = tree["learner"]
        for tensors in state["learner"]["teams"].values():
            for tensor in tensors["policy"].values():
                tensor.add_(1.0)
        broken = {
            "comparator": {"rounds": [{"agent_0": {}}]},
            "reward_model": {**state["reward_model"], "initial": []},
            "replay": {"run": "other", "rounds": [{"iteration": 1, "num_pairs": 1, "sha256": ""}]},
            "learner": {**state["learner"], "teams": {}},
        }
        before = copy.deepcopy(trainer.learner.state_dict())
        with pytest.raises(ValueError, match=r".+"):
            trainer.learner.load_state_dict({**state, part: broken[part]})
        after = trainer.learner.state_dict()
        assert same(flat_tensors(before), flat_tensors(after))
        assert (before["pairs"], before["replay"]) == (after["pairs"], after["replay"])
        assert state["pairs"] != after["pairs"]

    def test_parts_that_are_not_there(self, make):
        one, other = make("madpo-iter", "one"), make("madpo", "other")
        with pytest.raises(ValueError, match=r"holds learner, pairs, comparator, replay, distribution, meter"):
            other.learner.load_state_dict(one.learner.state_dict())


def flat_tensors(tree: Any) -> list:
    if isinstance(tree, dict):
        return [tensor for value in tree.values() for tensor in flat_tensors(value)]
    if isinstance(tree, list | tuple):
        return [tensor for value in tree for tensor in flat_tensors(value)]
    return [tree] if hasattr(tree, "storage") else []
