"""Frozen policies that a KL penalty or a preference loss compares with: what each agent started from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from learners import losses
from learners.batching import sampled_logprobs
from learners.learner import TrainablePolicy
from learners.teams import Team
from llm_envs.types import AgentID, Completion


class References:
    """One frozen policy for each agent; agents that share weights share it.

    Args:
        teams: the agents by the weights they act with.
        devices: one device, or one for each agent in the teams' order; None puts each reference beside its agent.
        given: the references themselves; None copies the policies as they are now.

    Raises:
        ValueError: if a reference is the policy itself, or there are not as many devices as agents.
    """

    def __init__(
        self,
        teams: Sequence[Team],
        devices: str | Sequence[str] | None = None,
        given: Mapping[AgentID, TrainablePolicy] | None = None,
    ) -> None:
        policies = {agent: team.policy for team in teams for agent in team.agents}
        if given is None:
            self._by_agent = _copies(teams, _device_of_each(list(policies), devices))
            return
        if devices is not None:
            raise ValueError(f"reference_devices={devices!r} cannot apply to references that are built already")
        shared = [agent for agent, policy in policies.items() if given[agent] is policy]
        if shared:
            raise ValueError(f"the reference of {', '.join(shared)} is the policy itself, so their KL would always be 0")
        self._by_agent = {agent: given[agent] for agent in policies}

    @torch.no_grad()
    def kl(self, agent: AgentID, completions: Sequence[Completion]) -> list[float]:
        """[B] estimated KL of the agent's completions from its reference, nats: k3 at each token, summed over the completion.

        The policy's side are the log-probabilities taken when it sampled, so no pass through it is needed.
        """
        reference = self._by_agent[agent]
        result = [0.0] * len(completions)
        for rows in reference.micro_batches(completions):
            batch = [completions[row] for row in rows]
            scored = reference.logprobs(batch)
            own = sampled_logprobs(batch, scored.mask.shape[1], scored.logprobs.device)
            sums = losses.masked_sum(losses.reference_kl(own, scored.logprobs), scored.mask)
            for row, value in zip(rows, sums.tolist(), strict=True):
                result[row] = value
        return result

    @torch.no_grad()
    def logprobs(self, agent: AgentID, completions: Sequence[Completion]) -> list[float]:
        """[B] log-probabilities of whole completions under the agent's reference, nats, the end token included."""
        reference = self._by_agent[agent]
        result = [0.0] * len(completions)
        for rows in reference.micro_batches(completions):
            scored = reference.logprobs([completions[row] for row in rows])
            for row, value in zip(rows, losses.masked_sum(scored.logprobs, scored.mask).tolist(), strict=True):
                result[row] = value
        return result

    def state_dict(self) -> dict[str, Any]:
        """Weights of each distinct reference, by its first agent."""
        return {agent: reference.state_dict() for agent, reference in self._distinct().items()}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of other references; changes nothing.

        Raises:
            ValueError: naming what differs.
        """
        own = self._distinct()
        if list(own) != list(state):
            raise ValueError(f"the checkpoint holds references of {list(state)}, this learner has those of {list(own)}")
        for agent, reference in own.items():
            reference.check_state_dict(state[agent])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over weights in place."""
        self.check_state_dict(state)
        for agent, reference in self._distinct().items():
            reference.load_state_dict(state[agent])

    def _distinct(self) -> dict[AgentID, TrainablePolicy]:
        seen: dict[int, AgentID] = {}
        for agent, reference in self._by_agent.items():
            seen.setdefault(id(reference), agent)
        return {agent: self._by_agent[agent] for agent in seen.values()}


def _copies(teams: Sequence[Team], devices: Mapping[AgentID, str | None]) -> dict[AgentID, TrainablePolicy]:
    copies: dict[AgentID, TrainablePolicy] = {}
    for team in teams:
        copies.update(dict.fromkeys(team.agents, team.policy.reference(devices[team.agents[0]])))
    return copies


def _device_of_each(agents: Sequence[AgentID], devices: str | Sequence[str] | None) -> dict[AgentID, str | None]:
    if devices is None or isinstance(devices, str):
        return dict.fromkeys(agents, devices)
    if len(devices) != len(agents):
        raise ValueError(f"reference_devices must be one device or one for each of {len(agents)} agents, got {list(devices)}")
    return dict(zip(agents, devices, strict=True))
