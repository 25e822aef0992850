"""A language model as a policy: completions drawn, and their log-probabilities under the current weights.

Text is tokenised once. What was sampled is what is scored: ids and prompt ids ride along in every `Completion`.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from learners.decoding import Backend, choose_backend, scoring_mode
from learners.prompts import PromptEncoder, PromptOverflow, Room
from learners.sampling import Drawn, SamplingConfig, check_trainable, decode
from learners.weights import check_weights, has_adapter, load_weights, named_tensors, save_model, without_adapter
from llm_envs.seeding import SAMPLING, Path, stream
from llm_envs.types import Completion

if TYPE_CHECKING:
    from peft import PeftModel

# What is decoded together at most: tokens (padding included), and logits of one step.
_GENERATION_TOKENS = 65_536
_GENERATION_LOGITS = 1 << 26
# Bytes of activations that a training micro-batch may need, by kind of device.
_ACTIVATION_BYTES = {"cpu": 256 << 20, "cuda": 4 << 30}


@dataclass(frozen=True)
class TokenLogprobs:
    """Scores of a batch of completions, padded on the right.

    Attributes:
        logprobs: of each token [B, T], nats, float32, 0 in the padding.
        mask: which positions are tokens [B, T].
    """

    logprobs: Tensor
    mask: Tensor


class HFPolicy:
    """A Hugging Face causal language model that writes and scores completions.

    All prompts of a call are drawn in one batch, by a loop of our own (`learners.sampling`). Log-probabilities are those of the
    distribution sampled from, with dropout off in sampling and scoring alike; training flags are as before afterwards. Neither the
    tokenizer nor the model's configuration is changed, and no padding token is needed. A sequence ends at the tokenizer's end
    token or at any that the model's generation configuration lists.

    Args:
        model: with its weights on the device it is to run on; with an adapter of peft, the adapter is the policy.
        tokenizer: the one the model was trained with.
        sampling: how completions are drawn; by default the model's own distribution and at most 256 tokens.
        prompt_overflow: what becomes of a prompt that leaves no room for `max_new_tokens` in the model's context. `error` raises;
            `truncate_left` keeps the newest tokens, warns once and counts in `num_truncated_prompts`.
        end_token_ids: tokens that end a completion, in place of those above.
        decoder: `auto` (the fastest that is right for the model), `fast`, `cached` or `uncached`; see `learners.decoding`.
        micro_batch_tokens: tokens, padding included, that are scored together; by default as many as need about 256 MB of
            activations (4 GB on a GPU).

    Raises:
        ValueError: `max_new_tokens` leaves no token of the context to the prompt, or an option does not exist.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        sampling: SamplingConfig | None = None,
        *,
        prompt_overflow: PromptOverflow = "error",
        end_token_ids: Iterable[int] | None = None,
        decoder: str = "auto",
        micro_batch_tokens: int | None = None,
    ) -> None:
        if micro_batch_tokens is not None and micro_batch_tokens < 1:
            raise ValueError(f"micro_batch_tokens must be at least 1 or None, got {micro_batch_tokens}")
        self._given = model
        self.model: PreTrainedModel = without_adapter(model)
        self.tokenizer = tokenizer
        self.sampling = sampling or SamplingConfig()
        self.prompt_overflow: PromptOverflow = prompt_overflow
        self.end_token_ids = frozenset(_end_tokens(self.model, tokenizer) if end_token_ids is None else end_token_ids)
        self.micro_batch_tokens = micro_batch_tokens
        self._encoder = PromptEncoder(tokenizer, Room.of(self.model, self.sampling.max_new_tokens), prompt_overflow)
        self._backend: Backend = choose_backend(self.model, decoder)
        self._lock = threading.RLock()
        self._weights: Mapping[str, Tensor] | None = None  # those of the model unless settled

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def decoder(self) -> str:
        """Name of the backend that runs the model: `fast`, `cached` or `uncached`."""
        return self._backend.name

    @property
    def num_truncated_prompts(self) -> int:
        """Prompts that were cut because they left no room for a completion."""
        return self._encoder.num_truncated

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, each once."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def with_sampling(self, sampling: SamplingConfig) -> HFPolicy:
        """A policy that draws otherwise from the same model and tokenizer: for evaluation."""
        other = copy.copy(self)
        other.sampling = sampling
        other._encoder = PromptEncoder(self.tokenizer, Room.of(self.model, sampling.max_new_tokens), self.prompt_overflow)
        return other

    def reference(self, device: torch.device | str | None = None) -> HFPolicy:
        """A frozen policy that stays as this one is now, on `device` if given: what a KL penalty compares with.

        With an adapter it is the base without it, which shares its weights with this policy as long as the device is the same.
        """
        target = self.device if device is None else torch.device(device)
        moves = target != self.device
        if has_adapter(self._given):
            model = (copy.deepcopy if moves else shared_copy)(self._given).unload()  # type: ignore[operator]
        else:
            model = copy.deepcopy(self.model)
        return self._frozen(cast("nn.Module", model).to(target))

    def model_copy(self, device: torch.device | str | None = None) -> PreTrainedModel | PeftModel:
        """The model as it is now, with its adapter, to be trained apart from this policy; on `device` if given.

        Weights that are not trained are the very ones of this policy as long as the device is the same.
        """
        target = self.device if device is None else torch.device(device)
        copied = (copy.deepcopy if target != self.device else shared_copy)(cast("nn.Module", self._given))
        return copied.to(target)  # type: ignore[return-value]

    def frozen_copy(self, device: torch.device | str | None = None) -> HFPolicy:
        """A frozen policy that draws as this one does now, an adapter included, on `device` if given.

        It takes over later weights of this one by `load_state_dict`.
        """
        model = self.model_copy(device)
        # Once frozen, an adapter's weights are told from its base's no more.
        weights = named_tensors(model)
        copied = self._frozen(cast("nn.Module", model))
        copied._weights = weights
        return copied

    def _frozen(self, model: nn.Module) -> HFPolicy:
        return HFPolicy(
            model.requires_grad_(False).eval(),  # type: ignore[arg-type]
            self.tokenizer,
            self.sampling,
            prompt_overflow=self.prompt_overflow,
            end_token_ids=self.end_token_ids,
            micro_batch_tokens=self.micro_batch_tokens,
        )

    def encode(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids [B][P] that the model reads for prompts; see `learners.prompts.PromptEncoder`."""
        return self._encoder.encode(prompts)

    # Drawing

    def generate(self, prompts: Sequence[str], n: int, keys: Sequence[Path]) -> list[list[Completion]]:
        """`n` completions of each prompt, in order; see `llm_envs.types.Policy`.

        Sample k of prompt i depends on nothing but the weights, the prompt and `(*keys[i], k)` (up to the rounding of sums, which
        other batches order otherwise). Equal prompts are read once.

        Raises:
            ValueError: a prompt that cannot be encoded (see `PromptEncoder.encode`), `n` below 1, or a key too few or too many.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1 completion a prompt, got {n}")
        if len(keys) != len(prompts):
            raise ValueError(f"every prompt needs a key: got {len(prompts)} prompts and {len(keys)} keys")
        sources = [source for source in self._encoder.encode(prompts) for _ in range(n)]
        paths = [(*key, k) for key in keys for k in range(n)]
        flat: dict[int, Completion] = {}
        with self._lock, scoring_mode(self.model):
            most = max(1, _GENERATION_LOGITS // self.model.config.get_text_config().vocab_size)
            for rows in batches(sources, [self.sampling.max_new_tokens] * len(sources), _GENERATION_TOKENS, most):
                chosen = [sources[row] for row in rows]
                flat |= zip(rows, self._completions(self._draw(chosen, [paths[row] for row in rows]), chosen), strict=True)
        return [[flat[i * n + k] for k in range(n)] for i in range(len(prompts))]

    def _draw(self, sources: Sequence[tuple[int, ...]], paths: Sequence[Path]) -> Drawn:
        prompts, copies = _distinct(sources)
        room = self.sampling.max_new_tokens
        uniforms = torch.zeros(len(paths), room, dtype=torch.float64)
        if not self.sampling.greedy:
            for row, path in enumerate(paths):
                uniforms[row] = torch.from_numpy(stream(SAMPLING, path).random(room))
        return decode(lambda: self._backend.start(prompts, copies, room), uniforms, self.sampling, self.end_token_ids)

    def _completions(self, drawn: Drawn, sources: Sequence[tuple[int, ...]]) -> list[Completion]:
        written = [ids[:-1] if stopped else ids for ids, stopped in zip(drawn.tokens, drawn.stopped, strict=True)]
        return [
            Completion(text, tuple(ids), tuple(scores), source, "stop" if stopped else "length")
            for text, ids, scores, source, stopped in zip(
                self._encoder.decode(written), drawn.tokens, drawn.logprobs, sources, drawn.stopped, strict=True
            )
        ]

    def as_written(self, prompts: Sequence[str], texts: Sequence[str]) -> list[Completion]:
        """Completions of texts that someone else wrote: as if this policy had, but without log-probabilities.

        A text that ends before `max_new_tokens` gets the end token; a longer one is cut there, its text too.

        Raises:
            ValueError: a prompt that cannot be encoded, or no end token to stop with.
        """
        if not self.end_token_ids:
            raise ValueError("a text of others cannot be ended: the policy has no end token")
        # Models list further ones beside the end token of the tokenizer, which is what ends a text that they were trained on.
        usual = self.tokenizer.eos_token_id
        end = usual if usual in self.end_token_ids else min(self.end_token_ids)
        limit = self.sampling.max_new_tokens
        completions = []
        for source, text, ids in zip(self._encoder.encode(prompts), texts, self._encoder.encode_texts(texts), strict=True):
            if len(ids) < limit:
                completions.append(Completion(text, (*ids, end), (), source, "stop"))
            else:
                completions.append(Completion(self._encoder.decode([ids[:limit]])[0], tuple(ids[:limit]), (), source, "length"))
        return completions

    # Scoring

    def logprobs(self, completions: Sequence[Completion]) -> TokenLogprobs:
        """Log-probabilities [B, T] of completions under the current weights, with their mask [B, T].

        Differentiable where gradients are enabled; then all completions are scored together, so split them with `micro_batches`
        first. Without gradients that is done here. A prompt that several completions share is read once. A completion without
        tokens has an empty row.

        Raises:
            ValueError: the policy is greedy, or a completion carries no prompt ids.
        """
        check_trainable(self.sampling)
        width = max((len(completion.token_ids) for completion in completions), default=0)
        sizes = torch.tensor([len(completion.token_ids) for completion in completions], dtype=torch.long, device=self.device)
        mask = torch.arange(width, device=self.device) < sizes.unsqueeze(-1)
        if width == 0:
            return TokenLogprobs(torch.zeros(mask.shape, device=self.device, requires_grad=torch.is_grad_enabled()), mask)
        together = [list(range(len(completions)))] if torch.is_grad_enabled() else self.micro_batches(completions)
        with self._lock, scoring_mode(self.model):
            parts = [self._score([completions[row] for row in rows], width) for rows in together]
        order = torch.tensor([row for rows in together for row in rows], device=self.device).argsort()
        return TokenLogprobs(parts[0] if len(parts) == 1 else torch.cat(parts)[order], mask)

    def _score(self, completions: Sequence[Completion], width: int) -> Tensor:
        prompts, copies = _distinct([completion.prompt_ids for completion in completions])
        if () in prompts:
            raise ValueError("a completion without prompt_ids cannot be scored: only what a model has read and written can be")
        ids = [completion.token_ids for completion in completions]
        if not any(ids):
            return torch.zeros(len(ids), width, device=self.device)
        scores = self._backend.score(prompts, copies, ids, self.sampling)
        return nn.functional.pad(scores, (0, width - scores.shape[1]))

    def micro_batches(self, completions: Sequence[Completion]) -> list[list[int]]:
        """Positions of the completions in batches small enough to be scored with gradients, those of one prompt side by side.

        A batch holds at most `micro_batch_tokens` tokens, padding included, or a single completion, so memory does not grow with
        the number of completions.
        """
        sources = [completion.prompt_ids for completion in completions]
        return batches(
            sources,
            [len(completion.token_ids) for completion in completions],
            self.micro_batch_tokens or micro_batch_budget(self.model),
        )

    # Weights

    def state_dict(self) -> dict[str, Tensor]:
        """Weights by name, tied ones once; with an adapter only its own. They are the live tensors, not copies."""
        return {name: tensor.detach() for name, tensor in self._named_tensors().items()}

    def check_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Refuse weights of another model; changes nothing.

        Raises:
            ValueError: a name or shape does not fit.
        """
        check_weights(self._named_tensors(), state)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over weights in place, so that optimisers and tied weights stay attached.

        Raises:
            ValueError: a name or shape does not fit; nothing is changed then.
        """
        load_weights(self._named_tensors(), state)

    def _named_tensors(self) -> Mapping[str, Tensor]:
        return named_tensors(self._given) if self._weights is None else self._weights

    def save(self, directory: FilePath | str) -> None:
        """Write a folder that `from_pretrained` loads, tokenizer included; see `learners.weights.save_model` for adapters."""
        save_model(self._given, directory)
        self.tokenizer.save_pretrained(directory)


def shared_copy(model: nn.Module) -> nn.Module:
    """A model of its own modules whose frozen weights and buffers are the very tensors of `model`; trainable ones are copied."""
    tensors = [*(parameter for parameter in model.parameters() if not parameter.requires_grad), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def _end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokenizer's end token and those of the model's generation configuration, which may list several."""
    configured = model.generation_config.eos_token_id if model.generation_config is not None else model.config.eos_token_id
    listed = configured if isinstance(configured, list | tuple) else [configured]
    return {int(token) for token in (*listed, tokenizer.eos_token_id) if isinstance(token, int)}


def _distinct(sources: Sequence[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], list[int]]:
    """The different prompts, and for each source its prompt's position."""
    prompts = list(dict.fromkeys(sources))
    place = {prompt: position for position, prompt in enumerate(prompts)}
    return prompts, [place[source] for source in sources]


def micro_batch_budget(model: PreTrainedModel, *, logits: bool = True) -> int:
    """Tokens whose activations fit what a training micro-batch may take; without `logits` the language-model head is left out."""
    config = model.config.get_text_config()
    # About 30 numbers a layer and hidden unit are kept for the backward pass, and two logits for each token of the vocabulary.
    per_token = 4 * (30 * config.num_hidden_layers * config.hidden_size + (2 * config.vocab_size if logits else 0))
    return max(256, _ACTIVATION_BYTES.get(model.device.type, _ACTIVATION_BYTES["cuda"]) // per_token)


def batches(sources: Sequence[tuple[int, ...]], sizes: Sequence[int], budget: int, most: int = sys.maxsize) -> list[list[int]]:
    """Positions in batches whose padded size (rows × (longest prompt + longest completion)) is within the budget, or single ones.

    Args:
        sources: prompt ids; equal ones end up side by side.
        sizes: tokens of the completions.
        budget: tokens.
        most: rows of a batch.
    """
    _, place = _distinct(sources)
    result: list[list[int]] = []
    prompt_width = width = 0
    for row in sorted(range(len(sources)), key=place.__getitem__):
        prompt_width, width = max(prompt_width, len(sources[row])), max(width, sizes[row])
        if not result or len(result[-1]) == most or (len(result[-1]) + 1) * (prompt_width + width) > budget:
            result.append([])
            prompt_width, width = len(sources[row]), sizes[row]
        result[-1].append(row)
    return result
