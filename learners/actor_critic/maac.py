"""MAAC, multi-agent actor-critic: one centralised critic reads the joint history (and the joint action), every agent acts alone.

    δ_t = r_t + γ V(h_{t+1}) − V(h_t)      actors: −δ_t Σ log π_i(a_{i,t} | h_{i,t})      critic: (y_t − V(h_t))²

with the joint history h, or Q(h, a) in place of V(h). Source: centralised critics, Lowe et al., arXiv:1706.02275; for language
models arXiv:2601.21972; the counterfactual baseline COMA, arXiv:1705.08926, eq. 4. `docs/algorithms.md` lists the details.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from learners.actor_critic.buffers import Buffers, Row, by_agent, row_tree, samples_of, tree_row
from learners.actor_critic.collecting import bootstraps, chain_samples, values_of
from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.critic import Critic, critic_optimizer
from learners.actor_critic.reading import joint_text, next_completions, texts_of
from learners.actor_critic.samples import Sample, turn_metrics, update_metrics
from learners.actor_critic.trained import Trained
from learners.actor_critic.updating import accumulate_actor, accumulate_critic, step_all, value_loss_of
from learners.chains import chains
from learners.config import require_choice, require_devices
from learners.credit import mean
from learners.decoding import Ids
from learners.interrupts import interruptible
from learners.learner import TrainablePolicy
from learners.optim import mini_batch
from learners.references import References
from learners.teams import Team, teams_of
from learners.updates import Updates
from llm_envs.rollouts import map_in_order
from llm_envs.types import AgentID, EnvStep, Metrics, RolloutSpec


@dataclass(frozen=True, kw_only=True)
class MAACConfig(ActorCriticConfig):
    """Options of MAAC.

    Attributes:
        counterfactual_baseline: with `critic_type="q"`, an agent's advantage is the target less the mean of Q over its own K
            samples, the others' actions fixed, in place of the target less Q.
    """

    counterfactual_baseline: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_devices("critic_devices", self.critic_devices, 1)
        require_choice("counterfactual_baseline", self.counterfactual_baseline, (True, False))
        if self.counterfactual_baseline and self.critic_type != "q":
            raise ValueError(f"counterfactual_baseline needs critic_type='q', which knows actions, got {self.critic_type!r}")
        if self.counterfactual_baseline and self.num_generations < 2:
            raise ValueError(f"counterfactual_baseline needs num_generations of at least 2, got {self.num_generations}")


_TEAM = "team"
"""Name of the one critic in checkpoints and metrics."""


class MAAC:
    """Multi-agent actor-critic. It fills each agent's buffer with samples, then updates the agents, and the critic once on all.

    Args:
        policies: one for each agent, in order.
        critic: of the team, a model of its own.
        config: of the learner.
        references: frozen policies for the KL penalty; None makes them of the policies as they are now.
        executor: updates agents with weights of their own at once.

    Raises:
        ValueError: if the critic is a head on an actor, or reads with the actor's model.
    """

    config_class: ClassVar[type[MAACConfig]] = MAACConfig

    def __init__(
        self,
        policies: Mapping[AgentID, TrainablePolicy],
        critic: Critic,
        config: MAACConfig | None = None,
        *,
        references: Mapping[AgentID, TrainablePolicy] | None = None,
        executor: Executor | None = None,
    ) -> None:
        if not critic.owns_model:
            raise ValueError("MAAC's critic needs a model of its own, got a head on an actor")
        self.policies = dict(policies)
        self.critic = critic
        self.config = self.config_class() if config is None else config
        self.rollout: RolloutSpec = self.config.rollout
        self._executor = executor
        teams = teams_of(self.policies, self.config)
        kl = References(teams, self.config.reference_devices, references) if self.config.reference_kl_enabled else None
        self._trained = Trained(teams, {_TEAM: critic}, {_TEAM: critic_optimizer(critic, self.config)}, kl)
        self._value_loss = value_loss_of(self.config.value_loss_coef)
        self._buffers = Buffers(self.config)
        self._updates = Updates(self._train, self._report, batch_size=self.config.train_batch_size, config=self.config)

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
            samples = self._samples(found)
        self._buffers.add(found, samples)
        return self._updates.run(lambda: self._buffers.taken(at_least=self.config.rollout_buffer_size))

    def flush(self) -> list[Metrics]:
        """Update on what is left in the buffers and in unfinished accumulation windows: the end of an epoch."""
        metrics = self._updates.run(lambda: self._buffers.taken(at_least=1))
        self._trained.flush()
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimisers, critic, references, buffers and counters, as a tree of tensors and plain values."""
        return {**self._trained.state_dict(), "buffers": self._buffers.state_dict(), **self._updates.state_dict(row_tree)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, bit for bit.

        Raises:
            ValueError: if it belongs to other agents, models or another critic; nothing is changed then.
        """
        self._trained.load_state_dict(state)
        self._buffers.load_state_dict(state["buffers"])
        self._updates.load_state_dict(state, tree_row)

    def save_critics(self, directory: Path) -> None:
        """Write the folder `critic/`, value head included."""
        self.critic.save(directory / "critic")

    # ---- samples ----

    def _samples(self, found: Sequence[Sequence[EnvStep]]) -> dict[AgentID, list[list[Sample]]]:
        """Each agent's samples, chain by chain."""
        reads = self._reads([step for chain in found for step in chain])
        values = values_of(self.critic, reads)
        beyond = bootstraps(found, lambda ends: values_of(self.critic, self._reads_behind(ends)))
        references = self._trained.references
        samples = {agent: chain_samples(agent, found, reads, values, beyond, references, self.config) for agent in self.policies}
        if self.config.counterfactual_baseline:
            return {agent: self._counterfactual(agent, found, own) for agent, own in samples.items()}
        return samples

    def _reads(self, steps: Sequence[EnvStep]) -> list[Ids]:
        """Ids of the joint history before each step, with a Q critic the joint action behind it."""
        if self.config.critic_type == "v":
            return list(self.critic.encode([step.global_state for step in steps]))
        return list(self.critic.encode([joint_text(step.global_state, texts_of(step)) for step in steps]))

    def _reads_behind(self, ends: Sequence[EnvStep]) -> list[Ids]:
        """Ids of the joint history behind each step. A Q critic needs the actions there: they are drawn for it."""
        states = []
        for step in ends:
            if step.next_global_state is None:
                raise ValueError(f"env step {step.env_step} was cut by a limit, but has no next_global_state to bootstrap from")
            states.append(step.next_global_state)
        if self.config.critic_type == "v" or not ends:
            return list(self.critic.encode(states))
        drawn = {agent: next_completions(agent, policy, ends, self.config.seed) for agent, policy in self.policies.items()}
        actions = [{agent: drawn[agent][i].text for agent in step.completions} for i, step in enumerate(ends)]
        return list(self.critic.encode([joint_text(state, joint) for state, joint in zip(states, actions, strict=True)]))

    def _counterfactual(
        self, agent: AgentID, found: Sequence[Sequence[EnvStep]], samples: Sequence[Sequence[Sample]]
    ) -> list[list[Sample]]:
        """The samples with the baseline mean_k Q(h, (a_i^k, a_−i)) over the agent's own completions at the state."""
        steps = [step for chain in found for step in chain]
        siblings: dict[int, list[EnvStep]] = {}
        for step in steps:
            siblings.setdefault(step.state_id, []).append(step)
        texts = [
            joint_text(step.global_state, {**texts_of(step), agent: other.completions[agent].text})
            for step in steps
            for other in siblings[step.state_id]
        ]
        values = iter(values_of(self.critic, self.critic.encode(texts)))
        baselines = iter([mean([next(values) for _ in siblings[step.state_id]]) for step in steps])
        return [[replace(sample, advantage=sample.target - next(baselines)) for sample in chain] for chain in samples]

    # ---- update ----

    def _report(self, rows: Sequence[Row], trained: Mapping[str, float]) -> list[Metrics]:
        samples = by_agent(rows)
        return [*turn_metrics(samples, self.config.reference_kl_coef), update_metrics(samples, trained)]

    def _train(self, rows: Sequence[Row], chosen: Sequence[int]) -> dict[str, float]:
        """One mini-batch: all gradients first, then all steps, so that whatever fails changes no weights."""
        batch = samples_of(rows, chosen, self.config)
        trains_actors = self._updates.count >= self.config.critic_warmup_updates

        def accumulate(team: Team) -> float:
            return accumulate_actor(team.policy, team.optimizer, [batch[agent] for agent in team.agents])

        teams = self._trained.teams if trains_actors else []
        everyone = [sample for samples in batch.values() for sample in samples]
        optimizer = self._trained.critic_optimizers[_TEAM]
        with mini_batch(self._trained.optimizers().values()):
            actor_losses = map_in_order(accumulate, teams, self._executor)
            value_loss = accumulate_critic(self.critic, optimizer, everyone, self._value_loss)
        values = {f"{team.name}/loss": loss for team, loss in zip(teams, actor_losses, strict=True)}
        trained = self._trained.optimizers() if trains_actors else self._trained.optimizers_of_critics()
        return {**values, f"{_TEAM}/value_loss": value_loss, **step_all(trained)}
