"""Rounds: MADPO over gathered pairs, once or again and again; and the options of the iterative forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from learners.config import canonical_choice, canonical_path, require_int
from learners.phases import Phase, Sampler
from learners.preference.comparator_sources import ComparatorOptions
from learners.preference.fitting import FitPhase, Meter
from learners.preference.gathering import Gathering
from learners.preference.madpo import MADPO, MADPOConfig
from learners.preference.marlhf import MARLHF, MARLHFConfig
from learners.preference.parts import Parts
from learners.preference.replay_options import ReplayOptions
from llm_envs.types import AgentID, Policy

_ORACLES = {"task": ("oracle", "environment", "env"), "reward_model": ("model", "learned")}


@dataclass(frozen=True, kw_only=True)
class IterativeOptions(ReplayOptions, ComparatorOptions):
    """Options of the iterative forms, beside those of replay and comparator.

    Attributes:
        num_iterations: rounds of collect → store → replay → train.
        policy_checkpoint_dir: folder for the team before the first round and after each: `initial`, `iteration_0001`, …; None keeps
            none. It must not be that of another run.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({"num_iterations", "policy_checkpoint_dir"})

    num_iterations: int = 6
    policy_checkpoint_dir: str | Path | None = None

    def check_iterative_options(self, team_size: int | None) -> None:
        """Refuse values that are none and options that cannot apply.

        Args:
            team_size: number of agents, if it is known.

        Raises:
            ValueError: naming option, value and what is expected.
        """
        require_int("num_iterations", self.num_iterations, 1)
        snapshots = canonical_path("policy_checkpoint_dir", self.policy_checkpoint_dir)
        object.__setattr__(self, "policy_checkpoint_dir", snapshots)
        self.check_replay_options()
        self.check_comparator_options(team_size)


@dataclass(frozen=True, kw_only=True)
class MADPOIterConfig(MADPOConfig, IterativeOptions):
    """Options of MADPOIter: those of MADPO with other defaults, and of rounds."""

    pair_selections: ClassVar[tuple[str, ...]] = (*MADPOConfig.pair_selections, "comparator_reward")

    num_train_epochs: int = 1
    preference_num_candidates: int = 20
    preference_pairs_per_sample: int | None = 4
    pair_selection: str = "comparator_reward"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_iterative_options(self.team_size)


@dataclass(frozen=True, kw_only=True)
class MARLHFIterConfig(MARLHFConfig, IterativeOptions):
    """Options of MARLHFIter: those of MARLHF with other defaults, and of rounds.

    Attributes:
        preference_scoring_reward: what ranks the responses: "task", or "reward_model", the one fitted last; the task until there is
            one.
    """

    pair_selections: ClassVar[tuple[str, ...]] = (*MARLHFConfig.pair_selections, "comparator_reward")

    num_train_epochs: int = 2
    reward_num_train_epochs: int = 2
    preference_num_candidates: int = 20
    preference_pairs_per_sample: int | None = 4
    pair_selection: str = "comparator_reward"
    preference_scoring_reward: str = "task"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_iterative_options(self.team_size)
        oracle = canonical_choice("preference_scoring_reward", self.preference_scoring_reward, _ORACLES)
        object.__setattr__(self, "preference_scoring_reward", oracle)
        if self.log_reward_distribution and oracle == "reward_model":
            raise ValueError(
                "log_reward_distribution=True cannot apply with preference_scoring_reward='reward_model': its bins are those of "
                "the task's reward, and scores have a scale of their own"
            )


class MADPORounds(Parts):
    """The parts of a MADPO run, one after the other: in each round pairs are gathered and passed over.

    Args:
        gathering: of the pairs.
        learner: is trained with them.
        config: of the run.
    """

    def __init__(self, gathering: Gathering, learner: MADPO, config: MADPOConfig) -> None:
        self.policies: Mapping[AgentID, Policy] = learner.policies
        self.learner = learner
        self._gathering = gathering
        self._config = config
        self._meter = Meter()
        super().__init__(learner, {**gathering.parts(), "meter": self._meter})

    def phases(self, sampler: Sampler) -> list[Phase]:
        """Collect, fit: for each round."""
        phases: list[Phase] = []
        for iteration in range(1, self._gathering.rounds + 1):
            phases += [self._gathering.phase(lambda: sampler, iteration), self._fit(iteration)]
        return phases

    def _fit(self, iteration: int) -> FitPhase:
        return FitPhase(
            self._gathering.label(iteration, "training on pairs"),
            self.learner,
            lambda: self._gathering.store.selected,
            epochs=self._config.num_train_epochs,
            batch_size=self._config.train_batch_size,
            path=(self._config.seed, iteration, 0),
            meter=self._meter,
            prefix="preference",
            changes_policies=True,
            at_finish=lambda: self._gathering.end_round(iteration),
        )


class MADPOIter(MADPORounds):
    """MADPO in rounds, each with fresh pairs against a comparator."""

    config_class = MADPOIterConfig


class MARLHFIter(MARLHF):
    """MARLHF in rounds, each with fresh pairs against a comparator and a fresh reward model."""

    config_class = MARLHFIterConfig
