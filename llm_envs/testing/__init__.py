"""Checks for tasks and environments, users' own included: contracts, transcripts, reward audits; and a policy with a script."""

from llm_envs.testing.audit import Audit, TeamReturns, audit_rewards
from llm_envs.testing.conformance import RULES, ConformanceError, Rule, check_env
from llm_envs.testing.scripted import END_TOKEN, ScriptedPolicy, completion_of
from llm_envs.testing.tasks import check_task
from llm_envs.testing.transcripts import env_transcript, transcript

__all__ = [
    "END_TOKEN",
    "RULES",
    "Audit",
    "ConformanceError",
    "Rule",
    "ScriptedPolicy",
    "TeamReturns",
    "audit_rewards",
    "check_env",
    "check_task",
    "completion_of",
    "env_transcript",
    "transcript",
]
