"""What a team's programs earn: definitions, syntax, hidden tests, collaboration. Reward terms and feedback read one verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llm_envs.sandbox import Limits, Outcome, Report, Trial
from llm_envs.tasks.code.collaboration import Collaboration, collaboration_of, is_trivial
from llm_envs.tasks.code.problems import Problem, problem_of
from llm_envs.tasks.code.programs import Source, combined, helpers_part, read_program, returns_value
from llm_envs.tasks.shared_sandbox import shared_sandbox
from llm_envs.tasks.turns import turn_weight, weighed
from llm_envs.types import AgentID, Item, State

HELPER, MAIN, SYNTAX, TESTS, USED, OWN_WORK, IGNORED = 0.4, 0.6, 0.5, 1.0, 0.5, 1.0, 0.5
"""What each part is worth at most."""

FORM_AT_ONCE = 0.2
"""Share of definitions and syntax that is earned without passing a test; the rest comes in proportion to the tests."""

FACTORS = {
    "definitions": 1.0,
    "syntax": 1.0,
    "tests": 1.0,
    "collaboration": 1.0,
    "penalty": 1.0,
    "passed": 0.0,
    "solved": 0.0,
}
"""The reward's terms; those with 0 are logged only."""


@dataclass(frozen=True)
class Team:
    """Who programs.

    Attributes:
        helpers: their number; with 0 the main programmer is alone.
    """

    helpers: int

    def __post_init__(self) -> None:
        if not isinstance(self.helpers, int) or isinstance(self.helpers, bool) or self.helpers < 0:
            raise ValueError(f"helpers must be a whole number of at least 0, got {self.helpers!r}")

    @property
    def agents(self) -> tuple[AgentID, ...]:
        """`aux_0`, `aux_1`, …, `main_0`."""
        return (*(f"aux_{number}" for number in range(self.helpers)), "main_0")

    @property
    def functions(self) -> tuple[str, ...]:
        """What each helper's function is called: `aux`, or `aux_0`, `aux_1`, … if there are several."""
        return ("aux",) if self.helpers == 1 else tuple(f"aux_{number}" for number in range(self.helpers))

    @property
    def best(self) -> float:
        """The most a joint answer can score: 4.0, without helpers 2.1."""
        return MAIN + SYNTAX + TESTS + (HELPER + USED + OWN_WORK if self.helpers else 0.0)


@dataclass(frozen=True)
class Verdict:
    """How good one joint answer is.

    Attributes:
        team: whose.
        problem: that they worked on.
        sources: what was read from each agent's text, helpers first; of those what goes into the program.
        helpers_defined: for each helper, whether its function is there and returns something.
        main_defined: the same of the entry point.
        collaboration: of the main program with the helpers.
        trivial: helpers that do nothing.
        report: from running the program with the hidden checks; None if there was none to run.
        on_examples: from running it with the public examples, in processes of their own: what a program remembers of hidden checks
            cannot get into feedback, and time that those take is not the examples'. None if there was nothing to run.
    """

    team: Team
    problem: Problem
    sources: tuple[Source, ...]
    helpers_defined: tuple[bool, ...]
    main_defined: bool
    collaboration: Collaboration
    trivial: tuple[str, ...]
    report: Report | None
    on_examples: Report | None = None

    @property
    def whole(self) -> bool:
        """Whether every text parses and the entry point is there."""
        return self.main_defined and all(source.problem is None for source in self.sources)

    @property
    def hidden(self) -> tuple[Outcome, ...]:
        """The outcome of each hidden check; none if nothing ran."""
        return () if self.report is None else tuple(self.report.checks)

    @property
    def examples(self) -> tuple[Outcome, ...]:
        """The outcome of each public example; none if nothing ran."""
        return () if self.on_examples is None else tuple(self.on_examples.checks)

    @property
    def passed(self) -> float:
        """Share of the hidden checks that pass."""
        return _passed(self.hidden) / len(self.problem.tests.checks)

    @property
    def tests(self) -> float:
        """What goes beyond the best constant answer, as a share of what can: 0 for a constant, 1 for all checks.

        A check that only repeats a public example counts if it fails: who can read can pass it.
        """
        hidden, tests, repeating = self.hidden, self.problem.tests, self.problem.repeating
        if not hidden:
            return 0.0
        chance = tests.constant_share(repeating)
        return max(0.0, (tests.share([outcome.passed for outcome in hidden], repeating) - chance) / (1.0 - chance))

    @property
    def solved(self) -> bool:
        """Whether every hidden check passes."""
        return self.passed == 1.0

    def used_share(self) -> float:
        """Share of the helpers that are defined, do something, and whose result matters to main."""
        if not self.team.helpers:
            return 0.0
        good = [
            defined and name in self.collaboration.used and name not in self.trivial
            for name, defined in zip(self.team.functions, self.helpers_defined, strict=True)
        ]
        return sum(good) / self.team.helpers

    def terms(self) -> dict[str, float]:
        """Every term of the score."""
        helpers = max(self.team.helpers, 1)
        form = FORM_AT_ONCE + (1.0 - FORM_AT_ONCE) * self.tests
        worth = USED + (0.0 if self.collaboration.wrapper else OWN_WORK)
        return {
            "definitions": form * (HELPER * sum(self.helpers_defined) / helpers + MAIN * self.main_defined),
            "syntax": form * SYNTAX * self.whole,
            "tests": TESTS * self.tests,
            "collaboration": self.tests * self.used_share() * worth,
            "penalty": 0.0 - self.tests * IGNORED * len(self.collaboration.ignored) / helpers,
            "passed": self.passed,
            "solved": float(self.solved),
        }

    @property
    def score(self) -> float:
        """The sum of the terms that count. In [0, `team.best`]."""
        return math.fsum(FACTORS[name] * value for name, value in self.terms().items())

    @property
    def perfect(self) -> bool:
        """Whether nothing is left to improve."""
        return self.score >= self.team.best - 1e-9


@dataclass(frozen=True)
class Judge:
    """The reward: every term of every joint answer, weighed by what the turn counts.

    Attributes:
        team: who programs.
        num_turns: H.
        limits: of the sandbox that runs the programs.
        with_examples: whether to run the public examples as well.
    """

    team: Team
    num_turns: int
    limits: Limits
    with_examples: bool = False

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest reward of a turn."""
        return 0.0, self.team.best

    def __call__(self, *responses: list[str], batch_items: Sequence[Item], states: Sequence[State]) -> list[dict[str, float]]:
        """The terms of each joint response, shared by the team. Range of their sum: [0, 4], without helpers [0, 2.1]."""
        verdicts = self.verdicts(list(zip(*responses, strict=True)), batch_items[0])
        rows = []
        for verdict, state in zip(verdicts, states, strict=True):
            weight = turn_weight(verdict.perfect, state.turn + 1, self.num_turns)
            rows.append(weighed(verdict.terms(), FACTORS, weight))
        return rows

    def verdicts(self, joint: Sequence[Sequence[str]], item: Item) -> list[Verdict]:
        """The verdict of each of several joint answers to one row; all programs run in one call."""
        problem = problem_of(item)
        sources = [self._read(problem, texts) for texts in joint]
        runnable = [index for index, texts in enumerate(sources) if problem.entry_point in texts[-1].names]
        programs = [self._program(problem, sources[index]) for index in runnable]
        trials = [Trial(program, (problem.entry_point,), problem.setup, problem.tests.checks) for program in programs]
        shown = tuple(example.check for example in problem.examples) if self.with_examples else ()
        if shown:
            trials += [Trial(program, (problem.entry_point,), problem.prelude, shown) for program in programs]
        reports = shared_sandbox(self.limits).run_all(trials)
        hidden = dict(zip(runnable, reports, strict=False))
        on_examples = dict(zip(runnable, reports[len(runnable) :], strict=False))
        return [self._verdict(problem, texts, hidden.get(index), on_examples.get(index)) for index, texts in enumerate(sources)]

    def _read(self, problem: Problem, texts: Sequence[str]) -> tuple[Source, ...]:
        *helpers, main = map(read_program, texts)
        reserved = {problem.entry_point, *self.team.functions}
        parts = [helpers_part(one, reserved - {name}) for name, one in zip(self.team.functions, helpers, strict=True)]
        return (*parts, main)

    def _program(self, problem: Problem, sources: Sequence[Source]) -> str:
        return combined(problem, sources[:-1], sources[-1])

    def _verdict(self, problem: Problem, sources: tuple[Source, ...], report: Report | None, on_examples: Report | None) -> Verdict:
        functions = [source.function(name) for name, source in zip(self.team.functions, sources[:-1], strict=True)]
        main = sources[-1].function(problem.entry_point)
        return Verdict(
            team=self.team,
            problem=problem,
            sources=sources,
            helpers_defined=tuple(function is not None and returns_value(function) for function in functions),
            main_defined=main is not None and returns_value(main),
            collaboration=collaboration_of(sources[-1], problem.entry_point, self.team.functions),
            trivial=tuple(function.name for function in functions if function is not None and is_trivial(function)),
            report=report,
            on_examples=on_examples,
        )


def _passed(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.status == "passed" for outcome in outcomes)
