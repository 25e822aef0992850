"""A Gymnasium environment of one agent: a role whose partners have policies, or a whole team as one writer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium

from llm_envs.env import BranchingEnv
from llm_envs.types import Rendering
from llm_envs.wrappers.view import View


class SingleAgentEnv(gymnasium.Env[Any, Any]):
    """A one-agent environment behind `gymnasium.Env`, with the same spaces, rewards and ends.

    `FixedPartners(env, policies)` leaves one role of a team, `JointAgent(env)` makes one agent of it, and a view around either
    gives arrays: `SingleAgentEnv(TokenView(FixedPartners(env, {"critic_0": policy})))`.

    Args:
        env: an environment of texts or a view. A copy of it is played.

    Raises:
        TypeError: for something else.
        ValueError: if it has another number of agents than one.
    """

    def __init__(self, env: BranchingEnv | View) -> None:
        if not isinstance(env, (BranchingEnv, View)):
            raise TypeError(f"SingleAgentEnv needs a BranchingEnv or a view of one, got {env!r}")
        if len(env.possible_agents) != 1:
            names = ", ".join(env.possible_agents)
            raise ValueError(f"SingleAgentEnv needs one agent, got {names}: FixedPartners or JointAgent leaves one")
        self.env = copy.copy(env)
        (self.agent,) = env.possible_agents
        self.metadata = {**env.metadata, "render_fps": 1}  # gymnasium warns without one, also for text
        self.render_mode = env.render_mode
        self.observation_space = env.observation_space(self.agent)
        self.action_space = env.action_space(self.agent)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; as `BranchingEnv.reset`, of the one agent."""
        # gymnasium's own stream is seeded as its checker asks; nothing is drawn from it.
        super().reset(seed=seed)
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations[self.agent], infos[self.agent]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one turn; as `BranchingEnv.step`, of the one agent."""
        observations, rewards, terminations, truncations, infos = self.env.step({self.agent: action})
        agent = self.agent
        return observations[agent], rewards[agent], terminations[agent], truncations[agent], infos[agent]

    def state(self) -> Any:
        """What a critic may read, partners' texts included: text, or ids of a view."""
        return self.env.state()

    def render(self) -> Rendering | None:  # type: ignore[override]  # gymnasium knows lists of frames as well
        """The episode so far, as the environment inside draws it."""
        return self.env.render()
