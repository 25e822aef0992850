"""Agents grouped by the weights they act with: one team for each distinct policy, with its optimiser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from learners.config import TrainingConfig
from learners.learner import TrainablePolicy
from learners.optim import PolicyOptimizer
from llm_envs.types import AgentID


@dataclass(frozen=True)
class Team:
    """The agents that share one policy object, and the optimiser of its weights.

    Attributes:
        name: the agents' names, joined by "+"; the key of its entries in checkpoints and metrics.
        agents: in the env's order.
        policy: what they act with.
        optimizer: of the policy's trainable parameters.
    """

    name: str
    agents: tuple[AgentID, ...]
    policy: TrainablePolicy
    optimizer: PolicyOptimizer

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimiser."""
        return {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict()}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse weights or an optimiser's state that do not fit; changes nothing.

        Raises:
            ValueError: naming what differs.
        """
        self.policy.check_state_dict(state["policy"])
        self.optimizer.check_state_dict(state["optimizer"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore both, in place.

        Raises:
            ValueError: one of them does not fit; nothing is changed then.
        """
        self.check_state_dict(state)
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])


def teams_of(
    policies: Mapping[AgentID, TrainablePolicy],
    config: TrainingConfig,
    *,
    heads: Mapping[AgentID, Sequence[nn.Parameter]] | None = None,
    head_learning_rate: float | None = None,
) -> list[Team]:
    """One team for each distinct policy object, in the order of its first agent, each with a fresh optimiser.

    Args:
        policies: one for each agent.
        config: of the optimisers.
        heads: further parameters that are trained with an agent's policy.
        head_learning_rate: of the heads; None trains them at the policy's rate.
    """
    rate = config.agent_learning_rate if head_learning_rate is None else head_learning_rate
    teams = []
    for name, agents in sharing(policies).items():
        policy = policies[agents[0]]
        head = list(dict.fromkeys(parameter for agent in agents for parameter in (heads or {}).get(agent, ())))
        optimizer = optimizer_of(policy.parameters(), config, at_other_rates=[(head, rate)] if head else [])
        teams.append(Team(name, agents, policy, optimizer))
    return teams


def sharing(objects: Mapping[AgentID, object]) -> dict[str, tuple[AgentID, ...]]:
    """The agents that have the same object, by their names joined by "+", in the order of their first agents."""
    members: dict[int, list[AgentID]] = {}
    for agent, value in objects.items():
        members.setdefault(id(value), []).append(agent)
    return {"+".join(agents): tuple(agents) for agents in members.values()}


def optimizer_of(
    parameters: Iterable[nn.Parameter],
    config: TrainingConfig,
    *,
    learning_rate: float | None = None,
    at_other_rates: Sequence[tuple[Iterable[nn.Parameter], float]] = (),
) -> PolicyOptimizer:
    """AdamW over parameters, as the config says; at `agent_learning_rate` unless another rate is given."""
    return PolicyOptimizer(
        parameters,
        learning_rate=config.agent_learning_rate if learning_rate is None else learning_rate,
        at_other_rates=at_other_rates,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        lr_scheduler_type=config.lr_scheduler_type,
        warmup_steps=config.warmup_steps,
        lr_decay_steps=config.lr_decay_steps,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
    )


def check_same_teams(teams: list[Team], state: Mapping[str, Any]) -> None:
    """Refuse the saved state of other teams, before anything is changed.

    Raises:
        ValueError: naming what differs: the teams, their weights or their optimisers.
    """
    names = [team.name for team in teams]
    if names != list(state):
        raise ValueError(f"the checkpoint holds the teams {', '.join(state) or 'none'}, this learner has {', '.join(names)}")
    for team in teams:
        team.check_state_dict(state[team.name])
