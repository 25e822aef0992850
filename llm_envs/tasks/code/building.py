"""What the three code families share: options, and the way from rows to a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from llm_envs.rewards import terms
from llm_envs.sandbox import Limits
from llm_envs.task import Task
from llm_envs.tasks.code.experts import Expert
from llm_envs.tasks.code.feedback import MODES, Feedback, Mode
from llm_envs.tasks.code.levels import FACTORS, Judge, Team
from llm_envs.tasks.code.problems import problem_of
from llm_envs.tasks.code.prompts import HelperPrompt, MainPrompt
from llm_envs.tasks.code.references import Reference, has_solution
from llm_envs.tasks.sources import read_rows, split_rows
from llm_envs.types import Item

ENDLESS_CALLS = 3
"""After so many calls that use up their time nothing more of a program is tried."""

EVAL_SHARE = 0.25
"""Of rows for which no evaluation part is named."""


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """How a team programs, whatever the rows.

    Attributes:
        helpers: their number, 0 for a main programmer alone.
        num_turns: tries; 1 if the feedback is "bandit".
        feedback: what is said between turns (`feedback.Mode`).
        reveal_hidden: whether feedback is about the hidden tests too.
        original_prompt: whether later prompts repeat the first one.
        previous_response: whether an agent is shown its last answer.
        expert: who suggests edits; with the feedback "expert_edits" and only then.
        cpu_seconds: CPU time of one check; a program has `ENDLESS_CALLS` times as much.

    Raises:
        ValueError, TypeError: naming the option and its value.
    """

    helpers: int = 1
    num_turns: int = 1
    feedback: Mode = "level_feedback"
    reveal_hidden: bool = False
    original_prompt: bool = True
    previous_response: bool = True
    expert: Expert | None = None
    cpu_seconds: float = 3.0

    def __post_init__(self) -> None:
        Team(self.helpers)
        if self.feedback not in MODES:
            raise ValueError(f"feedback must be one of {', '.join(MODES)}, got {self.feedback!r}")
        if self.feedback == "expert_edits" and not callable(self.expert):
            raise ValueError(f"feedback='expert_edits' needs an expert, a function from messages to a text, got {self.expert!r}")
        if self.feedback != "expert_edits" and self.expert is not None:
            raise ValueError(f"expert={self.expert!r} goes with feedback='expert_edits', not with {self.feedback!r}")
        for option in ("reveal_hidden", "original_prompt", "previous_response"):
            if not isinstance(getattr(self, option), bool):
                raise TypeError(f"{option} must be True or False, got {getattr(self, option)!r}")
        _ = self.limits  # checks them
        if self.feedback == "bandit":
            object.__setattr__(self, "num_turns", 1)

    @property
    def limits(self) -> Limits:
        """What the sandbox allows a program."""
        seconds = self.cpu_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise TypeError(f"cpu_seconds must be a number, got {seconds!r}")
        return Limits(cpu_seconds=seconds, total_cpu_seconds=ENDLESS_CALLS * seconds)


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
        eval_share: share of rows for evaluation; without both options `EVAL_SHARE`.

    Raises:
        ValueError: naming the row, if it cannot be read, or the option.
    """
    if eval_ids is not None and eval_share is not None:
        raise ValueError(f"give eval_ids or eval_share, not both; got {list(eval_ids)!r:.100} and {eval_share!r}")
    for row in rows:
        problem_of(row)
    train, held = split_rows(rows, "task_id", eval_ids=eval_ids, eval_share=EVAL_SHARE if eval_share is None else eval_share)
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


def builtin_rows(name: str) -> list[Item]:
    """The rows of a bundled file."""
    with resources.as_file(resources.files("llm_envs.tasks") / "data" / f"{name}.json") as file:
        return read_rows(file)


def _transition(judge: Judge, options: CodeOptions) -> Feedback:
    return Feedback(
        judge=judge,
        mode=options.feedback,
        reveal_hidden=options.reveal_hidden,
        original_prompt=options.original_prompt,
        previous_response=options.previous_response,
        expert=options.expert,
    )
