"""MADPO, multi-agent direct preference optimisation: from pairs of joint responses to parameters. No env, no reward model.

    L(θ) = −log σ(η Σ_i δ_i),   δ_i = log π_θi(w_i) − log π_θi(l_i)

over the agents i, with w the joint response that won and l the one that lost. The team's policy factorises over agents, so its
margin is the sum of theirs, and all agents share one ∂L/∂δ_i. With one agent and references it is DPO, arXiv:2305.18290;
`docs/algorithms.md` lists the details.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from learners import losses
from learners.config import require_choice, require_devices, require_int, require_number
from learners.credit import mean
from learners.interrupts import shielded
from learners.learner import TrainablePolicy
from learners.optim import flush_together, mini_batch, step_together
from learners.preference.answers import Answers, answers_of, completion_logprobs
from learners.preference.config import PreferenceConfig
from learners.preference.pairs import Pair
from learners.preference.reference_scores import ReferenceScores
from learners.references import References
from learners.teams import Team, check_same_teams, teams_of
from llm_envs.rollouts import map_in_order
from llm_envs.types import AgentID


@dataclass(frozen=True, kw_only=True)
class MADPOConfig(PreferenceConfig):
    """Options of MADPO, beside those of `PreferenceConfig`.

    Attributes:
        train_batch_size: pairs an optimiser step.
        dpo_beta: η, which scales the joint margin: nats to logits.
        reference_free: True takes the policies' own margins; False subtracts those of frozen references, as DPO does.
        length_normalization: divide an agent's log-probability of a response by its number of tokens.
        label_smoothing: ε in [0, 0.5), the share of preferences taken to be the wrong way round.
        reference_devices: one device, or one for each agent; None puts each reference beside its agent.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({"reference_devices"})

    train_batch_size: int = 2
    dpo_beta: float = 0.1
    reference_free: bool = True
    length_normalization: bool = False
    label_smoothing: float = 0.0
    reference_devices: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_int("train_batch_size", self.train_batch_size, 1)
        require_number("dpo_beta", self.dpo_beta, above=0)
        require_choice("reference_free", self.reference_free, (True, False))
        require_choice("length_normalization", self.length_normalization, (True, False))
        require_number("label_smoothing", self.label_smoothing, at_least=0)
        if self.label_smoothing >= 0.5:
            raise ValueError(f"label_smoothing must be below 0.5, where pairs say nothing any more, got {self.label_smoothing!r}")
        require_devices("reference_devices", self.reference_devices, self.team_size)
        if self.reference_devices is not None and self.reference_free:
            raise ValueError(f"reference_devices={self.reference_devices!r} needs reference_free=False: without it there are none")


@dataclass
class _Seen:
    """What a batch showed, gathered over its micro-batches.

    Attributes:
        loss: of the batch so far.
        joint: [B] margin of each pair.
        margins: [B] of each agent.
        logprobs: [B, 2] of each team, winner and loser.
    """

    loss: float = 0.0
    joint: list[float] = field(default_factory=list)
    margins: dict[AgentID, list[float]] = field(default_factory=dict)
    logprobs: dict[str, list[list[float]]] = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """Means over the pairs."""
        values = {"loss": self.loss, "margin": mean(self.joint), "accuracy": mean([float(margin > 0) for margin in self.joint])}
        for agent, margins in self.margins.items():
            values[f"{agent}/margin"] = mean(margins)
        for team, sides in self.logprobs.items():
            values[f"{team}/chosen_logprob"] = mean([chosen for chosen, _ in sides])
            values[f"{team}/rejected_logprob"] = mean([rejected for _, rejected in sides])
        return values


class MADPO:
    """Multi-agent direct preference optimisation. Each batch of pairs is one mini-batch of every agent's optimiser.

    Args:
        policies: one for each agent, in order; agents that share one are trained on the sum of their gradients.
        config: of the learner.
        references: frozen policies, one for each agent; None makes them of the policies as they are now.
        executor: scores and updates agents with weights of their own at once.

    Raises:
        ValueError: references are given, but `reference_free=True` has no use for them.
    """

    config_class: ClassVar[type[MADPOConfig]] = MADPOConfig

    def __init__(
        self,
        policies: Mapping[AgentID, TrainablePolicy],
        config: MADPOConfig | None = None,
        *,
        references: Mapping[AgentID, TrainablePolicy] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.policies = dict(policies)
        self.config = self.config_class() if config is None else config
        self._executor = executor
        self._teams = teams_of(self.policies, self.config)
        free = self.config.reference_free
        if references is not None and free:
            raise ValueError("references are given, but reference_free=True leaves them without use")
        self._scores = None if free else ReferenceScores(References(self._teams, self.config.reference_devices, references))

    def train_step(self, pairs: Sequence[Pair]) -> dict[str, float]:
        """Metrics of one mini-batch: the mean loss over the pairs, its gradient in every agent, then all steps together.

        Both responses of a pair are scored once by each agent. Where the pairs of a batch exceed what a policy scores together,
        they are cut into micro-batches of whole pairs; memory then holds the graphs of one micro-batch, of all agents.

        Args:
            pairs: at least one, every agent with an answer in every turn.

        Returns:
            `loss`; `margin` (joint, nats) and `accuracy` (share of joint margins above 0), before the step; `<agent>/margin`;
            `<team>/chosen_logprob` and `<team>/rejected_logprob` (nats, whole responses, agents that share a policy summed);
            `<team>/grad_norm` if the step ended an accumulation window.

        Raises:
            ValueError: no pairs, or one without an answer of an agent.
            FloatingPointError: a margin, loss or gradient is not finite.

        Whatever it is stopped by, no weights and no optimiser have changed then, and no accumulation window.
        """
        self._check(pairs)
        seen = _Seen()
        optimizers = [team.optimizer for team in self._teams]
        with shielded():
            with mini_batch(optimizers):
                self.score_references(pairs)
                for part in self._micro_batches(_side_by_side(pairs)):
                    self._accumulate(part, 1.0 / len(pairs), seen)
                values = seen.metrics()
            return {**values, **self._named(step_together(optimizers))}

    def flush(self) -> dict[str, float]:
        """Update on an accumulation window that is not full: the end of an epoch. Gradient norms, empty if nothing waited."""
        return self._named(flush_together([team.optimizer for team in self._teams]))

    def score_references(self, pairs: Sequence[Pair]) -> None:
        """Score what the references have not yet, all pairs together. `train_step` does so by itself, in smaller batches."""
        if self._scores is None or not pairs:
            return
        for agent in self.policies:
            self._scores.of(agent, answers_of([agent], pairs).completions)

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimisers, references and what they said, as a tree of tensors, arrays and plain values."""
        return {
            "teams": {team.name: team.state_dict() for team in self._teams},
            "references": None if self._scores is None else self._scores.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, bit for bit.

        Raises:
            ValueError: if it belongs to other agents or models; nothing is changed then.
        """
        check_same_teams(self._teams, state["teams"])
        if (state["references"] is None) != (self._scores is None):
            theirs = "no references" if state["references"] is None else "references"
            raise ValueError(f"the checkpoint holds {theirs}, but this learner has reference_free={self.config.reference_free}")
        if self._scores is not None:
            self._scores.load_state_dict(state["references"])
        for team in self._teams:
            team.load_state_dict(state["teams"][team.name])

    # ---- one batch ----

    def _check(self, pairs: Sequence[Pair]) -> None:
        if not pairs:
            raise ValueError("a batch needs at least one pair, got none")
        for position, pair in enumerate(pairs):
            for turn in (*pair.winner.completions, *pair.loser.completions):
                if set(turn) != set(self.policies):
                    raise ValueError(f"pair {position} has answers of {', '.join(turn)}, expected {', '.join(self.policies)}")
                silent = [agent for agent, completion in turn.items() if not completion.prompt_ids]
                if silent:
                    raise ValueError(f"pair {position} has no answer of {', '.join(silent)} to be scored: prompt_ids is empty")

    def _micro_batches(self, pairs: Sequence[Pair]) -> list[Sequence[Pair]]:
        """Whole pairs that every policy can score in one micro-batch; a single pair may need more."""
        if len(pairs) == 1 or all(
            len(team.policy.micro_batches(answers_of(team.agents, pairs).completions)) == 1 for team in self._teams
        ):
            return [pairs]
        half = len(pairs) // 2
        return [*self._micro_batches(pairs[:half]), *self._micro_batches(pairs[half:])]

    def _accumulate(self, pairs: Sequence[Pair], weight: float, seen: _Seen) -> None:
        """Add a micro-batch's gradient to every agent: all margins first, so that all see the same joint one."""

        def scored(team: Team) -> tuple[Tensor, Tensor]:
            """[N, B] margins with gradient, and [B, 2] log-probabilities of the team."""
            answers = answers_of(team.agents, pairs)
            sums = answers.summed(completion_logprobs(team.policy, answers.completions))
            return self._margins(sums, answers), sums.detach().cpu().double().sum(0)

        def backward(team_and_margins: tuple[Team, Tensor]) -> float:
            team, margins = team_and_margins
            margin = losses.joint_margin(margins.sum(0), joint)
            loss = losses.dpo_loss(margin, self.config.dpo_beta, self.config.label_smoothing).sum() * weight
            team.optimizer.backward(loss)
            return loss.item()

        results = map_in_order(scored, self._teams, self._executor)
        joint = torch.zeros(len(pairs), dtype=torch.float64)
        for team, (margins, logprobs) in zip(self._teams, results, strict=True):
            values = margins.detach().cpu().double() - self._reference_margins(team, pairs)
            if not bool(torch.isfinite(values).all()):
                raise FloatingPointError(f"margins of {team.name} are not finite: {values.tolist()}; weights are unchanged")
            joint += values.sum(0)
            seen.margins |= {a: seen.margins.get(a, []) + row for a, row in zip(team.agents, values.tolist(), strict=True)}
            seen.logprobs.setdefault(team.name, []).extend(logprobs.tolist())
        seen.joint.extend(joint.tolist())
        tasks = [(team, margins) for team, (margins, _) in zip(self._teams, results, strict=True)]
        # Every team's loss is the joint one: their gradients differ, not their values.
        seen.loss += map_in_order(backward, tasks, self._executor)[0]

    def _margins(self, sums: Tensor, answers: Answers) -> Tensor:
        """[N, B] δ of each agent from the log-probabilities [N, B, 2] of its responses."""
        if self.config.length_normalization:
            sums = sums / answers.lengths.to(sums).clamp(min=1.0)
        return sums[..., 0] - sums[..., 1]

    def _reference_margins(self, team: Team, pairs: Sequence[Pair]) -> Tensor:
        """[N, B] float64 δ of the team's references, 0 without any."""
        if self._scores is None:
            return torch.zeros(len(team.agents), len(pairs), dtype=torch.float64)
        margins = []
        for agent in team.agents:
            answers = answers_of([agent], pairs)
            logprobs = torch.tensor(self._scores.of(agent, answers.completions), dtype=torch.float64)
            margins.append(self._margins(answers.summed(logprobs), answers))
        return torch.cat(margins)

    def _named(self, norms: Sequence[float | None]) -> dict[str, float]:
        return {f"{team.name}/grad_norm": norm for team, norm in zip(self._teams, norms, strict=True) if norm is not None}


def _side_by_side(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with those of one item next to each other, so that a micro-batch reads what they have in common once."""
    first: dict[tuple[tuple[int, ...], ...], int] = {}

    def place(pair: Pair) -> int:
        prompts = tuple(completion.prompt_ids for completion in pair.winner.completions[0].values())
        return first.setdefault(prompts, len(first))

    return sorted(pairs, key=place)
