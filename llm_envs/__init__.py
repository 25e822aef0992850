"""Tasks for teams of language models as PettingZoo parallel environments.

A `Task` (rows, formatters, a reward, a transition) becomes an environment with `TaskEnv(task)` or by name with `make`; `collect`
plays policies on it and gives the stream of `EnvStep`s that learners read. Submodules: `wrappers`, `recording`, `testing`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from llm_envs import recording, wrappers
from llm_envs.env import BranchingEnv, TaskEnv
from llm_envs.formatters import Formatter
from llm_envs.registry import EnvSpec, list_envs, make, register, spec
from llm_envs.rewards import RewardError, RewardFunction, RewardProcessor, RewardProcessors, scaled, set_reward_range, terms
from llm_envs.rollouts import Numbering, collect, joint_choices
from llm_envs.seeding import EVALUATION, TRAINING
from llm_envs.spaces import UnicodeText
from llm_envs.task import Task
from llm_envs.transitions import ExternalTransition, TransitionError
from llm_envs.types import (
    AgentID,
    ChatPrompt,
    Completion,
    EnvStep,
    Item,
    JointAction,
    Metrics,
    Policy,
    RolloutSpec,
    State,
    Transition,
    Turn,
)

if TYPE_CHECKING:
    from llm_envs import testing

__all__ = [
    "EVALUATION",
    "TRAINING",
    "AgentID",
    "BranchingEnv",
    "ChatPrompt",
    "Completion",
    "EnvSpec",
    "EnvStep",
    "ExternalTransition",
    "Formatter",
    "Item",
    "JointAction",
    "Metrics",
    "Numbering",
    "Policy",
    "RewardError",
    "RewardFunction",
    "RewardProcessor",
    "RewardProcessors",
    "RolloutSpec",
    "State",
    "Task",
    "TaskEnv",
    "Transition",
    "TransitionError",
    "Turn",
    "UnicodeText",
    "collect",
    "joint_choices",
    "list_envs",
    "make",
    "recording",
    "register",
    "scaled",
    "set_reward_range",
    "spec",
    "terms",
    "testing",
    "wrappers",
]


def __getattr__(name: str) -> ModuleType:
    # Checks and scripted policies are for tests: what they need is loaded when they are used.
    if name == "testing":
        return importlib.import_module("llm_envs.testing")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
