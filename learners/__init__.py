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
    from learners.evaluation import EvalAggregator, EvalLogger, MetricsCallback, evaluation_episodes, evaluation_metrics
    from learners.learner import Learner, TrainablePolicy
    from learners.models import ModelConfig, load_policies
    from learners.optim import PolicyOptimizer
    from learners.policy import HFPolicy, TokenLogprobs
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
    from learners.report import plot, summarize
    from learners.sampling import SamplingConfig
    from learners.teams import Team, teams_of
    from learners.tiny import tiny_model
    from learners.tracking import JsonlSink, Sink, TensorBoardSink, WandbSink, read_metrics
    from learners.trainer import Trainer
    from learners.trainers import MAGRPOTrainer, MAREINFORCETrainer, MAReMaxTrainer, MARLOOTrainer, ReinforceTrainer, TeamTrainer

__all__ = [
    "IAC",
    "MAAC",
    "MAGRPO",
    "MAREINFORCE",
    "MARLOO",
    "ActorCriticConfig",
    "ActorCriticTrainer",
    "CheckpointError",
    "CheckpointStore",
    "Critic",
    "EvalAggregator",
    "EvalLogger",
    "HFPolicy",
    "IACConfig",
    "IACTrainer",
    "JsonlSink",
    "Learner",
    "MAACConfig",
    "MAACTrainer",
    "MAGRPOConfig",
    "MAGRPOTrainer",
    "MAREINFORCEConfig",
    "MAREINFORCETrainer",
    "MARLOOConfig",
    "MARLOOTrainer",
    "MAReMax",
    "MAReMaxConfig",
    "MAReMaxTrainer",
    "MetricsCallback",
    "ModelConfig",
    "PolicyOptimizer",
    "Reinforce",
    "ReinforceConfig",
    "ReinforceTrainer",
    "SamplingConfig",
    "Sink",
    "Team",
    "TeamTrainer",
    "TensorBoardSink",
    "TokenLogprobs",
    "TrainablePolicy",
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

_HOMES = {
    "TeamTrainer": "learners.trainers",
    "MAACTrainer": "learners.actor_critic.trainers",
    "IACTrainer": "learners.actor_critic.trainers",
    "ActorCriticTrainer": "learners.actor_critic.trainers",
    "MAACConfig": "learners.actor_critic.maac",
    "MAAC": "learners.actor_critic.maac",
    "IACConfig": "learners.actor_critic.iac",
    "IAC": "learners.actor_critic.iac",
    "ValueHead": "learners.actor_critic.critic",
    "Critic": "learners.actor_critic.critic",
    "ActorCriticConfig": "learners.actor_critic.config",
    "CheckpointError": "learners.checkpoint",
    "CheckpointStore": "learners.checkpoint",
    "TrainingConfig": "learners.config",
    "EvalAggregator": "learners.evaluation",
    "EvalLogger": "learners.evaluation",
    "MetricsCallback": "learners.evaluation",
    "evaluation_episodes": "learners.evaluation",
    "evaluation_metrics": "learners.evaluation",
    "Learner": "learners.learner",
    "TrainablePolicy": "learners.learner",
    "ModelConfig": "learners.models",
    "load_policies": "learners.models",
    "PolicyOptimizer": "learners.optim",
    "HFPolicy": "learners.policy",
    "TokenLogprobs": "learners.policy",
    "list_learners": "learners.registry",
    "trainer_class": "learners.registry",
    "MAGRPO": "learners.reinforce",
    "MAREINFORCE": "learners.reinforce",
    "MARLOO": "learners.reinforce",
    "MAGRPOConfig": "learners.reinforce",
    "MAREINFORCEConfig": "learners.reinforce",
    "MARLOOConfig": "learners.reinforce",
    "MAReMax": "learners.reinforce",
    "MAReMaxConfig": "learners.reinforce",
    "Reinforce": "learners.reinforce",
    "ReinforceConfig": "learners.reinforce",
    "plot": "learners.report",
    "summarize": "learners.report",
    "SamplingConfig": "learners.sampling",
    "Team": "learners.teams",
    "teams_of": "learners.teams",
    "tiny_model": "learners.tiny",
    "JsonlSink": "learners.tracking",
    "Sink": "learners.tracking",
    "TensorBoardSink": "learners.tracking",
    "WandbSink": "learners.tracking",
    "read_metrics": "learners.tracking",
    "Trainer": "learners.trainer",
    "MAGRPOTrainer": "learners.trainers",
    "MAREINFORCETrainer": "learners.trainers",
    "MARLOOTrainer": "learners.trainers",
    "MAReMaxTrainer": "learners.trainers",
    "ReinforceTrainer": "learners.trainers",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
