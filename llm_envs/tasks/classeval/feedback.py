"""What programmers read in later turns: their last answer, and as much about the class as the feedback's mode says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from llm_envs.sandbox import Outcome
from llm_envs.tasks.classeval.classes import is_stub
from llm_envs.tasks.classeval.examples import ClassExample
from llm_envs.tasks.classeval.levels import Judge, Verdict
from llm_envs.tasks.classeval.prompts import ONLY_DEFS
from llm_envs.tasks.code.experts import Expert
from llm_envs.tasks.code.feedback import all_or_not, bulleted, failure, level_by_level, suggestions
from llm_envs.tasks.code.options import Mode
from llm_envs.tasks.code.prompts import listed
from llm_envs.tasks.turns import next_prompt
from llm_envs.types import Item

MOST_IDS = 5
"""Failing hidden tests that are named."""

NO_EXAMPLES = "this class has no public examples that can be checked"


@dataclass(frozen=True)
class ClassFeedback:
    """The transition: everybody's next prompt, or the end after an answer that cannot be better.

    Attributes:
        judge: scores the answer again; the sandbox knows the classes' reports already.
        mode: how much is said; all but `bandit`.
        reveal_hidden: whether it is about the hidden tests too. Otherwise it is about the public examples alone.
        original_prompt: whether the first prompt stands in front.
        previous_response: whether the agent's own last answer is shown.
        expert: for `expert_edits`.
    """

    judge: Judge
    mode: Mode
    reveal_hidden: bool
    original_prompt: bool
    previous_response: bool
    expert: Expert | None = None

    def __call__(
        self, item: Item, agent_completions: Sequence[str], prompt_history_per_agent: Sequence[Sequence[str]]
    ) -> list[str] | None:
        """One prompt for each agent; None after an answer with the highest score."""
        (verdict,) = self.judge.verdicts([agent_completions], item)
        if verdict.perfect:
            return None
        said = self._said(agent_completions, verdict)
        return [
            next_prompt(
                history[0] if self.original_prompt else None,
                text if self.previous_response else None,
                diagnosis,
                f"Write your methods again, better: {listed(share)}. {ONLY_DEFS}",
            )
            for share, text, history, diagnosis in zip(
                verdict.shares, agent_completions, prompt_history_per_agent, said, strict=True
            )
        ]

    def _said(self, texts: Sequence[str], verdict: Verdict) -> list[str]:
        """What each agent is told about the class."""
        if self.mode == "plain":
            return [""] * len(texts)
        seen = Seen(verdict, tuple(self.judge.examples(verdict)), self.reveal_hidden)
        if self.mode == "expert_edits":
            assert self.expert is not None  # the task checks its options
            names = self.judge.names
            return suggestions(self.expert(question(names, texts, seen)), names)
        return [_SAY[self.mode](seen, agent) for agent in range(len(texts))]


@dataclass(frozen=True)
class Seen:
    """What may be spoken of.

    Attributes:
        verdict: on the class.
        examples: public ones, and how they came out.
        reveal: whether hidden tests are spoken of too.
    """

    verdict: Verdict
    examples: tuple[tuple[ClassExample, Outcome], ...]
    reveal: bool

    def levels(self) -> Iterator[tuple[str, bool]]:
        """Each level, and whether it is passed."""
        yield "methods", len(self.verdict.valid) == len(self.verdict.problem.methods)
        yield "overlap", self.verdict.overlap == 0
        outcomes = [outcome for _, outcome in self.examples] + (list(self.verdict.hidden) if self.reveal else [])
        if outcomes:
            yield "tests", all(outcome.passed for outcome in outcomes)


def question(names: Sequence[str], texts: Sequence[str], seen: Seen) -> list[dict[str, str]]:
    """What the expert is asked.

    Args:
        names: of the programmers.
        texts: what each of them wrote.
        seen: what is known about it.
    """
    shares = seen.verdict.shares
    written = "\n\n".join(
        f"{name} has to write {listed(share)} and wrote:\n{text}" for name, share, text in zip(names, shares, texts, strict=True)
    )
    keys = ", ".join(f'"{name}"' for name in names)
    return [
        {
            "role": "system",
            "content": "You review the code of programmers who complete a class together and do not see each other's code. "
            f"Answer with one JSON object that has the keys {keys}: for each programmer a list of short edits of its own methods. "
            "The list is empty where nothing has to change.",
        },
        {
            "role": "user",
            "content": f"The class:\n{seen.verdict.problem.skeleton.strip()}\n\n{written}\n\nWhat is known:\n"
            + _levels_in_full(seen, -1),
        },
    ]


# ---- what can be said: to one agent; -1 is told about all ----


def _all_or_not(seen: Seen, agent: int) -> str:
    return all_or_not(dict(seen.levels()), NO_EXAMPLES)


def _level_by_level(seen: Seen, agent: int) -> str:
    return level_by_level(dict(seen.levels()), NO_EXAMPLES)


def _levels_in_full(seen: Seen, agent: int) -> str:
    lines = [*_on_methods(seen, agent), *_on_syntax(seen, agent), *_on_overlap(seen, agent), *_on_tests(seen)]
    return bulleted(lines)


_SAY: dict[str, Callable[[Seen, int], str]] = {
    "passed": _all_or_not,
    "level_passed": _level_by_level,
    "level_feedback": _levels_in_full,
}


def _told(seen: Seen, agent: int) -> list[int]:
    """Whose text is spoken of."""
    return list(range(len(seen.verdict.shares))) if agent < 0 else [agent]


def _on_methods(seen: Seen, agent: int) -> Iterator[str]:
    verdict = seen.verdict
    for number in _told(seen, agent):
        for name in verdict.shares[number]:
            yield f"methods: `{name}` {_state_of(name, number, verdict)}."
    others = [name for number, share in enumerate(verdict.shares) for name in share if number not in _told(seen, agent)]
    if others:
        there = sum(name in verdict.valid for name in others)
        yield f"methods: of the others' {len(others)}, {there} {'is' if there == 1 else 'are'} there."


def _state_of(name: str, number: int, verdict: Verdict) -> str:
    answer = verdict.answers[number]
    if name in answer.broken:
        return f"cannot be used: {answer.broken[name]}"
    if name not in answer.methods:
        return "is missing"
    return "does nothing" if is_stub(answer.methods[name]) else "is there"


def _on_syntax(seen: Seen, agent: int) -> Iterator[str]:
    for number in _told(seen, agent):
        problem = seen.verdict.answers[number].problem
        whose = "your text" if agent >= 0 else f"the text of programmer {number}"
        if problem is not None:
            yield f"syntax: {whose} does not parse as a whole: {problem}."


def _on_overlap(seen: Seen, agent: int) -> Iterator[str]:
    for number in _told(seen, agent):
        foreign = seen.verdict.foreign(number)
        whose = "you wrote" if agent >= 0 else f"programmer {number} wrote"
        if foreign:
            yield f"overlap: {whose} {listed(foreign)}, which {'is' if len(foreign) == 1 else 'are'} for others to write."


def _on_tests(seen: Seen) -> Iterator[str]:
    loaded = seen.verdict.report.loaded
    if not loaded.passed:
        yield f"tests: the class cannot be loaded: {failure(loaded)}."
        return
    if seen.reveal:
        yield from _on_hidden(seen.verdict)
    if not seen.examples:
        yield f"tests: {NO_EXAMPLES}."
        return
    failed = [(example, outcome) for example, outcome in seen.examples if not outcome.passed]
    yield f"tests: {len(seen.examples) - len(failed)} of {len(seen.examples)} public examples pass{':' if failed else '.'}"
    for example, outcome in failed:
        yield f"    `{example.method}`: {example.expression} should give {example.expected}: {failure(outcome)}"


def _on_hidden(verdict: Verdict) -> Iterator[str]:
    failed = [outcome for outcome in verdict.hidden if not outcome.passed]
    late = sum(outcome.status == "timeout" for outcome in failed)
    slow = f" {late} {'takes' if late == 1 else 'take'} too long." if late else ""
    yield f"tests: {len(verdict.hidden) - len(failed)} of {len(verdict.hidden)} hidden tests pass.{slow}"
    if failed:
        more = f" and {len(failed) - MOST_IDS} more" if len(failed) > MOST_IDS else ""
        yield f"tests: failing are {', '.join(outcome.name for outcome in failed[:MOST_IDS])}{more}."
