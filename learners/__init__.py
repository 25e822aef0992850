"""Learners: from a stream of env steps to parameters.

The public names. Each is imported from its module when it is first used, so that `import learners`, the command line's help and the
checks of environments load no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from learners.actor_critic.config import ActorCriticConfig
    from learners.actor_critic.critic import Critic, ValueHead
    from learners.actor_critic.iac import IAC, IACConfig
    from learners.actor_critic.maac import MAAC, MAACConfig
    from learners.actor_critic.trainers import ActorCriticTrainer, IACTrainer, MAACTrainer
    from learners.checkpoint import CheckpointError, CheckpointStore
    from learners.config import TrainingConfig
    from learners.curves import plot
    from learners.evaluation import EvalAggregator, EvalLogger, MetricsCallback, evaluation_episodes, evaluation_metrics
    from learners.learner import Learner, TrainablePolicy, Trainee
    from learners.models import ModelConfig, load_policies
    from learners.optim import PolicyOptimizer
    from learners.phases import Outcome, Phase, RolloutPhase, Sampler
    from learners.policy import HFPolicy, TokenLogprobs
    from learners.preference.comparators import Comparator
    from learners.preference.config import PreferenceConfig
    from learners.preference.iterative import MADPOIter, MADPOIterConfig, MARLHFIter, MARLHFIterConfig
    from learners.preference.madpo import MADPO, MADPOConfig
    from learners.preference.marlhf import MARLHF, MARLHFConfig
    from learners.preference.pairs import JointResponse, Pair
    from learners.preference.replay import ReplayBuffer
    from learners.preference.reward_model import JointRewardModel
    from learners.preference.trainers import MADPOIterTrainer, MADPOTrainer, MARLHFIterTrainer, MARLHFTrainer, PreferenceTrainer
    from learners.registry import list_learners, trainer_class
    from learners.reinforce import (
        MAGRPO,
        MAREINFORCE,
        MARLOO,
        MAGRPOConfig,
        MAREINFORCEConfig,
        MAReMax,
        MAReMaxConfig,
        MARLOOConfig,
        Reinforce,
        ReinforceConfig,
    )
    from learners.report import summarize
    from learners.sampling import SamplingConfig
    from learners.teams import Team, teams_of
    from learners.tiny import tiny_model
    from learners.tracking import JsonlSink, Sink, TensorBoardSink, WandbSink, read_metrics
    from learners.trainer import Trainer
    from learners.trainers import MAGRPOTrainer, MAREINFORCETrainer, MAReMaxTrainer, MARLOOTrainer, ReinforceTrainer, TeamTrainer

__all__ = [
    "IAC",
    "MAAC",
    "MADPO",
    "MAGRPO",
    "MAREINFORCE",
    "MARLHF",
    "MARLOO",
    "ActorCriticConfig",
    "ActorCriticTrainer",
    "CheckpointError",
    "CheckpointStore",
    "Comparator",
    "Critic",
    "EvalAggregator",
    "EvalLogger",
    "HFPolicy",
    "IACConfig",
    "IACTrainer",
    "JointResponse",
    "JointRewardModel",
    "JsonlSink",
    "Learner",
    "MAACConfig",
    "MAACTrainer",
    "MADPOConfig",
    "MADPOIter",
    "MADPOIterConfig",
    "MADPOIterTrainer",
    "MADPOTrainer",
    "MAGRPOConfig",
    "MAGRPOTrainer",
    "MAREINFORCEConfig",
    "MAREINFORCETrainer",
    "MARLHFConfig",
    "MARLHFIter",
    "MARLHFIterConfig",
    "MARLHFIterTrainer",
    "MARLHFTrainer",
    "MARLOOConfig",
    "MARLOOTrainer",
    "MAReMax",
    "MAReMaxConfig",
    "MAReMaxTrainer",
    "MetricsCallback",
    "ModelConfig",
    "Outcome",
    "Pair",
    "Phase",
    "PolicyOptimizer",
    "PreferenceConfig",
    "PreferenceTrainer",
    "Reinforce",
    "ReinforceConfig",
    "ReinforceTrainer",
    "ReplayBuffer",
    "RolloutPhase",
    "Sampler",
    "SamplingConfig",
    "Sink",
    "Team",
    "TeamTrainer",
    "TensorBoardSink",
    "TokenLogprobs",
    "TrainablePolicy",
    "Trainee",
    "Trainer",
    "TrainingConfig",
    "ValueHead",
    "WandbSink",
    "evaluation_episodes",
    "evaluation_metrics",
    "list_learners",
    "load_policies",
    "plot",
    "read_metrics",
    "summarize",
    "teams_of",
    "tiny_model",
    "trainer_class",
]

_MODULES = {
    "learners.actor_critic.config": ("ActorCriticConfig",),
    "learners.actor_critic.critic": ("Critic", "ValueHead"),
    "learners.actor_critic.iac": ("IAC", "IACConfig"),
    "learners.actor_critic.maac": ("MAAC", "MAACConfig"),
    "learners.actor_critic.trainers": ("ActorCriticTrainer", "IACTrainer", "MAACTrainer"),
    "learners.checkpoint": ("CheckpointError", "CheckpointStore"),
    "learners.config": ("TrainingConfig",),
    "learners.curves": ("plot",),
    "learners.evaluation": ("EvalAggregator", "EvalLogger", "MetricsCallback", "evaluation_episodes", "evaluation_metrics"),
    "learners.learner": ("Learner", "TrainablePolicy", "Trainee"),
    "learners.models": ("ModelConfig", "load_policies"),
    "learners.optim": ("PolicyOptimizer",),
    "learners.phases": ("Outcome", "Phase", "RolloutPhase", "Sampler"),
    "learners.policy": ("HFPolicy", "TokenLogprobs"),
    "learners.preference.comparators": ("Comparator",),
    "learners.preference.config": ("PreferenceConfig",),
    "learners.preference.iterative": ("MADPOIter", "MADPOIterConfig", "MARLHFIter", "MARLHFIterConfig"),
    "learners.preference.madpo": ("MADPO", "MADPOConfig"),
    "learners.preference.marlhf": ("MARLHF", "MARLHFConfig"),
    "learners.preference.pairs": ("JointResponse", "Pair"),
    "learners.preference.replay": ("ReplayBuffer",),
    "learners.preference.reward_model": ("JointRewardModel",),
    "learners.preference.trainers": ("MADPOIterTrainer", "MADPOTrainer", "MARLHFIterTrainer", "MARLHFTrainer", "PreferenceTrainer"),
    "learners.registry": ("list_learners", "trainer_class"),
    "learners.reinforce": (
        "MAGRPO",
        "MAREINFORCE",
        "MARLOO",
        "MAGRPOConfig",
        "MAREINFORCEConfig",
        "MAReMax",
        "MAReMaxConfig",
        "MARLOOConfig",
        "Reinforce",
        "ReinforceConfig",
    ),
    "learners.report": ("summarize",),
    "learners.sampling": ("SamplingConfig",),
    "learners.teams": ("Team", "teams_of"),
    "learners.tiny": ("tiny_model",),
    "learners.tracking": ("JsonlSink", "Sink", "TensorBoardSink", "WandbSink", "read_metrics"),
    "learners.trainer": ("Trainer",),
    "learners.trainers": (
        "MAGRPOTrainer",
        "MAREINFORCETrainer",
        "MAReMaxTrainer",
        "MARLOOTrainer",
        "ReinforceTrainer",
        "TeamTrainer",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
