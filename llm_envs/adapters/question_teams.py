"""Questions for a team: a solver with a checker, or solvers who vote. What adapters of sets of questions have in common."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from llm_envs.rewards import scaled
from llm_envs.task import Task, agent_names
from llm_envs.types import Item, State

Prompt: TypeAlias = "str | Sequence[Mapping[str, Any]]"
"""A text or chat messages."""

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_VERDICT = re.compile(r"\b(right|wrong)\b", re.IGNORECASE)


def answer_of(text: str) -> str:
    """What stands in the last `<answer>` tags, or else the whole text, without white space around it."""
    tagged = _ANSWER.findall(text)
    return (tagged[-1] if tagged else text).strip()


def verdict_of(text: str) -> str | None:
    """The first of the words "right" and "wrong" in the text, in any case; None without either."""
    found = _VERDICT.search(text)
    return found.group(1).lower() if found else None


def voted(answers: Sequence[str]) -> str:
    """The answer given most often; of several the one that comes first. Empty ones do not count; "" without any other."""
    counts = Counter(answer for answer in answers if answer)
    return max(counts, key=counts.__getitem__, default="")


class Marker(Protocol):
    """Marks what solvers write."""

    def score(self, text: str, item: Item) -> float:
        """What the text is worth as an answer to the row's question."""
        ...

    def right(self, score: float) -> bool:
        """Whether an answer of this score is right, in the checker's sense."""
        ...


@dataclass(frozen=True, kw_only=True)
class Questions:
    """A set of questions, as an adapter gives it.

    Attributes:
        name: of the task.
        items: rows with a `question`: a text, or chat messages of which the last is the user's.
        eval_items: rows for evaluation; None for none.
        marker: marks answers.
        how: what solvers are told besides, such as how to write an answer; "" for nothing.
        answer: a solver's text → the answer in it: what is voted on, and what the others read.
        reference: row → a text of a solver that is right; None where none is known.
        details: further terms, which are only logged: name → f(text, row), of the text that is the team's answer.
    """

    name: str
    items: Sequence[Item]
    eval_items: Sequence[Item] | None
    marker: Marker
    how: str
    answer: Callable[[str], str] = answer_of
    reference: Callable[[Item], str] | None = None
    details: Mapping[str, Callable[[str, Item], float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TeamOptions:
    """Who answers, as options say it; None stands for the default of the team.

    Attributes:
        team: "check" or "vote".
        solvers: with "vote", their number; 3 by default.
        num_turns: 2 by default with "check", which needs at least that, and 1 with "vote".
        verdict_weight: with "check": what a right verdict earns the checker; 0.5 by default.
        own_weight: with "vote": what the score of its own answer counts for an agent; 0 by default, which only logs it.

    Raises:
        ValueError: for an option that is none or cannot apply.
    """

    team: str
    solvers: int | None = None
    num_turns: int | None = None
    verdict_weight: float | None = None
    own_weight: float | None = None

    def __post_init__(self) -> None:
        others = {"check": ("own_weight", "solvers"), "vote": ("verdict_weight",)}
        if self.team not in others:
            raise ValueError(f"team must be 'check' or 'vote', got {self.team!r}")
        for option in others[self.team]:
            if getattr(self, option) is not None:
                raise ValueError(f"{option} cannot apply with team={self.team!r}, got {getattr(self, option)!r}")
        turns = self.num_turns
        if self.team == "check" and turns is not None and (not isinstance(turns, int) or turns < 2):
            raise ValueError(f"num_turns must be at least 2 with team='check': the checker reads an answer first, got {turns!r}")
        if self.solvers is not None and (not isinstance(self.solvers, int) or self.solvers < 2):
            raise ValueError(f"solvers must be at least 2 with team='vote', got {self.solvers!r}")

    def task(self, questions: Questions) -> Task:
        """The questions for this team."""
        return self._check(questions) if self.team == "check" else self._vote(questions)

    def _check(self, questions: Questions) -> Task:
        num_turns = 2 if self.num_turns is None else self.num_turns
        weight = 0.5 if self.verdict_weight is None else self.verdict_weight
        reward: dict[str, Any] = {
            "solution": Solution(questions.marker, num_turns),
            "verdict": scaled(weight, Verdict(questions.marker, num_turns)),
        }
        return Task(
            agents=("solver_0", "checker_0"),
            formatters=[_Question(questions.how), _Question(NOTES)],
            reward={**reward, **_details(questions, _first, num_turns)},
            transition=Exchange(questions.how, questions.answer),
            num_turns=num_turns,
            reference=_Reference(questions.reference, 1, ("right",)) if questions.reference else None,
            **_rows(questions),
        )

    def _vote(self, questions: Questions) -> Task:
        solvers = 3 if self.solvers is None else self.solvers
        num_turns = 1 if self.num_turns is None else self.num_turns
        how = f"You are one of {solvers} who answer; the answer given most often counts. {questions.how}".rstrip()
        choice = Choice(questions.answer)
        reward: dict[str, Any] = {
            "vote": Vote(questions.marker, choice, num_turns),
            "own": scaled(0.0 if self.own_weight is None else self.own_weight, Own(questions.marker, num_turns)),
        }
        return Task(
            agents=agent_names([f"solver_{number}" for number in range(solvers)]),
            formatters=_Question(how),
            reward={**reward, **_details(questions, choice, num_turns)},
            transition=Debate(how, questions.answer),
            num_turns=num_turns,
            reference=_Reference(questions.reference, solvers) if questions.reference else None,
            **_rows(questions),
        )


def _rows(questions: Questions) -> dict[str, Any]:
    return {
        "name": questions.name,
        "items": questions.items,
        "eval_items": questions.eval_items or None,
        "external_prompt_passthrough": True,
    }


def check_sizes(size: int, eval_size: int) -> None:
    """Refuse what is no number of questions.

    Raises:
        ValueError: for fewer than one to train on, or fewer than none for evaluation.
    """
    for option, value, least in (("size", size, 1), ("eval_size", eval_size, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{option} must be a whole number of at least {least}, got {value!r}")


# ---- what agents read ----

NOTES = "A solver is working on this. Work it out for yourself in a few words: the solver reads your notes."
JUDGE = "Is the solver's answer right? Write right or wrong, and why: the solver reads it."


def with_words(question: Prompt, words: str) -> Prompt:
    """The question with words after it, a blank line between; in the last message of a conversation. "" adds nothing."""
    if not words:
        return question
    if isinstance(question, str):
        return f"{question}\n\n{words}"
    *before, last = question
    return [*before, {**last, "content": f"{last['content']}\n\n{words}"}]


@dataclass(frozen=True)
class _Question:
    """The formatter: the question, and what to do."""

    task: str

    def __call__(self, item: Item) -> Prompt:
        return with_words(item["question"], self.task)


@dataclass(frozen=True)
class Exchange:
    """The transition of a solver and a checker: each reads what the other wrote."""

    how: str
    answer: Callable[[str], str]

    def __call__(self, item: Item, agent_completions: Sequence[str], turn: int) -> list[Prompt]:
        """The next prompts."""
        question, answer, remark = item["question"], self.answer(agent_completions[0]), agent_completions[1].strip()
        noted = "The checker noted" if turn == 1 else "The checker said of the answer before"
        return [
            with_words(question, f"You answered: {answer}\n{noted}: {remark}\n\nAnswer again. {self.how}".rstrip()),
            with_words(question, f"The solver answered: {answer}\n\n{JUDGE}"),
        ]


@dataclass(frozen=True)
class Debate:
    """The transition of voters: everybody reads the others' answers."""

    how: str
    answer: Callable[[str], str]

    def __call__(self, item: Item, agent_completions: Sequence[str]) -> list[Prompt]:
        """The next prompts."""
        answers = [self.answer(text) or "nothing" for text in agent_completions]
        return [
            with_words(
                item["question"],
                f"You answered: {mine}\nThe others answered: {'; '.join(answers[:i] + answers[i + 1 :])}\n\n"
                f"Answer again. {self.how}",
            )
            for i, mine in enumerate(answers)
        ]


# ---- what it earns ----


@dataclass(frozen=True)
class Solution:
    """The score of the solver's answer, divided by the number of turns; for both. Returns lie where scores do."""

    marker: Marker
    num_turns: int

    def __call__(self, solver: Sequence[str], checker: Sequence[str], *, batch_items: Sequence[Item]) -> list[float]:
        """One reward for each joint answer."""
        return [self.marker.score(text, batch_items[0]) / self.num_turns for text in solver]


@dataclass(frozen=True)
class Verdict:
    """Whether the checker judged the solver's last answer rightly, divided by the number of verdicts. A return in [0, 1]."""

    marker: Marker
    num_turns: int

    def __call__(
        self, solver: Sequence[str], checker: Sequence[str], *, batch_items: Sequence[Item], states: Sequence[State]
    ) -> list[list[float]]:
        """One reward for each agent and joint answer: 0 for the solver, and in the first turn."""
        if not states[0].history:
            return [[0.0, 0.0] for _ in checker]
        judged = states[0].history[-1].actions["solver_0"]
        truth = "right" if self.marker.right(self.marker.score(judged, batch_items[0])) else "wrong"
        return [[0.0, float(verdict_of(text) == truth) / (self.num_turns - 1)] for text in checker]


@dataclass(frozen=True)
class Choice:
    """The text that is the team's answer: the first of those whose answer was given most often."""

    answer: Callable[[str], str]

    def __call__(self, texts: Sequence[str]) -> str:
        """The text; the first one if nobody has an answer."""
        answers = [self.answer(text) for text in texts]
        return texts[answers.index(voted(answers))]


def _first(texts: Sequence[str]) -> str:
    return texts[0]


@dataclass(frozen=True)
class Vote:
    """The score of the answer given most often, divided by the number of turns; for all. Returns lie where scores do."""

    marker: Marker
    choice: Choice
    num_turns: int

    def __call__(self, *responses: Sequence[str], batch_items: Sequence[Item]) -> list[float]:
        """One reward for each joint answer."""
        return [self.marker.score(self.choice(joint), batch_items[0]) / self.num_turns for joint in zip(*responses, strict=True)]


@dataclass(frozen=True)
class Own:
    """The score of each agent's own answer, divided by the number of turns; for that agent. Returns lie where scores do."""

    marker: Marker
    num_turns: int

    def __call__(self, *responses: Sequence[str], batch_items: Sequence[Item]) -> list[list[float]]:
        """One reward for each agent and joint answer."""
        return [
            [self.marker.score(text, batch_items[0]) / self.num_turns for text in joint] for joint in zip(*responses, strict=True)
        ]


def _details(questions: Questions, choice: Callable[[Sequence[str]], str], num_turns: int) -> dict[str, Any]:
    """The further terms, which are only logged."""
    return {name: scaled(0.0, Detail(function, choice, num_turns)) for name, function in questions.details.items()}


@dataclass(frozen=True)
class Detail:
    """What is logged of the team's answer, divided by the number of turns: the sum of an episode is the mean of its turns."""

    function: Callable[[str, Item], float]
    choice: Callable[[Sequence[str]], str]
    num_turns: int

    def __call__(self, *responses: Sequence[str], batch_items: Sequence[Item]) -> list[float]:
        """One number for each joint answer."""
        return [self.function(self.choice(joint), batch_items[0]) / self.num_turns for joint in zip(*responses, strict=True)]


@dataclass(frozen=True)
class _Reference:
    """A best joint answer: a right one from the solvers, and what the others say."""

    right: Callable[[Item], str]
    solvers: int
    others: Sequence[str] = ()

    def __call__(self, item: Item) -> list[str]:
        return [self.right(item)] * self.solvers + list(self.others)
