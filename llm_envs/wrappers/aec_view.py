"""Turn-based play (PettingZoo's AEC): the agents of a turn act one after the other, not knowing what the others have written."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from pettingzoo import AECEnv

from llm_envs.env import BranchingEnv, Infos
from llm_envs.types import AgentID, Rendering
from llm_envs.wrappers.view import View


class AECView(AECEnv[AgentID, Any, Any]):
    """A turn-based environment over one in which all agents act at once.

    The agents act in the order of `possible_agents`; the turn is played with the last one's action, which brings every agent's
    reward. So right after an agent's step `rewards` has nothing for what it did, except for the last agent; `last()` has it when it
    is the agent's turn again, or when the agent is told of the end.

    What PettingZoo's `parallel_to_aec` does otherwise: its `unwrapped` is the parallel environment inside; its `observation_spaces`
    and `action_spaces` warn; observations are the same object each time; it plays the very environment it is given.

    Args:
        env: an environment of texts or a view. A copy of it is played.
        infos: whether to hand infos on. Without, they are empty: Tianshou's trainer stops at entries that some steps have and
            others (here those before the first turn is over) have not.

    Raises:
        TypeError: for something else.
    """

    rewards: dict[AgentID, float]
    infos: Infos

    def __init__(self, env: BranchingEnv | View, *, infos: bool = True) -> None:
        super().__init__()
        if not isinstance(env, (BranchingEnv, View)):
            raise TypeError(f"AECView needs a BranchingEnv or a view of one (PettingZoo converts others), got {env!r}")
        self.env = copy.copy(env)
        self.hands_infos_on = infos
        self.metadata = {**env.metadata, "name": f"AECView({env})"}
        self.possible_agents = list(env.possible_agents)
        self.agents: list[AgentID] = []
        self.num_turns = env.num_turns
        self.render_mode = env.render_mode
        self.observation_spaces: dict[AgentID, spaces.Space[Any]] = dict(env.observation_spaces)
        self.action_spaces: dict[AgentID, spaces.Space[Any]] = dict(env.action_spaces)
        if isinstance(env, View):
            self.state_space = env.state_space
        self._observations: dict[AgentID, Any] = {}
        self._chosen: dict[AgentID, Any] = {}  # in this turn, by those who have acted

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:  # type: ignore[override]
        """Start an episode; as `BranchingEnv.reset`, returning nothing."""
        self._observations, self.infos = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        self.agent_selection = self.agents[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._chosen = {}

    def step(self, action: Any) -> None:
        """Take the action of `agent_selection`; None for one whose episode is over.

        Raises:
            RuntimeError: before a reset or after the end.
            TypeError, ValueError: with the turn's last action, if one of them is none.
        """
        if not self.agents:
            raise RuntimeError("step needs a running episode: call reset() first")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if not self._chosen:
            self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards[agent] = 0.0  # `last` has told the agent of it
        self._chosen[agent] = action
        if len(self._chosen) == len(self.agents):
            self._play()
        else:
            self.agent_selection = self._after(agent)

    def observe(self, agent: AgentID) -> Any:
        """What the agent sees now, as a new object."""
        return copy.deepcopy(self._observations[agent])

    def state(self) -> Any:
        """The state of the turns played, as text or a view's ids: nothing of the turn that is being written."""
        return self.env.state()

    def render(self) -> Rendering | None:
        """As the environment inside."""
        return self.env.render()

    def close(self) -> None:
        """Nothing is held open."""

    def observation_space(self, agent: AgentID) -> spaces.Space[Any]:
        """The agent's observation space, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: AgentID) -> spaces.Space[Any]:
        """The agent's action space, always the same object."""
        return self.action_spaces[agent]

    def __str__(self) -> str:
        return self.metadata["name"]

    def _after(self, agent: AgentID) -> AgentID:
        return self.agents[(self.agents.index(agent) + 1) % len(self.agents)]

    def _play(self) -> None:
        chosen, self._chosen = self._chosen, {}  # not kept if the turn cannot be played
        self.agent_selection = self.agents[0]
        self._observations, self.rewards, self.terminations, self.truncations, infos = self.env.step(chosen)
        self.infos = infos if self.hands_infos_on else {agent: {} for agent in infos}
        self._accumulate_rewards()
