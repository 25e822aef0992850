"""Between text and token ids: prompts in, completions out. Nothing that was sampled passes here a second time."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from llm_envs.types import ChatPrompt

PromptOverflow = Literal["error", "truncate_left"]

# Fast tokenizers cannot be called from two threads at once, and agents may share one.
_TOKENIZING = threading.Lock()


@dataclass(frozen=True)
class Room:
    """What a prompt may take of a model.

    Attributes:
        context: tokens the model can read, prompt and completion together; None without a limit.
        max_new_tokens: of them, kept for the completion.
        vocabulary: ids the model knows.
    """

    context: int | None
    max_new_tokens: int
    vocabulary: int

    def __post_init__(self) -> None:
        if self.context is not None and self.max_new_tokens >= self.context:
            raise ValueError(
                f"max_new_tokens={self.max_new_tokens} leaves no room for a prompt: the model's context is {self.context} tokens"
            )

    @classmethod
    def of(cls, model: PreTrainedModel, max_new_tokens: int) -> Room:
        """What a model has, with so many tokens kept for a completion."""
        context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        vocabulary = cast("nn.Embedding", model.get_input_embeddings()).weight.shape[0]
        return cls(context if context and context > 0 else None, max_new_tokens, vocabulary)


class PromptEncoder:
    """Encodes prompts for one model and decodes what it wrote. The tokenizer is never changed.

    Args:
        tokenizer: of the model.
        room: what a prompt may take.
        overflow: `error` raises for a prompt that takes more; `truncate_left` keeps its newest tokens (and a leading BOS that the
            tokenizer adds), warns once and counts.

    Attributes:
        num_truncated: prompts that were cut.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, room: Room, overflow: PromptOverflow) -> None:
        if overflow not in ("error", "truncate_left"):
            raise ValueError(f"prompt_overflow must be 'error' or 'truncate_left', got {overflow!r}")
        self._tokenizer = tokenizer
        self._room = room
        self._overflow = overflow
        self._starts_with_bos = self._find_leading_bos()
        self.num_truncated = 0

    def _find_leading_bos(self) -> bool:
        """Whether the tokenizer starts texts with BOS by itself."""
        bos = self._tokenizer.bos_token_id
        if bos is None:
            return False
        with _TOKENIZING:
            return self._tokenizer(["a"])["input_ids"][0][:1] == [bos]

    def encode(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of prompts [B][P].

        Plain text gets the special tokens that the tokenizer adds by itself, a `ChatPrompt` those of the chat template, with the
        header of the answer. A tokenizer that starts texts with BOS starts every prompt with exactly one.

        Raises:
            ValueError: a chat prompt without a template, a prompt without tokens, one too long, or ids the model does not have.
        """
        plain = list(dict.fromkeys(str(prompt) for prompt in prompts if not isinstance(prompt, ChatPrompt)))
        with _TOKENIZING:
            known = dict(zip(plain, self._tokenizer(plain)["input_ids"], strict=True)) if plain else {}
            raw = [self._chat_ids(prompt) if isinstance(prompt, ChatPrompt) else known[str(prompt)] for prompt in prompts]
        return [self.fitted(self._checked(prompt, ids)) for prompt, ids in zip(prompts, raw, strict=True)]

    def fitted(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The ids, cut to what there is room for if that is how overflow is met.

        Raises:
            ValueError: there is no room for them, and `overflow` is `error`.
        """
        if self._room.context is None or len(ids) <= self._room.context - self._room.max_new_tokens:
            return tuple(ids)
        limit = self._room.context - self._room.max_new_tokens
        if self._overflow == "error":
            raise ValueError(
                f"a prompt of {len(ids)} tokens exceeds the {limit} that the context of {self._room.context} leaves beside "
                f"max_new_tokens={self._room.max_new_tokens}; shorten it, lower that or set prompt_overflow='truncate_left'"
            )
        if self.num_truncated == 0:
            warnings.warn(f"a prompt of {len(ids)} tokens was cut to {limit}; further ones are only counted", stacklevel=2)
        self.num_truncated += 1
        if self._starts_with_bos and limit > 1:
            return (ids[0], *ids[len(ids) - limit + 1 :])
        return tuple(ids[-limit:])

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts as they stand inside a sequence [B][T]: nothing cut, and what spells a special token is text too."""
        if not texts:
            return []
        with _TOKENIZING:
            encoded = self._tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [list(ids) for ids in encoded]

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Texts of completions without their special tokens; bytes that are no text become U+FFFD."""
        with _TOKENIZING:
            return [
                str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))
                for ids in sequences
            ]

    def _chat_ids(self, prompt: ChatPrompt) -> list[int]:
        if not self._tokenizer.chat_template:
            raise ValueError(
                f"a chat prompt needs a chat template, the tokenizer {self._tokenizer.name_or_path!r} has none: "
                "set tokenizer.chat_template or return plain text from the formatter"
            )
        messages = [dict(message) for message in prompt.messages]
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        # The template writes its special tokens itself.
        return self._tokenizer([str(text)], add_special_tokens=False)["input_ids"][0]

    def _checked(self, prompt: str, ids: list[int]) -> list[int]:
        ids = self._with_one_bos(ids)
        if not ids:
            raise ValueError(f"the prompt {str(prompt)!r} has no tokens and the tokenizer no BOS token: there is nothing to read")
        if max(ids) >= self._room.vocabulary:
            raise ValueError(
                f"the tokenizer gives token {max(ids)} for the prompt {str(prompt)[:60]!r}, the model knows {self._room.vocabulary}"
            )
        return ids

    def _with_one_bos(self, ids: list[int]) -> list[int]:
        bos = cast("int | None", self._tokenizer.bos_token_id)
        if bos is None or (ids and not self._starts_with_bos):
            return ids
        start = next((position for position, token in enumerate(ids) if token != bos), len(ids))
        return [bos, *ids[start:]]
