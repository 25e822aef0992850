"""Between foreign spaces and text: what an agent reads of an observation, and what is played of a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from gymnasium import spaces

from llm_envs.spaces import UnicodeText
from llm_envs.types import AgentID

ToPrompt: TypeAlias = Callable[[AgentID, Any], str]
"""Foreign agent and observation → what the agent reads."""

ToAction: TypeAlias = Callable[[AgentID, str], Any]
"""Foreign agent and what it wrote → the action to play."""

_AGENT_NAME = re.compile(r"[a-z]+_[0-9]+")


def our_names(foreign: Sequence[AgentID]) -> dict[AgentID, AgentID]:
    """Our name of each foreign agent: its own if all are of the form `<role>_<number>`, else `agent_0` and so on."""
    if all(isinstance(name, str) and _AGENT_NAME.fullmatch(name) for name in foreign):
        return {name: name for name in foreign}
    return {name: f"agent_{number}" for number, name in enumerate(foreign)}


def text_key(space: spaces.Space, agent: AgentID) -> str | None:
    """Where the text stands in observations of this space: a key of a Dict, or None if the observation is the text.

    Raises:
        ValueError: naming agent and space, for a space without a text or with several of which none is called `prompt`.
    """
    if isinstance(space, spaces.Text):
        return None
    texts = [key for key, inner in space.spaces.items() if isinstance(inner, spaces.Text)] if isinstance(space, spaces.Dict) else []
    if "prompt" in texts:
        return "prompt"
    if len(texts) != 1:
        raise ValueError(
            f"the observation space of {agent} has {len(texts)} texts, so what does it read? Give to_prompt: {space!r:.300}"
        )
    return texts[0]


class TextOf:
    """The default `to_prompt`: the text of an observation.

    Args:
        space_of: foreign agent → its observation space.
        agents: the foreign agents.
    """

    def __init__(self, space_of: Callable[[AgentID], spaces.Space], agents: Sequence[AgentID]) -> None:
        self._keys = {agent: text_key(space_of(agent), agent) for agent in agents}

    def __call__(self, agent: AgentID, observation: Any) -> str:
        """What the agent reads."""
        key = self._keys[agent]
        return str(observation if key is None else observation[key])


class AsText:
    """The default `to_action`: the text without what the action space has no characters for, cut to its length.

    Args:
        space_of: foreign agent → its action space.
        agents: the foreign agents.

    Raises:
        ValueError: naming agent and space, for one whose actions are no texts.
    """

    def __init__(self, space_of: Callable[[AgentID], spaces.Space], agents: Sequence[AgentID]) -> None:
        self._limits: dict[AgentID, tuple[int, frozenset[str] | None]] = {}
        for agent in agents:
            space = space_of(agent)
            if not isinstance(space, spaces.Text):
                raise ValueError(f"the actions of {agent} are no texts: {space!r:.300}. Give to_action, which makes one of a text")
            # Ours has all of Unicode, which nobody wants to list.
            characters = None if isinstance(space, UnicodeText) else frozenset(space.character_set)
            self._limits[agent] = (space.max_length, characters)

    def __call__(self, agent: AgentID, text: str) -> str:
        """The action to play."""
        limit, characters = self._limits[agent]
        kept = text if characters is None else "".join(character for character in text if character in characters)
        return kept[:limit]


def plain(info: Mapping[str, Any] | None) -> dict[str, Any]:
    """The numbers and texts of a foreign info."""
    return {str(key): value for key, value in (info or {}).items() if isinstance(value, (bool, int, float, str))}
