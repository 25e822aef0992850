"""What a team's class earns: methods that are there, hidden tests, overlap. Reward terms and feedback read one verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from llm_envs.sandbox import Limits, Outcome, Report, Trial
from llm_envs.tasks.classeval.answers import Answer, merged, read_answer
from llm_envs.tasks.classeval.classes import ClassProblem, class_of, is_stub
from llm_envs.tasks.classeval.dividing import divide
from llm_envs.tasks.classeval.examples import ClassExample, examples_of
from llm_envs.tasks.classeval.faults import KNOWN_FAULTS
from llm_envs.tasks.code.levels import FORM_AT_ONCE
from llm_envs.tasks.shared_sandbox import shared_sandbox
from llm_envs.tasks.turns import turn_weight, weighed
from llm_envs.types import AgentID, Item, State

METHODS, TESTS, OVERLAP = 2.0, 4.0, 1.0
"""What each part is worth at most; overlap costs."""

BEST = METHODS + TESTS
"""The most a joint answer can score."""

FACTORS = {"methods": 1.0, "tests": 1.0, "overlap": 1.0, "passed": 0.0, "solved": 0.0}
"""The reward's terms; those with 0 are logged only."""


@dataclass(frozen=True)
class Verdict:
    """How good one joint answer is.

    Attributes:
        problem: that was worked on.
        shares: names of each agent's methods.
        answers: what was read from each agent's text.
        program: the class that they make.
        report: from running the tests on it.
        untouched: the report of the skeleton.
        left_out: names of tests that do not count.
    """

    problem: ClassProblem
    shares: tuple[tuple[str, ...], ...]
    answers: tuple[Answer, ...]
    program: str
    report: Report
    untouched: Report
    left_out: frozenset[str]

    @property
    def valid(self) -> tuple[str, ...]:
        """Methods that their owners gave, and that are more than stubs."""
        return tuple(
            name
            for share, answer in zip(self.shares, self.answers, strict=True)
            for name in share
            if name in answer.methods and not is_stub(answer.methods[name])
        )

    def foreign(self, agent: int) -> tuple[str, ...]:
        """Methods of others that an agent gave, stubs aside."""
        names = {method.name for method in self.problem.methods} - set(self.shares[agent])
        methods = self.answers[agent].methods
        return tuple(name for name in methods if name in names and not is_stub(methods[name]))

    @property
    def overlap(self) -> float:
        """Share of the class's methods that somebody gave who does not own them. In [0, 1]."""
        return len({name for agent in range(len(self.shares)) for name in self.foreign(agent)}) / len(self.problem.methods)

    @property
    def hidden(self) -> tuple[Outcome, ...]:
        """The outcome of each hidden test that counts."""
        return tuple(outcome for outcome in self.report.checks if outcome.name not in self.left_out)

    @property
    def passed(self) -> float:
        """Share of these that pass."""
        return sum(outcome.passed for outcome in self.hidden) / len(self.hidden)

    @cached_property
    def tests(self) -> float:
        """What the class passes beyond the skeleton, as a share of what it can: 0 for the skeleton, 1 for all tests. At least 0.

        A test that the skeleton passes and the class does not counts against it.

        Raises:
            ValueError: the skeleton passes all.
        """
        idle = sum(outcome.passed for outcome in self.untouched.checks if outcome.name not in self.left_out)
        if idle == len(self.hidden):
            raise ValueError(f"row {self.problem.task_id!r}: its skeleton passes all {idle} tests, so there is nothing to earn")
        gained = sum(outcome.passed for outcome in self.hidden) - idle
        return max(0.0, gained / (len(self.hidden) - idle))

    def terms(self) -> dict[str, float]:
        """Every term of the score."""
        form = FORM_AT_ONCE + (1.0 - FORM_AT_ONCE) * self.tests
        return {
            "methods": METHODS * form * len(self.valid) / len(self.problem.methods),
            "tests": TESTS * self.tests,
            "overlap": 0.0 - OVERLAP * self.overlap,
            "passed": self.passed,
            "solved": float(self.passed == 1.0),
        }

    @property
    def score(self) -> float:
        """The sum of the terms that count. In [−1, 6]."""
        return math.fsum(FACTORS[name] * value for name, value in self.terms().items())

    @property
    def perfect(self) -> bool:
        """Whether nothing is left to improve."""
        return self.score >= BEST - 1e-9


@dataclass(frozen=True)
class Judge:
    """The reward: every term of every joint answer, weighed by what the turn counts.

    Attributes:
        agents: number of programmers.
        num_turns: H.
        limits: of the sandbox that runs the classes.
        all_tests: whether tests that are known to be wrong count.
    """

    agents: int
    num_turns: int
    limits: Limits
    all_tests: bool = False

    @property
    def names(self) -> tuple[AgentID, ...]:
        """`coder_0`, `coder_1`, …."""
        return tuple(f"coder_{number}" for number in range(self.agents))

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest reward of a turn."""
        return -OVERLAP, BEST

    def __call__(self, *responses: list[str], batch_items: Sequence[Item], states: Sequence[State]) -> list[dict[str, float]]:
        """The terms of each joint response, shared by the team. Range of their sum: [−1, 6]."""
        verdicts = self.verdicts(list(zip(*responses, strict=True)), batch_items[0])
        rows = []
        for verdict, state in zip(verdicts, states, strict=True):
            weight = turn_weight(verdict.perfect, state.turn + 1, self.num_turns)
            rows.append(weighed(verdict.terms(), FACTORS, weight))
        return rows

    def verdicts(self, joint: Sequence[Sequence[str]], item: Item) -> list[Verdict]:
        """The verdict of each of several joint answers to one row; all classes run in one call, the skeleton with them."""
        problem = class_of(item)
        shares = divide(problem, self.agents)
        methods = [method.name for method in problem.methods]
        answers = [
            tuple(read_answer(text, problem.name, methods=methods, modules=problem.modules) for text in texts) for texts in joint
        ]
        nothing = merged(problem, (), ())
        programs = [merged(problem, shares, one) for one in answers]
        trials = [_hidden_trial(problem, program) for program in (nothing, *programs)]
        untouched, *reports = shared_sandbox(self.limits).run_all(trials)
        left_out = frozenset() if self.all_tests else frozenset(KNOWN_FAULTS.get(problem.task_id, ()))
        return [
            Verdict(problem, shares, one, program, report, untouched, left_out)
            for one, program, report in zip(answers, programs, reports, strict=True)
        ]

    def examples(self, verdict: Verdict) -> list[tuple[ClassExample, Outcome]]:
        """How each public example came out, without those that the row's own solution contradicts: docstrings err."""
        problem = verdict.problem
        shown = examples_of(problem)
        programs = [verdict.program, *([problem.solution] if problem.solution else [])]
        trials = [
            Trial(solution=program, names=(problem.name,), setup=problem.imports, checks=tuple(example.check for example in shown))
            for program in programs
        ]
        report, *own = shared_sandbox(self.limits).run_all(trials)
        right = own[0].checks if own else report.checks
        return [
            (example, outcome) for example, outcome, said in zip(shown, report.checks, right, strict=True) if not own or said.passed
        ]


def _hidden_trial(problem: ClassProblem, program: str) -> Trial:
    return Trial(solution=program, names=(problem.name,), setup=f"{problem.imports}\n{problem.tests}", unittest=True)
