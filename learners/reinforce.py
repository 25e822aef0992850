"""The REINFORCE family: MAREINFORCE, MAGRPO, MARLOO, MAReMax. One learner; the four differ in the baseline they default to.

    J(θ_i) = E[ 1/K Σ_k Σ_t (R_t^k − b(h_t)) log π_θi(a_{i,t}^k | h_{i,t}) ]

At every state each agent draws K completions, joint actions are formed from them, and each one is credited with its return over the
tree of turns. No critic. Source: MAGRPO, arXiv:2508.04652; `docs/algorithms.md` lists the details and where they differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from learners import credit, losses
from learners.batching import sampled_logprobs
from learners.config import TrainingConfig, require_choice, require_devices, require_int, require_number
from learners.interrupts import interruptible
from learners.learner import TrainablePolicy
from learners.nodes import Node, Sample, node_tree, tree_node, turn_metrics, update_metrics
from learners.optim import flush_together, mini_batch, step_together
from learners.references import References
from learners.teams import Team, check_same_teams, teams_of
from learners.updates import Updates
from llm_envs.rollouts import map_in_order
from llm_envs.types import AgentID, Completion, EnvStep, JointMode, Metrics, RolloutSpec


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(TrainingConfig):
    """Options of the REINFORCE family, beside those of `TrainingConfig`.

    Attributes:
        num_generations: K, completions each agent draws at every state; at least 2, or 1 with `advantage_mode="raw"`.
        joint_mode: "aligned" joins equal indices (K joint actions a state), "cross" (also "crossed") forms all Kⁿ.
        early_termination_threshold: a state whose mean reward exceeds it is not expanded; None expands all.
        rollout_buffer_size: states collected for an update.
        train_batch_size: states an optimiser step; None takes the whole buffer.
        advantage_mode: baseline: "mean", "raw" (none), "rloo" (mean of the others) or "max".
        advantage_normalization: True centres and divides by the standard deviation of the K (all modes then coincide), "scale" only
            divides, False does neither.
        ratio_clip_range: ε of PPO's clipped ratio against the log-probabilities at sampling; None uses no ratio.
        loss_aggregation: "sequence_sum", "sequence_mean" or "token_mean".
        reference_kl_enabled: subtract `reference_kl_coef` · KL to the initial policy from each completion's return.
        reference_kl_coef: reward units per nat.
        reference_devices: one device, or one for each agent; None puts each reference beside its agent.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({"reference_devices"})

    num_generations: int = 4
    joint_mode: JointMode = "aligned"
    early_termination_threshold: float | None = None
    rollout_buffer_size: int = 2
    train_batch_size: int | None = None
    advantage_mode: credit.AdvantageMode = "mean"
    advantage_normalization: credit.AdvantageNormalization = True
    ratio_clip_range: float | None = None
    loss_aggregation: losses.Aggregation = "sequence_sum"
    reference_kl_enabled: bool = False
    reference_kl_coef: float = 0.1
    reference_devices: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("joint_mode", self.joint_mode, ("aligned", "cross", "crossed"))
        if self.joint_mode == "crossed":
            # One name from here on, so that a checkpoint of either is one of both.
            object.__setattr__(self, "joint_mode", "cross")
        require_choice("advantage_mode", self.advantage_mode, credit.ADVANTAGE_MODES)
        require_choice("advantage_normalization", self.advantage_normalization, (True, False, "scale"))
        require_choice("loss_aggregation", self.loss_aggregation, losses.AGGREGATIONS)
        require_int("num_generations", self.num_generations, 1)
        if self.num_generations < 2 and self.advantage_mode != "raw":
            raise ValueError(
                f"num_generations must be at least 2 with advantage_mode={self.advantage_mode!r}: "
                f"a baseline needs something to compare with, got {self.num_generations}"
            )
        require_int("rollout_buffer_size", self.rollout_buffer_size, 1)
        require_int("train_batch_size", self.train_batch_size, 1, optional=True)
        require_number("early_termination_threshold", self.early_termination_threshold, optional=True)
        require_number("ratio_clip_range", self.ratio_clip_range, above=0, optional=True)
        require_choice("reference_kl_enabled", self.reference_kl_enabled, (True, False))
        require_number("reference_kl_coef", self.reference_kl_coef, at_least=0)
        require_devices("reference_devices", self.reference_devices, self.team_size)
        if self.reference_devices is not None and not self.reference_kl_enabled:
            raise ValueError(
                f"reference_devices={self.reference_devices!r} needs reference_kl_enabled=True: without it there are none"
            )

    @property
    def rollout(self) -> RolloutSpec:
        """What the collector does for this learner."""
        return RolloutSpec(self.num_generations, self.joint_mode, self.early_termination_threshold)


@dataclass(frozen=True, kw_only=True)
class MAGRPOConfig(ReinforceConfig):
    """Options of MAGRPO: the baseline is the mean of the group."""


@dataclass(frozen=True, kw_only=True)
class MAREINFORCEConfig(ReinforceConfig):
    """Options of MAREINFORCE: no baseline."""

    advantage_mode: credit.AdvantageMode = "raw"


@dataclass(frozen=True, kw_only=True)
class MARLOOConfig(ReinforceConfig):
    """Options of MARLOO: the baseline is the mean of the other completions of the group."""

    advantage_mode: credit.AdvantageMode = "rloo"


@dataclass(frozen=True, kw_only=True)
class MAReMaxConfig(ReinforceConfig):
    """Options of MAReMax: the baseline is the best of the group."""

    advantage_mode: credit.AdvantageMode = "max"


class Reinforce:
    """A learner of the REINFORCE family. It fills a buffer with states and updates every agent when the buffer is full.

    Args:
        policies: one for each agent, in order; agents that share one are trained on the sum of their losses.
        config: of the family; its class fixes the baseline it defaults to.
        references: frozen policies for the KL penalty, one for each agent; None makes them of the policies as they are now.
        executor: updates agents with weights of their own at once.

    Attributes:
        policies: the given ones.
        rollout: what the collector has to do.
    """

    config_class: ClassVar[type[ReinforceConfig]] = ReinforceConfig

    def __init__(
        self,
        policies: Mapping[AgentID, TrainablePolicy],
        config: ReinforceConfig | None = None,
        *,
        references: Mapping[AgentID, TrainablePolicy] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.policies = dict(policies)
        self.config = self.config_class() if config is None else config
        self.rollout: RolloutSpec = self.config.rollout
        self._executor = executor
        self._teams = teams_of(self.policies, self.config)
        enabled = self.config.reference_kl_enabled
        if references is not None and not enabled:
            raise ValueError("references are given, but reference_kl_enabled=False leaves them without use")
        self._references = References(self._teams, self.config.reference_devices, references) if enabled else None
        self._buffer: list[Node] = []
        self._updates = Updates(self._train, self._report, batch_size=self.config.train_batch_size, config=self.config)

    @property
    def states_until_update(self) -> int:
        """States that can still be collected before the next update changes the policies; 0 while one was stopped in its middle."""
        return 0 if self._updates.under_way else max(0, self.config.rollout_buffer_size - len(self._buffer))

    def update(self, steps: Sequence[EnvStep]) -> list[Metrics]:
        """Fill the buffer with the states of whole episodes, in order; step the optimisers each time it is full.

        Args:
            steps: of the collector, for this learner's `rollout`.

        Returns:
            What to log of the updates that were made; nothing while the buffer fills.

        Raises:
            FloatingPointError: if a return, loss or gradient is not finite; the mini-batch has changed no weights then.

        An update that fails or is interrupted is gone on with by the next call: no state is lost and none is used twice.
        """
        with interruptible():
            nodes = self._nodes(steps)
        self._buffer += nodes
        return self._updates.run(lambda: self._taken(at_least=self.config.rollout_buffer_size))

    def flush(self) -> list[Metrics]:
        """Update on what is left in the buffer and in unfinished accumulation windows: the end of an epoch."""
        metrics = self._updates.run(lambda: self._taken(at_least=1))
        flush_together([team.optimizer for team in self._teams])
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimisers, references, buffer and counters, as a tree of tensors and plain values."""
        return {
            "teams": {team.name: team.state_dict() for team in self._teams},
            "references": {} if self._references is None else self._references.state_dict(),
            "buffer": [node_tree(node) for node in self._buffer],
            **self._updates.state_dict(node_tree),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, bit for bit.

        Raises:
            ValueError: if it belongs to other agents or models; nothing is changed then.
        """
        check_same_teams(self._teams, state["teams"])
        if self._references is not None:
            self._references.check_state_dict(state["references"])
        for team in self._teams:
            team.load_state_dict(state["teams"][team.name])
        if self._references is not None:
            self._references.load_state_dict(state["references"])
        self._buffer = [tree_node(tree) for tree in state["buffer"]]
        self._updates.load_state_dict(state, tree_node)

    # ---- credit ----

    def _nodes(self, steps: Sequence[EnvStep]) -> list[Node]:
        """The states of whole episodes, credited."""
        returns = credit.tree_returns(steps, self.config.discount)
        groups = credit.groups(steps)
        kl = {agent: self._reference_kl(agent, groups) for agent in self.policies}
        return [self._node(group, returns, {agent: kl[agent][i] for agent in self.policies}) for i, group in enumerate(groups)]

    def _reference_kl(self, agent: AgentID, groups: Sequence[credit.Group]) -> list[tuple[float, ...]]:
        """For each group: [K] KL of the agent's completions from the reference, nats; empty without one."""
        if self._references is None:
            return [()] * len(groups)
        by_group = [credit.completions_of(group, agent) for group in groups]
        values = iter(self._references.kl(agent, [completion for members in by_group for completion in members]))
        return [tuple(next(values) for _ in members) for members in by_group]

    def _node(self, group: credit.Group, returns: credit.StepValues, kl: Mapping[AgentID, tuple[float, ...]]) -> Node:
        rewards = credit.step_means(group.steps, credit.rewards_of(group.steps))[group.turn]
        return Node(
            turn=group.turn,
            env_step=group.env_step,
            reward_mean=rewards,
            return_mean=credit.step_means(group.steps, returns)[group.turn],
            terms=credit.term_means(group.steps),
            not_expanded=any(step.next_state_id is None and not (step.terminated or step.truncated) for step in group.steps),
            samples={agent: self._sample(group, returns, agent, kl[agent]) for agent in self.policies},
        )

    def _sample(self, group: credit.Group, returns: credit.StepValues, agent: AgentID, kl: tuple[float, ...]) -> Sample:
        completions = credit.completions_of(group, agent)
        credited = credit.completion_returns(group, returns, agent)
        if kl:
            counts = credit.joint_action_counts(group, agent)
            credited = credit.subtract_reference_kl(credited, kl, counts, self.config.reference_kl_coef)
        advantages = credit.advantages(credited, self.config.advantage_mode, self.config.advantage_normalization)
        return Sample(tuple(completions), tuple(advantages), kl, credit.zero_spread(credited))

    # ---- update ----

    def _taken(self, at_least: int) -> list[Node] | None:
        """The nodes of the next update, taken out of the buffer."""
        if len(self._buffer) < at_least:
            return None
        size = self.config.rollout_buffer_size
        nodes, self._buffer = self._buffer[:size], self._buffer[size:]
        return nodes

    def _report(self, nodes: Sequence[Node], trained: Mapping[str, float]) -> list[Metrics]:
        return [*turn_metrics(nodes, self.config.reference_kl_coef), update_metrics(nodes, list(self.policies), trained)]

    def _train(self, nodes: Sequence[Node], chosen: Sequence[int]) -> dict[str, float]:
        """One mini-batch: every team's gradient, then every optimiser's step, so that whatever fails changes no weights."""
        batch = [nodes[index] for index in chosen]
        optimizers = [team.optimizer for team in self._teams]
        with mini_batch(optimizers):
            totals = map_in_order(lambda team: self._accumulate(team, batch), self._teams, self._executor)
        values: dict[str, float] = {}
        for team, total, norm in zip(self._teams, totals, step_together(optimizers), strict=True):
            values[f"{team.name}/loss"] = total
            if norm is not None:
                values[f"{team.name}/grad_norm"] = norm
        return values

    def _accumulate(self, team: Team, nodes: Sequence[Node]) -> float:
        """Add the gradient of a mini-batch's loss in micro-batches; returns the loss."""
        samples = [node.samples[agent] for agent in team.agents for node in nodes]
        completions = [completion for sample in samples for completion in sample.completions]
        advantages = torch.tensor([value for sample in samples for value in sample.advantages], dtype=torch.float64)
        weights = torch.cat([self._weights([node.samples[agent] for node in nodes]) for agent in team.agents])
        total = 0.0
        for rows in team.policy.micro_batches(completions):
            loss = self._loss(team.policy, [completions[row] for row in rows], advantages[rows], weights[rows])
            team.optimizer.backward(loss)
            total += loss.item()
        return total

    def _weights(self, samples: Sequence[Sample]) -> Tensor:
        sizes = [len(sample.completions) for sample in samples]
        lengths = [len(completion.token_ids) for sample in samples for completion in sample.completions]
        return losses.completion_weights(sizes, lengths, self.config.loss_aggregation)

    def _loss(self, policy: TrainablePolicy, completions: Sequence[Completion], advantages: Tensor, weights: Tensor) -> Tensor:
        scored = policy.logprobs(completions)
        if self.config.ratio_clip_range is None:
            return losses.policy_gradient_loss(scored.logprobs, scored.mask, advantages, weights)
        old = sampled_logprobs(completions, scored.mask.shape[1], scored.logprobs.device)
        return losses.clipped_ratio_loss(scored.logprobs, old, scored.mask, advantages, weights, self.config.ratio_clip_range)


class MAGRPO(Reinforce):
    """Multi-agent group-relative policy optimisation: `Reinforce` with the mean of the group as baseline. arXiv:2508.04652."""

    config_class = MAGRPOConfig


class MAREINFORCE(Reinforce):
    """Multi-agent REINFORCE: `Reinforce` without a baseline. Williams 1992."""

    config_class = MAREINFORCEConfig


class MARLOO(Reinforce):
    """Multi-agent REINFORCE leave-one-out: `Reinforce` with the mean of the other completions as baseline. arXiv:2402.14740."""

    config_class = MARLOOConfig


class MAReMax(Reinforce):
    """Multi-agent ReMax: `Reinforce` with the best completion of the group as baseline. After arXiv:2310.10505."""

    config_class = MAReMaxConfig
