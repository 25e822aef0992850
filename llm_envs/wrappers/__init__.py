"""Environments around environments. A learner need not know that there is one."""

from llm_envs.wrappers.base import Wrapper, rewarded
from llm_envs.wrappers.joint_agent import (
    JointAgent,
    JointAgentAdapter,
    TaggedSections,
    UnparsableCompletionError,
    joint_prompt,
    split_completion,
)
from llm_envs.wrappers.score_with import Scorer, ScoreWith
from llm_envs.wrappers.transform_reward import TransformReward
from llm_envs.wrappers.turn_limit import TurnLimit

__all__ = [
    "JointAgent",
    "JointAgentAdapter",
    "ScoreWith",
    "Scorer",
    "TaggedSections",
    "TransformReward",
    "TurnLimit",
    "UnparsableCompletionError",
    "Wrapper",
    "joint_prompt",
    "rewarded",
    "split_completion",
]
