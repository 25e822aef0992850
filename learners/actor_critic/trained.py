"""What an actor-critic learner trains: actors, critics, their optimisers. How they are stored and stepped together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from learners.actor_critic.critic import Critic
from learners.optim import PolicyOptimizer, flush_together
from learners.references import References
from learners.teams import Team, check_same_teams


@dataclass(frozen=True)
class Trained:
    """Everything of a learner that has weights.

    Attributes:
        teams: the actors with their optimisers.
        critics: by name, each once.
        critic_optimizers: of critics with models of their own, by the same names; empty for heads on actors, which the teams train.
        references: of the KL penalty; None without one.

    Raises:
        ValueError: if two optimisers would train the same weights.
    """

    teams: Sequence[Team]
    critics: Mapping[str, Critic]
    critic_optimizers: Mapping[str, PolicyOptimizer]
    references: References | None

    def __post_init__(self) -> None:
        actors = {team.name: team.optimizer for team in self.teams}
        critics = {f"{name}'s critic": optimizer for name, optimizer in self.critic_optimizers.items()}
        trained_by: dict[int, str] = {}
        for name, optimizer in (actors | critics).items():
            for parameter in optimizer.parameters:
                other = trained_by.setdefault(id(parameter), name)
                if other != name:
                    raise ValueError(f"{other} and {name} have weights in common: give each its own, or share the whole object")

    def optimizers(self) -> dict[str, PolicyOptimizer]:
        """All, by the name their gradient norm is logged under."""
        actors = {f"{team.name}/grad_norm": team.optimizer for team in self.teams}
        return actors | {f"{name}/critic_grad_norm": optimizer for name, optimizer in self.critic_optimizers.items()}

    def optimizers_of_critics(self) -> dict[str, PolicyOptimizer]:
        """Those that train critics: the actors' own where the critics are heads on them."""
        critics = {f"{name}/critic_grad_norm": optimizer for name, optimizer in self.critic_optimizers.items()}
        return critics or self.optimizers()

    def flush(self) -> None:
        """Update with what is in unfinished accumulation windows."""
        flush_together(list(self.optimizers().values()))

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimisers as a tree of tensors and plain values."""
        return {
            "teams": {team.name: team.state_dict() for team in self.teams},
            "critics": {name: critic.state_dict() for name, critic in self.critics.items()},
            "critic_optimizers": {name: optimizer.state_dict() for name, optimizer in self.critic_optimizers.items()},
            "references": {} if self.references is None else self.references.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over weights and optimisers in place.

        Raises:
            ValueError: if they belong to other agents, models or critics; nothing is changed then.
        """
        self._check_state_dict(state)
        for team in self.teams:
            team.load_state_dict(state["teams"][team.name])
        for name, critic in self.critics.items():
            critic.load_state_dict(state["critics"][name])
        for name, optimizer in self.critic_optimizers.items():
            optimizer.load_state_dict(state["critic_optimizers"][name])
        if self.references is not None:
            self.references.load_state_dict(state["references"])

    def _check_state_dict(self, state: Mapping[str, Any]) -> None:
        check_same_teams(list(self.teams), state["teams"])
        for part, own in (("critics", self.critics), ("critic_optimizers", self.critic_optimizers)):
            if list(own) != list(state[part]):
                theirs = ", ".join(state[part]) or "none"
                raise ValueError(f"the checkpoint holds the {part} {theirs}, this learner has {', '.join(own) or 'none'}")
            for name, trained in own.items():
                trained.check_state_dict(state[part][name])
        if self.references is not None:
            self.references.check_state_dict(state["references"])
