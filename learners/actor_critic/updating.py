"""Optimiser steps that IAC and MAAC share: actor and critic losses of a mini-batch, accumulated in micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from learners import losses
from learners.actor_critic.critic import Critic
from learners.actor_critic.samples import Sample
from learners.learner import TrainablePolicy
from learners.optim import PolicyOptimizer

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
        FloatingPointError: an advantage or the loss is not finite.
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
    critic: Critic, optimizer: PolicyOptimizer, samples: Sequence[Sample], coefficient: float, value_loss: ValueLoss
) -> float:
    """Add the gradient of coefficient · mean squared error.

    Args:
        critic: read once for each distinct sequence of a micro-batch.
        optimizer: of its weights.
        samples: one for each value.
        coefficient: weight of the loss.
        value_loss: error of each value.

    Returns:
        The loss, coefficient included.

    Raises:
        FloatingPointError: a target or the loss is not finite.
    """
    device = critic.device
    old = torch.tensor([sample.value for sample in samples], dtype=torch.float64, device=device)
    targets = torch.tensor([sample.target for sample in samples], dtype=torch.float64, device=device)
    total = 0.0
    for rows in critic.micro_batches([sample.read for sample in samples]):
        values = critic.values([samples[row].read for row in rows])
        loss = coefficient * value_loss(values, old[rows], targets[rows]).sum() / len(samples)
        optimizer.backward(loss)
        total += loss.item()
    return total


def unclipped(values: Tensor, old_values: Tensor, targets: Tensor) -> Tensor:
    """Squared errors [B]; the values at collection play no part."""
    return losses.value_loss(values, targets)
