"""`reasoning-gym:<name>`: a data set of the package reasoning-gym for a team: a solver with a checker, or solvers who vote.

Questions, answers and scorers are the package's (https://github.com/open-thought/reasoning-gym); what makes a team of it is here.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, Literal

from llm_envs.adapters.question_teams import JUDGE, NOTES, Questions, TeamOptions, answer_of, check_sizes, verdict_of, voted
from llm_envs.task import Task
from llm_envs.types import Item

__all__ = ["EVALUATING", "JUDGE", "NOTES", "Scorer", "answer_of", "task", "verdict_of", "voted"]

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
HOW = "Put your answer between <answer> and </answer>."


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
    options = TeamOptions(team=team, solvers=solvers, num_turns=num_turns, verdict_weight=verdict_weight, own_weight=own_weight)
    if dataset in EVALUATING and not allow_code:
        raise ValueError(
            f"the scorer of {dataset} runs parts of an answer as Python code, and a model writes the answers: "
            "allow_code=True takes that risk, on a machine where you can"
        )
    check_sizes(size, eval_size)
    scorer = Scorer(dataset, {"seed": seed, "size": size + eval_size, **(config or {})})
    rows = [scorer.row(index) for index in range(size + eval_size)]
    return options.task(
        Questions(
            name=f"reasoning-gym:{dataset}",
            items=rows[:size],
            eval_items=rows[size:],
            marker=scorer,
            how=HOW if tags else "Write the answer alone.",
            # Some questions have no answer written down, only a scorer.
            reference=_own_answer if all(isinstance(row["answer"], str) for row in rows[:size]) else None,
        )
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

    def score(self, text: str, item: Item) -> float:
        """What the answer in the text is worth, in [0, 1]; 0 if it cannot be parsed."""
        answer, entry = answer_of(text), dict(item)
        try:
            return float(self._build().score_answer(answer, entry))
        except _UNPARSED:
            # Some scorers do not expect what cannot be parsed. If a good answer fails too, the row or the scorer is wrong.
            self._build().score_answer(entry["answer"] or "", entry)
            return 0.0

    def right(self, score: float) -> bool:
        """Whether it is the full score."""
        return score >= 1.0


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


def _own_answer(item: Item) -> str:
    return f"<answer>{item['answer']}</answer>"
