"""From a row to what an agent reads: the calling contract of formatters, and the default one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from llm_envs.calling import SettledCall
from llm_envs.types import AgentID, ChatPrompt, Item

Formatter: TypeAlias = Callable[..., "str | Iterable[Mapping[str, str]]"]
"""`f(item)` or `f(item, external_prompts=...)`; returns a text or chat messages."""


def prompt_field(item: Item, external_prompts: str | None = None) -> str:
    """The row's `prompt`, or the external prompt where there is one: the default formatter."""
    return item["prompt"] if external_prompts is None else external_prompts


class Formatters:
    """One settled formatter for each agent.

    Args:
        formatters: None for `prompt_field`, one function for all agents, or one for each in order.
        agents: the agents.
    """

    def __init__(self, formatters: Formatter | Sequence[Formatter] | None, agents: Sequence[AgentID]) -> None:
        if formatters is None or callable(formatters):
            formatters = [formatters or prompt_field] * len(agents)
        if len(formatters) != len(agents):
            raise ValueError(f"formatters must be one function or one for each of {len(agents)} agents, got {len(formatters)}")
        self._calls: dict[AgentID, SettledCall] = {
            agent: SettledCall(f, role=f"formatter of {agent}", arguments=["the item"], keywords=["external_prompts"])
            for agent, f in zip(agents, formatters, strict=True)
        }

    def format(self, agent: AgentID, item: Item, item_index: int, external_prompt: str | None = None) -> str:
        """What the agent reads.

        Args:
            agent: who reads.
            item: the row, its `prompt` already replaced by an external one.
            item_index: for messages.
            external_prompt: given on from the transition, None at the start.

        Raises:
            ValueError: naming row, field and agent, if the row lacks a field or holds None for its prompt, or the result is no prompt.
        """
        call = self._calls[agent]
        keywords = {} if external_prompt is None and _has_default(call) else {"external_prompts": external_prompt}
        try:
            prompt = call([item], keywords)
        except KeyError as error:
            field = error.args[0] if error.args else "?"
            if field in item:
                raise
            raise ValueError(
                f"item {item_index} has no field {field!r}, which the {call.name} needs; its fields are {sorted(map(str, item))}"
            ) from error
        if prompt is None and call.function is prompt_field:
            raise ValueError(f"item {item_index}: its field 'prompt' is None, which {agent} would read; give it a text")
        return as_prompt(prompt, f"item {item_index}: what the {call.name} returns")


def _has_default(call: SettledCall) -> bool:
    # A formatter that requires `external_prompts` is told None on the first turn; one with a default keeps it.
    return "external_prompts" not in call.required


def as_prompt(prompt: Any, source: str) -> str:
    """The prompt as text: a `str` as it is, chat messages as a `ChatPrompt`.

    Raises:
        ValueError: naming `source`, if it is neither.
    """
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Sequence) and prompt and all(isinstance(message, Mapping) for message in prompt):
        return ChatPrompt(prompt)
    raise ValueError(f"{source} must be a text or chat messages, got {type(prompt).__name__}: {prompt!r}")
