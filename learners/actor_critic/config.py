"""Options that IAC and MAAC share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from learners.config import TrainingConfig, require_choice, require_devices, require_int, require_number
from llm_envs.types import RolloutSpec


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(TrainingConfig):
    """Options of the actor-critic family, beside those of `TrainingConfig`.

    Attributes:
        num_generations: K, completions each agent draws at a state; 1 with several turns, which are chains.
        early_termination_threshold: a state whose mean reward exceeds it is not gone on from; None goes on.
        rollout_buffer_size: samples of each agent collected for an update.
        train_batch_size: samples an optimiser step; None takes the whole buffer.
        critic_type: "v" reads what is before the action, "q" the action too; the TD residual is the same.
        critic_learning_rate: of the critic's AdamW; None takes the agents'.
        value_head_learning_rate: of the value heads alone; None trains them at the rate of what they sit on.
        critic_value_head_hidden_dim: width of a layer inside a critic's value head; None is linear.
        critic_devices: one device, or one for each critic; None puts a critic beside its agent.
        value_loss_coef: weight of the critic's squared error.
        advantage_normalization: centre the advantages of an agent's turn and divide by their standard deviation.
        gae_lambda: λ of the returns the critic is trained towards; 0 is TD(0), 1 without bootstrap.
        critic_warmup_updates: updates at the start that train the critic alone.
        reference_kl_enabled: subtract `reference_kl_coef` · KL to the initial policy from each reward.
        reference_kl_coef: reward units per nat.
        reference_devices: one device, or one for each agent; None puts each reference beside its agent.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset(
        {"critic_learning_rate", "value_head_learning_rate", "critic_devices", "reference_devices"}
    )

    num_train_epochs: int = 40
    logging_steps: int = 1
    top_k: int | None = None
    num_generations: int = 1
    early_termination_threshold: float | None = None
    rollout_buffer_size: int = 8
    train_batch_size: int | None = None
    critic_type: Literal["v", "q"] = "v"
    critic_learning_rate: float | None = 5e-6
    value_head_learning_rate: float | None = None
    critic_value_head_hidden_dim: int | None = None
    critic_devices: str | Sequence[str] | None = None
    value_loss_coef: float = 0.6
    advantage_normalization: bool = True
    gae_lambda: float = 0.0
    critic_warmup_updates: int = 0
    reference_kl_enabled: bool = False
    reference_kl_coef: float = 0.1
    reference_devices: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_int("num_generations", self.num_generations, 1)
        require_int("rollout_buffer_size", self.rollout_buffer_size, 1)
        require_int("train_batch_size", self.train_batch_size, 1, optional=True)
        require_int("critic_value_head_hidden_dim", self.critic_value_head_hidden_dim, 1, optional=True)
        require_int("critic_warmup_updates", self.critic_warmup_updates, 0)
        require_choice("critic_type", self.critic_type, ("v", "q"))
        require_choice("advantage_normalization", self.advantage_normalization, (True, False))
        require_number("critic_learning_rate", self.critic_learning_rate, above=0, optional=True)
        require_number("value_head_learning_rate", self.value_head_learning_rate, above=0, optional=True)
        require_number("value_loss_coef", self.value_loss_coef, above=0)
        require_number("gae_lambda", self.gae_lambda, at_least=0, at_most=1)
        require_number("early_termination_threshold", self.early_termination_threshold, optional=True)
        require_devices("critic_devices", self.critic_devices)
        require_choice("reference_kl_enabled", self.reference_kl_enabled, (True, False))
        require_number("reference_kl_coef", self.reference_kl_coef, at_least=0)
        require_devices("reference_devices", self.reference_devices, self.team_size)
        if self.reference_devices is not None and not self.reference_kl_enabled:
            raise ValueError(
                f"reference_devices={self.reference_devices!r} needs reference_kl_enabled=True: without it there are none"
            )
        if self.num_turns is not None:
            self.check_num_turns(self.num_turns)

    def check_num_turns(self, num_turns: int) -> None:
        """Refuse an env with another number of turns, or with several turns for several generations.

        Raises:
            ValueError: naming both.
        """
        super().check_num_turns(num_turns)
        if num_turns > 1 and self.num_generations > 1:
            raise ValueError(
                f"num_generations must be 1 with several turns, got {self.num_generations} for num_turns={num_turns}: "
                "an actor-critic learner follows chains, and more generations would make a tree"
            )

    @property
    def rollout(self) -> RolloutSpec:
        """What the collector does for this learner."""
        return RolloutSpec(self.num_generations, "aligned", self.early_termination_threshold)
