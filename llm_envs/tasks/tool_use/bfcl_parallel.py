"""`bfcl-parallel-v0`: agents share out the function calls that one request needs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from llm_envs.rewards import terms
from llm_envs.task import Task, agent_names
from llm_envs.tasks.options import checked_choice
from llm_envs.tasks.sources import PackageSource, split_rows
from llm_envs.tasks.tool_use.calls import Call, parse_calls, render_call
from llm_envs.tasks.tool_use.fields import of_categories
from llm_envs.tasks.tool_use.matching import Gold, Schema, call_key, compare, gold_call
from llm_envs.tasks.tool_use.parallel_rows import sources
from llm_envs.tasks.tool_use.reference_scoring import FORMULAS, Kind, every_value, total
from llm_envs.types import AgentID, Item

RoleMode: TypeAlias = Literal["self_select", "same_prompt", "odd_even", "split_by_order"]
Scoring: TypeAlias = Literal["official", "reference"]

NAMES, ARGUMENTS, SOLVED = 0.15, 0.35, 0.5
"""What the terms of the official scoring count."""


def task(
    *,
    agents: int | Sequence[AgentID] = 2,
    role_mode: RoleMode = "self_select",
    scoring: Scoring = "official",
    even_split: float = 0.0,
    source: PackageSource = "builtin",
    path: str | None = None,
    categories: Sequence[str] | None = None,
    eval_ids: Sequence[str] | None = None,
    eval_share: float | None = None,
) -> Task:
    """Agents share out the function calls that one request needs: each call once, none too many.

    Every agent reads the request and the functions' descriptions, and writes calls, `name(parameter=value)` one a line, or `[]`.
    Nobody sees the others' calls; all are put together, one agent after the other, and compared with the gold calls by the rules
    of the Berkeley Function Calling Leaderboard (`matching`): order does not matter, and an argument may be left out if its allowed
    values hold an empty text.

    Terms: `names` (F1 of the functions' names, counts 0.15), `arguments` (right arguments of the matched calls over the larger
    number of calls, 0.35), `solved` (as many calls as gold ones, each of them right, and nothing that is no call: 0.5), and
    `even_split` (below). Logged only: `format` (share of agents whose whole text is calls), `overlap` (calls that another agent
    makes too, over the gold's number), `idle` (share of agents without a call), `first_fit` (solved by the benchmark's own matching
    of calls, which depends on their order and rarely misses a right answer).

    With `scoring="reference"` a turn earns by the formulas of the reference system (`reference_scoring`): at most 1.10, and 1.20
    on flattened multi-turn rows.

    Range: [0, 1], shared by the team; with `scoring="reference"` [−0.4, 1.1], on flattened rows [−0.4, 1.2]. One turn.

    Args:
        agents: their number (`caller_0`, …) or names.
        role_mode: what each is told of its part. `self_select`: to choose one; `same_prompt`: nothing, all read the same;
            `odd_even`: every n-th call in the order in which the request speaks of them; `split_by_order`: one of n consecutive
            parts in that order. None tells how many calls there are or in which order the gold has them.
        scoring: `official` or `reference`.
        even_split: part of the 0.5 for a solved request that is paid only as far as the calls are split evenly; in [0, 0.5]. A
            wrong answer earns nothing for its split.
        source: `builtin` (rows of our own), `package` (bfcl-eval), `path`, `hub`.
        path: file of rows, or a data set's name on the hub.
        categories: which rows. Of the package `parallel` and `parallel_multiple` unless given; also `live_parallel`,
            `live_parallel_multiple`, and flattened turns with two or more calls of `multi_turn_base`, `multi_turn_long_context`.
            Of other sources all rows unless given.
        eval_ids: ids of the rows kept for evaluation.
        eval_share: share of rows kept for evaluation, by their ids; a quarter.
    """
    names = agent_names(agents, role="caller")
    checked_choice("role_mode", role_mode, get_args(RoleMode))
    checked_choice("scoring", scoring, get_args(Scoring))
    if not isinstance(even_split, (int, float)) or not 0 <= even_split <= SOLVED:
        raise ValueError(f"even_split must be between 0 and {SOLVED}, got {even_split!r}")
    if scoring == "reference" and even_split:
        raise ValueError(
            f"even_split={even_split} belongs to scoring='official'; the reference's formulas have a term of their own"
        )
    rows = of_categories(sources(categories).rows(source, path), categories)
    train, held = split_rows(rows, "id", eval_ids=eval_ids, eval_share=eval_share)
    if scoring == "reference":
        kind: Kind = "flat" if _all_ordered(rows) else "native"
        reward = terms(ReferenceJudge(kind), **FORMULAS[kind].factors, cut=1.0, solved=0.0)
    else:
        reward = terms(
            Judge(),
            names=NAMES,
            arguments=ARGUMENTS,
            solved=SOLVED - even_split,
            even_split=even_split,
            format=0.0,
            overlap=0.0,
            idle=0.0,
            first_fit=0.0,
        )
    return Task(
        name="bfcl-parallel-v0",
        items=train,
        eval_items=held,
        agents=names,
        formatters=[Prompt(agent, names, role_mode) for agent in names],
        reward=reward,
        reference=Reference(len(names), scoring),
    )


def _all_ordered(rows: Sequence[Item]) -> bool:
    ordered = {bool(row.get("ordered")) for row in rows}
    if len(ordered) > 1:
        raise ValueError(
            "scoring='reference' has different formulas for parallel rows and flattened turns: choose one kind of rows"
        )
    return ordered.pop()


@dataclass(frozen=True)
class Prompt:
    """The formatter of one agent."""

    agent: AgentID
    agents: tuple[AgentID, ...]
    role_mode: RoleMode

    def __call__(self, item: Item) -> str:
        """What the agent reads."""
        functions = "\n".join(json.dumps(function, ensure_ascii=False) for function in item["function"])
        return (
            f"{self._team()}\n"
            "Write one call per line, name(parameter=value, ...), and nothing else. Write [] to make none.\n\n"
            f"Functions:\n{functions}\n\n"
            f"Request:\n{item['prompt']}"
        )

    def _team(self) -> str:
        count, place = len(self.agents), self.agents.index(self.agent)
        if count == 1:
            return "Make every function call that the request needs, once."
        who = "one" if self.role_mode == "same_prompt" else f"{self.agent}, one"
        team = f"You are {who} of {count} callers who make the function calls of a request. Nobody sees what the others write. "
        in_order = "Think of the calls that the request needs, in the order in which it speaks of them. "
        part = {
            "self_select": "Every call that it needs should be made once: choose your part and leave the rest to the others.",
            "same_prompt": "Every call that it needs should be made once.",
            "odd_even": f"{in_order}Make number {place + 1} and every {_ordinal(count)} one after it.",
            "split_by_order": f"{in_order}Divide them into {count} parts of the same size; make the {_ordinal(place + 1)} part.",
        }
        return team + part[self.role_mode]


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


@dataclass(frozen=True)
class TeamCalls:
    """What a team wrote.

    Attributes:
        own: each agent's calls.
        clean: for each agent, whether its whole text is calls.
    """

    own: tuple[tuple[Call, ...], ...]
    clean: tuple[bool, ...]

    @property
    def together(self) -> list[Call]:
        """All calls, one agent after the other."""
        return [call for calls in self.own for call in calls]


def team_calls(texts: Sequence[str], functions: Sequence[Schema]) -> TeamCalls:
    """The calls in the agents' texts."""
    order = {function["name"]: list(function["parameters"]["properties"]) for function in functions}
    parsed = [parse_calls(text, order) for text in texts]
    return TeamCalls(tuple(one.calls for one in parsed), tuple(not one.rejected for one in parsed))


def evenness(counts: Sequence[int]) -> float:
    """1 for the most even split of the calls among agents, 0 if one makes all of them. In [0, 1]; 1 for a single agent."""
    total, agents = sum(counts), len(counts)
    least = math.ceil(total / agents)
    return 1.0 if total <= least else (total - max(counts)) / (total - least)


@dataclass(frozen=True)
class Judge:
    """The terms of the official scoring. The reward lies in [0, 1]."""

    reward_range = (0.0, 1.0)

    def __call__(self, *texts: list[str], batch_items: Sequence[Item]) -> list[dict[str, float]]:
        """The terms for each joint response, for the team."""
        return [judge_official(joint, batch_items[0]) for joint in zip(*texts, strict=True)]


def judge_official(texts: Sequence[str], item: Item) -> dict[str, float]:
    """The terms of the official scoring for one joint response."""
    gold: Sequence[Gold] = item["ground_truth"]
    team = team_calls(texts, item["function"])
    found = compare(team.together, gold, item["function"])
    solved = found.exact and all(team.clean)
    keys = [{call_key(call) for call in calls} for calls in team.own]
    doubled = sum(len(one) for one in keys) - len(set().union(*keys))
    return {
        "names": found.names,
        "arguments": found.arguments,
        "solved": float(solved),
        "even_split": evenness([len(calls) for calls in team.own]) if solved else 0.0,
        "format": sum(team.clean) / len(team.clean),
        "overlap": doubled / len(gold),
        "idle": sum(not calls for calls in team.own) / len(team.own),
        "first_fit": float(found.first_fit and all(team.clean)),
    }


@dataclass(frozen=True)
class ReferenceJudge:
    """The terms of the reference system's formulas.

    Attributes:
        kind: of the rows.
    """

    kind: Kind

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest reward: [−0.4, 1.1] for parallel rows, [−0.4, 1.2] for flattened turns."""
        return FORMULAS[self.kind].reward_range

    def __call__(self, *texts: list[str], batch_items: Sequence[Item]) -> list[dict[str, float]]:
        """The terms for each joint response, for the team."""
        return [self._terms(joint, batch_items[0]) for joint in zip(*texts, strict=True)]

    def _terms(self, texts: Sequence[str], item: Item) -> dict[str, float]:
        formula = FORMULAS[self.kind]
        found = formula.terms(team_calls(texts, item["function"]).own, item["ground_truth"])
        whole = math.fsum(formula.factors[name] * value for name, value in found.items())
        return {**found, "cut": total(found, formula.factors) - whole, "solved": judge_official(texts, item)["solved"]}


@dataclass(frozen=True)
class Reference:
    """A best joint answer: the gold calls in their order, dealt out in consecutive parts as even as possible."""

    num_agents: int
    scoring: Scoring

    def __call__(self, item: Item) -> list[str]:
        """One text for each agent."""
        schemas = {function["name"]: function for function in item["function"]}
        made = every_value if self.scoring == "reference" else gold_call
        calls = [render_call(made(gold, schemas[next(iter(gold))])) for gold in item["ground_truth"]]
        size, more = divmod(len(calls), self.num_agents)
        texts, start = [], 0
        for agent in range(self.num_agents):
            end = start + size + (agent < more)
            texts.append("\n".join(calls[start:end]) or "[]")
            start = end
        return texts
