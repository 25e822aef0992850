"""What the three code families share: options, and the way from rows to a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llm_envs.rewards import terms
from llm_envs.task import Task
from llm_envs.tasks.code.feedback import Feedback
from llm_envs.tasks.code.levels import FACTORS, Judge, Team
from llm_envs.tasks.code.options import TurnOptions
from llm_envs.tasks.code.problems import problem_of
from llm_envs.tasks.code.prompts import HelperPrompt, MainPrompt
from llm_envs.tasks.code.references import Reference, has_solution
from llm_envs.tasks.sources import split_rows
from llm_envs.types import Item


@dataclass(frozen=True, kw_only=True)
class CodeOptions(TurnOptions):
    """How a team programs, whatever the rows.

    Attributes:
        helpers: their number, 0 for a main programmer alone.

    Raises:
        ValueError, TypeError: naming the option and its value.
    """

    helpers: int = 1

    def __post_init__(self) -> None:
        Team(self.helpers)
        super().__post_init__()


def code_task(
    name: str,
    rows: Sequence[Item],
    options: CodeOptions,
    *,
    eval_ids: Sequence[str] | None = None,
    eval_share: float | None = None,
) -> Task:
    """The task of a code family.

    Args:
        name: id of the environment.
        rows: all of them, with the fields `problems.FIELDS`.
        options: of the team and its turns.
        eval_ids: ids of the evaluation rows.
        eval_share: share of rows for evaluation; without both options a quarter.

    Raises:
        ValueError: naming the row, if it cannot be read, or the option.
    """
    for row in rows:
        problem_of(row)
    train, held = split_rows(rows, "task_id", eval_ids=eval_ids, eval_share=eval_share)
    team = Team(options.helpers)
    turns = options.num_turns
    # Examples run for those who are told of them.
    judge = Judge(team, turns, options.limits, with_examples=turns > 1 and options.feedback != "plain")
    return Task(
        name=name,
        items=train,
        eval_items=held,
        agents=team.agents,
        formatters=[*(HelperPrompt(team, number) for number in range(team.helpers)), MainPrompt(team)],
        reward=terms(judge, **FACTORS),
        transition=_transition(judge, options) if turns > 1 else None,
        num_turns=turns,
        external_prompt_passthrough=True,
        reference=Reference(team) if all(map(has_solution, rows)) else None,
    )


def _transition(judge: Judge, options: CodeOptions) -> Feedback:
    return Feedback(
        judge=judge,
        mode=options.feedback,
        reveal_hidden=options.reveal_hidden,
        original_prompt=options.original_prompt,
        previous_response=options.previous_response,
        expert=options.expert,
    )
