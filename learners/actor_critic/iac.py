"""IAC, independent actor-critic: every agent has a critic of its own, which reads what the agent read (and wrote).

    δ_t = r_t + γ V(h_{t+1}) − V(h_t)      actor: −δ_t Σ log π(a_t | h_t)      critic: (y_t − V(h_t))²

Source: Foerster et al., arXiv:1705.08926 (IAC); for language models arXiv:2601.21972. `docs/algorithms.md` lists the details.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from learners.actor_critic.buffers import Buffers, Row, by_agent, row_tree, samples_of, tree_row
from learners.actor_critic.collecting import bootstraps, chain_samples, values_of
from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.critic import Critic, critic_optimizer
from learners.actor_critic.reading import AgentReader, next_completions, next_prompts
from learners.actor_critic.samples import Sample, turn_metrics, update_metrics
from learners.actor_critic.trained import Trained
from learners.actor_critic.updating import accumulate_actor, accumulate_critic, step_all, value_loss_of
from learners.chains import chains
from learners.config import require_choice, require_devices, require_int, require_number
from learners.decoding import Ids
from learners.interrupts import interruptible
from learners.learner import TrainablePolicy
from learners.optim import mini_batch
from learners.policy import HFPolicy
from learners.references import References
from learners.teams import Team, sharing, teams_of
from learners.updates import Updates
from llm_envs.rollouts import map_in_order
from llm_envs.types import AgentID, EnvStep, Metrics, RolloutSpec


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
        require_choice("use_separate_critic", self.use_separate_critic, (True, False))
        require_devices("critic_devices", self.critic_devices, 1, self.team_size)
        require_int("value_head_hidden_dim", self.value_head_hidden_dim, 1, optional=True)
        require_number("value_clip_range", self.value_clip_range, above=0, optional=True)
        foreign = ("value_head_hidden_dim",) if self.use_separate_critic else ("critic_value_head_hidden_dim", "critic_devices")
        for option in foreign:
            value = getattr(self, option)
            if value is not None:
                raise ValueError(f"{option} cannot apply with use_separate_critic={self.use_separate_critic}, got {value!r}")


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
        self.config = self.config_class() if config is None else config
        self.critics = _checked(critics, self.policies, self.config.use_separate_critic)
        self.rollout: RolloutSpec = self.config.rollout
        self._executor = executor
        with_action = self.config.critic_type == "q"
        self._readers = {a: AgentReader(c, self.policies[a], with_action=with_action) for a, c in self.critics.items()}
        self._value_loss = value_loss_of(
            self.config.value_loss_coef, None if self.config.use_separate_critic else self.config.value_clip_range
        )
        self._critic_names = {agent: name for name, agents in sharing(self.critics).items() for agent in agents}
        self._trained = self._make_trained(references)
        self._buffers = Buffers(self.config)
        self._updates = Updates(self._train, self._report, batch_size=self.config.train_batch_size, config=self.config)

    def _make_trained(self, references: Mapping[AgentID, TrainablePolicy] | None) -> Trained:
        config = self.config
        distinct = {self._critic_names[agent]: critic for agent, critic in self.critics.items()}
        if config.use_separate_critic:
            teams = teams_of(self.policies, config)
            optimizers = {name: critic_optimizer(critic, config) for name, critic in distinct.items()}
        else:
            heads = {agent: critic.head_parameters() for agent, critic in self.critics.items()}
            teams, optimizers = teams_of(self.policies, config, heads=heads, head_learning_rate=config.value_head_learning_rate), {}
        kl = References(teams, config.reference_devices, references) if config.reference_kl_enabled else None
        return Trained(teams, distinct, optimizers, kl)

    @property
    def states_until_update(self) -> int:
        """States that can still be collected before the next update changes the policies; 0 while one was stopped in its middle."""
        return 0 if self._updates.under_way else self._buffers.states_until_full

    def update(self, steps: Sequence[EnvStep]) -> list[Metrics]:
        """Fill the buffers with whole episodes, in order; step the optimisers after an episode that fills them.

        Raises:
            ValueError: for trees, through which no chain runs.
            FloatingPointError: if a value, target, loss or gradient is not finite; the mini-batch has changed no weights then.

        An update that fails or is interrupted is gone on with by the next call: no sample is lost and none is used twice.
        """
        found = chains(steps)
        with interruptible():
            samples = {agent: self._samples(agent, found) for agent in self.policies}
        self._buffers.add(found, samples)
        return self._updates.run(lambda: self._buffers.taken(at_least=self.config.rollout_buffer_size))

    def flush(self) -> list[Metrics]:
        """Update on what is left in the buffers and in unfinished accumulation windows: the end of an epoch."""
        metrics = self._updates.run(lambda: self._buffers.taken(at_least=1))
        self._trained.flush()
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimisers, critics, references, buffers and counters, as a tree of tensors and plain values."""
        return {**self._trained.state_dict(), "buffers": self._buffers.state_dict(), **self._updates.state_dict(row_tree)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, bit for bit.

        Raises:
            ValueError: if it belongs to other agents, models or critics; nothing is changed then.
        """
        self._trained.load_state_dict(state)
        self._buffers.load_state_dict(state["buffers"])
        self._updates.load_state_dict(state, tree_row)

    def save_critics(self, directory: Path) -> None:
        """Write `agent_<i>/critic/` folders; a head on an actor goes into the actor's own folder."""
        for index, critic in enumerate(self.critics.values()):
            critic.save(directory / f"agent_{index}" / ("critic" if critic.owns_model else ""))

    # ---- samples ----

    def _samples(self, agent: AgentID, found: Sequence[Sequence[EnvStep]]) -> list[list[Sample]]:
        critic, reader = self.critics[agent], self._readers[agent]
        steps = [step for chain in found for step in chain]
        reads = reader.turns([step.prompts[agent] for step in steps], [step.completions[agent] for step in steps])
        beyond = bootstraps(found, lambda ends: values_of(critic, self._reads_behind(agent, ends)))
        return chain_samples(agent, found, reads, values_of(critic, reads), beyond, self._trained.references, self.config)

    def _reads_behind(self, agent: AgentID, ends: Sequence[EnvStep]) -> list[Ids]:
        prompts = next_prompts(agent, ends)
        if self.config.critic_type == "v" or not prompts:
            return self._readers[agent].prompts(prompts)
        drawn = next_completions(agent, self.policies[agent], ends, self.config.seed)
        return self._readers[agent].turns(prompts, drawn)

    # ---- update ----

    def _report(self, rows: Sequence[Row], trained: Mapping[str, float]) -> list[Metrics]:
        samples = by_agent(rows)
        return [*turn_metrics(samples, self.config.reference_kl_coef), update_metrics(samples, trained)]

    def _train(self, rows: Sequence[Row], chosen: Sequence[int]) -> dict[str, float]:
        """One mini-batch: all gradients first, then all steps, so that whatever fails changes no weights."""
        batch = samples_of(rows, chosen, self.config)
        with mini_batch(self._trained.optimizers().values()):
            parts = map_in_order(lambda team: self._accumulate(team, batch), self._trained.teams, self._executor)
        values = {name: value for part in parts for name, value in part.items()}
        trained = self._trained.optimizers() if self._trains_actors else self._trained.optimizers_of_critics()
        return {**values, **step_all(trained)}

    @property
    def _trains_actors(self) -> bool:
        return self._updates.count >= self.config.critic_warmup_updates

    def _accumulate(self, team: Team, batch: Mapping[AgentID, Sequence[Sample]]) -> dict[str, float]:
        values: dict[str, float] = {}
        if self._trains_actors:
            values[f"{team.name}/loss"] = accumulate_actor(team.policy, team.optimizer, [batch[agent] for agent in team.agents])
        for agent in team.agents:
            critic = self.critics[agent]
            # A head on an actor must not move the actor while the critic warms up.
            read = critic.values if self._trains_actors or critic.owns_model else critic.values_of_fixed_body
            optimizer = self._trained.critic_optimizers.get(self._critic_names[agent], team.optimizer)
            values[f"{agent}/value_loss"] = accumulate_critic(critic, optimizer, batch[agent], self._value_loss, read)
        return values


def _checked(
    critics: Mapping[AgentID, Critic], policies: Mapping[AgentID, TrainablePolicy], separate: bool
) -> dict[AgentID, Critic]:
    """The critics in the policies' order."""
    if set(critics) != set(policies):
        raise ValueError(f"IAC needs a critic for each of {', '.join(policies)}, got {', '.join(critics) or 'none'}")
    for agent, critic in critics.items():
        policy = policies[agent]
        if critic.owns_model != separate:
            kind = "a model of its own" if critic.owns_model else "a head on an actor"
            raise ValueError(f"use_separate_critic={separate}, but the critic of {agent} is {kind}")
        if not separate and not (isinstance(policy, HFPolicy) and policy.model is critic.model):
            raise ValueError(f"the critic of {agent} is a head on another model than the one {agent} acts with")
    for name, agents in sharing(critics).items():
        if len({id(policies[agent]) for agent in agents}) > 1:
            raise ValueError(f"{name} have one critic but not one policy; a critic for the team is MAAC's")
    return {agent: critics[agent] for agent in policies}
