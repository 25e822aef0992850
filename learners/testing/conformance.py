"""`check_learner`: every rule of the `Learner` protocol, checked one after the other on a toy task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from learners.testing import contract, resuming
from learners.testing.subject import MakeLearner, MakePolicies, Subject
from learners.testing.tabular import tabular_team
from llm_envs.testing import ConformanceError


@dataclass(frozen=True)
class Rule:
    """Something that has to hold.

    Attributes:
        check: raises if it does not; its first line states the rule.
        breaks: what goes wrong without it.
    """

    check: Callable[[Subject], None]
    breaks: str

    @property
    def statement(self) -> str:
        """The rule in words."""
        return (self.check.__doc__ or "").strip().splitlines()[0]


RULES = (
    Rule(contract.members, "the trainer, which reads and calls all of them"),
    Rule(
        contract.policies_in_order,
        "the collector, where an agent's place is part of its random stream; save_model, which numbers folders by it",
    ),
    Rule(contract.rollout_is_a_spec, "the collector, which does what it says"),
    Rule(
        contract.states_until_update,
        "the trainer collects that many states with one set of weights: after an early update the rest would be off-policy",
    ),
    Rule(contract.metrics, "logging: the file of metrics, its curves over env steps, the limit of logging_steps"),
    Rule(contract.weights_change, "training: it would run to its end and teach nothing"),
    Rule(contract.flush_updates, "the last items of every epoch, which would be thrown away"),
    Rule(contract.flush_empties, "the next epoch, which would train on samples of the last one again"),
    Rule(contract.steps_unchanged, "recordings, evaluation and reports, which read the same steps"),
    Rule(contract.global_streams, "users' rewards and transitions: what they draw would depend on the learner"),
    Rule(contract.not_finite_raises, "the weights: one NaN in them is all of them a step later, and a checkpoint keeps it"),
    Rule(resuming.state_survives_files, "checkpoints, which hold no pickled objects"),
    Rule(resuming.resume_is_exact, "interrupted runs: part of what decides the next step is not in the state"),
    Rule(resuming.refuses_strangers, "whoever resumes from the wrong folder: half a state would be loaded without a word"),
)
"""What `check_learner` checks, in order."""


def check_learner(make_learner: MakeLearner, *, make_policies: MakePolicies = tabular_team, num_turns: int = 1) -> tuple[str, ...]:
    """Check a learner against every rule; returns the rules that hold, in words.

    It is trained many times on a toy task of four items that pays nearly any two answers differently, for a little over two updates
    each. Give it the config that is to be checked, with small buffers: the time grows with them.

    Args:
        make_learner: policies by agent → a fresh learner on them, equal at each call. Rules need fresh ones, and ones for other
            agents.
        make_policies: agents → a fresh policy (`TrainablePolicy`) for each, equal at each call; tables of a few words by default.
        num_turns: of the toy task: 2 or 3 for what a learner makes of trees and chains.

    Raises:
        ConformanceError: for the first rule that does not hold, saying what was found and what goes wrong without it.
    """
    subject = Subject(make_learner, make_policies, num_turns)
    held = []
    for rule in RULES:
        try:
            rule.check(subject)
        except Exception as error:
            found = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise ConformanceError(f"{rule.statement} But: {found}. What goes wrong without it: {rule.breaks}.") from error
        held.append(rule.statement)
    return tuple(held)
