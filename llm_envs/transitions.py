"""What happens between turns: the calling contract of external transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from llm_envs.calling import FAILURES, SettledCall, owned
from llm_envs.formatters import as_prompt
from llm_envs.types import AgentID, JointAction, State

ExternalTransition: TypeAlias = Callable[..., "Sequence[Any] | None"]
"""Called with keywords; returns one prompt for each agent, or None to end the episode."""

KEYWORDS = (
    "prompt",
    "agent_completions",
    "num_agents",
    "prompt_history_per_agent",
    "response_history_per_agent",
    "item",
    "rewards",
    "turn",
    "state",
)


class TransitionError(RuntimeError):
    """An external transition failed or returned something that is not one prompt for each agent."""


class Transitions:
    """An external transition, settled for a team.

    It is called once for each joint action with those of these keywords that it names: `prompt` (the row's), `agent_completions`
    (one text an agent), `num_agents`, `prompt_history_per_agent` and `response_history_per_agent` (what each agent really read and
    wrote, this turn included; lists of its own), `item` (a copy of the row), `rewards` (processed, one an agent), `turn` (the one
    just finished, from 1), `state` (the one acted from, whose `rng()` is the place for chance).

    Raises:
        TypeError: if it requires anything else.
    """

    def __init__(self, transition: ExternalTransition, agents: Sequence[AgentID]) -> None:
        self.agents = tuple(agents)
        self._call = SettledCall(transition, role="external transition", arguments=[], keywords=KEYWORDS)

    def __call__(self, state: State, action: JointAction, rewards: Mapping[AgentID, float]) -> list[str] | None:
        """One next prompt for each agent, None if the episode ends here.

        Raises:
            TransitionError: naming function, item and turn; the cause is kept.
        """
        keywords: dict[str, Any] = {
            "prompt": owned(state.item.get("prompt")),
            "agent_completions": [action[agent] for agent in self.agents],
            "num_agents": len(self.agents),
            "prompt_history_per_agent": [
                [turn.observations[agent] for turn in state.history] + [state.observations[agent]] for agent in self.agents
            ],
            "response_history_per_agent": [
                [turn.actions[agent] for turn in state.history] + [action[agent]] for agent in self.agents
            ],
            "item": owned(state.item),
            "rewards": [rewards[agent] for agent in self.agents],
            "turn": state.turn + 1,
            "state": state,
        }
        try:
            return self._checked(self._call([], keywords))
        except FAILURES as error:
            raise TransitionError(f"{self._call.name} on {state.place}: {type(error).__name__}: {error}") from error

    def _checked(self, prompts: Any) -> list[str] | None:
        if prompts is None:
            return None
        if isinstance(prompts, str) or not isinstance(prompts, Sequence) or len(prompts) != len(self.agents):
            raise ValueError(f"expected one prompt for each of {len(self.agents)} agents or None, got {prompts!r}")
        return [as_prompt(prompt, f"the prompt of {agent}") for agent, prompt in zip(self.agents, prompts, strict=True)]
