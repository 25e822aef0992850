"""A language model as a policy: prompts to token ids, completions drawn, their log-probabilities under the current weights.

Text is tokenised once. What was sampled is what is scored: ids and prompt ids ride along in every `Completion`.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from learners.decoding import Backend, choose_backend, scoring_mode
from learners.sampling import Drawn, SamplingConfig, check_trainable, decode
from llm_envs.seeding import SAMPLING, Path, stream
from llm_envs.types import ChatPrompt, Completion

PromptOverflow = Literal["error", "truncate_left"]

# Fast tokenizers cannot be called from two threads at once, and agents may share one.
_TOKENIZING = threading.Lock()
# Tokens (padding included) that are decoded together.
_GENERATION_TOKENS = 65_536
# Bytes of activations a training micro-batch may need, by kind of device; see `HFPolicy.micro_batches`.
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

    Completions are drawn by an own loop (`learners.sampling.decode`), all prompts of a call in one batch. Log-probabilities are those of
    the distribution sampled from, with dropout off in sampling and scoring alike; training flags are as before afterwards. Neither
    tokenizer nor configuration of the model is changed, and no padding token is needed. A sequence ends at the tokenizer's end token
    or at any that the model's generation configuration lists.

    Args:
        model: with its weights on the device it is to run on.
        tokenizer: the one the model was trained with.
        sampling: how completions are drawn; the neutral distribution and 256 tokens by default.
        prompt_overflow: what becomes of a prompt that leaves no room for `max_new_tokens` in the model's context. `error` raises;
            `truncate_left` keeps the newest tokens (and a leading BOS), warns once and counts in `num_truncated_prompts`.
        end_token_ids: tokens that end a completion, in place of those above.
        decoder: `auto` (the fastest that is right for the model), `fast`, `cached` or `uncached`; see `learners.decoding`.
        micro_batch_tokens: tokens, padding included, that are scored together; by default as many as need about 256 MB (4 GB on a GPU)
            of activations.

    Raises:
        ValueError: `max_new_tokens` does not leave a token of the context to the prompt, or an option does not exist.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        sampling: SamplingConfig | None = None,
        *,
        prompt_overflow: PromptOverflow = "error",
        end_token_ids: Iterable[int] | None = None,
        decoder: str = "auto",
        micro_batch_tokens: int | None = None,
    ) -> None:
        if prompt_overflow not in ("error", "truncate_left"):
            raise ValueError(f"prompt_overflow must be 'error' or 'truncate_left', got {prompt_overflow!r}")
        if micro_batch_tokens is not None and micro_batch_tokens < 1:
            raise ValueError(f"micro_batch_tokens must be at least 1 or None, got {micro_batch_tokens}")
        self.model = model
        self.tokenizer = tokenizer
        self.prompt_overflow: PromptOverflow = prompt_overflow
        self.end_token_ids = frozenset(_end_tokens(model, tokenizer) if end_token_ids is None else end_token_ids)
        self.micro_batch_tokens = micro_batch_tokens
        self.num_truncated_prompts = 0
        self._backend: Backend = choose_backend(model, decoder)
        self._lock = threading.RLock()
        self._leading_bos = _leading_bos(tokenizer)
        self._set_sampling(sampling or SamplingConfig())

    def _set_sampling(self, sampling: SamplingConfig) -> None:
        if self.context is not None and sampling.max_new_tokens >= self.context:
            raise ValueError(
                f"max_new_tokens={sampling.max_new_tokens} leaves no room for a prompt: the model's context is {self.context} tokens"
            )
        self.sampling = sampling

    @property
    def context(self) -> int | None:
        """Most tokens the model can read, prompt and completion together; None if it has no limit."""
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return limit if limit and limit > 0 else None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def decoder(self) -> str:
        """Name of the backend that runs the model: `fast`, `cached` or `uncached`."""
        return self._backend.name

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, each once."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def with_sampling(self, sampling: SamplingConfig) -> HFPolicy:
        """A policy that draws otherwise from the same model and tokenizer: for evaluation."""
        other = copy.copy(self)
        other._set_sampling(sampling)
        other.num_truncated_prompts = 0
        return other

    def reference(self, device: torch.device | str | None = None) -> HFPolicy:
        """A frozen copy as of now, on `device` if given: what a KL penalty compares with."""
        model = copy.deepcopy(self.model).requires_grad_(False).eval()
        if device is not None:
            model.to(device)
        return HFPolicy(
            model,
            self.tokenizer,
            self.sampling,
            prompt_overflow=self.prompt_overflow,
            end_token_ids=self.end_token_ids,
            micro_batch_tokens=self.micro_batch_tokens,
        )

    # Prompts

    def encode(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of prompts [B][P], each cut to what the context leaves, as configured.

        Plain text gets the special tokens that the tokenizer adds by itself, a `ChatPrompt` those of the chat template, with the
        header of the answer; a tokenizer that starts texts with BOS starts every prompt with exactly one.

        Raises:
            ValueError: a chat prompt without a template, a prompt without tokens, one too long, or ids the model does not have.
        """
        plain = list(dict.fromkeys(str(prompt) for prompt in prompts if not isinstance(prompt, ChatPrompt)))
        with _TOKENIZING:
            known = dict(zip(plain, self.tokenizer(plain)["input_ids"], strict=True)) if plain else {}
            raw = [self._chat_ids(prompt) if isinstance(prompt, ChatPrompt) else known[str(prompt)] for prompt in prompts]
        return [tuple(self._fitted(self._checked(prompt, ids))) for prompt, ids in zip(prompts, raw, strict=True)]

    def _checked(self, prompt: str, ids: list[int]) -> list[int]:
        ids = self._with_one_bos(ids)
        if not ids:
            raise ValueError(
                f"the prompt {str(prompt)!r} has no tokens and {type(self.tokenizer).__name__} has no BOS token to start from: "
                "a policy needs at least one token to read"
            )
        size = self.model.get_input_embeddings().weight.shape[0]
        if max(ids) >= size:
            raise ValueError(
                f"the tokenizer gives token {max(ids)} for the prompt {str(prompt)[:60]!r}, the model knows {size} tokens"
            )
        return ids

    def _chat_ids(self, prompt: ChatPrompt) -> list[int]:
        if not self.tokenizer.chat_template:
            raise ValueError(
                f"a chat prompt needs a chat template, {type(self.tokenizer).__name__} {self.tokenizer.name_or_path!r} has none: "
                "set tokenizer.chat_template or return plain text from the formatter"
            )
        messages = [dict(message) for message in prompt.messages]
        return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)

    def _with_one_bos(self, ids: list[int]) -> list[int]:
        bos = self.tokenizer.bos_token_id
        if bos is None:
            return ids
        if not ids:
            return [bos]
        if not self._leading_bos:
            return ids
        start = next((position for position, token in enumerate(ids) if token != bos), len(ids))
        return [bos, *ids[start:]]

    def _fitted(self, ids: list[int]) -> list[int]:
        if self.context is None or len(ids) <= self.context - self.sampling.max_new_tokens:
            return ids
        limit = self.context - self.sampling.max_new_tokens
        if self.prompt_overflow == "error":
            raise ValueError(
                f"a prompt of {len(ids)} tokens exceeds the {limit} that the context of {self.context} leaves beside max_new_tokens="
                f"{self.sampling.max_new_tokens}; shorten it, lower max_new_tokens or set prompt_overflow='truncate_left'"
            )
        if self.num_truncated_prompts == 0:
            warnings.warn(
                f"a prompt of {len(ids)} tokens was cut to its last {limit}; further ones are only counted (num_truncated_prompts)",
                stacklevel=2,
            )
        self.num_truncated_prompts += 1
        if self._leading_bos and limit > 1:
            return [ids[0], *ids[len(ids) - limit + 1 :]]
        return ids[-limit:]

    # Drawing

    def generate(self, prompts: Sequence[str], n: int, keys: Sequence[Path]) -> list[list[Completion]]:
        """`n` completions of each prompt, in order; see `llm_envs.types.Policy`.

        Sample k of prompt i depends on nothing but the weights, the prompt and `(*keys[i], k)` (up to the rounding of sums, which
        other batches order otherwise). Equal prompts are read once.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1 completion a prompt, got {n}")
        if len(keys) != len(prompts):
            raise ValueError(f"every prompt needs a key: got {len(prompts)} prompts and {len(keys)} keys")
        sources = [source for source in self.encode(prompts) for _ in range(n)]
        paths = [(*key, k) for key in keys for k in range(n)]
        completions: list[Completion | None] = [None] * len(sources)
        with self._lock, scoring_mode(self.model):
            for rows in self._generation_batches(sources):
                drawn = self._draw([sources[row] for row in rows], [paths[row] for row in rows])
                for row, completion in zip(rows, self._completions(drawn, [sources[row] for row in rows]), strict=True):
                    completions[row] = completion
        return [[c for c in completions[i * n : (i + 1) * n] if c is not None] for i in range(len(prompts))]

    def _generation_batches(self, sources: Sequence[tuple[int, ...]]) -> list[list[int]]:
        return _batches(sources, [self.sampling.max_new_tokens] * len(sources), _GENERATION_TOKENS)

    def _draw(self, sources: Sequence[tuple[int, ...]], paths: Sequence[Path]) -> Drawn:
        prompts = list(dict.fromkeys(sources))
        place = {prompt: position for position, prompt in enumerate(prompts)}
        copies = [place[source] for source in sources]
        room = self.sampling.max_new_tokens
        uniforms = torch.zeros(len(paths), room, dtype=torch.float64)
        if not self.sampling.greedy:
            for row, path in enumerate(paths):
                uniforms[row] = torch.from_numpy(stream(SAMPLING, path).random(room))
        return decode(lambda: self._backend.start(prompts, copies, room), uniforms, self.sampling, self.end_token_ids)

    def _completions(self, drawn: Drawn, sources: Sequence[tuple[int, ...]]) -> list[Completion]:
        with _TOKENIZING:
            texts = [
                self.tokenizer.decode(ids[:-1] if stopped else ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
                for ids, stopped in zip(drawn.tokens, drawn.stopped, strict=True)
            ]
        return [
            Completion(text, tuple(ids), tuple(scores), source, "stop" if stopped else "length")
            for text, ids, scores, source, stopped in zip(texts, drawn.tokens, drawn.logprobs, sources, drawn.stopped, strict=True)
        ]

    # Scoring

    def logprobs(self, completions: Sequence[Completion]) -> TokenLogprobs:
        """Log-probabilities [B, T] of completions under the current weights, with their mask [B, T].

        Differentiable where gradients are enabled; then all completions are scored together, so split them with `micro_batches`
        first. Without gradients that is done here. A prompt that several completions share is read once. A completion without tokens
        has an empty row.

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
        prompts = list(dict.fromkeys(completion.prompt_ids for completion in completions))
        if () in prompts:
            raise ValueError("a completion without prompt_ids cannot be scored: only what a model has read and written can be")
        place = {prompt: position for position, prompt in enumerate(prompts)}
        ids = [completion.token_ids for completion in completions]
        if not any(ids):
            return torch.zeros(len(ids), width, device=self.device)
        scores = self._backend.score(prompts, [place[completion.prompt_ids] for completion in completions], ids, self.sampling)
        return nn.functional.pad(scores, (0, width - scores.shape[1]))

    def micro_batches(self, completions: Sequence[Completion]) -> list[list[int]]:
        """Positions of the completions in batches small enough to be scored with gradients, those of one prompt side by side.

        A batch holds at most `micro_batch_tokens` tokens, padding included, or a single completion, so memory does not grow with the
        number of completions.
        """
        sources = [completion.prompt_ids for completion in completions]
        return _batches(sources, [len(completion.token_ids) for completion in completions], self._micro_batch_budget())

    def _micro_batch_budget(self) -> int:
        if self.micro_batch_tokens is not None:
            return self.micro_batch_tokens
        config = self.model.config.get_text_config()
        # About 30 numbers a layer and hidden unit are kept for the backward pass, and two logits for each token of the vocabulary.
        per_token = 4 * (30 * config.num_hidden_layers * config.hidden_size + 2 * config.vocab_size)
        return max(256, _ACTIVATION_BYTES.get(self.device.type, _ACTIVATION_BYTES["cuda"]) // per_token)

    # Weights

    def state_dict(self) -> dict[str, Tensor]:
        """Weights by name, tied ones once. They are the live tensors, not copies."""
        return {name: tensor.detach() for name, tensor in _tensors(self.model)}

    def check_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Refuse weights of another model; changes nothing.

        Raises:
            ValueError: a name or shape does not fit.
        """
        own = dict(_tensors(self.model))
        if own.keys() != state.keys():
            missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
            raise ValueError(f"weights do not fit the model: missing {missing}, unknown {unknown}")
        for name, tensor in state.items():
            if own[name].shape != tensor.shape:
                raise ValueError(f"weight {name} has shape {tuple(tensor.shape)}, the model's has {tuple(own[name].shape)}")

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over weights in place, so that optimisers and tied weights stay attached.

        Raises:
            ValueError: a name or shape does not fit; nothing is changed then.
        """
        self.check_state_dict(state)
        own = dict(_tensors(self.model))
        with torch.no_grad():
            for name, tensor in state.items():
                own[name].copy_(tensor)

    def save(self, directory: FilePath | str) -> None:
        """Write a folder that `from_pretrained` loads, tokenizer included."""
        self.model.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor


def _end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokenizer's end token and those of the model's generation configuration, which may list several."""
    configured = model.generation_config.eos_token_id if model.generation_config is not None else model.config.eos_token_id
    listed = [configured] if configured is None or isinstance(configured, int) else configured
    return {int(token) for token in (*listed, tokenizer.eos_token_id) if token is not None}


def _leading_bos(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer starts texts with BOS by itself."""
    with _TOKENIZING:
        return tokenizer.bos_token_id is not None and list(tokenizer("a")["input_ids"])[:1] == [tokenizer.bos_token_id]


def _batches(sources: Sequence[tuple[int, ...]], sizes: Sequence[int], budget: int) -> list[list[int]]:
    """Positions in batches whose padded size (rows × (longest prompt + longest completion)) is within the budget, or single ones."""
    first_seen: dict[tuple[int, ...], int] = {}
    for source in sources:
        first_seen.setdefault(source, len(first_seen))
    batches: list[list[int]] = []
    prompt_width = width = 0
    for row in sorted(range(len(sources)), key=lambda row: first_seen[sources[row]]):
        prompt_width, width = max(prompt_width, len(sources[row])), max(width, sizes[row])
        if not batches or (len(batches[-1]) + 1) * (prompt_width + width) > budget:
            batches.append([])
            prompt_width, width = len(sources[row]), sizes[row]
        batches[-1].append(row)
    return batches
