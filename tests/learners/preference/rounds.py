"""Preference runs on tiny models: a trainer of each kind, what it logged and wrote, and runs that are stopped on their way."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import make_policy

from learners.policy import HFPolicy
from learners.preference.pairs import JointResponse
from learners.preference.trainers import MADPOIterTrainer, MADPOTrainer, MARLHFIterTrainer, MARLHFTrainer, PreferenceTrainer
from learners.sampling import SamplingConfig
from llm_envs.env import TaskEnv
from llm_envs.task import Task
from llm_envs.types import Completion

AGENTS = ("agent_0", "agent_1")
ITEMS = [{"prompt": f"item {i}: {'abc'[: i % 3]}"} for i in range(4)]
TRAINERS: dict[str, type[PreferenceTrainer]] = {
    "madpo": MADPOTrainer,
    "marlhf": MARLHFTrainer,
    "madpo-iter": MADPOIterTrainer,
    "marlhf-iter": MARLHFIterTrainer,
}
LEARNING = {
    "agent_learning_rate": 1e-2,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": None,
    "max_new_tokens": 4,
    "logging_steps": 1,
    "eval_interval": 0,
    "eval_num_samples": 2,
    "num_train_epochs": 1,
    "preference_num_candidates": 3,
    "preference_pairs_per_sample": 2,
    "collection_batch_size": 10,
}
OWN: dict[str, dict[str, Any]] = {
    "madpo": {"train_batch_size": 3},
    "marlhf": {"num_generations": 2, "reward_learning_rate": 1e-2, "reward_num_train_epochs": 1, "reward_train_batch_size": 3},
}


def kinds(*quick: str) -> list:
    """All kinds; those that are not named are slow.

    `marlhf` and `madpo-iter` have pairs, comparators, rounds, a reward model and rollouts between them.
    """
    return [kind if kind in quick else pytest.param(kind, marks=pytest.mark.slow) for kind in TRAINERS]


def reward(first: Sequence[str], second: Sequence[str]) -> list[float]:
    return [sum(a.encode()) % 17 / 7 - sum(b.encode()) % 11 / 5 for a, b in zip(first, second, strict=True)]


def flat(first: Sequence[str], second: Sequence[str]) -> list[float]:
    """Nothing to prefer."""
    return [0.5] * len(first)


def answer(agent_completions: Sequence[str]) -> list[str]:
    return [text[:4] + "?" for text in reversed(agent_completions)]


def tiny(seed: int = 0, **options: Any) -> HFPolicy:
    """A policy small enough for runs of many rounds, with room for joint texts."""
    shape = {"hidden": 16, "layers": 1, "context": 512}
    return make_policy(seed=seed, **{**shape, "sampling": SamplingConfig(max_new_tokens=4), **options})


def team(**options: Any) -> dict[str, HFPolicy]:
    return {agent: tiny(seed, **options) for seed, agent in enumerate(AGENTS)}


def config(kind: str, **options: Any) -> Any:
    rounds = {"num_iterations": 2} if kind.endswith("iter") else {}
    return TRAINERS[kind].learner_class.config_class(**{**LEARNING, **OWN[kind.removesuffix("-iter")], **rounds, **options})


def make_trainer(
    kind: str,
    folder: Path,
    *,
    reward: Callable = reward,
    num_turns: int = 1,
    policies: dict[str, HFPolicy] | None = None,
    parts: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A trainer of the kind; equal ones at each call.

    Args:
        kind: see `TRAINERS`.
        folder: of the run.
        reward: of the task.
        num_turns: of the task.
        policies: a `team` by default.
        parts: further arguments of the trainer.
        options: of its config.
    """
    task = Task(reward=reward, items=ITEMS, eval_items=ITEMS[:3], num_turns=num_turns, transition=answer if num_turns > 1 else None)
    given: dict[str, Any] = {"env": TaskEnv(task), "args": config(kind, **options), "output_dir": folder, "progress": False}
    given |= parts or {}
    if not {"agents", "agent_model"} & given.keys():
        given["policies"] = team() if policies is None else policies
    return TRAINERS[kind](**given)


def weights(trainer: Any) -> list[torch.Tensor]:
    return [p.detach().clone() for policy in trainer.learner.policies.values() for p in policy.parameters()]


def same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def logged(trainer: Any) -> list[dict]:
    """Lines of metrics.jsonl but for clock readings."""
    lines = [json.loads(line) for line in (trainer.output_dir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if not any(name.startswith("time/") for name in line)]


def values_of(trainer: Any, name: str) -> list[float]:
    return [line[name] for line in logged(trainer) if name in line]


def recorded(trainer: Any) -> list[dict]:
    return [json.loads(line) for line in (trainer.output_dir / "stream.jsonl").read_text().splitlines()]


def round_files(trainer: Any) -> dict[str, Any]:
    """What a run wrote of its rounds, but for its own name."""
    paths = sorted(path for name in ("preference_replay", "reward_distributions") for path in (trainer.output_dir / name).glob("*"))
    documents = {f"{path.parent.name}/{path.name}": json.loads(path.read_text()) for path in paths}
    return {name: {key: value for key, value in document.items() if key != "run"} for name, document in documents.items()}


def joint(first: float, raw: float | None = None, *, ids: Sequence[int] = (1,), answered: bool = True) -> JointResponse:
    """A joint response that earned this."""
    completion = Completion("x", tuple(ids), (), (7,) if answered else ())
    raw = first if raw is None else raw
    return JointResponse((dict.fromkeys(AGENTS, "p"),), (dict.fromkeys(AGENTS, completion),), first, raw)


class StoppedError(Exception):
    """A run was stopped on purpose."""


def stop_in(trainer: Any, member: str, after: int, phases: Sequence[int] | None = None) -> None:
    """Make a run stop before the call number `after` (from 0) of a member of its phases, counted over the phases named."""
    calls = [0]

    def guarded(original: Callable) -> Callable:
        def call(*arguments: Any) -> Any:
            calls[0] += 1
            if calls[0] > after:
                raise StoppedError
            return original(*arguments)

        return call

    for number, phase in enumerate(trainer.phases):
        if phases is None or number in phases:
            setattr(phase, member, guarded(getattr(phase, member)))
