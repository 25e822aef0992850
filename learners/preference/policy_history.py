"""The team as it was some rounds ago: weights remembered on the CPU, and frozen copies that are given them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from learners.learner import TrainablePolicy
from llm_envs.types import AgentID


class PolicyHistory:
    """Copies of the team as it was `lag` rounds ago, or at the start until there are so many.

    Args:
        policies: of the team.
        copies: frozen ones of the same models, that are given the weights.
        lag: k, rounds back; 0 is the team as it begins the round, and 1 as it was before the last round's update.
    """

    def __init__(self, policies: Mapping[AgentID, TrainablePolicy], copies: Mapping[AgentID, TrainablePolicy], lag: int) -> None:
        self._policies = _distinct(policies)
        self._copies = {agent: copies[agent] for agent in self._policies}
        self._lag = lag
        self._rounds: list[dict[AgentID, dict[str, torch.Tensor]]] = []

    def begin_round(self, iteration: int) -> None:
        """Remember the team as it is, and make the copies what it was."""
        self._rounds = [*self._rounds, {agent: _on_cpu(policy.state_dict()) for agent, policy in self._policies.items()}]
        self._rounds = self._rounds[-(self._lag + 1) :]
        self._show()

    def _show(self) -> None:
        for agent, copy in self._copies.items():
            copy.load_state_dict(self._rounds[0][agent])

    def state_dict(self) -> dict[str, Any]:
        """The remembered weights."""
        return {"rounds": list(self._rounds)}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse weights of other models; changes nothing."""
        if "rounds" not in state:
            raise ValueError("the checkpoint's comparator was no copy of the team, so it remembers no weights; this one does")
        for weights in state["rounds"]:
            if set(weights) != set(self._copies):
                raise ValueError(f"the checkpoint remembers the agents {', '.join(weights)}, this run {', '.join(self._copies)}")
            for agent, copy in self._copies.items():
                copy.check_state_dict(weights[agent])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from remembered weights."""
        self.check_state_dict(state)
        self._rounds = [dict(weights) for weights in state["rounds"]]
        if self._rounds:
            self._show()


def _distinct(policies: Mapping[AgentID, TrainablePolicy]) -> dict[AgentID, TrainablePolicy]:
    first: dict[int, AgentID] = {}
    for agent, policy in policies.items():
        first.setdefault(id(policy), agent)
    return {agent: policies[agent] for agent in first.values()}


def _on_cpu(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
