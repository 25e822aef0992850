"""What an actor-critic learner keeps of one agent's turn until it trains on it, what it logs of it, and how it is stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from learners.batching import completion_metrics
from learners.chains import explained_variance
from learners.credit import SPREAD_FLOOR, mean, means, spread
from llm_envs.types import AgentID, Completion, Metrics


@dataclass(frozen=True)
class Sample:
    """One agent's turn.

    Attributes:
        turn: 1 for the first.
        env_step: its number.
        completion: what the agent wrote.
        read: ids that the critic reads for it.
        value: of the critic when it was collected.
        target: what the value is trained towards.
        advantage: what the completion is trained with.
        reward: as the env gave it.
        expected_return: undiscounted sum of the rewards from here on, the KL penalty taken off.
        kl: of the completion from the reference, nats; None without one.
        terms: named terms of the reward, by `reward/<name>`.
        not_expanded: whether the early-termination threshold stopped the episode here.
    """

    turn: int
    env_step: int
    completion: Completion
    read: tuple[int, ...]
    value: float
    target: float
    advantage: float
    reward: float
    expected_return: float
    kl: float | None
    terms: Mapping[str, float]
    not_expanded: bool


def normalized(samples: Sequence[Sample]) -> list[Sample]:
    """The samples with the advantages of each turn centred and divided by their population standard deviation, floor 1e-6.

    A turn with one sample keeps its advantage: there is nothing to compare it with.
    """
    statistics: dict[int, tuple[float, float]] = {}
    for turn in {sample.turn for sample in samples}:
        chosen = [sample.advantage for sample in samples if sample.turn == turn]
        statistics[turn] = (mean(chosen), max(spread(chosen), SPREAD_FLOOR)) if len(chosen) > 1 else (0.0, 1.0)
    return [
        replace(sample, advantage=(sample.advantage - statistics[sample.turn][0]) / statistics[sample.turn][1])
        for sample in samples
    ]


def turn_metrics(buffers: Mapping[AgentID, Sequence[Sample]], kl_coefficient: float) -> list[Metrics]:
    """Rewards, returns and how good the critic was, for each turn among the samples of an update."""
    everything = [sample for samples in buffers.values() for sample in samples]
    metrics = []
    for turn in sorted({sample.turn for sample in everything}):
        chosen = [sample for sample in everything if sample.turn == turn]
        values = {
            "reward_mean": mean([sample.reward for sample in chosen]),
            "expected_return": mean([sample.expected_return for sample in chosen]),
            **means([sample.terms for sample in chosen]),
        }
        kl = [sample.kl for sample in chosen if sample.kl is not None]
        if kl:
            values["reference_kl_mean"] = mean(kl)
            values["reference_kl_penalty_mean"] = kl_coefficient * mean(kl)
        for agent, samples in buffers.items():
            own = [sample for sample in samples if sample.turn == turn]
            values.update({f"{agent}/{name}": value for name, value in _critic_metrics(own).items()})
        named = {f"turn_{turn}/{name}": value for name, value in values.items()}
        metrics.append(Metrics(max(sample.env_step for sample in chosen), named, group=f"turn_{turn}"))
    return metrics


def _critic_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Of the values when they were collected: before the update that the entry is about."""
    values, targets = [sample.value for sample in samples], [sample.target for sample in samples]
    explained = explained_variance(values, targets)
    return {
        "value_mean": mean(values),
        "value_std": spread(values),
        "target_mean": mean(targets),
        "critic_loss": mean([(target - value) ** 2 for target, value in zip(targets, values, strict=True)]),
        "advantage_std": spread([sample.advantage for sample in samples]),
        # Undefined where all targets are equal, as of a single sample.
        **({} if math.isnan(explained) else {"explained_variance": explained}),
    }


def update_metrics(buffers: Mapping[AgentID, Sequence[Sample]], trained: Mapping[str, float]) -> Metrics:
    """What an update did: losses and gradient norms, lengths and entropies of the agents, share of states stopped early."""
    values = dict(trained)
    for agent, samples in buffers.items():
        described = completion_metrics([sample.completion for sample in samples])
        values.update({f"{agent}/{name}": value for name, value in described.items()})
    everything = [sample for samples in buffers.values() for sample in samples]
    values["not_expanded_share"] = mean([float(sample.not_expanded) for sample in everything])
    return Metrics(max(sample.env_step for sample in everything), values, group="update")


def sample_tree(sample: Sample) -> dict[str, Any]:
    """The sample as plain values, for a checkpoint."""
    return asdict(sample)


def tree_sample(tree: Mapping[str, Any]) -> Sample:
    """The sample `sample_tree` was made of."""
    return Sample(**{**tree, "read": tuple(tree["read"]), "completion": Completion(**tree["completion"])})
