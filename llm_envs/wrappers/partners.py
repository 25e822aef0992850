"""Some agents learn while the others are played by policies that stay as they are."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

from pettingzoo import ParallelEnv

from llm_envs.env import BranchingEnv
from llm_envs.seeding import Path
from llm_envs.types import AgentID, Item, JointAction, Policy, State, Transition, Turn
from llm_envs.wrappers.base import Wrapper, inner_state

_Value = TypeVar("_Value")


class FixedPartners(Wrapper, ParallelEnv):  # type: ignore[misc]  # `state` is text
    """An environment of the agents that are not given a policy; the others write what their policies write.

    A partner draws from the path of the state as in a collected rollout, once for all joint actions taken there: siblings meet the
    same partners. Infos have each partner's text as `partner_completion/<agent>`, and the state as text shows what partners read
    and wrote.

    Args:
        env: what is wrapped. Any number of roles and turns.
        policies: of the partners; at least one agent is left.

    Raises:
        ValueError: for the policy of an agent there is not, or if no agent is left.
        TypeError: for something that is no policy.
    """

    def __init__(self, env: BranchingEnv, policies: Mapping[AgentID, Policy]) -> None:
        names = list(env.possible_agents) if isinstance(env, BranchingEnv) else []
        left = [agent for agent in names if agent not in policies]
        super().__init__(env, agents=left or names)
        unknown = [agent for agent in policies if agent not in names]
        if unknown or not left:
            reason = f"there is no agent {unknown[0]!r}" if unknown else "nobody is left to learn"
            raise ValueError(f"{reason}: the agents are {', '.join(names)}, with policies for {', '.join(map(str, policies))}")
        for agent, policy in policies.items():
            if not isinstance(policy, Policy):
                raise TypeError(f"the policy of {agent} must have generate(prompts, n, keys), got {policy!r}")
        self.policies = dict(policies)
        # Each text is one agent's, as inside; the base makes room for everybody's.
        self.max_prompt_length, self.max_completion_length = env.max_prompt_length, env.max_completion_length
        self.observation_spaces = {agent: copy.deepcopy(env.observation_spaces[agent]) for agent in left}
        self.action_spaces = {agent: copy.deepcopy(env.action_spaces[agent]) for agent in left}

    def initial(self, item: Item, key: Path, item_index: int = -1) -> State:
        """The state an episode on this row starts from."""
        inner = self.env.initial(item, key, item_index)
        return dataclasses.replace(inner, observations=self._own(inner.observations), inner=inner)

    def branch(self, state: State, joint_actions: Sequence[JointAction]) -> list[Transition]:
        """What each of several joint actions leads to, with what the partners write."""
        actions = self.playable(state, joint_actions)
        if not actions:
            return []
        inner = inner_state(state)
        written = {agent: self._written(agent, policy, inner) for agent, policy in self.policies.items()}
        transitions = self.env.branch(inner, [{**action, **written} for action in actions])
        return [self._seen(state, transition, written) for transition in transitions]

    def _written(self, agent: AgentID, policy: Policy, inner: State) -> str:
        key = (*inner.key, self.env.possible_agents.index(agent))
        ((completion,),) = policy.generate([inner.observations[agent]], 1, [key])
        return completion.text

    def _seen(self, parent: State, transition: Transition, written: Mapping[AgentID, str]) -> Transition:
        inner = transition.state
        rewards = self._own(transition.rewards)
        turn = Turn(parent.observations, self._own(inner.history[-1].actions), rewards)
        state = dataclasses.replace(inner, observations=self._own(inner.observations), history=(*parent.history, turn), inner=inner)
        texts = {f"partner_completion/{agent}": text for agent, text in written.items()}
        return Transition(state, rewards, {agent: {**info, **texts} for agent, info in self._own(transition.infos).items()})

    def _own(self, values: Mapping[AgentID, _Value]) -> dict[AgentID, _Value]:
        return {agent: values[agent] for agent in self.possible_agents}
