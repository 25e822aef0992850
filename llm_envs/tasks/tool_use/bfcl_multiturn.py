"""`bfcl-multiturn-v0`: agents that each own an API class serve a user over several turns; their calls are run, and change state."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from llm_envs.rewards import terms
from llm_envs.task import Task, agent_names
from llm_envs.tasks.options import checked_choice, checked_count
from llm_envs.tasks.sources import PackageSource, split_rows
from llm_envs.tasks.tool_use.episode import (
    AfterFailure,
    FewerClasses,
    Progress,
    Setting,
    gold_call,
    progress,
    read_message,
    visible_functions,
)
from llm_envs.tasks.tool_use.fields import of_categories
from llm_envs.tasks.tool_use.matching import check_arguments
from llm_envs.tasks.tool_use.multiturn_rows import sources
from llm_envs.tasks.tool_use.own_apis import OWN
from llm_envs.tasks.tool_use.simulators import api_functions
from llm_envs.types import AgentID, Item, State

RESPONSES, TURNS, SOLVED = 0.25, 0.25, 0.5
"""What the terms count."""

SHOWN_PIECES, SHOWN = 3, 100
"""How many pieces of text that are no call an agent is shown of its own, and how many characters of each."""


def task(
    *,
    agents: int | Sequence[AgentID] = 2,
    steps_per_turn: int = 3,
    fewer_classes: FewerClasses = "skip",
    after_failure: AfterFailure = "continue",
    max_response: int = 2000,
    apis: Mapping[str, type] | None = None,
    source: PackageSource = "builtin",
    path: str | None = None,
    categories: Sequence[str] | None = None,
    eval_ids: Sequence[str] | None = None,
    eval_share: float | None = None,
) -> Task:
    """Agents that each own an API class serve a user over several turns; their calls are run on simulators and change their state.

    Every agent reads the descriptions of its own functions, the names of the others', what the user said, and all calls so far with
    their responses. It writes calls, one a line, and `done` if its part of the user's request is finished or `wait` to see the
    others' results first. One turn of the environment is one such step. A user's turn ends when no agent goes on (`episode`), after
    `steps_per_turn` steps at the latest; then the user speaks again. Within a step the calls of all agents are run in the order of
    their numbers, which are their places in the text or are written in front (`3: call()`); equal ones in the order of the agents.

    A user's turn is judged when it ends, by the rules of the Berkeley Function Calling Leaderboard: every simulator has the public
    attributes that the gold calls lead to, and all of the gold responses are among the team's responses so far. Turns without gold
    calls are not judged. With T judged turns the terms are, in the step in which a turn ends, `responses` (share of the gold
    responses, over T; counts 0.25) and `turns` (right by both rules, over T; 0.25), and in the last step `solved` (all turns
    right: the benchmark's own score; 0.5). Logged only: `state` (gold state, over T), `format` (share of agents whose whole text
    is calls), `refused` (calls of functions that are not the agent's, or too many).

    Range: rewards and returns in [0, 1], shared by the team; the return is 1 only if every turn is right. How many turns the
    environment has differs from row to row: at most `steps_per_turn` times the user's turns.

    Args:
        agents: their number (`api_0`, …) or names. Agent i owns class i; with more classes than agents, also class i + n, ….
        steps_per_turn: times that the agents can write before the user speaks again, at least 1. With 1 they see no results in
            between.
        fewer_classes: rows with fewer API classes than agents: `skip` with a warning (of multi_turn_base 135 of 200 rows are left
            for two agents), `share` (the functions of a class are dealt out to several agents), `idle` (the last agents own
            nothing).
        after_failure: `continue`, or `end` the episode after a wrong turn: it cannot be solved any more.
        max_response: characters of a response that prompts show.
        apis: own API classes by name, for rows of `path`: `Class(config)` makes a simulator, its public methods are its functions
            (annotated with str, int, float, bool; described by their docstrings).
        source: `builtin` (rows and simulators of our own), `package` (those of bfcl-eval), `path`, `hub`.
        path: file of rows; with `hub` a data set's name, which it needs.
        categories: which rows. Of the package `multi_turn_base` unless given; also `multi_turn_long_context`,
            `multi_turn_miss_func`, `multi_turn_miss_param`. Of other sources all rows unless given.
        eval_ids: ids of the rows kept for evaluation.
        eval_share: share of rows kept for evaluation, by their ids; a quarter.
    """
    names = agent_names(agents, role="api")
    checked_choice("fewer_classes", fewer_classes, get_args(FewerClasses))
    checked_choice("after_failure", after_failure, get_args(AfterFailure))
    checked_count("steps_per_turn", steps_per_turn, 1)
    checked_count("max_response", max_response, 1)
    setting = Setting(names, steps_per_turn, fewer_classes, after_failure, tuple((apis or {}).items()), max_response)
    rows = playable(setting, of_categories(sources(categories).rows(source, path), categories))
    train, held = split_rows(rows, "id", eval_ids=eval_ids, eval_share=eval_share)
    return Task(
        name="bfcl-multiturn-v0",
        items=train,
        eval_items=held,
        agents=names,
        formatters=[Prompt(setting, agent) for agent in range(len(names))],
        reward=terms(Judge(setting), responses=RESPONSES, turns=TURNS, solved=SOLVED, state=0.0, format=0.0, refused=0.0),
        transition=Answer(setting),
        num_turns=steps_per_turn * max(len(row["question"]) for row in rows),
        external_prompt_passthrough=True,
        reference=Reference(setting),
    )


def playable(setting: Setting, rows: Sequence[Item]) -> list[Item]:
    """The rows that this team plays, by `fewer_classes`.

    Raises:
        ImportError: for classes of bfcl-eval without the package.
        ValueError: for a class nobody knows, functions of one name, a gold call of none of the functions, or if no row is left.
    """
    kept = [row for row in rows if setting.fewer_classes != "skip" or len(row["involved_classes"]) >= len(setting.agents)]
    left_out = f"{len(rows) - len(kept)} of {len(rows)} rows have fewer API classes than the {len(setting.agents)} agents"
    if not kept:
        raise ValueError(f"{left_out}: choose fewer_classes='share' or 'idle'")
    if len(kept) < len(rows):
        warnings.warn(f"bfcl-multiturn-v0: {left_out} and are left out; fewer_classes='share' or 'idle' plays them", stacklevel=3)
    for row in kept:
        owners = setting.owners(row)
        described = [function["name"] for api in row["involved_classes"] for function in api_functions(api, setting.apis)]
        if len(described) > len(owners):
            twice = next(name for name in owners if described.count(name) > 1)
            raise ValueError(f"row {row['id']}: several of {', '.join(row['involved_classes'])} have a function {twice!r}")
        for call in (gold_call(text) for turn in row["ground_truth"] for text in turn):
            if call.name not in owners:
                raise ValueError(f"row {row['id']}: the gold call {call} is of none of {', '.join(row['involved_classes'])}")
        _check_gold(setting, row)
    return kept


def _check_gold(setting: Setting, row: Item) -> None:
    """Nothing, if every gold call is one that its function's description allows."""
    # bfcl-eval has gold values that are not of the described type (texts as ids of tickets), and its simulators take them.
    own = {*OWN, *dict(setting.apis)}
    found = {doc["name"]: (doc, api in own) for api in row["involved_classes"] for doc in api_functions(api, setting.apis)}
    for call in (gold_call(text) for turn in row["ground_truth"] for text in turn):
        schema, typed = found[call.name]
        try:
            check_arguments(call, schema, typed=typed)
        except ValueError as error:
            raise ValueError(f"row {row['id']}: {error}") from error


# ---- what the agents read ----


@dataclass(frozen=True)
class Prompt:
    """The formatter of one agent."""

    setting: Setting
    agent: int

    def __call__(self, item: Item) -> str:
        """What the agent reads first."""
        return observe(self.setting, self.agent, item, Progress())


@dataclass(frozen=True)
class Answer:
    """The transition: what every agent reads next, None at the end."""

    setting: Setting

    def __call__(self, item: Item, state: State, agent_completions: Sequence[str]) -> list[str] | None:
        """The next prompts."""
        reached = progress(self.setting, item, [*written(self.setting, state), agent_completions])
        if reached.done:
            return None
        return [observe(self.setting, agent, item, reached) for agent in range(len(self.setting.agents))]


def written(setting: Setting, state: State) -> list[list[str]]:
    """What the agents wrote before a state, step by step."""
    return [[turn.actions[agent] for agent in setting.agents] for turn in state.history]


def observe(setting: Setting, agent: int, item: Item, reached: Progress) -> str:
    """An agent's prompt."""
    owners = setting.owners(item)
    functions = visible_functions(setting, item, reached.turn)
    mine = [f for docs in functions.values() for f in docs if owners[str(f["name"])] == agent]
    lines = [_team(setting, agent, item, owners, functions), "", "Your functions:" if mine else "You have no functions here."]
    lines += [json.dumps(function, ensure_ascii=False) for function in mine]
    lines += ["", "So far:"]
    for turn in range(reached.turn + 1):
        lines += _said(item, turn)
        for number, step in enumerate((step for step in reached.steps if step.turn == turn), start=1):
            lines.append(f"(step {number})")
            lines += [
                f"{setting.agents[ran.agent]} called {ran.call}: {_cut(ran.response, setting.max_response)}" for ran in step.ran
            ]
            lines += [f"you wrote what is no call: {_cut(piece, SHOWN)}" for piece in step.rejected[agent][:SHOWN_PIECES]]
    left = setting.steps_per_turn - sum(step.turn == reached.turn for step in reached.steps)
    times = "once more" if left == 1 else f"{left} more times"
    return "\n".join([*lines, "", f"Your team can write {times} before the user speaks again."])


def _team(
    setting: Setting, agent: int, item: Item, owners: Mapping[str, int], functions: Mapping[str, Sequence[Mapping[str, object]]]
) -> str:
    names = setting.agents
    lines = [
        f"You are {names[agent]}. You serve a user by calling functions" + (", together with others:" if len(names) > 1 else ".")
    ]
    for other, name in enumerate(names):
        if other != agent:
            parts = [
                f"{api} ({', '.join(theirs)})"
                for api, docs in functions.items()
                if (theirs := [str(f["name"]) for f in docs if owners[str(f["name"])] == other])
            ]
            lines.append(f"{name} has {' and '.join(parts) or 'no functions'}.")
    own = [api for api, docs in functions.items() if any(owners[str(f["name"])] == agent for f in docs)]
    lines += [
        f"You have {' and '.join(own) or 'no functions'}. Only you can call your functions.",
        "Write one call per line, such as name(parameter='value'), and [] to make none.",
        "All write at once. Calls are run in the order of their numbers: 1, 2, ... from the top of each text, unless a number "
        "stands in front, as in 3: name().",
        "Then write done if your part of the user's request is finished, or wait to see the others' results first.",
    ]
    return "\n".join(lines)


def _said(item: Item, turn: int) -> list[str]:
    messages = item["question"][turn]
    if not messages:
        return ["user: There are more functions now."]
    return [f"{message['role']}: {message['content']}" for message in messages]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


# ---- what they earn ----


@dataclass(frozen=True)
class Judge:
    """The terms of the reward, which lies in [0, 1]."""

    reward_range = (0.0, 1.0)

    setting: Setting

    def __call__(self, *texts: list[str], batch_items: Sequence[Item], states: Sequence[State]) -> list[dict[str, float]]:
        """The terms for each joint response, for the team."""
        return [self._terms(joint, batch_items[0], state) for joint, state in zip(zip(*texts, strict=True), states, strict=True)]

    def _terms(self, texts: Sequence[str], item: Item, state: State) -> dict[str, float]:
        before = written(self.setting, state)
        old, new = progress(self.setting, item, before), progress(self.setting, item, [*before, texts])
        judged = sum(bool(turn) for turn in item["ground_truth"])
        over = [verdict for verdict in new.verdicts[len(old.verdicts) :] if verdict.checked]
        return {
            "responses": sum(verdict.responses for verdict in over) / judged,
            "turns": sum(verdict.valid for verdict in over) / judged,
            "solved": float(new.solved),
            "state": sum(verdict.state for verdict in over) / judged,
            "format": sum(not read_message(text).rejected for text in texts) / len(texts),
            "refused": float(sum(ran.refused for ran in new.steps[-1].ran)),
        }


@dataclass(frozen=True)
class Reference:
    """A best joint answer: in each of the user's turns its gold calls, numbered in their order, all in one step."""

    setting: Setting

    def __call__(self, item: Item) -> list[list[str]]:
        """For each agent its texts, turn by turn."""
        owners = self.setting.owners(item)
        texts: list[list[str]] = [[] for _ in self.setting.agents]
        for turn in item["ground_truth"]:
            calls = [gold_call(text) for text in turn]
            for agent, own in enumerate(texts):
                lines = [f"{number}: {call}" for number, call in enumerate(calls, start=1) if owners[call.name] == agent]
                own.append("\n".join([*(lines or ["[]"]), "done"]))
        return texts
