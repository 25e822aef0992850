"""The distribution tokens are drawn from, and the loop that draws them.

One function, `kept_logits`, is the distribution: temperature first, then top-k, then top-p. `draw` samples from it and
`learners.scoring` scores under it, so what is trained is what was sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from learners.config import require_int, require_number

# Above this many tokens an inverse cdf first looks for the block of tokens, then inside it: a plain cumulative sum is serial.
_BLOCK = 128
_BLOCKWISE_FROM = 4096
# A nucleus is found by sorting in small vocabularies; in large ones among so many likely tokens, or else by counting tokens into
# bins over so many nats down from the most probable one.
_SORTED_BELOW = 4096
_LIKELY = 64
_BINS = 2048
_SPAN = 30.0
# Sequences that ended leave the batch once they are at least this share of it: leaving costs a copy of the cache.
_COMPACT_SHARE = 0.25


@dataclass(frozen=True)
class SamplingConfig:
    """How completions are drawn.

    Attributes:
        temperature: divides the logits; 0 takes the most probable token (generation only: nothing can be trained on it).
        top_p: the smallest set of tokens with at least this probability, after top-k; 1 turns it off.
        top_k: only the k most probable tokens; None or 0 turns it off.
        max_new_tokens: tokens a completion may have, the end token included.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    max_new_tokens: int = 256

    def __post_init__(self) -> None:
        require_number("temperature", self.temperature, at_least=0)
        require_number("top_p", self.top_p, above=0, at_most=1)
        require_int("top_k", self.top_k, 0, optional=True)
        require_int("max_new_tokens", self.max_new_tokens, 0)

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken."""
        return self.temperature == 0

    @property
    def truncated(self) -> bool:
        """Whether some tokens can be out of reach."""
        return bool(self.top_k) or self.top_p < 1


@dataclass(frozen=True)
class Kept:
    """What a distribution can draw from.

    Attributes:
        values: logits over temperature of the tokens that are left [N, M], -inf for those that are not, in float32 or better.
        tokens: which tokens they are [N, M]; None if they are all of the vocabulary in order.
    """

    values: Tensor
    tokens: Tensor | None


def kept_logits(logits: Tensor, sampling: SamplingConfig) -> Kept:
    """The sampling distribution: temperature, then top-k, then top-p. Probabilities are the softmax of what it keeps.

    Args:
        logits: of the model [N, V].
        sampling: with a temperature above 0.
    """
    scaled = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.temperature != 1:
        scaled = scaled / sampling.temperature
    if not sampling.truncated:
        return Kept(scaled, None)
    if sampling.top_k:
        values, tokens = scaled.topk(min(sampling.top_k, scaled.shape[-1]), dim=-1)
        return Kept(_cut_nucleus(values, values.softmax(-1), sampling.top_p), tokens)
    probabilities = scaled.softmax(-1)
    # Usually a few tokens have most of the probability. Where they cannot, a short list is not even tried.
    if scaled.shape[-1] > _SORTED_BELOW:
        tokens = scaled.topk(_LIKELY, dim=-1).indices if bool((probabilities.amax(-1) * _LIKELY >= sampling.top_p).all()) else None
        if tokens is None or not bool((probabilities.gather(-1, tokens).sum(-1) >= sampling.top_p).all()):
            return Kept(_wide_nucleus(scaled, probabilities, sampling.top_p), None)
    else:
        tokens = scaled.argsort(dim=-1, descending=True)
    return Kept(_cut_nucleus(scaled.gather(-1, tokens), probabilities.gather(-1, tokens), sampling.top_p), tokens)


def _cut_nucleus(values: Tensor, probabilities: Tensor, top_p: float) -> Tensor:
    """Sorted logits [N, M], -inf where the more probable ones reach `top_p` already: the first one always stays."""
    if top_p == 1:
        return values
    reached = probabilities.cumsum(-1)[:, :-1] >= top_p
    return torch.cat([values[:, :1], values[:, 1:].masked_fill(reached, -float("inf"))], dim=-1)


def _wide_nucleus(scaled: Tensor, probabilities: Tensor, top_p: float) -> Tensor:
    """Logits [N, V], -inf outside the smallest set that has `top_p` of the probability.

    For large vocabularies and flat distributions: instead of sorting tokens they are counted into bins by their logit, coarse ones
    first, then fine ones around the place found; the set is exact up to tokens whose logits are within 1e-5 of the last one's.
    """
    below = (scaled.amax(-1, keepdim=True) - scaled).clamp_(max=_SPAN)
    coarse = _SPAN / _BINS
    start = _bin_that_reaches(below / coarse, probabilities, top_p) * coarse
    end = start + (_bin_that_reaches((below - start) * (_BINS / coarse), probabilities, top_p) + 1) * (coarse / _BINS)
    return torch.where(below <= end, scaled, -float("inf"))


def _bin_that_reaches(places: Tensor, weights: Tensor, wanted: float) -> Tensor:
    """The bin [N, 1] up to which the weights add up to what is wanted; what lies outside the bins counts to the first or last."""
    sums = torch.zeros(len(places), _BINS, dtype=weights.dtype, device=weights.device)
    sums.scatter_add_(-1, places.clamp_(0, _BINS - 1).long(), weights)
    return (sums.cumsum(-1) < wanted).sum(-1, keepdim=True).clamp_(max=_BINS - 1)


def check_trainable(sampling: SamplingConfig) -> None:
    """Raise for a distribution that nothing can be trained on."""
    if sampling.greedy:
        raise ValueError("temperature 0 (greedy) has no log-probabilities to train on: use a temperature above 0")


def draw(logits: Tensor, uniforms: Tensor, sampling: SamplingConfig) -> tuple[Tensor, Tensor]:
    """One token for each row [N] and its log-probability [N]; a greedy choice is certain, so its log-probability is 0.

    Args:
        logits: of the model [N, V].
        uniforms: one number in [0, 1) for each row [N]; the token is where it falls in the cumulative distribution.
        sampling: the distribution.
    """
    if sampling.greedy:
        tokens = logits.argmax(-1)
        return tokens, torch.zeros_like(tokens, dtype=torch.float32)
    kept = kept_logits(logits, sampling)
    probabilities = kept.values.softmax(-1)
    places = inverse_cdf(probabilities, uniforms).unsqueeze(-1)
    tokens = places if kept.tokens is None else kept.tokens.gather(-1, places)
    return tokens.squeeze(-1), probabilities.gather(-1, places).squeeze(-1).log()


def inverse_cdf(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Positions [N] at which `uniforms` of the total weight is passed; one of weight 0 is never returned.

    Args:
        weights: not negative, some above 0 [N, V].
        uniforms: in [0, 1) [N].
    """
    uniforms = uniforms.to(weights.dtype)
    if weights.shape[-1] < _BLOCKWISE_FROM:
        cumulative = weights.cumsum(-1)
        return _search(cumulative, _below(uniforms.unsqueeze(-1) * cumulative[:, -1:], cumulative), weights).squeeze(-1)
    padded = torch.nn.functional.pad(weights, (0, -weights.shape[-1] % _BLOCK))
    blocks = padded.view(len(weights), -1, _BLOCK)
    sums = blocks.sum(-1)
    cumulative = sums.cumsum(-1)
    targets = _below(uniforms.unsqueeze(-1) * cumulative[:, -1:], cumulative)
    block = _search(cumulative, targets, sums)
    before = cumulative.gather(-1, block) - sums.gather(-1, block)
    inside = blocks[torch.arange(len(weights), device=weights.device), block.squeeze(-1)]
    cumulative = inside.cumsum(-1)
    targets = _below((targets - before).clamp_min(0), cumulative)
    return (block * _BLOCK + _search(cumulative, targets, inside)).squeeze(-1)


def _below(targets: Tensor, cumulative: Tensor) -> Tensor:
    """Targets [N, 1] below the total even after rounding: else one close to it would fall behind the last token with any weight."""
    total = cumulative[:, -1:]
    return torch.minimum(targets, torch.nextafter(total, total.new_zeros(())))


def _search(cumulative: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """First position [N, 1] whose cumulative weight exceeds the target."""
    if weights.device.type == "cpu":
        return torch.searchsorted(cumulative, targets, right=True)
    return _first_above(cumulative, targets, weights)


def _first_above(cumulative: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """First position [N, 1] with a weight whose cumulative weight exceeds the target.

    For devices that sum in parallel: such sums are not monotone to the last bit, so that a search could meet a token of weight 0.
    """
    return ((cumulative > targets) & (weights > 0)).to(torch.uint8).argmax(-1, keepdim=True)


class Decoding(Protocol):
    """A batch of sequences that grows token by token.

    Attributes:
        logits: of each row's next token [B, V].
    """

    logits: Tensor

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row [B] and bring `logits` up to date."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""
        ...


@dataclass(frozen=True)
class Drawn:
    """Sequences as drawn.

    Attributes:
        tokens: ids [B][T], an end token included.
        logprobs: of each, nats [B][T].
        stopped: whether an end token was drawn [B].
    """

    tokens: list[list[int]]
    logprobs: list[list[float]]
    stopped: list[bool]


@torch.no_grad()
def decode(start: Callable[[], Decoding], uniforms: Tensor, sampling: SamplingConfig, end_ids: Collection[int]) -> Drawn:
    """Sequences drawn until an end token or the limit, all rows together; rows that ended leave the batch.

    Args:
        start: begins the batch: called only if something is to be drawn.
        uniforms: one stream a row, one number a token [B, max_new_tokens].
        sampling: the distribution and the limit.
        end_ids: tokens that end a sequence.
    """
    count, limit = uniforms.shape
    if limit == 0 or count == 0:
        return Drawn([[] for _ in range(count)], [[] for _ in range(count)], [False] * count)
    state = start()
    device = state.logits.device
    # Double precision is for models in it: not every device has it.
    exact = torch.promote_types(state.logits.dtype, torch.float32)
    uniforms = uniforms.T.to(device, exact)
    ends = torch.zeros(state.logits.shape[-1], dtype=torch.bool, device=device)
    ends[[token for token in end_ids if token < len(ends)]] = True
    tokens = torch.zeros(limit, count, dtype=torch.long, device=device)
    logprobs = torch.zeros(limit, count, dtype=exact, device=device)
    lengths = torch.full((count,), limit, dtype=torch.long, device=device)
    rows = torch.arange(count, device=device)  # which sequence each row of the batch is
    places: slice | Tensor = slice(None)  # the same; while all are there, a view is cheaper than an index
    live = torch.ones(count, dtype=torch.bool, device=device)  # of the batch's rows
    for position in range(limit):
        drawn, scores = draw(state.logits, uniforms[position, places], sampling)
        tokens[position, places], logprobs[position, places] = drawn, scores.to(exact)
        ended = ends[drawn] & live
        if bool(ended.any()):
            lengths[rows[ended]] = position + 1
            live = live & ~ended
            remaining = int(live.sum())
            if remaining == 0:
                break
            if remaining <= (1 - _COMPACT_SHARE) * len(rows) and position + 1 < limit:
                kept = live.nonzero().squeeze(-1)
                rows, drawn, live = rows[kept], drawn[kept], live[kept]
                places = rows
                state.keep(kept)
        if position + 1 < limit:
            state.step(drawn)
    stopped = ends[tokens[lengths - 1, torch.arange(count, device=device)]]
    sizes = lengths.tolist()
    return Drawn(_cut(tokens.T.tolist(), sizes), _cut(logprobs.T.tolist(), sizes), stopped.tolist())


def _cut(table: list[list], sizes: Sequence[int]) -> list[list]:
    return [row[:size] for row, size in zip(table, sizes, strict=True)]
