"""What is sent to an HTTP endpoint for completions, and how they are read from its answer. Pure functions, no network.

Formats: `generic` (fields of our own), `openai` (chat completions), `anthropic` (messages), `openai_responses` (responses).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from learners.preference.endpoint_errors import UnreadableAnswerError
from llm_envs.types import ChatPrompt, Item

if TYPE_CHECKING:
    from learners.sampling import SamplingConfig

_ALIASES = {
    "generic": (),
    "openai": ("openai_chat", "chat"),
    "anthropic": ("anthropic_messages", "messages"),
    "openai_responses": ("responses", "codex"),
}
_LISTS = ("completions", "responses", "outputs", "choices")
_TEXTS = ("text", "content", "completion", "response")
_TEXT_BLOCKS = ("text", "output_text")
_SYSTEM = ("system", "developer")


def canonical_format(name: object) -> str:
    """The format that a name or alias stands for.

    Raises:
        ValueError: an unknown one; the known ones are listed.
    """
    wanted = name.strip().lower().replace("-", "_") if isinstance(name, str) else name
    for known, aliases in _ALIASES.items():
        if wanted == known or wanted in aliases:
            return known
    listed = ", ".join(
        repr(known) + (f" (also {', '.join(map(repr, aliases))})" if aliases else "") for known, aliases in _ALIASES.items()
    )
    raise ValueError(f"comparator_api_format must be one of {listed}, got {name!r}")


@dataclass(frozen=True)
class Query:
    """What one request asks for.

    Attributes:
        prompt: what the comparator reads; the messages of a `ChatPrompt` are sent as such where the format has messages.
        agent_idx: position of the agent that would act.
        item: the row that the prompt was made from.
        n: completions asked for.
    """

    prompt: str
    agent_idx: int
    item: Item | None
    n: int


def most_per_request(form: str, n: int, limit: int | None, names: Collection[str]) -> int:
    """Completions that one request may ask for.

    Args:
        form: name of the format.
        n: completions wanted in all.
        limit: most that the endpoint gives; None for any number.
        names: address and model of the endpoint: DeepSeek's gives one.
    """
    if form in ("anthropic", "openai_responses"):
        return 1
    if form == "openai" and any("deepseek" in name.lower() for name in names):
        return 1
    return min(n, limit or n)


def request_body(
    form: str, query: Query, sampling: SamplingConfig, model: str | None, extra: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The fields of a request in JSON's types.

    Args:
        form: name of the format.
        query: what is asked for.
        sampling: how the endpoint is to draw; `top_k` is a field of "generic" alone.
        model: name of the model.
        extra: merged last. Fields that are None then go, except from "generic".
    """
    if form == "generic":
        return _generic_body(query, sampling, model) | dict(extra or {})
    body = {"model": model} | _BODIES[form](query, sampling) | dict(extra or {})
    return {key: value for key, value in body.items() if value is not None}


def _generic_body(query: Query, sampling: SamplingConfig, model: str | None) -> dict[str, Any]:
    body = {
        "prompt": str(query.prompt),
        "agent_idx": query.agent_idx,
        "num_return_sequences": query.n,
        "max_new_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "batch_item": json_safe(query.item),
    }
    return body if model is None else body | {"model": model}


def _openai_body(query: Query, sampling: SamplingConfig) -> dict[str, Any]:
    return {
        "messages": _messages(query.prompt),
        "n": query.n,
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }


def _anthropic_body(query: Query, sampling: SamplingConfig) -> dict[str, Any]:
    """System messages have a field of their own there. Of temperature and top_p, newer models take one only.

    So the one that is 1, which changes nothing and is what the interface assumes, is left out.
    """
    messages = _messages(query.prompt)
    conversation = [message for message in messages if message["role"] not in _SYSTEM]
    system = "\n\n".join(message["content"] for message in messages if message["role"] in _SYSTEM)
    if not conversation:
        conversation, system = [{"role": "user", "content": system}], ""
    nucleus = sampling.top_p < 1
    return {
        "max_tokens": sampling.max_new_tokens,
        "system": system or None,
        "messages": [{"role": message["role"], "content": message["content"]} for message in conversation],
        "temperature": None if nucleus and sampling.temperature == 1 else sampling.temperature,
        "top_p": sampling.top_p if nucleus else None,
    }


def _responses_body(query: Query, sampling: SamplingConfig) -> dict[str, Any]:
    return {
        "input": _messages(query.prompt) if isinstance(query.prompt, ChatPrompt) else query.prompt,
        "max_output_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }


_BODIES: dict[str, Callable[[Query, SamplingConfig], dict[str, Any]]] = {
    "openai": _openai_body,
    "anthropic": _anthropic_body,
    "openai_responses": _responses_body,
}


def _messages(prompt: str) -> list[dict[str, Any]]:
    if isinstance(prompt, ChatPrompt):
        return [json_safe(message) for message in prompt.messages]
    return [{"role": "user", "content": prompt}]


def json_safe(value: Any) -> Any:
    """The value in JSON's types: sets as sorted lists, keys as texts, NaN and infinities as null, other things as text."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_safe(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(entry) for entry in value]
    if isinstance(value, (set, frozenset)):
        return sorted((json_safe(entry) for entry in value), key=repr)  # the same request in every process
    return str(value)


def read_texts(form: str, answer: object, response_field: str) -> list[str]:
    """The completions in an answer, at least one. All text blocks of a message are joined; entries without text are left out.

    Args:
        form: name of the format.
        answer: what the JSON of the answer says.
        response_field: where "generic" looks first: keys and positions joined with dots.

    Raises:
        UnreadableAnswerError: there is none.
    """
    if form == "generic":
        texts = _generic_texts(answer, response_field)
    elif form == "openai":
        texts = [_choice_text(choice) for choice in _listed(answer, "choices")]
    elif form == "anthropic":
        texts = [_joined(_listed(answer, "content"))]
    else:
        messages = [_listed(output, "content") for output in _listed(answer, "output")]
        texts = [_joined([block for blocks in messages for block in blocks])]
    found = [_whole(text) for text in texts if text is not None]
    if not found:
        raise UnreadableAnswerError("the answer holds no completion")
    return found


def _whole(text: str) -> str:
    """The text with U+FFFD for halves of characters: JSON can hold them, a tokenizer refuses them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _generic_texts(answer: object, response_field: str) -> list[str | None]:
    found = _at_path(answer, response_field.split("."))
    if found is None and isinstance(answer, Mapping):
        found = next((answer[key] for key in _LISTS if answer.get(key) is not None), None)
    if found is None and isinstance(answer, list):
        found = answer
    return [_entry_text(entry) for entry in (found if isinstance(found, list) else [found])]


def _at_path(node: object, path: Sequence[str]) -> object:
    for part in path:
        if isinstance(node, Mapping):
            node = node.get(part)
        elif isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
        else:
            return None
    return node


def _entry_text(entry: object) -> str | None:
    if not isinstance(entry, Mapping):
        return _joined(entry)
    for key in _TEXTS:
        text = _joined(entry.get(key))
        if text is not None:
            return text
    message = entry.get("message")
    return _joined(message.get("content")) if isinstance(message, Mapping) else None


def _choice_text(choice: object) -> str | None:
    if not isinstance(choice, Mapping):
        return None
    message = choice.get("message")
    text = _joined(message.get("content")) if isinstance(message, Mapping) else None
    return text if text is not None else _joined(choice.get("text"))


def _joined(content: object) -> str | None:
    """A text, or the text blocks of a list in one; None if there is no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    blocks = [block.get("text") for block in content if isinstance(block, Mapping) and block.get("type") in _TEXT_BLOCKS]
    texts = [text for text in blocks if isinstance(text, str)]
    return "".join(texts) if texts else None


def _listed(node: object, key: str) -> list[object]:
    value = node.get(key) if isinstance(node, Mapping) else None
    return value if isinstance(value, list) else []
