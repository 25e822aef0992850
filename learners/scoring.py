"""Log-probabilities of tokens under the distribution they were sampled from, and their gradients.

The gradient of log p(token) with respect to the logits is (onehot − p) / temperature inside the support and 0 outside. With that
one pass over the vocabulary forward and one backward are enough; the library's cross-entropy takes several times as many, and for
large vocabularies those passes are most of an update.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from learners.sampling import SamplingConfig, check_trainable, kept_logits

# Logits computed at once from hidden states: few enough to stay near the processor, enough for an efficient product.
_BLOCK_LOGITS = 1 << 22
# If the vocabulary is so many times what is kept, a gradient goes through the kept tokens' rows of the weight alone.
_GATHERED_FROM = 32
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


@dataclass(frozen=True)
class _Scored:
    """Log-probabilities and what their gradient needs.

    Attributes:
        scores: of the drawn tokens [N].
        kept: probabilities of what the distribution keeps [N, M].
        tokens: which tokens those are [N, M], None for the whole vocabulary.
        added: probability of a drawn token that it does not keep [N], 0 for others.
    """

    scores: Tensor
    kept: Tensor
    tokens: Tensor | None
    added: Tensor


def _scored(logits: Tensor, drawn: Tensor, sampling: SamplingConfig) -> _Scored:
    kept = kept_logits(logits, sampling)
    probabilities = torch.softmax(kept.values, dim=-1)
    # log Σ exp = max − log p(max): the softmax did the sum. A token's own p may underflow, its log-probability must not.
    normaliser = kept.values.amax(-1) - probabilities.amax(-1).log()
    own = logits.gather(-1, drawn.unsqueeze(-1)).squeeze(-1).to(normaliser.dtype) / sampling.temperature
    if not sampling.truncated:
        return _Scored(own - normaliser, probabilities, None, torch.zeros_like(own))
    least = kept.values.masked_fill(probabilities == 0, float("inf")).amin(-1)
    outside = own < least
    with_it = torch.where(outside, torch.logaddexp(normaliser, own), normaliser)
    probabilities *= (normaliser - with_it).exp().unsqueeze(-1)
    tokens, size = kept.tokens, logits.shape[-1]
    if tokens is not None and size < _GATHERED_FROM * tokens.shape[-1]:
        tokens, probabilities = None, probabilities.new_zeros(len(logits), size).scatter_(-1, tokens, probabilities)
    return _Scored(own - with_it, probabilities, tokens, torch.where(outside, (own - with_it).exp(), 0))


class _LogitScores(Function):
    @staticmethod
    def forward(ctx, logits: Tensor, drawn: Tensor, sampling: SamplingConfig) -> Tensor:
        scored = _scored(logits, drawn, sampling)
        ctx.save_for_backward(drawn, scored.kept, scored.tokens, scored.added)
        ctx.temperature, ctx.like = sampling.temperature, (logits.shape, logits.dtype)
        return scored.scores

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor):  # type: ignore[override]
        drawn, kept, tokens, added = ctx.saved_tensors
        shape, dtype = ctx.like
        scale = (upstream / ctx.temperature).unsqueeze(-1)
        spread = kept * -scale
        if tokens is not None:
            spread = torch.zeros(shape, dtype=kept.dtype, device=kept.device).scatter_(-1, tokens, spread)
        return spread.scatter_add_(-1, drawn.unsqueeze(-1), scale * (1 - added).unsqueeze(-1)).to(dtype), None, None


class _HeadScores(Function):
    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, drawn: Tensor, sampling: SamplingConfig) -> Tensor:
        rows = max(1, _BLOCK_LOGITS // len(weight))
        blocks = list(zip(hidden.split(rows), drawn.split(rows), strict=True))
        differentiated = any(ctx.needs_input_grad)
        size = (sampling.top_k or len(weight)) * len(hidden)
        scores, saved = [], []
        for states, tokens in blocks:
            scored = _scored(states @ weight.T, tokens, sampling)
            scores.append(scored.scores)
            if differentiated and size <= _KEPT_PROBABILITIES:
                saved += [scored.kept, scored.tokens, scored.added]
        ctx.save_for_backward(hidden, weight, drawn, *saved)
        ctx.sampling, ctx.rows = sampling, rows
        return torch.cat(scores)

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor):  # type: ignore[override]
        """Σ upstream · (onehot − p) against weight and hidden states; the two terms are taken apart, so that p is used as it is."""
        hidden, weight, drawn, *saved = ctx.saved_tensors
        d_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        d_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for index, start in enumerate(range(0, len(hidden), ctx.rows)):
            rows = slice(start, start + ctx.rows)
            if saved:
                kept, tokens, added = saved[3 * index : 3 * index + 3]
            else:
                scored = _scored(hidden[rows] @ weight.T, drawn[rows], ctx.sampling)
                kept, tokens, added = scored.kept, scored.tokens, scored.added
            scale = upstream[rows].unsqueeze(-1).to(hidden.dtype)
            own = scale * (1 - added).unsqueeze(-1).to(hidden.dtype)
            kept = kept.to(hidden.dtype)
            if d_hidden is not None:
                torch.addcmul(weight[drawn[rows]] * own, _mixed(kept, tokens, weight), scale, value=-1, out=d_hidden[rows])
            if d_weight is not None:
                d_weight.index_add_(0, drawn[rows], hidden[rows] * own)
                _add_outer(d_weight, kept, tokens, hidden[rows] * -scale)
        return d_hidden, d_weight, None, None


def _mixed(kept: Tensor, tokens: Tensor | None, weight: Tensor) -> Tensor:
    """Σ over the kept tokens of p · weight row [N, H]."""
    if tokens is None:
        return kept @ weight
    return torch.bmm(kept.unsqueeze(1), weight[tokens]).squeeze(1)


def _add_outer(d_weight: Tensor, kept: Tensor, tokens: Tensor | None, states: Tensor) -> None:
    """Add p · state to the row of every kept token."""
    if tokens is None:
        d_weight.addmm_(kept.T, states)
    else:
        d_weight.index_add_(0, tokens.flatten(), (kept.unsqueeze(-1) * states.unsqueeze(1)).flatten(0, 1))
