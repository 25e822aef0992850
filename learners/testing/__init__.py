"""Checks for learners, those of other packages included, and a policy without a model to try them on."""

from learners.testing.conformance import RULES, Rule, check_learner
from learners.testing.tabular import TabularPolicy, tabular_team
from llm_envs.testing import ConformanceError

__all__ = ["RULES", "ConformanceError", "Rule", "TabularPolicy", "check_learner", "tabular_team"]
