"""`split-v0`: the agents divide the parts of a job, so that nothing is missing and nothing is done twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from llm_envs.task import Task, agent_names
from llm_envs.tasks.rows import Rows, choose_rows
from llm_envs.tasks.turns import turn_weight, with_feedback
from llm_envs.tasks.words import word_list, words_of
from llm_envs.types import AgentID, Item, State

PARTS = ("a", "b", "c", "d")
TRAIN_ROWS, EVAL_ROWS = 64, 16


def task(
    *,
    parts: Sequence[str] | None = None,
    agents: int | Sequence[AgentID] = 2,
    num_turns: int = 1,
    items: Rows | None = None,
    eval_items: Rows | None = None,
) -> Task:
    """The agents divide the parts of a job: nothing is missing and nothing is done twice.

    Every agent reads `parts: a b c d. list yours:` and lists the parts it takes, `a d`. A turn scores coverage − ½ · waste, at
    least 0:

    * coverage: share of the parts that somebody listed.
    * waste: words beyond one for each listed part (parts listed again, by the same or another agent, and words that are no part),
      divided by the number of parts.
    * 0 if an agent lists no part at all.

    So listing everything twice earns ½, and only a perfect division earns 1. The reward's terms `coverage` and `waste` are logged.

    With several turns everybody reads `you listed a d. others listed b d. parts: a b c d. list yours:` next (`nothing` for an agent
    that listed no part; several others joined by `and`). The episode ends with a perfect division. The reward of a turn is its
    score divided by `num_turns`; a perfect division is paid for the turns it saves as well.

    Range: rewards and returns in [0, 1], shared by the team; the return is 1 only for a perfect division in the first turn.

    Args:
        parts: of the job, at least one for each agent; a, b, c, d unless own rows are given.
        agents: their number or names.
        num_turns: tries.
        items: own rows `{"parts": [...]}`.
        eval_items: own rows for evaluation; none with own `items` unless given.
    """
    names = agent_names(agents)
    if parts is not None and items is not None:
        raise ValueError("parts describes the bundled rows: give it without items, or put it in the rows")
    row: Item = {"parts": PARTS if parts is None else parts}
    if items is None:
        row = {"parts": word_list(row, "parts", at_least=len(names))}
    rows = choose_rows(items, eval_items, {"train": [row] * TRAIN_ROWS, "eval": [row] * EVAL_ROWS})
    return Task(
        name="split-v0",
        items=rows[0],
        eval_items=rows[1],
        agents=names,
        formatters=Prompt(len(names)),
        reward={"coverage": Coverage(num_turns), "waste": Waste(num_turns)},
        transition=feedback,
        num_turns=num_turns,
        external_prompt_passthrough=True,
        reference=Reference(len(names)),
    )


@dataclass(frozen=True)
class Prompt:
    """The formatter of every agent. A job needs a part for each of them."""

    num_agents: int

    def __call__(self, item: Item) -> str:
        """What an agent reads first."""
        return f"parts: {' '.join(word_list(item, 'parts', at_least=self.num_agents))}. list yours:"


@dataclass(frozen=True)
class Division:
    """How well a job was divided.

    Attributes:
        coverage: share of the parts that somebody listed, 0 if an agent listed none. In [0, 1].
        penalty: half the waste, but no more than the coverage. In [0, 1].
    """

    coverage: float
    penalty: float

    @property
    def perfect(self) -> bool:
        """Whether every part was listed once and nothing else."""
        return self.coverage == 1.0 and self.penalty == 0.0


def listed(text: str, parts: Sequence[str]) -> list[str]:
    """The parts in the text, in its order, each once."""
    return [word for word in dict.fromkeys(words_of(text)) if word in parts]


def divide(texts: Sequence[str], parts: Sequence[str]) -> Division:
    """The division that the agents' texts make of the parts."""
    lists = [listed(text, parts) for text in texts]
    if not all(lists):
        return Division(0.0, 0.0)
    covered = len(set().union(*lists))
    waste = (sum(len(words_of(text)) for text in texts) - covered) / len(parts)
    coverage = covered / len(parts)
    return Division(coverage, min(0.5 * waste, coverage))


@dataclass(frozen=True)
class Coverage:
    """The reward's first term: coverage, weighted by what the turn counts. In [0, 1]."""

    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    num_turns: int

    def __call__(self, *responses: list[str], batch_items: Sequence[Item], states: Sequence[State]) -> list[float]:
        """One reward for each joint response, for the team."""
        return [
            division.coverage * turn_weight(division.perfect, state.turn + 1, self.num_turns)
            for division, state in zip(_divisions(responses, batch_items), states, strict=True)
        ]


@dataclass(frozen=True)
class Waste:
    """The reward's second term: half the waste, negative, weighted by what the turn counts. In [−1, 0], never below −coverage."""

    reward_range: ClassVar[tuple[float, float]] = (-1.0, 0.0)

    num_turns: int

    def __call__(self, *responses: list[str], batch_items: Sequence[Item], states: Sequence[State]) -> list[float]:
        """One reward for each joint response, for the team."""
        return [
            0.0 - division.penalty * turn_weight(False, state.turn + 1, self.num_turns)
            for division, state in zip(_divisions(responses, batch_items), states, strict=True)
        ]


def _divisions(responses: Sequence[list[str]], batch_items: Sequence[Item]) -> list[Division]:
    parts = word_list(batch_items[0], "parts", at_least=1)
    return [divide(joint, parts) for joint in zip(*responses, strict=True)]


def feedback(item: Item, agent_completions: Sequence[str], prompt_history_per_agent: Sequence[Sequence[str]]) -> list[str] | None:
    """Everybody's next prompt, which says what was listed; None after a perfect division."""
    parts = word_list(item, "parts", at_least=1)
    if divide(agent_completions, parts).perfect:
        return None
    lists = [" ".join(listed(text, parts)) or "nothing" for text in agent_completions]
    prompts = []
    for i, mine in enumerate(lists):
        theirs = " and ".join(lists[:i] + lists[i + 1 :])
        others = f" others listed {theirs}." if theirs else ""
        prompts.append(with_feedback(f"you listed {mine}.{others}", prompt_history_per_agent[i][0]))
    return prompts


@dataclass(frozen=True)
class Reference:
    """A best joint answer: the parts are dealt out in turn."""

    num_agents: int

    def __call__(self, item: Item) -> list[str]:
        """One text for each agent."""
        parts = word_list(item, "parts", at_least=self.num_agents)
        return [" ".join(parts[agent :: self.num_agents]) for agent in range(self.num_agents)]
