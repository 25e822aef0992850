"""`reasoning-gym:<name>`: a data set of the package reasoning-gym for a team: a solver with a checker, or solvers who vote.

Questions, answers and scorers are the package's (https://github.com/open-thought/reasoning-gym); what makes a team of it is here.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llm_envs.rewards import scaled
from llm_envs.task import Task, agent_names
from llm_envs.types import Item, State

EVALUATING = frozenset(
    {
        "binary_matrix",
        "composite",  # of any others
        "countdown",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    }
)
"""Data sets whose scorers hand the answer to Python's `eval`, or to sympy's parser, which does (reasoning-gym 0.1.25)."""

# What scorers raise on answers that they cannot parse.
_UNPARSED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_VERDICT = re.compile(r"\b(right|wrong)\b", re.IGNORECASE)


def task(
    dataset: str,
    /,
    *,
    team: Literal["check", "vote"] = "check",
    solvers: int | None = None,
    num_turns: int | None = None,
    size: int = 64,
    eval_size: int = 16,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    tags: bool = True,
    verdict_weight: float | None = None,
    own_weight: float | None = None,
    allow_code: bool = False,
) -> Task:
    """Questions of a reasoning-gym data set for a team: a solver and a checker, or several solvers who vote.

    `team="check"`: `solver_0` answers the question in every turn. `checker_0` makes notes of its own in the first turn and says in
    every later one whether the solver's last answer is right; each then reads what the other wrote. Terms of the reward:

    * `solution`: the score of the solver's answer, divided by `num_turns`; for both.
    * `verdict`: `verdict_weight` for saying rightly whether the last answer had the full score, divided by the number of
      verdicts; for the checker alone. The first of the words "right" and "wrong" counts.

    `team="vote"`: `solver_0`, `solver_1`, … answer at once, and the answer given most often is the team's (of several, the one that
    comes first in the order of the agents; who gives none has no vote). With several turns everybody reads the others' answers
    next. Terms:

    * `vote`: the score of the team's answer, divided by `num_turns`; for all.
    * `own`: the score of an agent's own answer, divided by `num_turns`, times `own_weight`; for that agent.

    Scores are those of the data set's own scorer, in [0, 1]; many pay a little for a longer text that has the answer in it. An
    answer that the scorer cannot parse scores 0. An answer is what stands in the last `<answer>` tags, or else the whole text.

    Args:
        dataset: its name.
        team: "check" or "vote".
        solvers: with "vote", their number; 3 by default.
        num_turns: 2 by default with "check", which needs at least that, and 1 with "vote".
        size: questions to train on: numbers 0 to `size` − 1 of the data set.
        eval_size: questions after these, for evaluation; 0 for none.
        seed: of the data set.
        config: its further options, `{"max_animals": 3}`; its class documents them.
        tags: ask for `<answer>` tags, rather than for the answer alone.
        verdict_weight: with "check"; 0.5 by default.
        own_weight: with "vote"; 0 by default, which only logs it.
        allow_code: the scorers of some data sets (`EVALUATING`) run parts of an answer as Python code. They are refused without it:
            a model writes the answers.

    Raises:
        ValueError: for an unknown data set or one that runs code, or an option that is none or cannot apply.
        ImportError: without the package.
    """
    chosen = {"check": {"own_weight": own_weight, "solvers": solvers}, "vote": {"verdict_weight": verdict_weight}}
    if team not in chosen:
        raise ValueError(f"team must be 'check' or 'vote', got {team!r}")
    for option, value in chosen[team].items():
        if value is not None:
            raise ValueError(f"{option} cannot apply with team={team!r}, got {value!r}")
    if dataset in EVALUATING and not allow_code:
        raise ValueError(
            f"the scorer of {dataset} runs parts of an answer as Python code, and a model writes the answers: "
            "allow_code=True takes that risk, on a machine where you can"
        )
    scorer = Scorer(dataset, {"seed": seed, "size": size + eval_size, **(config or {})})
    rows = _rows(scorer, size, eval_size)
    common = {
        "name": f"reasoning-gym:{dataset}",
        "items": rows[:size],
        "eval_items": rows[size:] or None,
        "external_prompt_passthrough": True,
    }
    if team == "check":
        return _check_task(scorer, 2 if num_turns is None else num_turns, tags, verdict_weight, common)
    return _vote_task(scorer, 3 if solvers is None else solvers, num_turns or 1, tags, own_weight or 0.0, common)


def _check_task(scorer: Scorer, num_turns: int, tags: bool, verdict_weight: float | None, common: Mapping[str, Any]) -> Task:
    if not isinstance(num_turns, int) or num_turns < 2:
        raise ValueError(f"num_turns must be at least 2 with team='check': the checker reads an answer first, got {num_turns!r}")
    weight = 0.5 if verdict_weight is None else verdict_weight
    reward: dict[str, Any] = {
        "solution": Solution(scorer, num_turns),
        "verdict": scaled(weight, Verdict(scorer, num_turns)),
    }
    return Task(
        agents=("solver_0", "checker_0"),
        formatters=[_Question(_how(tags)), _Question(NOTES)],
        reward=reward,
        transition=Exchange(_how(tags)),
        num_turns=num_turns,
        reference=_Reference(("solver_0",), ("right",)) if _has_answers(common["items"]) else None,
        **common,
    )


def _vote_task(scorer: Scorer, solvers: int, num_turns: int, tags: bool, own_weight: float, common: Mapping[str, Any]) -> Task:
    if not isinstance(solvers, int) or solvers < 2:
        raise ValueError(f"solvers must be at least 2 with team='vote', got {solvers!r}")
    names = agent_names([f"solver_{number}" for number in range(solvers)])
    how = f"You are one of {solvers} who answer; the answer given most often counts. {_how(tags)}"
    reward: dict[str, Any] = {"vote": Vote(scorer, num_turns), "own": scaled(own_weight, Own(scorer, num_turns))}
    return Task(
        agents=names,
        formatters=_Question(how),
        reward=reward,
        transition=Debate(how),
        num_turns=num_turns,
        reference=_Reference(names) if _has_answers(common["items"]) else None,
        **common,
    )


# ---- the package ----


class Scorer:
    """The package's scorer of a data set.

    Args:
        dataset: its name.
        options: of its config.

    Raises:
        ValueError: for a name or an option that the package does not know.
        ImportError: without the package.
    """

    def __init__(self, dataset: str, options: Mapping[str, Any]) -> None:
        self.dataset = dataset
        self.options = dict(options)
        self._built: Any = None
        self._build()

    def __getstate__(self) -> dict[str, Any]:
        # Some data sets hold functions that cannot be pickled; each copy builds its own.
        return {**self.__dict__, "_built": None}

    def _build(self) -> Any:
        if self._built is None:
            self._built = _created(self.dataset, self.options)
        return self._built

    def row(self, index: int) -> dict[str, Any]:
        """A question with its answer, as the package gives it."""
        return dict(self._build()[index])

    def score(self, answer: str, item: Item) -> float:
        """What the answer is worth, in [0, 1]; 0 if it cannot be parsed."""
        entry = dict(item)
        try:
            return float(self._build().score_answer(answer, entry))
        except _UNPARSED:
            # Some scorers do not expect what cannot be parsed. If a good answer fails too, the row or the scorer is wrong.
            self._build().score_answer(entry["answer"] or "", entry)
            return 0.0


def _created(dataset: str, options: Mapping[str, Any]) -> Any:
    try:
        known: Any = importlib.import_module("reasoning_gym.factory")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"reasoning-gym:{dataset} needs the package reasoning-gym: pip install 'llm-envs[reasoning-gym]'"
        ) from error
    if dataset not in known.DATASETS:
        close = difflib.get_close_matches(dataset, list(known.DATASETS))
        hint = f"did you mean {', '.join(close)}?" if close else f"it has {', '.join(sorted(known.DATASETS))}"
        raise ValueError(f"reasoning-gym has no data set {dataset!r} ({hint})")
    try:
        return known.create_dataset(dataset, **options)
    except (TypeError, AssertionError, ValueError) as error:
        raise ValueError(f"reasoning-gym:{dataset} with {dict(options)}: {error}") from error


def _rows(scorer: Scorer, size: int, eval_size: int) -> list[dict[str, Any]]:
    for option, value, least in (("size", size, 1), ("eval_size", eval_size, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{option} must be a whole number of at least {least}, got {value!r}")
    return [scorer.row(index) for index in range(size + eval_size)]


def _has_answers(rows: Sequence[Item]) -> bool:
    """Whether every question has an answer written down; some only have a scorer."""
    return all(isinstance(row["answer"], str) for row in rows)


# ---- what agents read ----

NOTES = "A solver is working on this. Work it out for yourself in a few words: the solver reads your notes."
JUDGE = "Is the solver's answer right? Write right or wrong, and why: the solver reads it."


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


def _how(tags: bool) -> str:
    return "Put your answer between <answer> and </answer>." if tags else "Write the answer alone."


@dataclass(frozen=True)
class _Question:
    """The formatter: the question, and what to do."""

    task: str

    def __call__(self, item: Item) -> str:
        return f"{item['question']}\n\n{self.task}"


@dataclass(frozen=True)
class Exchange:
    """The transition of a solver and a checker: each reads what the other wrote."""

    how: str

    def __call__(self, item: Item, agent_completions: Sequence[str], turn: int) -> list[str]:
        """The next prompts."""
        question, answer, remark = item["question"], answer_of(agent_completions[0]), agent_completions[1].strip()
        noted = "The checker noted" if turn == 1 else "The checker said of the answer before"
        return [
            f"{question}\n\nYou answered: {answer}\n{noted}: {remark}\n\nAnswer again. {self.how}",
            f"{question}\n\nThe solver answered: {answer}\n\n{JUDGE}",
        ]


@dataclass(frozen=True)
class Debate:
    """The transition of voters: everybody reads the others' answers."""

    how: str

    def __call__(self, item: Item, agent_completions: Sequence[str]) -> list[str]:
        """The next prompts."""
        answers = [answer_of(text) or "nothing" for text in agent_completions]
        return [
            f"{item['question']}\n\nYou answered: {mine}\nThe others answered: {'; '.join(answers[:i] + answers[i + 1 :])}\n\n"
            f"Answer again. {self.how}"
            for i, mine in enumerate(answers)
        ]


# ---- what it earns ----


@dataclass(frozen=True)
class Solution:
    """The score of the solver's answer, divided by the number of turns; for both. A return in [0, 1]."""

    scorer: Scorer
    num_turns: int

    def __call__(self, solver: Sequence[str], checker: Sequence[str], *, batch_items: Sequence[Item]) -> list[float]:
        """One reward for each joint answer."""
        return [self.scorer.score(answer_of(text), batch_items[0]) / self.num_turns for text in solver]


@dataclass(frozen=True)
class Verdict:
    """Whether the checker judged the solver's last answer rightly, divided by the number of verdicts. A return in [0, 1]."""

    scorer: Scorer
    num_turns: int

    def __call__(
        self, solver: Sequence[str], checker: Sequence[str], *, batch_items: Sequence[Item], states: Sequence[State]
    ) -> list[list[float]]:
        """One reward for each agent and joint answer: 0 for the solver, and in the first turn."""
        if not states[0].history:
            return [[0.0, 0.0] for _ in checker]
        judged = answer_of(states[0].history[-1].actions["solver_0"])
        truth = "right" if self.scorer.score(judged, batch_items[0]) >= 1.0 else "wrong"
        return [[0.0, float(verdict_of(text) == truth) / (self.num_turns - 1)] for text in checker]


@dataclass(frozen=True)
class Vote:
    """The score of the answer given most often, divided by the number of turns; for all. A return in [0, 1]."""

    scorer: Scorer
    num_turns: int

    def __call__(self, *responses: Sequence[str], batch_items: Sequence[Item]) -> list[float]:
        """One reward for each joint answer."""
        answers = [[answer_of(text) for text in joint] for joint in zip(*responses, strict=True)]
        return [self.scorer.score(voted(joint), batch_items[0]) / self.num_turns for joint in answers]


@dataclass(frozen=True)
class Own:
    """The score of each agent's own answer, divided by the number of turns; for that agent. A return in [0, 1]."""

    scorer: Scorer
    num_turns: int

    def __call__(self, *responses: Sequence[str], batch_items: Sequence[Item]) -> list[list[float]]:
        """One reward for each agent and joint answer."""
        return [
            [self.scorer.score(answer_of(text), batch_items[0]) / self.num_turns for text in joint]
            for joint in zip(*responses, strict=True)
        ]


@dataclass(frozen=True)
class _Reference:
    """A best joint answer: the row's own from the solvers, and what the others say."""

    solvers: Sequence[str]
    others: Sequence[str] = ()

    def __call__(self, item: Item) -> list[str]:
        return [f"<answer>{item['answer']}</answer>"] * len(self.solvers) + list(self.others)
