"""The preference trainers users name: those of `learners.trainers`, with pairs, comparators and reward models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedModel

from learners.actor_critic.config import ActorCriticConfig
from learners.learner import Learner
from learners.models import ModelConfig
from learners.phases import Phase, Sampler
from learners.policy import HFPolicy
from learners.preference.comparator_sources import build_comparator
from learners.preference.config import PreferenceConfig
from learners.preference.distributions import RewardDistribution, reward_range_of
from learners.preference.gathering import Gathering
from learners.preference.iterative import IterativeOptions, MADPOIter, MADPORounds, MARLHFIter, MARLHFIterConfig
from learners.preference.madpo import MADPO, MADPOConfig
from learners.preference.marlhf import MARLHF, MARLHFConfig, backend_trainer
from learners.preference.replay import ReplayBuffer
from learners.preference.reward_model import build_reward_model
from learners.preference.snapshots import Snapshots
from learners.sampling import SamplingConfig
from learners.trainers import TeamTrainer
from llm_envs.env import BranchingEnv
from llm_envs.types import AgentID
from llm_envs.wrappers import JointAgentAdapter, ScoreWith

REPLAY_FOLDER = "preference_replay"
DISTRIBUTIONS_FOLDER = "reward_distributions"


class PreferenceTrainer(TeamTrainer):
    """Trains a team on preferences between joint responses.

    Args:
        centralized_comparator_adapter: joins prompts and splits texts of a comparator that writes for all roles; `TaggedSections`
            by default.
        options: those of `TeamTrainer`.

    Raises:
        ValueError, TypeError: before any response is drawn, if the parts do not fit together.
    """

    learner: Any

    def __init__(self, *, centralized_comparator_adapter: JointAgentAdapter | None = None, **options: Any) -> None:
        self._comparator_adapter = centralized_comparator_adapter
        self._model_config: Mapping[str, Any] | ModelConfig | None = options.get("model_config")
        self._agent_model: str | PreTrainedModel | None = options.get("agent_model")
        super().__init__(**options)

    def build_phases(self, sampler: Sampler) -> Sequence[Phase]:
        """The parts of the run, one after the other."""
        return self.learner.phases(sampler)

    def _gathering(self, env: BranchingEnv, policies: Mapping[AgentID, HFPolicy], config: PreferenceConfig) -> Gathering:
        if not isinstance(config, IterativeOptions):
            if self._comparator_adapter is not None:
                raise ValueError("centralized_comparator_adapter cannot apply: only the iterative forms have a comparator")
            return Gathering(policies, config)
        sampling = SamplingConfig(config.temperature, config.top_p, config.top_k, config.max_new_tokens)
        loading = ModelConfig.from_mapping(self._model_config).for_helpers(config.dtype)
        comparisons = config.comparator_num_candidates or config.preference_num_candidates
        writers = config
        if config.collaboration_mode == "centralized":
            if self._comparator_adapter is not None:
                raise ValueError(
                    "centralized_comparator_adapter cannot apply with collaboration_mode='centralized': a comparator then reads "
                    "and writes what the team's one agent does, see team_adapter"
                )
            writers = replace(config, comparator_generation_mode="decentralized")
        return Gathering(
            policies,
            config,  # type: ignore[arg-type]
            rounds=config.num_iterations,
            comparator=build_comparator(writers, policies, sampling, self._comparator_adapter, loading),
            num_comparisons=comparisons,
            replay=ReplayBuffer.from_options(config, lambda: self.output_dir / REPLAY_FOLDER, seed=config.seed),  # type: ignore[attr-defined]
            distribution=self._distribution(env, config.discount) if config.log_reward_distribution else None,
            snapshots=Snapshots(config.policy_checkpoint_dir, policies),
        )

    def _distribution(self, env: BranchingEnv, discount: float) -> RewardDistribution:
        return RewardDistribution(reward_range_of(env, discount), lambda: self.output_dir / DISTRIBUTIONS_FOLDER)


class MADPOTrainer(PreferenceTrainer):
    """Trains a team with `MADPO`; arguments of `PreferenceTrainer`, `args` is a `MADPOConfig`."""

    learner_class: ClassVar[Any] = MADPO

    def build_learner(
        self, env: BranchingEnv, policies: Mapping[AgentID, HFPolicy], config: MADPOConfig, executor: Executor | None
    ) -> MADPORounds:
        """MADPO on pairs gathered once."""
        return MADPORounds(self._gathering(env, policies, config), MADPO(policies, config, executor=executor), config)


class MADPOIterTrainer(MADPOTrainer):
    """Trains a team with `MADPO` in rounds; arguments of `PreferenceTrainer`, `args` is a `MADPOIterConfig`."""

    learner_class: ClassVar[Any] = MADPOIter


class MARLHFTrainer(PreferenceTrainer):
    """Trains a team with `MARLHF`.

    Args:
        critic_model: of an actor-critic backend, see `ActorCriticTrainer`.
        critics: of an actor-critic backend, see `ActorCriticTrainer`.
        options: those of `PreferenceTrainer`; `args` is a `MARLHFConfig`.
    """

    learner_class: ClassVar[Any] = MARLHF

    def __init__(
        self, *, critic_model: str | Path | PreTrainedModel | None = None, critics: Sequence[Any] | None = None, **options: Any
    ) -> None:
        self._critic_model = critic_model
        self._critics = critics
        super().__init__(**options)

    def build_learner(
        self, env: BranchingEnv, policies: Mapping[AgentID, HFPolicy], config: MARLHFConfig, executor: Executor | None
    ) -> MARLHF:
        """Pairs, reward model and policy-gradient learner."""
        reward_model = build_reward_model(config, config, policies, self._model_config)
        self._backend = self._built_backend(ScoreWith(env, reward_model), policies, config)
        return self.learner_class(
            self._gathering(env, policies, config),
            reward_model,
            self._backend.learner,
            config,
            scores_with_model=isinstance(config, MARLHFIterConfig) and config.preference_scoring_reward == "reward_model",
        )

    def _built_backend(self, env: BranchingEnv, policies: Mapping[AgentID, HFPolicy], config: MARLHFConfig) -> Any:
        """A trainer of the learner that the config names: it builds the learner, with critics where it has some, and saves them."""
        backend = backend_trainer(config.rl_algorithm)
        args = config.backend_config(backend.learner_class.config_class)
        critics: dict[str, Any] = {"critic_model": self._critic_model or config.critic_model_name, "critics": self._critics}
        given = {name: value for name, value in critics.items() if value is not None}
        if isinstance(args, ActorCriticConfig):
            has_own_body = config.use_separate_critic is not False
            if not given and has_own_body and isinstance(self._agent_model, (str, Path)):
                given = {"critic_model": self._agent_model}
        elif given:
            raise ValueError(f"{', '.join(given)} cannot apply: rl_algorithm={config.rl_algorithm!r} has no critic")
        built = backend(env=env, policies=policies, args=args, progress=False, **given)
        if not isinstance(built.learner, Learner):
            raise ValueError(
                f"rl_algorithm={config.rl_algorithm!r} does not learn from rewards: it must be a policy-gradient learner"
            )
        return built

    def save_model(self, output_dir: str | Path) -> None:
        """Write the agents' folders and what the policy-gradient learner has, and the reward model as `reward_model/`."""
        self._backend.save_model(output_dir)
        self.learner.reward_model.save(Path(output_dir).expanduser() / "reward_model")


class MARLHFIterTrainer(MARLHFTrainer):
    """Trains a team with `MARLHF` in rounds; arguments of `MARLHFTrainer`, `args` is a `MARLHFIterConfig`."""

    learner_class: ClassVar[Any] = MARLHFIter
