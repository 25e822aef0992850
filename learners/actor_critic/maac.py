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

from learners.actor_critic.buffers import Buffers
from learners.actor_critic.collecting import Ids, chain_samples, truncated_ends, values_of
from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.critic import Critic, critic_optimizer
from learners.actor_critic.samples import Sample, turn_metrics, update_metrics
from learners.actor_critic.updating import accumulate_actor, accumulate_critic, unclipped
from learners.chains import chains
from learners.config import require_choice
from learners.credit import mean, means
from learners.learner import TrainablePolicy
from learners.optim import PolicyOptimizer
from learners.references import References
from learners.teams import Team, check_same_teams, teams_of
from llm_envs.rollouts import map_in_order
from llm_envs.seeding import PLAY
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
        require_choice("counterfactual_baseline", self.counterfactual_baseline, (True, False))
        if self.counterfactual_baseline and self.critic_type != "q":
            raise ValueError(f"counterfactual_baseline needs critic_type='q', which knows actions, got {self.critic_type!r}")
        if self.counterfactual_baseline and self.num_generations < 2:
            raise ValueError(f"counterfactual_baseline needs num_generations of at least 2, got {self.num_generations}")


class MAAC:
    """Multi-agent actor-critic. It fills each agent's buffer with samples, then updates the agents, and the critic once on all.

    Args:
        policies: one for each agent, in order.
        critic: of the team, a model of its own.
        config: of the learner.
        references: frozen policies for the KL penalty; None makes them of the policies as they are now.
        executor: updates agents with weights of their own at once.

    Raises:
        ValueError: if the critic is a head on an actor.
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
        self._teams = teams_of(self.policies, self.config)
        self._critic_optimizer = critic_optimizer(critic, self.config)
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
        flat = [step for chain in found for step in chain]
        reads = self._reads(flat)
        values = values_of(self.critic, reads)
        bootstraps = self._bootstraps(found)
        by_agent = {
            agent: chain_samples(agent, found, reads, values, bootstraps, self._references, self.config) for agent in self.policies
        }
        if self.config.counterfactual_baseline:
            by_agent = {agent: self._counterfactual(agent, found, samples) for agent, samples in by_agent.items()}
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
        """Weights, optimisers, critic, references, buffers and counters, as a tree of tensors and plain values."""
        return {
            "teams": {team.name: team.state_dict() for team in self._teams},
            "critic": self.critic.state_dict(),
            "critic_optimizer": self._critic_optimizer.state_dict(),
            "references": {} if self._references is None else self._references.state_dict(),
            "buffers": self._buffers.state_dict(),
            "updates": self._updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, bit for bit.

        Raises:
            ValueError: if it belongs to other agents, models or another critic; nothing is changed then.
        """
        check_same_teams(self._teams, state["teams"])
        self.critic.check_state_dict(state["critic"])
        if self._references is not None:
            self._references.check_state_dict(state["references"])
        for team in self._teams:
            team.load_state_dict(state["teams"][team.name])
        self.critic.load_state_dict(state["critic"])
        self._critic_optimizer.load_state_dict(state["critic_optimizer"])
        if self._references is not None:
            self._references.load_state_dict(state["references"])
        self._buffers.load_state_dict(state["buffers"])
        self._updates = state["updates"]

    def save_critics(self, directory: Path) -> None:
        """Write the folder `critic/`, value head included."""
        self.critic.save(directory / "critic")

    # ---- what the critic reads ----

    def _reads(self, steps: Sequence[EnvStep]) -> list[Ids]:
        """Ids of the joint history before each step, with a Q critic the joint action behind it."""
        if self.config.critic_type == "v":
            return self.critic.encode([step.global_state for step in steps])
        return self.critic.encode([_with_actions(step.global_state, _texts(step)) for step in steps])

    def _bootstraps(self, found: Sequence[Sequence[EnvStep]]) -> list[float]:
        """Value beyond each chain's last turn: 0 unless a limit cut it. A Q critic needs actions there: they are drawn for it."""
        ends = truncated_ends(found)
        cut = [step for step in ends if step is not None]
        texts = [step.next_global_state or "" for step in cut]
        if self.config.critic_type == "q" and cut:
            texts = [_with_actions(text, actions) for text, actions in zip(texts, self._next_actions(cut), strict=True)]
        beyond = iter(values_of(self.critic, self.critic.encode(texts) if texts else []))
        return [0.0 if step is None else next(beyond) for step in ends]

    def _next_actions(self, steps: Sequence[EnvStep]) -> list[dict[AgentID, str]]:
        drawn: dict[AgentID, list[str]] = {}
        for index, (agent, policy) in enumerate(self.policies.items()):
            prompts = [step.next_prompts[agent] for step in steps if step.next_prompts is not None]
            keys = [(self.config.seed, PLAY, step.env_step, index) for step in steps]
            drawn[agent] = [group[0].text for group in policy.generate(prompts, 1, keys)]
        return [{agent: texts[i] for agent, texts in drawn.items()} for i in range(len(steps))]

    def _counterfactual(
        self, agent: AgentID, found: Sequence[Sequence[EnvStep]], samples: Sequence[Sequence[Sample]]
    ) -> list[list[Sample]]:
        """The samples with the baseline mean_k Q(h, (a_i^k, a_−i)) over the agent's own completions at the state."""
        steps = [step for chain in found for step in chain]
        siblings: dict[int, list[EnvStep]] = {}
        for step in steps:
            siblings.setdefault(step.state_id, []).append(step)
        texts = [
            _with_actions(step.global_state, {**_texts(step), agent: other.completions[agent].text})
            for step in steps
            for other in siblings[step.state_id]
        ]
        values = iter(values_of(self.critic, self.critic.encode(texts)))
        baselines = iter([mean([next(values) for _ in siblings[step.state_id]]) for step in steps])
        return [[replace(sample, advantage=sample.target - next(baselines)) for sample in chain] for chain in samples]

    # ---- update ----

    def _drain(self) -> list[Metrics]:
        drained = self._buffers.drain()
        trained = means([self._train(batch) for batch in self._buffers.mini_batches(drained, self._updates)])
        self._updates += 1
        return [*turn_metrics(drained, self.config.reference_kl_coef), update_metrics(drained, trained)]

    def _train(self, batch: Mapping[AgentID, Sequence[Sample]]) -> dict[str, float]:
        """One mini-batch: all gradients first, then all steps, so that a loss that fails changes no weights."""
        trains_actors = self._updates >= self.config.critic_warmup_updates

        def accumulate(team: Team) -> float:
            return accumulate_actor(team.policy, team.optimizer, [batch[agent] for agent in team.agents])

        teams = self._teams if trains_actors else []
        try:
            actor_losses = map_in_order(accumulate, teams, self._executor)
            everyone = [sample for samples in batch.values() for sample in samples]
            coefficient = self.config.value_loss_coef
            values = {"value_loss": accumulate_critic(self.critic, self._critic_optimizer, everyone, coefficient, unclipped)}
        except FloatingPointError:
            for optimizer in self._optimizers():
                optimizer.discard()
            raise
        for team, loss in zip(teams, actor_losses, strict=True):
            values[f"{team.name}/loss"] = loss
            norm = team.optimizer.step()
            values.update({} if norm is None else {f"{team.name}/grad_norm": norm})
        norm = self._critic_optimizer.step()
        return {**values, **({} if norm is None else {"critic_grad_norm": norm})}

    def _optimizers(self) -> list[PolicyOptimizer]:
        return [*(team.optimizer for team in self._teams), self._critic_optimizer]


def _texts(step: EnvStep) -> dict[AgentID, str]:
    return {agent: completion.text for agent, completion in step.completions.items()}


def _with_actions(state: str, actions: Mapping[AgentID, str]) -> str:
    """The joint history with the joint action behind it: what is cut from the left leaves the action."""
    return "\n\n".join([state, *(f"[{agent} writes]\n{text}" for agent, text in actions.items())])
