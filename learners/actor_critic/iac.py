"""IAC, independent actor-critic: every agent has a critic of its own, which reads what the agent read (and wrote).

    δ_t = r_t + γ V(h_{t+1}) − V(h_t)      actor: −δ_t Σ log π(a_t | h_t)      critic: (y_t − V(h_t))²

Source: Foerster et al., arXiv:1705.08926 (IAC); for language models arXiv:2601.21972. `docs/algorithms.md` lists the details.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from learners import losses
from learners.actor_critic.buffers import Buffers
from learners.actor_critic.collecting import Ids, chain_samples, truncated_ends, values_of
from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.critic import Critic, critic_optimizer
from learners.actor_critic.samples import Sample, turn_metrics, update_metrics
from learners.actor_critic.updating import accumulate_actor, accumulate_critic, unclipped
from learners.chains import chains
from learners.config import require_int, require_number
from learners.credit import means
from learners.learner import TrainablePolicy
from learners.optim import PolicyOptimizer
from learners.references import References
from learners.teams import Team, check_same_teams, teams_of
from llm_envs.rollouts import map_in_order
from llm_envs.seeding import PLAY
from llm_envs.types import AgentID, Completion, EnvStep, Metrics, RolloutSpec


@dataclass(frozen=True, kw_only=True)
class IACConfig(ActorCriticConfig):
    """Options of IAC.

    Attributes:
        use_separate_critic: True gives each agent a critic model of its own; False puts a value head on the actor.
        value_head_hidden_dim: width of a layer inside a head on an actor; None is linear.
        value_clip_range: ε by which a value on an actor may move from its value at collection before its error is the larger of the
            two; None does not clip. Separate critics are never clipped.
    """

    use_separate_critic: bool = True
    value_head_hidden_dim: int | None = None
    value_clip_range: float | None = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_int("value_head_hidden_dim", self.value_head_hidden_dim, 1, optional=True)
        require_number("value_clip_range", self.value_clip_range, above=0, optional=True)


class IAC:
    """Independent actor-critic. It fills each agent's buffer with samples and updates every agent when they are full.

    Args:
        policies: one for each agent, in order.
        critics: one for each agent. With `use_separate_critic=False` they are heads on the agents' own models.
        config: of the learner.
        references: frozen policies for the KL penalty; None makes them of the policies as they are now.
        executor: updates agents with weights of their own at once.

    Raises:
        ValueError: critics of other agents, or of the other kind than the config says.
    """

    config_class: ClassVar[type[IACConfig]] = IACConfig

    def __init__(
        self,
        policies: Mapping[AgentID, TrainablePolicy],
        critics: Mapping[AgentID, Critic],
        config: IACConfig | None = None,
        *,
        references: Mapping[AgentID, TrainablePolicy] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.policies = dict(policies)
        self.critics = dict(critics)
        self.config = self.config_class() if config is None else config
        self.rollout: RolloutSpec = self.config.rollout
        self._executor = executor
        _check_critics(self.policies, self.critics, self.config.use_separate_critic)
        heads = {} if self.config.use_separate_critic else {a: critic.head_parameters() for a, critic in self.critics.items()}
        self._teams = teams_of(self.policies, self.config, heads=heads, head_learning_rate=self.config.value_head_learning_rate)
        self._critic_optimizers = (
            {agent: critic_optimizer(critic, self.config) for agent, critic in self.critics.items()}
            if self.config.use_separate_critic
            else {}
        )
        kl = self.config.reference_kl_enabled
        self._references = References(self._teams, self.config.reference_devices, references) if kl else None
        self._buffers = Buffers(list(self.policies), self.config)
        self._updates = 0

    @property
    def states_until_update(self) -> int:
        """States that can still be collected before the next update changes the policies."""
        return self._buffers.states_until_full

    def update(self, steps: Sequence[EnvStep]) -> list[Metrics]:
        """Fill the buffers with whole episodes, in order; step the optimisers after an episode that fills them.

        Raises:
            ValueError: for trees, through which no chain runs.
            FloatingPointError: if a value, target, loss or gradient is not finite; the weights are untouched then.
        """
        found = chains(steps)
        by_agent = {agent: self._samples(agent, found) for agent in self.policies}
        metrics: list[Metrics] = []
        for _ in self._buffers.fill(found, by_agent):
            metrics.extend(self._drain())
        return metrics

    def flush(self) -> list[Metrics]:
        """Update on what is left in the buffers and in unfinished accumulation windows: the end of an epoch."""
        metrics = self._drain() if len(self._buffers) else []
        for optimizer in self._optimizers():
            optimizer.flush()
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimisers, critics, references, buffers and counters, as a tree of tensors and plain values."""
        return {
            "teams": {team.name: team.state_dict() for team in self._teams},
            "critics": {agent: critic.state_dict() for agent, critic in self.critics.items()},
            "critic_optimizers": {agent: optimizer.state_dict() for agent, optimizer in self._critic_optimizers.items()},
            "references": {} if self._references is None else self._references.state_dict(),
            "buffers": self._buffers.state_dict(),
            "updates": self._updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, bit for bit.

        Raises:
            ValueError: if it belongs to other agents, models or critics; nothing is changed then.
        """
        check_same_teams(self._teams, state["teams"])
        for agent, critic in self.critics.items():
            critic.check_state_dict(state["critics"][agent])
        if self._references is not None:
            self._references.check_state_dict(state["references"])
        for team in self._teams:
            team.load_state_dict(state["teams"][team.name])
        for agent, critic in self.critics.items():
            critic.load_state_dict(state["critics"][agent])
        for agent, optimizer in self._critic_optimizers.items():
            optimizer.load_state_dict(state["critic_optimizers"][agent])
        if self._references is not None:
            self._references.load_state_dict(state["references"])
        self._buffers.load_state_dict(state["buffers"])
        self._updates = state["updates"]

    def save_critics(self, directory: Path) -> None:
        """Write `agent_<i>/critic/` folders; a head on an actor goes into the actor's own folder."""
        for index, critic in enumerate(self.critics.values()):
            critic.save(directory / f"agent_{index}" / ("critic" if critic.owns_model else ""))

    # ---- what a critic reads ----

    def _samples(self, agent: AgentID, found: Sequence[Sequence[EnvStep]]) -> list[list[Sample]]:
        critic = self.critics[agent]
        steps = [step for chain in found for step in chain]
        reads = self._reads(agent, [(step.prompts[agent], step.completions[agent]) for step in steps])
        ends = truncated_ends(found)
        beyond = iter(values_of(critic, self._reads_beyond(agent, [step for step in ends if step is not None])))
        bootstraps = [0.0 if step is None else next(beyond) for step in ends]
        return chain_samples(agent, found, reads, values_of(critic, reads), bootstraps, self._references, self.config)

    def _reads(self, agent: AgentID, turns: Sequence[tuple[str, Completion]]) -> list[Ids]:
        """Ids for each turn: the prompt's, and with a Q critic the completion's behind them.

        A critic with the agent's tokenizer is given the ids that were sampled; another one reads the text in its own.
        """
        critic, with_action = self.critics[agent], self.config.critic_type == "q"
        if critic.shares_tokenizer(self.policies[agent]):
            return [critic.newest(turn.prompt_ids + (turn.token_ids if with_action else ())) for _, turn in turns]
        return critic.encode([f"{prompt}\n\n{turn.text}" if with_action else str(prompt) for prompt, turn in turns])

    def _reads_beyond(self, agent: AgentID, ends: Sequence[EnvStep]) -> list[Ids]:
        """Ids for the states behind truncated turns. A Q critic needs an action there: one is drawn, on a stream of its own."""
        prompts = [step.next_prompts[agent] for step in ends if step.next_prompts is not None]
        if not prompts:
            return []
        index = list(self.policies).index(agent)
        keys = [(self.config.seed, PLAY, step.env_step, index) for step in ends]
        drawn = self.policies[agent].generate(prompts, 1, keys)
        return self._reads(agent, [(prompt, group[0]) for prompt, group in zip(prompts, drawn, strict=True)])

    # ---- update ----

    def _drain(self) -> list[Metrics]:
        drained = self._buffers.drain()
        trained = means([self._train(batch) for batch in self._buffers.mini_batches(drained, self._updates)])
        self._updates += 1
        return [*turn_metrics(drained, self.config.reference_kl_coef), update_metrics(drained, trained)]

    def _train(self, batch: Mapping[AgentID, Sequence[Sample]]) -> dict[str, float]:
        """One mini-batch: all gradients first, then all steps, so that a loss that fails changes no weights."""
        try:
            parts = map_in_order(lambda team: self._accumulate(team, batch), self._teams, self._executor)
        except FloatingPointError:
            for optimizer in self._optimizers():
                optimizer.discard()
            raise
        values = {name: value for part in parts for name, value in part.items()}
        for team in self._teams:
            if self._trains_actors or not self.config.use_separate_critic:
                values.update(_named(f"{team.name}/grad_norm", team.optimizer.step()))
        for name, optimizer in self._critic_optimizers.items():
            values.update(_named(f"{name}/critic_grad_norm", optimizer.step()))
        return values

    @property
    def _trains_actors(self) -> bool:
        return self._updates >= self.config.critic_warmup_updates

    def _accumulate(self, team: Team, batch: Mapping[AgentID, Sequence[Sample]]) -> dict[str, float]:
        values: dict[str, float] = {}
        if self._trains_actors:
            values[f"{team.name}/loss"] = accumulate_actor(team.policy, team.optimizer, [batch[agent] for agent in team.agents])
        for agent in team.agents:
            optimizer = self._critic_optimizers[agent] if self.config.use_separate_critic else team.optimizer
            values[f"{agent}/value_loss"] = accumulate_critic(
                self.critics[agent], optimizer, batch[agent], self.config.value_loss_coef, self._value_loss()
            )
        return values

    def _value_loss(self):
        clip_range = self.config.value_clip_range
        if self.config.use_separate_critic or clip_range is None:
            return unclipped

        def clipped(values: Tensor, old_values: Tensor, targets: Tensor) -> Tensor:
            return losses.clipped_value_loss(values, old_values, targets, clip_range)

        return clipped

    def _optimizers(self) -> list[PolicyOptimizer]:
        return [*(team.optimizer for team in self._teams), *self._critic_optimizers.values()]


def _check_critics(policies: Mapping[AgentID, TrainablePolicy], critics: Mapping[AgentID, Critic], separate: bool) -> None:
    if list(critics) != list(policies):
        raise ValueError(f"IAC needs a critic for each of {', '.join(policies)}, got {', '.join(critics) or 'none'}")
    for agent, critic in critics.items():
        if critic.owns_model != separate:
            kind = "a model of its own" if critic.owns_model else "a head on the actor"
            raise ValueError(f"use_separate_critic={separate}, but the critic of {agent} is {kind}")
    for agent, other in itertools.combinations(critics, 2):
        if critics[agent] is critics[other] and policies[agent] is not policies[other]:
            raise ValueError(f"{agent} and {other} share a critic but no policy; a critic for the team is MAAC's")


def _named(name: str, norm: float | None) -> dict[str, float]:
    return {} if norm is None else {name: norm}
