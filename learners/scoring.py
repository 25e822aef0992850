"""Log-probabilities of tokens under the distribution they were sampled from, and their gradients.

The gradient of log p(token) with respect to the logits is (onehot − p) / temperature inside the support and 0 outside. With that
one pass over the vocabulary forward and one backward are enough; the library's cross-entropy takes several times as many, and for
large vocabularies those passes are most of an update.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from learners.sampling import SamplingConfig, check_trainable, sampled_logits

# Logits computed at once from hidden states: few enough to stay near the processor, enough for an efficient product.
_BLOCK_LOGITS = 1 << 22
# Probabilities kept for the backward pass, in numbers; beyond them they are computed again there.
_KEPT_PROBABILITIES = 1 << 26


def token_logprobs(logits: Tensor, tokens: Tensor, sampling: SamplingConfig) -> Tensor:
    """Log-probabilities [N] of tokens under the distribution they were sampled from, differentiable once, in nats, float32.

    When the weights have moved since, a sampled token may have left the truncated support; it is added to it, so its
    log-probability stays finite.

    Args:
        logits: of the model [N, V].
        tokens: as sampled [N].
        sampling: with a temperature above 0.
    """
    check_trainable(sampling)
    return _LogitScores.apply(logits, tokens, sampling)  # type: ignore[return-value]


def head_logprobs(hidden: Tensor, weight: Tensor, tokens: Tensor, sampling: SamplingConfig) -> Tensor:
    """The same [N] for the logits `hidden @ weight.T`, which never exist as a whole.

    Args:
        hidden: last hidden states [N, H].
        weight: of the output layer [V, H].
        tokens: as sampled [N].
        sampling: with a temperature above 0.
    """
    check_trainable(sampling)
    # The temperature divides N · H numbers here instead of N · V.
    return _HeadScores.apply(hidden / sampling.temperature, weight, tokens, replace(sampling, temperature=1.0))  # type: ignore[return-value]


def _scores(logits: Tensor, tokens: Tensor, sampling: SamplingConfig) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N] of the tokens and probabilities [N, V] of all."""
    scaled = sampled_logits(logits, sampling, tokens)
    probabilities = torch.softmax(scaled, dim=-1)
    # log Σ exp = max − log p(max): the softmax did the sum. A token's own p may underflow, its log-probability must not.
    normaliser = scaled.amax(-1) - probabilities.amax(-1).log()
    return scaled.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - normaliser, probabilities


class _LogitScores(Function):
    @staticmethod
    def forward(ctx, logits: Tensor, tokens: Tensor, sampling: SamplingConfig) -> Tensor:
        scores, probabilities = _scores(logits, tokens, sampling)
        ctx.save_for_backward(probabilities, tokens)
        ctx.temperature, ctx.dtype = sampling.temperature, logits.dtype
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor):  # type: ignore[override]
        probabilities, tokens = ctx.saved_tensors
        scale = (upstream / ctx.temperature).unsqueeze(-1)
        return (probabilities * -scale).scatter_add_(-1, tokens.unsqueeze(-1), scale).to(ctx.dtype), None, None


class _HeadScores(Function):
    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, tokens: Tensor, sampling: SamplingConfig) -> Tensor:
        differentiated = any(ctx.needs_input_grad)
        keep = differentiated and len(hidden) * len(weight) <= _KEPT_PROBABILITIES
        rows = max(1, _BLOCK_LOGITS // len(weight))
        scores, kept = [], []
        for states, drawn in zip(hidden.split(rows), tokens.split(rows), strict=True):
            block, probabilities = _scores(states @ weight.T, drawn, sampling)
            scores.append(block)
            if keep:
                kept.append(probabilities)
        ctx.save_for_backward(hidden, weight, tokens, *kept)
        ctx.sampling, ctx.rows = sampling, rows
        return torch.cat(scores)

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor):  # type: ignore[override]
        """Σ upstream · (onehot − p) against weight and hidden states; the two terms are taken apart, so that p is used as it is."""
        hidden, weight, tokens, *kept = ctx.saved_tensors
        scale = upstream.unsqueeze(-1).to(hidden.dtype)
        scaled = hidden * scale
        d_hidden = weight.index_select(0, tokens).mul_(scale) if ctx.needs_input_grad[0] else None
        d_weight = torch.zeros_like(weight).index_add_(0, tokens, scaled) if ctx.needs_input_grad[1] else None
        for index, start in enumerate(range(0, len(hidden), ctx.rows)):
            block = slice(start, start + ctx.rows)
            probabilities = kept[index] if kept else _scores(hidden[block] @ weight.T, tokens[block], ctx.sampling)[1]
            probabilities = probabilities.to(weight.dtype)
            if d_hidden is not None:
                d_hidden[block].addcmul_(probabilities @ weight, scale[block], value=-1)
            if d_weight is not None:
                d_weight.addmm_(probabilities.T, scaled[block], alpha=-1)
        return d_hidden, d_weight, None, None
