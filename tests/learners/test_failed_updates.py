"""Guards what a failure in an update leaves: no sample is lost or used twice, no agent is ahead of another, and a run that is saved
then ends as one that nothing has happened to, bit for bit. For every family of learners.
"""

from __future__ import annotations

import functools
import json
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tiny_models import make_policy

from learners.actor_critic.critic import Critic
from learners.actor_critic.trainers import IACTrainer, MAACTrainer
from learners.policy import HFPolicy
from learners.preference.trainers import MADPOIterTrainer, MARLHFTrainer
from learners.sampling import SamplingConfig
from learners.trainers import MAGRPOTrainer
from llm_envs.env import TaskEnv
from llm_envs.rewards import RewardError
from llm_envs.rollouts import collect
from llm_envs.task import Task

ITEMS = [{"prompt": f"item {i}: {'abc'[: i % 3]}"} for i in range(4)]
SHARED = {
    "agent_learning_rate": 1e-2,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": None,
    "max_new_tokens": 3,
    "logging_steps": 1,
    "eval_interval": 3,
    "eval_num_samples": 1,
    "num_train_epochs": 1,
}
PAIRS = {"preference_num_candidates": 3, "preference_pairs_per_sample": 2, "collection_batch_size": 6}
KINDS: dict[str, tuple[type, dict[str, Any]]] = {
    "magrpo": (MAGRPOTrainer, {"num_generations": 2, "rollout_buffer_size": 3, "reference_kl_enabled": True}),
    # Several mini-batches an update, and optimiser steps of several mini-batches.
    "magrpo-windows": (
        MAGRPOTrainer,
        {"num_generations": 2, "rollout_buffer_size": 3, "train_batch_size": 1, "gradient_accumulation_steps": 2},
    ),
    "iac": (IACTrainer, {"rollout_buffer_size": 2, "train_batch_size": 1, "gradient_accumulation_steps": 2}),
    "iac-heads": (IACTrainer, {"rollout_buffer_size": 2, "use_separate_critic": False}),
    "maac": (MAACTrainer, {"rollout_buffer_size": 3, "train_batch_size": 2}),
    "madpo-iter": (
        MADPOIterTrainer,
        {
            **PAIRS,
            "num_iterations": 2,
            "comparator_policy": "history",
            "train_batch_size": 2,
            "gradient_accumulation_steps": 2,
            "reference_free": False,
        },
    ),
    "marlhf": (MARLHFTrainer, {**PAIRS, "num_generations": 2, "reward_train_batch_size": 2, "reward_learning_rate": 1e-2}),
}


def reward(first: Sequence[str], second: Sequence[str]) -> list[float]:
    return [sum(a.encode()) % 17 / 7 - sum(b.encode()) % 11 / 5 for a, b in zip(first, second, strict=True)]


@pytest.fixture
def make(tmp_path):
    """`make(kind, folder, reward=, **options)`: equal trainers, that record."""

    def build(kind: str, folder: str, reward: Callable = reward, **options: Any) -> Any:
        trainer, own = KINDS[kind]
        shape = {"hidden": 16, "layers": 1, "context": 512, "sampling": SamplingConfig(max_new_tokens=3)}
        policies = {f"agent_{seed}": make_policy(seed=seed, **shape) for seed in range(2)}
        critics: dict[str, Any] = {"critic_model": make_policy(seed=7, **shape).model} if kind in ("iac", "maac") else {}
        return trainer(
            env=TaskEnv(Task(reward=reward, items=ITEMS, eval_items=ITEMS[:1])),
            policies=policies,
            args=trainer.learner_class.config_class(**{**SHARED, **own, **options}),
            output_dir=tmp_path / folder,
            record=True,
            progress=False,
            **critics,
        )

    return build


class Fault:
    """Does something once, at the call number `at` (from 0) of those that are watched. Without a number it only counts them."""

    def __init__(self, at: int | None = None, what: Callable[[], None] = lambda: None) -> None:
        self.at, self.what, self.calls = at, what, 0

    def watching(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            number, self.calls = self.calls, self.calls + 1
            if number == self.at:
                self.what()
            return function(*arguments, **options)

        return call

    def in_scoring(self, monkeypatch: pytest.MonkeyPatch) -> Fault:
        """At what takes the memory: scoring completions and reading texts, by actors, references, critics and reward models."""
        for owner, name in ((HFPolicy, "logprobs"), (Critic, "_hidden")):
            monkeypatch.setattr(owner, name, self.watching(getattr(owner, name)))
        return self

    def in_steps(self, trainer: Any) -> Fault:
        """Behind each step of an optimiser, before the next one's."""
        for optimizer in optimizers_of(trainer):
            optimizer._optimizer.register_step_post_hook(self.watching(lambda *_: None))
        return self


def optimizers_of(trainer: Any) -> list[Any]:
    learner = trainer.learner
    learner = getattr(learner, "backend", getattr(learner, "learner", learner))
    if hasattr(learner, "_trained"):
        return list(learner._trained.optimizers().values())
    return [team.optimizer for team in learner._teams]


def out_of_memory() -> None:
    raise RuntimeError("CUDA out of memory")


def broken() -> None:
    raise ZeroDivisionError("no reward")


def interrupt() -> None:
    raise KeyboardInterrupt


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def tensors(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree.detach().clone()]
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def lines(trainer: Any, name: str) -> list[dict]:
    found = [json.loads(line) for line in (trainer.output_dir / name).read_text().splitlines()]
    return [line for line in found if not any(key.startswith("time/") for key in line)]


def assert_equal_runs(found: Any, expected: Any) -> None:
    assert found.numbering == expected.numbering
    assert lines(found, "stream.jsonl") == lines(expected, "stream.jsonl")
    assert lines(found, "metrics.jsonl") == lines(expected, "metrics.jsonl")
    ours, theirs = (tensors(trainer.learner.state_dict()) for trainer in (found, expected))
    assert len(ours) == len(theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def resumed_after(
    make: Callable, kind: str, folder: str, stopped: Any, error: type[BaseException], message: str | None = None
) -> Any:
    """A fresh trainer that went on from what was saved where a run failed."""
    with pytest.raises(error, match=message):
        stopped.train()
    updates = {optimizer.updates for optimizer in optimizers_of(stopped)}
    assert len(updates) == 1, f"some agents have made more updates than others: {updates}"
    checkpoint = stopped.save_checkpoint(stopped.output_dir / "checkpoints")
    fresh = make(kind, folder)
    fresh.train(checkpoint)
    return fresh


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """Nothing here cuts the power."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.mark.parametrize("places", [3, pytest.param(10**6, marks=pytest.mark.slow)], ids=["three places", "every place"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_saved_after_a_failure_ends_as_one_without(make, kind, places, monkeypatch):
    """Out of memory, and Ctrl-C, where completions are scored or texts read: early, in the middle and at last."""
    whole = make(kind, "whole")
    with monkeypatch.context() as patch:
        count = Fault().in_scoring(patch)
        whole.train()
    assert count.calls >= 8
    chosen = range(0, count.calls, max(1, (count.calls - 1) // (places - 1)))
    for number, place in enumerate(chosen):
        what, error = [(ctrl_c, KeyboardInterrupt), (out_of_memory, RuntimeError), (interrupt, KeyboardInterrupt)][number % 3]
        with monkeypatch.context() as patch:
            stopped = make(kind, f"run{number}")
            Fault(place, what).in_scoring(patch)
            resumed = resumed_after(make, kind, f"run{number}", stopped, error)
        assert_equal_runs(resumed, whole)


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_between_the_steps_of_two_agents_waits_for_both(make, kind):
    """And until the run has noted that they were made."""
    whole, stopped = make(kind, "whole"), make(kind, "run")
    whole.train()
    Fault(2, ctrl_c).in_steps(stopped)
    assert_equal_runs(resumed_after(make, kind, "run", stopped, KeyboardInterrupt), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_that_raises_has_changed_nothing(make, kind):
    whole, stopped = make(kind, "whole"), make(kind, "run", reward=Fault(2, broken).watching(reward))
    whole.train()
    assert_equal_runs(resumed_after(make, kind, "run", stopped, RewardError, "no reward"), whole)


@pytest.mark.parametrize("kind", ["magrpo-windows", "iac", "maac"])
def test_an_update_that_failed_is_gone_on_with_in_the_same_learner(make, kind):
    """A caller that frees memory and calls again, without further steps, has lost nothing."""
    straight, stopped = make(kind, "straight").learner, make(kind, "stopped")
    steps = recorded_steps(make, kind)
    expected = straight.update(steps)
    fault = Fault(1, out_of_memory)
    for policy in stopped.learner.policies.values():
        policy.logprobs = fault.watching(policy.logprobs)
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        stopped.learner.update(steps)
    assert stopped.learner.states_until_update == 0
    assert stopped.learner.update([]) == expected
    assert stopped.learner.states_until_update == straight.states_until_update
    assert stopped.learner.flush() == straight.flush()
    assert all(
        torch.equal(a, b) for a, b in zip(tensors(straight.state_dict()), tensors(stopped.learner.state_dict()), strict=True)
    )


def recorded_steps(make: Callable, kind: str) -> list:
    """Steps of four items for a fresh learner: more than an update takes."""
    trainer = make(kind, "steps")
    return collect(trainer.env, trainer.learner.policies, ITEMS, trainer.learner.rollout, seed=3)


def test_threads_have_ended_before_a_failed_update_is_taken_back(make):
    """One agent fails at once; the other's gradient, which comes later, must not stay behind."""
    trainer = make("magrpo", "run", parallel_training="mp", agent_devices=["cpu", "cpu"])
    failed = threading.Event()
    first, second = trainer.learner.policies.values()
    score = second.logprobs

    def late(completions: Any) -> Any:
        assert failed.wait(10)
        return score(completions)

    def early(completions: Any) -> Any:
        failed.set()
        return out_of_memory()

    first.logprobs, second.logprobs = early, late
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        trainer.train()
    assert failed.is_set()
    assert all(parameter.grad is None for policy in (first, second) for parameter in policy.parameters())


def test_training_again_begins_with_the_update_that_failed(make, monkeypatch):
    """`train()` after an error that was caught is a new pass, and the learner still has what the last one had given it."""
    trainer = make("magrpo", "run", reference_kl_enabled=False)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="CUDA out of memory"):
        Fault(1, out_of_memory).in_scoring(patch)
        trainer.train()
    assert trainer.learner.states_until_update == 0
    trainer.train()
    trained = [line["agent_0/loss"] for line in lines(trainer, "metrics.jsonl") if "agent_0/loss" in line]
    assert len(trained) == 1 + 2  # the update that had failed; of 4 items, 3 and the one left
