"""Environments around environments. A learner need not know that there is one."""

from llm_envs.wrappers.aec_view import AECView
from llm_envs.wrappers.base import Wrapper, rewarded
from llm_envs.wrappers.choice_view import Candidates, ChoiceView
from llm_envs.wrappers.joint_agent import (
    JointAgent,
    JointAgentAdapter,
    TaggedSections,
    UnparsableCompletionError,
    joint_prompt,
    split_completion,
)
from llm_envs.wrappers.partners import FixedPartners
from llm_envs.wrappers.score_with import Scorer, ScoreWith
from llm_envs.wrappers.single_agent import SingleAgentEnv
from llm_envs.wrappers.token_view import AutoregressiveTokenView, TokenView
from llm_envs.wrappers.tokens import ByteTokenizer, Tokenizer, Vocabulary
from llm_envs.wrappers.transform_reward import TransformReward
from llm_envs.wrappers.turn_limit import TurnLimit
from llm_envs.wrappers.vector import async_vector_env, sync_vector_env
from llm_envs.wrappers.view import View

__all__ = [
    "AECView",
    "AutoregressiveTokenView",
    "ByteTokenizer",
    "Candidates",
    "ChoiceView",
    "FixedPartners",
    "JointAgent",
    "JointAgentAdapter",
    "ScoreWith",
    "Scorer",
    "SingleAgentEnv",
    "TaggedSections",
    "TokenView",
    "Tokenizer",
    "TransformReward",
    "TurnLimit",
    "UnparsableCompletionError",
    "View",
    "Vocabulary",
    "Wrapper",
    "async_vector_env",
    "joint_prompt",
    "rewarded",
    "split_completion",
    "sync_vector_env",
]
