"""From a row to what an agent reads: the calling contract of formatters, and the default one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from llm_envs.calling import FAILURES, SettledCall, owned
from llm_envs.spaces import clean_text, is_unicode
from llm_envs.types import AgentID, ChatPrompt, Item

Formatter: TypeAlias = Callable[..., "str | Sequence[Mapping[str, Any]]"]
"""`f(item)` or `f(item, external_prompts=...)`; returns a text or chat messages."""


def prompt_field(item: Item, external_prompts: str | None = None) -> str:
    """The row's `prompt`, or the external prompt where there is one: the default formatter."""
    return item["prompt"] if external_prompts is None else external_prompts


_STAND_IN = "314159265358979323846"  # no text has it by chance, and no change of case or quoting changes it


class Formatters:
    """One settled formatter for each agent.

    Args:
        formatters: None for `prompt_field`, one function for all agents, or one for each in order.
        agents: the agents.

    Raises:
        ValueError: for another number of them.
        TypeError: for one that cannot be called so.
    """

    def __init__(self, formatters: Formatter | Sequence[Formatter] | None, agents: Sequence[AgentID]) -> None:
        if formatters is None or callable(formatters):
            formatters = [formatters or prompt_field] * len(agents)
        if not isinstance(formatters, Sequence) or len(formatters) != len(agents):
            raise ValueError(f"formatters must be one function or one for each of {len(agents)} agents, got {formatters!r}")
        self._calls: dict[AgentID, SettledCall] = {
            agent: SettledCall(f, role=f"formatter of {agent}", arguments=["the item"], keywords=["external_prompts"])
            for agent, f in zip(agents, formatters, strict=True)
        }

    def format(self, agent: AgentID, item: Item, item_index: int, external_prompt: str | None = None) -> str:
        """What the agent reads.

        Args:
            agent: who reads.
            item: the row, its `prompt` already replaced by an external one. The formatter gets a copy.
            item_index: for messages.
            external_prompt: given on from the transition, None at the start.

        Raises:
            ValueError: naming row, field and agent, if the row lacks a field, the formatter fails or writes a field's None into the
                prompt, or its result is no prompt. The cause is kept.
        """
        call = self._calls[agent]
        # On the first turn a formatter's own default stands; one without a default is told None.
        told = external_prompt is not None or "external_prompts" in call.required
        keywords = {"external_prompts": external_prompt} if told else {}
        try:
            prompt = call([owned(item)], keywords)
        except FAILURES as error:
            missing = error.args[0] if isinstance(error, KeyError) and error.args else None
            if isinstance(missing, str) and missing not in item:
                fields = ", ".join(map(str, item))
                raise ValueError(
                    f"item {item_index} has no field {missing!r}, which the {call.name} needs; it has: {fields}"
                ) from error
            fields = ", ".join(repr(field) for field, value in item.items() if value is None)
            hint = f"; None in this row: {fields}" if fields else ""
            raise ValueError(f"{call.name} on item {item_index}: {type(error).__name__}: {error}{hint}") from error
        field = _written_none(call, item, keywords, prompt)
        if field is not None:
            raise ValueError(
                f"item {item_index}: the field {field!r}, which the {call.name} writes, is None; "
                "give it a text, or write something else in its place"
            )
        return as_prompt(prompt, f"item {item_index}: what the {call.name} returns")


def _written_none(call: SettledCall, item: Item, keywords: Mapping[str, Any], prompt: Any) -> str | None:
    """The field of the row whose None the formatter wrote into the prompt; None if there is no such field.

    Data libraries fill in None for missing fields, and a model must not read the text "None" for one. Whether a "None" comes from a
    field is seen by putting something else there.
    """
    if prompt is not None and "None" not in str(prompt):
        return None
    for field in [field for field, value in item.items() if value is None]:
        with contextlib.suppress(*FAILURES):  # else it does something other than writing this field
            if _STAND_IN in str(call([{**owned(item), field: _STAND_IN}], keywords)):
                return field
    return None


def as_prompt(prompt: Any, source: str) -> str:
    """The prompt as it is read: a plain `str`, or a `ChatPrompt` for chat messages, in either case one that UTF-8 can write.

    Raises:
        ValueError: naming `source`, if it is neither.
    """
    if isinstance(prompt, ChatPrompt):
        return prompt if is_unicode(prompt) else as_prompt(prompt.messages, source)
    if isinstance(prompt, str):
        return clean_text(prompt)
    if isinstance(prompt, Sequence) and prompt and all(isinstance(message, Mapping) for message in prompt):
        return ChatPrompt({k: clean_text(v) if isinstance(v, str) else v for k, v in message.items()} for message in prompt)
    raise ValueError(f"{source} must be a text or chat messages, got {type(prompt).__name__}: {prompt!r}")
