"""Losses and estimators over the log-probabilities of completion tokens: pure functions of tensors.

Shapes: B completions, T tokens of the longest. `mask` [B, T] is True at the tokens a policy drew, the end token included, and False
at padding; what the other tensors hold there, NaN included, has no influence. Double precision in, double precision out.

A learner cuts a mini-batch of nodes into micro-batches that fit in memory. `completion_weights` is computed once, for the whole
mini-batch; each loss below is a weighted sum over completions. So the losses of the micro-batches sum to the loss of the
mini-batch, and their gradients likewise, under every aggregation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Aggregation: TypeAlias = Literal["sequence_sum", "sequence_mean", "token_mean"]

AGGREGATIONS: tuple[Aggregation, ...] = ("sequence_sum", "sequence_mean", "token_mean")


def completion_weights(group_sizes: Sequence[int], lengths: Sequence[int], aggregation: Aggregation = "sequence_sum") -> Tensor:
    """[B] float64 weight of each completion's token sum, for a mini-batch of M nodes.

    sequence_sum: 1 / (M K)         mean over nodes of the mean over completions of the token sum
    sequence_mean: 1 / (M K T_b)    the same of the token mean
    token_mean: 1 / Σ_b T_b         mean over all tokens of the mini-batch, whichever completion and node they belong to

    A completion without tokens counts among the K and adds 0.

    Args:
        group_sizes: [M] completions of each node, K.
        lengths: [B] tokens of each completion, node after node, B = Σ group_sizes.
        aggregation: which mean.

    Raises:
        ValueError: an unknown aggregation, an empty node, or lengths that do not fit.

    Source: sequence_sum is the gradient of J itself (MAGRPO, arXiv:2508.04652); sequence_mean GRPO (arXiv:2402.03300, eq. 3);
    token_mean DAPO (arXiv:2503.14476, eq. 8).
    """
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"loss_aggregation must be one of {', '.join(AGGREGATIONS)}, got {aggregation!r}")
    if not all(size > 0 for size in group_sizes) or sum(group_sizes) != len(lengths):
        raise ValueError(f"expected {sum(group_sizes)} lengths for nodes of {list(group_sizes)} completions, got {len(lengths)}")
    if aggregation == "token_mean":
        return torch.full((len(lengths),), 1.0 / max(sum(lengths), 1), dtype=torch.float64)
    weights = torch.tensor([1.0 / (len(group_sizes) * size) for size in group_sizes for _ in range(size)], dtype=torch.float64)
    if aggregation == "sequence_mean":
        weights = weights / torch.tensor(list(lengths), dtype=torch.float64).clamp(min=1.0)
    return weights


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """[B] sum over each completion's own tokens.

    Args:
        values: [B, T].
        mask: [B, T] bool.
    """
    return values.masked_fill(~mask, 0.0).sum(dim=-1)


def policy_gradient_loss(logprobs: Tensor, mask: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    """Scalar loss whose gradient is the policy gradient: Σ_b w_b · (−A_b Σ_t log π(a_bt | h_bt)).

    Args:
        logprobs: [B, T] nats, with gradient.
        mask: [B, T] bool.
        advantages: [B] reward units, no gradient.
        weights: [B] of `completion_weights`, the rows of this micro-batch.

    Source: REINFORCE (Williams 1992) with the group baseline of MAGRPO (arXiv:2508.04652); no ratio, no clipping.
    """
    return -(_like(weights, logprobs) * _like(advantages, logprobs) * masked_sum(logprobs, mask)).sum()


def clipped_ratio_loss(
    logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, advantages: Tensor, weights: Tensor, clip_range: float
) -> Tensor:
    """Scalar loss with a clipped importance ratio: Σ_b w_b Σ_t −min(ρ A, clip(ρ, 1−ε, 1+ε) A), ρ_bt = exp(log π − log π_old).

    At ρ = 1 its gradient is that of `policy_gradient_loss`; so it is for an infinite ε and on-policy samples.

    Args:
        logprobs: [B, T] nats, with gradient.
        old_logprobs: [B, T] nats, of the policy that sampled, no gradient.
        mask: [B, T] bool.
        advantages: [B] reward units, no gradient.
        weights: [B] of `completion_weights`, the rows of this micro-batch.
        clip_range: ε > 0.

    Source: PPO (arXiv:1707.06347, eq. 7), the ratio taken per token.
    """
    log_ratio = (logprobs - old_logprobs).masked_fill(~mask, 0.0)
    signed = _like(advantages, logprobs)[:, None]
    clipped = clipped_tokens(log_ratio, signed, clip_range)
    # The minimum picks the bound, a constant, exactly at the clipped tokens. They leave before exp, so that a ratio that overflows
    # does not turn their zero gradient into 0 · ∞.
    ratio = log_ratio.masked_fill(clipped, 0.0).exp()
    bound = 1.0 + clip_range * signed.sign()
    surrogate = torch.where(clipped, bound, ratio) * signed
    return -(_like(weights, logprobs) * masked_sum(surrogate, mask)).sum()


def clipped_tokens(log_ratio: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """[B, T] bool: the tokens whose ratio has left 1 ± ε on the side the advantage pushes to, so that they get no gradient.

    Args:
        log_ratio: [B, T] log π − log π_old, nats.
        advantages: [B, 1] or [B, T].
        clip_range: ε > 0.
    """
    ratio = log_ratio.detach().exp()
    return ((advantages > 0) & (ratio > 1.0 + clip_range)) | ((advantages < 0) & (ratio < 1.0 - clip_range))


def reference_kl(policy_logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """[B, T] estimate of KL(π ‖ π_ref) at each sampled token, nats, never negative: exp(d) − d − 1, d = log π_ref − log π.

    Its expectation under π is the KL. Where both agree it is 0.

    Args:
        policy_logprobs: [B, T] of the policy that sampled.
        reference_logprobs: [B, T] of the reference, at the same tokens.

    Source: the estimator k3 of Schulman, "Approximating KL divergence" (2020).
    """
    difference = reference_logprobs - policy_logprobs
    # expm1 keeps the digits of small differences; the clamp takes off what rounding may leave below 0.
    return (torch.expm1(difference) - difference).clamp(min=0.0)


def bradley_terry_loss(winner_scores: Tensor, loser_scores: Tensor) -> Tensor:
    """[B] negative log-likelihood that the winner is preferred: −log σ(s_w − s_l), finite for any finite scores.

    ∂L/∂s_w = −σ(s_l − s_w) = −∂L/∂s_l; with equal scores the loss is log 2.

    Args:
        winner_scores: [B] of the preferred responses, with gradient.
        loser_scores: [B] of the others, with gradient.

    Source: the model of Bradley and Terry (Biometrika 39, 1952), fitted to preferences as in Christiano et al. 2017
    (arXiv:1706.03741, §2.2.3).
    """
    return -logsigmoid(winner_scores - loser_scores)


def value_loss(values: Tensor, targets: Tensor) -> Tensor:
    """[B] squared errors (y − v)².

    Args:
        values: [B] of the critic, with gradient.
        targets: [B] reward units, no gradient.
    """
    return (values - _like(targets, values)) ** 2


def clipped_value_loss(values: Tensor, old_values: Tensor, targets: Tensor, clip_range: float) -> Tensor:
    """[B] the larger of two squared errors, of v and of v kept within ε of its old value.

    max((y − v)², (y − v_old − clip(v − v_old, −ε, ε))²)

    Args:
        values: [B] of the critic, with gradient.
        old_values: [B] of the critic when the samples were collected, no gradient.
        targets: [B] reward units, no gradient.
        clip_range: ε > 0.

    Source: the value clipping of PPO's reference implementation (arXiv:2005.12729, §2), without the factor ½.
    """
    old = _like(old_values, values)
    clipped = old + (values - old).clamp(-clip_range, clip_range)
    return torch.maximum(value_loss(values, targets), value_loss(clipped, targets))


def joint_margin(own: Tensor, joint: Tensor) -> Tensor:
    """[B] margins Δ = Σ_i δ_i of a team, whose gradient flows through one part of the sum alone.

    The value is the whole team's to the last bit, whichever part is given, so all agents get the same ∂L/∂δ_i.

    Args:
        own: [B] the part with gradient: δ_i of the agents that share a policy, summed.
        joint: [B] Δ of all agents, no gradient, any device and precision.

    Source: the joint margin of MADPO, a DPO whose policy factorises over agents; `docs/algorithms.md`.
    """
    return _like(joint, own) + (own - own.detach())


def dpo_loss(margin: Tensor, beta: float, label_smoothing: float = 0.0) -> Tensor:
    """[B] preference losses −(1 − ε) log σ(βΔ) − ε log σ(−βΔ), finite for any finite margin.

    ∂L/∂Δ = −β [(1 − ε) σ(−βΔ) − ε σ(βΔ)]; at Δ = 0 the loss is log 2.

    Args:
        margin: [B] Δ, nats: log-probability of the chosen response less that of the rejected one, each less its reference's if
            there is one, summed over agents.
        beta: β > 0.
        label_smoothing: ε in [0, 0.5), the share of preferences taken to be the wrong way round.

    Source: DPO (Rafailov et al. 2023, arXiv:2305.18290, eq. 7); the smoothing is conservative DPO (Mitchell 2023, "A note on DPO
    with noisy preferences and relationship to IPO").
    """
    scaled = beta * margin
    return -(1.0 - label_smoothing) * logsigmoid(scaled) - label_smoothing * logsigmoid(-scaled)


def _like(values: Tensor, logprobs: Tensor) -> Tensor:
    """The values without gradient, in the precision and at the place of the log-probabilities."""
    return values.detach().to(device=logprobs.device, dtype=logprobs.dtype)
