"""Optimiser steps that IAC and MAAC share: actor and critic losses of a mini-batch, accumulated in micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from learners import losses
from learners.actor_critic.critic import Critic
from learners.actor_critic.samples import Sample
from learners.decoding import Ids
from learners.learner import TrainablePolicy
from learners.optim import PolicyOptimizer, step_together

ValueLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""values [B], values at collection [B], targets [B] → losses [B]."""


def accumulate_actor(policy: TrainablePolicy, optimizer: PolicyOptimizer, samples: Sequence[Sequence[Sample]]) -> float:
    """Add the gradient of −A Σ log π, averaged over each agent's samples and summed over the agents that share the policy.

    Args:
        policy: theirs.
        optimizer: of its weights.
        samples: of each agent.

    Returns:
        The loss.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    flat = [sample for own in samples for sample in own]
    completions = [sample.completion for sample in flat]
    advantages = torch.tensor([sample.advantage for sample in flat], dtype=torch.float64)
    weights = torch.tensor([1.0 / len(own) for own in samples for _ in own], dtype=torch.float64)
    total = 0.0
    for rows in policy.micro_batches(completions):
        scored = policy.logprobs([completions[row] for row in rows])
        loss = losses.policy_gradient_loss(scored.logprobs, scored.mask, advantages[rows], weights[rows])
        optimizer.backward(loss)
        total += loss.item()
    return total


def accumulate_critic(
    critic: Critic,
    optimizer: PolicyOptimizer,
    samples: Sequence[Sample],
    value_loss: ValueLoss,
    read: Callable[[Sequence[Ids]], Tensor] | None = None,
) -> float:
    """Add the gradient of the mean value loss.

    Args:
        critic: each distinct sequence is read once.
        optimizer: of its weights.
        samples: one for each value.
        value_loss: of `value_loss_of`.
        read: how the critic gives values [B]; None is `critic.values`.

    Returns:
        The loss.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    read = critic.values if read is None else read
    old = torch.tensor([sample.value for sample in samples], dtype=torch.float64, device=critic.device)
    targets = torch.tensor([sample.target for sample in samples], dtype=torch.float64, device=critic.device)
    total = 0.0
    for rows in critic.micro_batches([sample.read for sample in samples]):
        loss = value_loss(read([samples[row].read for row in rows]), old[rows], targets[rows]).sum() / len(samples)
        optimizer.backward(loss)
        total += loss.item()
    return total


def value_loss_of(coefficient: float, clip_range: float | None = None) -> ValueLoss:
    """The coefficient times the squared error, clipped around the value at collection with a `clip_range`."""

    def value_loss(values: Tensor, old_values: Tensor, targets: Tensor) -> Tensor:
        if clip_range is None:
            return coefficient * losses.value_loss(values, targets)
        return coefficient * losses.clipped_value_loss(values, old_values, targets, clip_range)

    return value_loss


def step_all(optimizers: Mapping[str, PolicyOptimizer]) -> dict[str, float]:
    """End a mini-batch of all; the gradient norms of those that updated, by the optimisers' names.

    Raises:
        FloatingPointError: a gradient is not finite; no weights change then.
    """
    norms = step_together(list(optimizers.values()))
    return {name: norm for name, norm in zip(optimizers, norms, strict=True) if norm is not None}
