"""How a causal language model is run: to draw completions, and to score them.

A `Backend` hides the model. `CachedBackend` runs any Hugging Face model that keeps keys and values; `UncachedBackend` any causal
model at all, at the price of reading every sequence again for every token; `learners.fast_decoder` has one for plain Llama and
Qwen2 models. The weights are the model's own, so every call sees the latest optimiser step.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_layers import GradientCheckpointingLayer

from learners.sampling import Decoding, SamplingConfig
from learners.scoring import token_logprobs

Ids = Sequence[int]


class Backend(Protocol):
    """A way to run one model.

    Attributes:
        name: `fast`, `cached` or `uncached`.
    """

    name: str

    def start(self, prompts: Sequence[Ids], copies: Sequence[int], room: int) -> Decoding:
        """A batch to be decoded; every prompt is read once.

        Args:
            prompts: different ones, none empty.
            copies: for each row of the batch, its prompt's position [B].
            room: tokens that will be appended at most.
        """
        ...

    def score(self, prompts: Sequence[Ids], copies: Sequence[int], completions: Sequence[Ids], sampling: SamplingConfig) -> Tensor:
        """Log-probabilities of the completions' tokens [B, T], differentiable, float32; 0 behind the end of each.

        Args:
            prompts: different ones, none empty.
            copies: for each completion, its prompt's position [B].
            completions: ids, some at least one long.
            sampling: the distribution they were drawn from.
        """
        ...


def recomputes_activations(model: nn.Module) -> bool:
    """Whether gradient checkpointing is switched on."""
    return any(isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing for module in model.modules())


def _drops(module: nn.Module) -> bool:
    """Whether the module drops units in training mode: a dropout layer, or attention with a rate of its own."""
    rates = [vars(module).get(name) for name in ("p", "attention_dropout", "dropout")]
    return any(isinstance(rate, float) and rate > 0 for rate in rates)


@contextmanager
def scoring_mode(model: nn.Module) -> Iterator[None]:
    """The model without dropout, every module's own training flag restored afterwards, also after an error."""
    flags = [(module, module.training) for module in model.modules()]
    if torch.is_grad_enabled() and recomputes_activations(model) and any(_drops(module) for module, flag in flags if flag):
        raise ValueError(
            "gradient checkpointing recomputes in the backward pass, when the model is in its own mode again: "
            "call model.eval(), else dropout would make the recomputed activations others"
        )
    try:
        model.eval()
        for module, _ in flags:
            # Such a layer recomputes its activations in training mode only; what it contains stays without dropout.
            if isinstance(module, GradientCheckpointingLayer):
                module.training = torch.is_grad_enabled() and module.gradient_checkpointing
        yield
    finally:
        for module, flag in flags:
            module.training = flag


def padded(sequences: Sequence[Ids], side: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids [B, W] and which of them are real [B, W]; what stands in the padding never matters (id 0)."""
    width = max(len(ids) for ids in sequences)
    ids = torch.zeros(len(sequences), width, dtype=torch.long)
    real = torch.zeros(len(sequences), width, dtype=torch.bool)
    for row, sequence in enumerate(sequences):
        place = slice(width - len(sequence), width) if side == "left" else slice(0, len(sequence))
        ids[row, place] = torch.tensor(sequence, dtype=torch.long)
        real[row, place] = True
    return ids.to(device), real.to(device)


def positions_of(real: Tensor) -> Tensor:
    """Position of every token in its own sequence [B, W]: 0 for the first real one, whatever padding stands before it."""
    return (real.long().cumsum(-1) - 1).clamp_min(0)


class _Caller:
    """Calls a Hugging Face model with those arguments that its forward knows, under the names it knows them by."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.known = frozenset(inspect.signature(model.forward).parameters)
        self.cache_name = next((name for name in ("cache", "past_key_values") if name in self.known), None)

    def logits(self, ids: Tensor, real: Tensor, positions: Tensor, cache: DynamicCache | None, last: int) -> Tensor:
        """Logits of the last `last` positions [B, last, V]."""
        arguments: dict[str, object] = {"attention_mask": real.long()}
        if "position_ids" in self.known:
            arguments["position_ids"] = positions
        if "logits_to_keep" in self.known:
            arguments["logits_to_keep"] = last
        if self.cache_name is not None:
            arguments |= {"use_cache": cache is not None, self.cache_name: cache}
        return self.model(input_ids=ids, **arguments).logits[:, -last:]


class UncachedBackend:
    """Any causal model: sequences are padded on the right, where no earlier position can see the padding."""

    name = "uncached"

    def __init__(self, model: PreTrainedModel) -> None:
        self._caller = _Caller(model)

    @staticmethod
    def supports(model: PreTrainedModel) -> bool:
        """Every model is."""
        return True

    def start(self, prompts: Sequence[Ids], copies: Sequence[int], room: int) -> _UncachedDecoding:
        """See `Backend`."""
        return _UncachedDecoding(self._caller, [list(prompts[copy]) for copy in copies])

    def score(self, prompts: Sequence[Ids], copies: Sequence[int], completions: Sequence[Ids], sampling: SamplingConfig) -> Tensor:
        """See `Backend`."""
        return score_plainly(self._caller, prompts, copies, completions, sampling)


class _UncachedDecoding:
    def __init__(self, caller: _Caller, sequences: list[list[int]]) -> None:
        self._caller = caller
        self._sequences = sequences
        self._refresh()

    def _refresh(self) -> None:
        ids, real = padded(self._sequences, "right", self._caller.model.device)
        shortest = min(len(sequence) for sequence in self._sequences)
        logits = self._caller.logits(ids, real, positions_of(real), None, ids.shape[1] - shortest + 1)
        last = real.sum(-1) - shortest
        self.logits = logits[torch.arange(len(ids), device=ids.device), last]

    def step(self, tokens: Tensor) -> None:
        for sequence, token in zip(self._sequences, tokens.tolist(), strict=True):
            sequence.append(token)
        self._refresh()

    def keep(self, rows: Tensor) -> None:
        self._sequences = [self._sequences[row] for row in rows.tolist()]
        self.logits = self.logits[rows]


def score_plainly(
    caller: _Caller, prompts: Sequence[Ids], copies: Sequence[int], completions: Sequence[Ids], sampling: SamplingConfig
) -> Tensor:
    """Log-probabilities [B, T] from one forward over prompt and completion; logits only from the shortest prompt's end on."""
    device = caller.model.device
    rows = [[*prompts[copy], *completion] for copy, completion in zip(copies, completions, strict=True)]
    ids, real = padded(rows, "right", device)
    starts = torch.tensor([len(prompts[copy]) for copy in copies], device=device)
    first = int(starts.min())
    logits = caller.logits(ids, real, positions_of(real), None, ids.shape[1] - first + 1)
    targets, wanted = padded(completions, "right", device)
    row, column = wanted.nonzero(as_tuple=True)
    scores = token_logprobs(logits[row, starts[row] - first + column], targets[row, column], sampling)
    return scatter(scores, row, column, targets.shape)


def scatter(scores: Tensor, row: Tensor, column: Tensor, shape: torch.Size) -> Tensor:
    """Scores [N] at their places in a table of zeros [B, T]."""
    return torch.zeros(shape, dtype=scores.dtype, device=scores.device).index_put((row, column), scores)


class CachedBackend:
    """Any Hugging Face causal model with a plain cache of keys and values.

    A prompt is read once; its cache is copied for each of its completions. Prompts are padded on the left with explicit positions,
    so that models with learned positions, rotary models and sliding windows all see what they would see without padding.
    """

    name = "cached"

    def __init__(self, model: PreTrainedModel) -> None:
        self._caller = _Caller(model)

    @staticmethod
    def supports(model: PreTrainedModel) -> bool:
        """Whether the model's state is keys and values alone, which can be copied row by row."""
        if _Caller(model).cache_name is None:
            return False
        return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in DynamicCache(config=model.config).layers)

    def start(self, prompts: Sequence[Ids], copies: Sequence[int], room: int) -> _CachedDecoding:
        """See `Backend`."""
        return _CachedDecoding(self._caller, prompts, copies)

    def score(self, prompts: Sequence[Ids], copies: Sequence[int], completions: Sequence[Ids], sampling: SamplingConfig) -> Tensor:
        """See `Backend`."""
        # A checkpointed layer recomputes its forward and must not append to the cache twice.
        if len(copies) == len(prompts) or recomputes_activations(self._caller.model):
            return score_plainly(self._caller, prompts, copies, completions, sampling)
        return self._score_shared(prompts, copies, completions, sampling)

    def _score_shared(
        self, prompts: Sequence[Ids], copies: Sequence[int], completions: Sequence[Ids], sampling: SamplingConfig
    ) -> Tensor:
        """The same, each prompt read once: its keys and values, gradient included, serve all of its completions."""
        state = _CachedDecoding(self._caller, prompts, copies)
        targets, wanted = padded(completions, "right", state.logits.device)
        logits = state.logits.unsqueeze(1)
        if targets.shape[1] > 1:
            logits = torch.cat([logits, state.extend(targets[:, :-1], wanted[:, :-1])], dim=1)
        row, column = wanted.nonzero(as_tuple=True)
        return scatter(token_logprobs(logits[row, column], targets[row, column], sampling), row, column, targets.shape)


class _CachedDecoding:
    def __init__(self, caller: _Caller, prompts: Sequence[Ids], copies: Sequence[int]) -> None:
        self._caller = caller
        self._cache = DynamicCache(config=caller.model.config)
        ids, real = padded(prompts, "left", caller.model.device)
        logits = caller.logits(ids, real, positions_of(real), self._cache, 1)[:, -1]
        rows = torch.tensor(copies, device=ids.device)
        self._cache.batch_select_indices(rows)
        self._real, self._length = real[rows], real.sum(-1)[rows]
        self.logits = logits[rows]

    def extend(self, tokens: Tensor, real: Tensor) -> Tensor:
        """Logits [B, T, V] behind each of further tokens [B, T], padded on the right."""
        self._real = torch.cat([self._real, real], dim=1)
        positions = self._length.unsqueeze(-1) + torch.arange(tokens.shape[1], device=tokens.device)
        self._length = self._length + real.sum(-1)
        return self._caller.logits(tokens, self._real, positions, self._cache, tokens.shape[1])

    def step(self, tokens: Tensor) -> None:
        self.logits = self.extend(tokens.unsqueeze(-1), torch.ones_like(tokens, dtype=torch.bool).unsqueeze(-1))[:, -1]

    def keep(self, rows: Tensor) -> None:
        self._cache.batch_select_indices(rows)
        self._real, self._length, self.logits = self._real[rows], self._length[rows], self.logits[rows]


def align_weights(model: PreTrainedModel) -> PreTrainedModel:
    """The model, its weights where products of matrices like them.

    Weights read from a file lie where the file has them. Libraries then sum in another order, so that a copy of the model, or the
    same weights built in memory, would differ in the last bits.
    """
    for parameter in model.parameters():
        if parameter.device.type == "cpu" and parameter.data_ptr() % 64 != 0:
            parameter.data = parameter.data.clone()
    return model


def choose_backend(model: PreTrainedModel, name: str = "auto") -> Backend:
    """The fastest backend that is right for the model, or the named one.

    Raises:
        ValueError: there is none of that name, or it cannot run the model.
    """
    from learners.fast_decoder import FastBackend  # it builds on this module

    kinds = (FastBackend, CachedBackend, UncachedBackend)
    if name != "auto" and name not in [kind.name for kind in kinds]:
        raise ValueError(f"decoder must be 'auto' or one of {[kind.name for kind in kinds]}, got {name!r}")
    for kind in kinds:
        if name in ("auto", kind.name) and kind.supports(model):
            return kind(model)
    raise ValueError(f"decoder={name!r} cannot run {type(model).__name__} as it is configured: use 'auto'")
