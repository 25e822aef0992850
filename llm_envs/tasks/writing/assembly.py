"""What both writing tasks share: rows, options, and the way from rows to a task."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from llm_envs.rewards import terms
from llm_envs.task import Task, agent_names
from llm_envs.tasks.options import checked_choice, checked_flags
from llm_envs.tasks.sources import Source, Sources, split_rows
from llm_envs.tasks.writing.feedback import MODES, Feedback, Mode
from llm_envs.tasks.writing.grounding import Targets
from llm_envs.tasks.writing.levels import GatedLevels, SoftLevels
from llm_envs.tasks.writing.measures import source_of
from llm_envs.tasks.writing.parts import joined
from llm_envs.tasks.writing.scoring import GroundedScoring, Judge, ReferenceScoring, Scoring
from llm_envs.types import AgentID, Item

ScoringName: TypeAlias = Literal["grounded", "reference"]


@dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """How a team writes, whatever the rows.

    Attributes:
        scoring: "grounded" or the "reference" system's.
        agents: 2 or 1, or as many names.
        num_turns: tries.
        feedback: what is said between turns (`feedback.Mode`).
        original_prompt: whether later prompts repeat the first one.
        previous_response: whether an agent is shown its last answer.
        eval_ids: ids of the evaluation rows.
        eval_share: share of rows for evaluation; without both options a quarter.

    Raises:
        ValueError, TypeError: naming the option and its value.
    """

    scoring: ScoringName
    agents: int | Sequence[AgentID]
    num_turns: int
    feedback: Mode
    original_prompt: bool
    previous_response: bool
    eval_ids: Sequence[str] | None
    eval_share: float | None

    def __post_init__(self) -> None:
        checked_choice("scoring", self.scoring, get_args(ScoringName))
        checked_choice("feedback", self.feedback, list(MODES))
        checked_flags(original_prompt=self.original_prompt, previous_response=self.previous_response)


@dataclass(frozen=True)
class Form:
    """What makes up one of the writing tasks.

    Attributes:
        name: id of the environment.
        roles: of the two texts.
        field: of a row that holds the source.
        prompts: each role's formatter.
        single_prompt: the formatter of one agent that writes both.
        targets: how much of the source the texts have to say.
        levels: ours.
        gated: the reference system's.
    """

    name: str
    roles: tuple[str, str]
    field: str
    prompts: tuple[Callable[[Item], str], Callable[[Item], str]]
    single_prompt: Callable[[Item], str]
    targets: Targets
    levels: SoftLevels
    gated: GatedLevels

    def task(self, rows: Sequence[Item], options: WritingOptions) -> Task:
        """The task on these rows.

        Raises:
            ValueError: naming the row without content words, or the option.
        """
        agents = self._agents(options.agents)
        rows = self._checked(rows)
        train, held = split_rows(rows, "id", eval_ids=options.eval_ids, eval_share=options.eval_share)
        judge = Judge(self.roles, self.field, self.targets, self._scoring(options.scoring), options.num_turns)
        known = options.scoring == "grounded" and all(row.get(role) is not None for row in rows for role in self.roles)
        return Task(
            name=self.name,
            items=train,
            eval_items=held,
            agents=agents,
            formatters=list(self.prompts) if len(agents) == 2 else self.single_prompt,
            reward=terms(judge, **judge.factors),
            transition=Feedback(judge, options.feedback, options.original_prompt, options.previous_response),
            num_turns=options.num_turns,
            external_prompt_passthrough=True,
            reference=Reference(self.roles, len(agents)) if known else None,
        )

    def _agents(self, agents: int | Sequence[AgentID]) -> tuple[AgentID, ...]:
        names = agent_names(agents)
        if len(names) > 2:
            raise ValueError(f"{self.name} has two texts to write, so 2 agents or 1 that writes both, got {len(names)}: {names}")
        if isinstance(agents, int):
            return tuple(f"{role}_0" for role in self.roles) if agents == 2 else ("writer_0",)
        return names

    def _scoring(self, name: ScoringName) -> Scoring:
        return GroundedScoring(self.levels) if name == "grounded" else ReferenceScoring(self.gated)

    def _checked(self, rows: Sequence[Item]) -> list[Item]:
        for row in rows:
            text = row[self.field]
            if not isinstance(text, str) or not source_of(text).content:
                raise ValueError(
                    f"{self.name}: {self.field!r} must be a text with words to write about, got {text!r:.80} in row {row['id']!r}"
                )
        return list(rows)


@dataclass(frozen=True)
class Reference:
    """A best joint answer: the texts that come with the row."""

    roles: tuple[str, str]
    num_agents: int

    def __call__(self, item: Item) -> list[str]:
        """One text for each agent."""
        texts = [item[role] for role in self.roles]
        return texts if self.num_agents == 2 else [joined(*texts)]


def rows_with_ids(sources: Sources, source: Source, path: str | None, field: str) -> list[Item]:
    """All rows of a source, each with an `id`: its own, or one made of its text, so that it does not depend on the order of rows.

    A text that stands in several rows without ids has `-2`, `-3`, … behind the id.
    """
    seen: Counter[str] = Counter()
    rows: list[Item] = []
    for row in sources.rows(source, path):
        if row.get("id") is None:
            digest = hashlib.sha256(str(row[field]).encode()).hexdigest()[:12]
            seen[digest] += 1
            row = {**row, "id": digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"}
        rows.append(row)
    return rows


def renamed(row: Item, names: Mapping[str, str]) -> Item:
    """The row with fields under other names, where it has them and not yet the new ones."""
    return {**row, **{new: row[old] for old, new in names.items() if row.get(old) is not None and row.get(new) is None}}
