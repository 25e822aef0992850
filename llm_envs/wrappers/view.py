"""What the views share: a PettingZoo environment of arrays around one of texts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from llm_envs.env import BranchingEnv, Infos
from llm_envs.types import AgentID, Rendering
from llm_envs.wrappers.tokens import Vocabulary, checked_length

Returned = tuple[dict[AgentID, Any], dict[AgentID, float], dict[AgentID, bool], dict[AgentID, bool], Infos]
"""What a step returns."""


class View(ParallelEnv[AgentID, Any, Any]):
    """A parallel environment of arrays that plays an environment of texts.

    A subclass sets `observation_spaces` and `action_spaces`, gives `observe` and `text_of`, and lists `ParallelEnv` as a base of
    its own (some libraries look for it there). It is an environment of its own, so `unwrapped` gives itself. It plays a copy of the
    environment it is given: two views of one environment do not meet.

    Args:
        env: a task's, or a wrapper around one.
        vocabulary: of the ids in observations and state.
        max_state_tokens: the newest ids of `env.state()` that `state()` holds.
    """

    observation_spaces: dict[AgentID, spaces.Space]
    action_spaces: dict[AgentID, spaces.Space]

    def __init__(self, env: BranchingEnv, vocabulary: Vocabulary, max_state_tokens: int) -> None:
        if not isinstance(env, BranchingEnv):
            raise TypeError(f"{type(self).__name__} is a view of a BranchingEnv (a task's, or a wrapper), got {env!r}")
        self.env = copy.copy(env)
        self.vocabulary = vocabulary
        self.metadata = {**env.metadata, "name": f"{type(self).__name__}({env})"}
        self.possible_agents = list(env.possible_agents)
        self.agents: list[AgentID] = []
        self.num_turns = env.num_turns
        self.render_mode = env.render_mode
        self.max_state_tokens = checked_length("max_state_tokens", max_state_tokens)
        self.state_space = vocabulary.space(self.max_state_tokens)

    def __copy__(self) -> View:
        # The copy plays on its own from here, as the copy of an environment does.
        twin = object.__new__(type(self))
        twin.__dict__.update({**self.__dict__, "env": copy.copy(self.env), "agents": list(self.agents)})
        return twin

    # ---- what a subclass gives ----

    def observe(self, agent: AgentID) -> Any:
        """What the agent sees now, as a new object."""
        raise NotImplementedError

    def text_of(self, agent: AgentID, action: Any) -> str:
        """The completion that an action of the agent stands for.

        Raises:
            TypeError, ValueError: for an action that is none.
        """
        raise NotImplementedError

    def on_new_prompts(self) -> None:
        """Called when the agents have new prompts, before they see them."""

    def step_infos(self, agent: AgentID, text: str) -> dict[str, Any]:
        """What a turn's info says of the agent's action."""
        return {"completion": text}

    # ---- the PettingZoo face ----

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[dict[AgentID, Any], Infos]:
        """Start an episode; as `BranchingEnv.reset`."""
        self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        self.on_new_prompts()
        return {agent: self.observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[AgentID, Any]) -> Returned:
        """Play one turn.

        Returns:
            As `BranchingEnv.step`, observations as arrays; infos have the text that each agent wrote as `completion`.

        Raises:
            RuntimeError: before a reset or after the end.
            TypeError, ValueError: for actions that are none, or not those of the agents.
        """
        self.require_actions(actions)
        return self.play({agent: self.text_of(agent, actions[agent]) for agent in self.possible_agents})

    def require_actions(self, actions: Mapping[AgentID, Any]) -> None:
        """Refuse a step that cannot be.

        Raises:
            RuntimeError: before a reset or after the end.
            ValueError: if the actions are not those of the agents.
        """
        if not self.agents:
            raise RuntimeError("step needs a running episode: call reset() first")
        if set(actions) != set(self.possible_agents):
            raise ValueError(f"actions must name {', '.join(self.possible_agents)}, got {', '.join(map(str, actions)) or 'none'}")

    def play(self, texts: Mapping[AgentID, str]) -> Returned:
        """Play a turn of texts; see `step`."""
        said = {agent: self.step_infos(agent, text) for agent, text in texts.items()}
        _, rewards, terminations, truncations, infos = self.env.step(texts)
        self.agents = list(self.env.agents)
        if not self.env.snapshot().terminated:  # after a termination everybody sees what it read last
            self.on_new_prompts()
        observations = {agent: self.observe(agent) for agent in self.possible_agents}
        return observations, rewards, terminations, truncations, {agent: {**infos[agent], **said[agent]} for agent in infos}

    def prompt(self, agent: AgentID) -> str:
        """What the agent reads now, as text."""
        return self.env.snapshot().observations[agent]

    def state(self) -> NDArray[np.float32]:  # type: ignore[override]  # of float32, as `state_space` says
        """[max_state_tokens] the newest ids of the state as text, padded in front; also after the end."""
        return self.vocabulary.newest(self.env.state(), self.max_state_tokens)

    def render(self) -> Rendering | None:
        """As the wrapped environment."""
        return self.env.render()

    def close(self) -> None:
        """Nothing is held open."""

    def observation_space(self, agent: AgentID) -> spaces.Space:
        """The agent's observation space, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: AgentID) -> spaces.Space:
        """The agent's action space, always the same object."""
        return self.action_spaces[agent]
