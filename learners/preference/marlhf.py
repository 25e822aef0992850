"""MARLHF: pairs → a joint reward model → any policy-gradient learner on the env that it rewards. One round of that, or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from learners.actor_critic.config import ActorCriticConfig
from learners.config import TrainingConfig, require_int, require_text
from learners.learner import Learner
from learners.phases import Phase, RolloutPhase, Sampler
from learners.preference.config import PreferenceConfig
from learners.preference.fitting import FitPhase, Meter
from learners.preference.gathering import Gathering
from learners.preference.pairs import Pair
from learners.preference.parts import Parts
from learners.preference.reward_model import JointRewardModel, RewardModelOptions, pairs_by_prompts, split_holdout
from learners.registry import trainer_class
from llm_envs.types import AgentID, Policy
from llm_envs.wrappers import ScoreWith

_ALIASES = {"mareforce": "mareinforce"}

_TO_BACKEND = (
    "num_generations",
    "rollout_buffer_size",
    "train_batch_size",
    "critic_learning_rate",
    "critic_devices",
    "use_separate_critic",
    "critic_type",
    "value_loss_coef",
    "value_clip_range",
    "critic_value_head_hidden_dim",
    "value_head_hidden_dim",
)


@dataclass(frozen=True, kw_only=True)
class MARLHFConfig(PreferenceConfig, RewardModelOptions):
    """Options of MARLHF, beside those of `PreferenceConfig` and of the reward model.

    `num_train_epochs` are those of the policy-gradient learner. Its options below are None where its own default holds; one that it
    does not have is an error.

    Attributes:
        rl_algorithm: name of the learner: "magrpo", "mareinforce", "marloo", "maremax", "maac", "iac", or one that a distribution
            adds.
        rl_options: any further options of it, by name.
        num_generations: of the learner.
        rollout_buffer_size: of the learner.
        train_batch_size: of the learner.
        critic_model_name: of an actor-critic learner: its critics' model; None is the agents'.
        critic_learning_rate: of an actor-critic learner, as all below.
        critic_devices: see `ActorCriticConfig`.
        use_separate_critic: see `IACConfig`.
        critic_type: see `ActorCriticConfig`.
        value_loss_coef: see `ActorCriticConfig`.
        value_clip_range: see `IACConfig`.
        critic_value_head_hidden_dim: see `ActorCriticConfig`.
        value_head_hidden_dim: see `IACConfig`.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({"critic_learning_rate", "critic_devices"})

    rl_algorithm: str = "magrpo"
    rl_options: Mapping[str, Any] = field(default_factory=dict)
    num_generations: int | None = 4
    rollout_buffer_size: int | None = None
    train_batch_size: int | None = None
    critic_model_name: str | None = None
    critic_learning_rate: float | None = None
    critic_devices: str | Sequence[str] | None = None
    use_separate_critic: bool | None = None
    critic_type: str | None = None
    value_loss_coef: float | None = None
    value_clip_range: float | None = None
    critic_value_head_hidden_dim: int | None = None
    value_head_hidden_dim: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_text("rl_algorithm", self.rl_algorithm)
        if not isinstance(self.rl_options, Mapping) or not all(isinstance(name, str) for name in self.rl_options):
            raise ValueError(f"rl_options must map names to values, got {self.rl_options!r}")
        object.__setattr__(self, "rl_algorithm", _ALIASES.get(self.rl_algorithm, self.rl_algorithm))
        self.check_reward_model_options()
        require_int("num_generations", self.num_generations, 1, optional=True)
        known = {entry.name for entry in fields(self)}
        repeated = [name for name in self.rl_options if name in known]
        if repeated:
            raise ValueError(f"rl_options must not hold {', '.join(repeated)}: the config has options of these names")
        require_text("critic_model_name", self.critic_model_name, optional=True)
        self._check_backend()

    def _check_backend(self) -> None:
        """Refuse now what the learner would refuse once the models are loaded."""
        config_class = backend_trainer(self.rl_algorithm).learner_class.config_class
        if issubclass(config_class, PreferenceConfig):
            raise ValueError(f"rl_algorithm={self.rl_algorithm!r} learns from preferences: it must be a policy-gradient learner")
        self.backend_config(config_class)
        if self.critic_model_name is None:
            return
        if not issubclass(config_class, ActorCriticConfig):
            raise ValueError(f"critic_model_name cannot apply: rl_algorithm={self.rl_algorithm!r} has no critic")
        if self.use_separate_critic is False:
            raise ValueError(
                f"critic_model_name cannot apply with use_separate_critic=False, whose critics are heads on the actors, "
                f"got {self.critic_model_name!r}"
            )

    def backend_config(self, config_class: type[TrainingConfig]) -> TrainingConfig:
        """The learner's config: what all learners share, and its own options.

        Raises:
            ValueError: an option that the learner does not have, or a value it refuses.
        """
        shared = {entry.name: getattr(self, entry.name) for entry in fields(TrainingConfig)}
        # The env and the team are settled by then.
        shared |= {"collaboration_mode": "decentralized", "num_agents": None, "external_prompt_passthrough": False}
        own = {name: value for name in _TO_BACKEND if (value := getattr(self, name)) is not None} | dict(self.rl_options)
        known = {entry.name for entry in fields(config_class)}
        unknown = [f"rl_options.{name}" if name in self.rl_options else name for name in own if name not in known]
        if unknown:
            raise ValueError(f"{', '.join(unknown)} cannot apply: rl_algorithm={self.rl_algorithm!r} has no such option")
        try:
            return config_class(**{**shared, **own})
        except ValueError as error:
            raise ValueError(f"rl_algorithm={self.rl_algorithm!r}: {error}") from error


def backend_trainer(rl_algorithm: str) -> Any:
    """Class of the trainer of a policy-gradient learner.

    Raises:
        ValueError: an unknown name, with those like it.
        ImportError: it cannot be imported.
    """
    try:
        return trainer_class(_ALIASES.get(rl_algorithm, rl_algorithm))
    except ValueError as error:
        raise ValueError(f"rl_algorithm: {error}") from error


class MARLHF(Parts):
    """The parts of a MARLHF run, one after the other.

    Args:
        gathering: of the pairs.
        reward_model: is fitted to them.
        backend: the policy-gradient learner of the same policies.
        config: of the run.
        scores_with_model: whether the reward model fitted last ranks the responses, once there is one.
    """

    config_class: ClassVar[type[MARLHFConfig]] = MARLHFConfig

    def __init__(
        self,
        gathering: Gathering,
        reward_model: JointRewardModel,
        backend: Learner,
        config: MARLHFConfig,
        *,
        scores_with_model: bool = False,
    ) -> None:
        self.policies: Mapping[AgentID, Policy] = backend.policies
        self.backend = backend
        self.reward_model = reward_model
        self._gathering = gathering
        self._config = config
        self._scores_with_model = scores_with_model
        self._meter = Meter()
        super().__init__(backend, {**gathering.parts(), "reward_model": reward_model, "meter": self._meter})

    def phases(self, sampler: Sampler) -> list[Phase]:
        """Collect, fit, reinforce: for each round."""
        scored = sampler.on(ScoreWith(sampler.env, self.reward_model))
        phases: list[Phase] = []
        for iteration in range(1, self._gathering.rounds + 1):
            collecting = self._gathering.phase(lambda: scored if self._model_ranks else sampler, iteration)
            phases += [collecting, self._fit(iteration), self._reinforce(scored, iteration)]
        return phases

    @property
    def _model_ranks(self) -> bool:
        return self._scores_with_model and self.reward_model.updates > 0

    def _fit(self, iteration: int) -> FitPhase:
        return FitPhase(
            self._gathering.label(iteration, "fitting the reward model"),
            self.reward_model,
            lambda: self._split(iteration)[0],
            epochs=self._config.reward_num_train_epochs,
            batch_size=self._config.reward_train_batch_size,
            path=(self._config.seed, iteration, 1),
            meter=self._meter,
            prefix="reward_model",
            changes_policies=False,
            at_begin=self._reset,
            at_end=lambda: self._holdout(iteration),
        )

    def _reset(self) -> None:
        # A round without pairs keeps the model of the one before.
        if self._gathering.store.selected:
            self.reward_model.reset()

    def _split(self, iteration: int) -> tuple[list[Pair], list[Pair]]:
        by_item = pairs_by_prompts(self._gathering.store.selected)
        return split_holdout(by_item, self._config.reward_holdout_fraction, (self._config.seed, iteration))

    def _holdout(self, iteration: int) -> dict[str, float]:
        held = self._split(iteration)[1]
        return {f"holdout_{name}": value for name, value in self.reward_model.evaluate(held).items()} if held else {}

    def _reinforce(self, scored: Sampler, iteration: int) -> RolloutPhase:
        epochs = self._config.num_train_epochs
        return RolloutPhase(
            scored,
            self.backend,
            epochs,
            self._gathering.label(iteration, f"training with {self._config.rl_algorithm}"),
            first_epoch=(iteration - 1) * epochs,
            wanted=lambda: bool(self._gathering.store.selected),
            at_finish=lambda: self._gathering.end_round(iteration),
        )
