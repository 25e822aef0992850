"""Reward audit: what teams that do not do the task earn, before anyone trains on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from llm_envs.env import BranchingEnv
from llm_envs.testing.episodes import (
    Reference,
    copied_prompt,
    first_rows,
    keywords,
    play_episode,
    random_text,
    random_words,
    reference_of,
    reference_team,
)
from llm_envs.testing.scripted import ScriptedPolicy
from llm_envs.types import AgentID, Item, Policy

TRIVIAL = ("empty", "constant", "copied prompt", "longest", "keywords")
RANDOM = ("random text", "random words")

NEAR = 0.1
"""A trivial team is near the best if less than this share of what lies between the worst team and the best is missing."""

SHORT = 1e-6
"""Share of the declared range by which the reference solution may miss its top: sums of terms are rounded."""


@dataclass(frozen=True)
class TeamReturns:
    """What a team earned: returns of an agent (the sum of its rewards over an episode), averaged over the agents.

    Attributes:
        team: its name.
        mean: over episodes.
        min: over episodes.
        max: over episodes.
    """

    team: str
    mean: float
    min: float
    max: float


def audit_table(audits: Mapping[str, Audit]) -> str:
    """The mean returns of several environments' teams as a Markdown table: a line for each environment, – for a team it has not."""
    teams = list(dict.fromkeys(entry.team for audit in audits.values() for entry in audit.teams))
    lines = [f"| env | {' | '.join(teams)} |", "|---|" + "---|" * len(teams)]
    for name, audit in audits.items():
        means = {entry.team: f"{entry.mean:.2f}" for entry in audit.teams}
        lines.append(f"| `{name}` | {' | '.join(means.get(team, '–') for team in teams)} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Audit:
    """The result of a reward audit; `str()` of it is a table with the warnings below.

    Attributes:
        teams: what each earned.
        warnings: what a designer of the reward should look at.
        episodes: that each team played.
    """

    teams: tuple[TeamReturns, ...]
    warnings: tuple[str, ...]
    episodes: int

    def __getitem__(self, team: str) -> TeamReturns:
        return next(entry for entry in self.teams if entry.team == team)

    def __str__(self) -> str:
        width = max(len(entry.team) for entry in self.teams)
        lines = [f"{'team':<{width}} {'mean':>9} {'min':>9} {'max':>9}   return over {self.episodes} episodes"]
        lines += [f"{e.team:<{width}} {e.mean:>9.4g} {e.min:>9.4g} {e.max:>9.4g}" for e in self.teams]
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])


def audit_rewards(
    env: BranchingEnv,
    items: Iterable[Item] | None = None,
    *,
    rows: int = 16,
    episodes_per_row: int = 4,
    reference: Reference | None = None,
    constant: str = "ok",
    longest: int = 4096,
    seed: int = 0,
) -> Audit:
    """What teams of every kind earn, with warnings where a policy could earn well without doing the task.

    * empty: every agent writes nothing. constant: always the same text. copied prompt: what it reads. longest: as much as it may.
      keywords: every word of what it reads, each after a word without a meaning.
    * random text: random characters. random words: a few words of what it reads, in random order.
    * reference: the task's own best answer, if it gives one. one silent: the same, but one agent (each in turn) writes nothing.
      swapped: the best answer to the next row that is another one, if any is.

    Args:
        env: of any task, wrapped or not.
        items: rows to play; the env's own by default.
        rows: how many of them, from the first.
        episodes_per_row: that each team plays on each row.
        reference: row → one text for each agent; the task's by default.
        constant: what the constant team writes.
        longest: characters of the longest text, if the action space allows more.
        seed: of the random teams and of chance in transitions.

    Raises:
        ValueError: without rows, or for a reference that does not name every agent's text.
        RewardError: if the reward fails on what a team writes: a malformed completion is an action, and must earn something.
    """
    chosen = first_rows(env, items, rows)
    if not chosen or episodes_per_row < 1:
        raise ValueError(f"an audit needs at least one row and one episode, got {len(chosen)} and {episodes_per_row}")
    teams = _teams(env, reference or reference_of(env), [row for _, row in chosen], constant, longest)
    results: list[TeamReturns] = []
    warnings: list[str] = []
    for name, team in teams.items():
        played = [
            _returns(env, team(item, episode), item, index, (seed, 0, episode))
            for episode, (index, item) in enumerate(chosen * episodes_per_row)
        ]
        returns = [paid for paid, _ in played]
        if name == "reference":
            warnings = _reference_warnings(env, [index for index, _ in chosen * episodes_per_row], played)
        results.append(TeamReturns(name, math.fsum(returns) / len(returns), min(returns), max(returns)))
    return Audit(tuple(results), (*_warnings(results), *warnings), len(chosen) * episodes_per_row)


Team = Callable[[Item, int], Mapping[AgentID, Policy]]
"""Row and number of the episode → the policies."""


def _teams(env: BranchingEnv, reference: Reference | None, rows: Sequence[Item], constant: str, longest: int) -> dict[str, Team]:
    length = min(longest, env.max_completion_length)
    scripts: Sequence[ScriptedPolicy] = [
        ScriptedPolicy([""]),
        ScriptedPolicy([constant]),
        ScriptedPolicy(copied_prompt),
        ScriptedPolicy([("word " * (length // 5 + 1))[:length]]),
        ScriptedPolicy(keywords),
        ScriptedPolicy(random_text),
        ScriptedPolicy(random_words),
    ]
    teams = {name: _everybody(env, policy) for name, policy in zip((*TRIVIAL, *RANDOM), scripts, strict=True)}
    if reference is not None:
        solution = reference
        teams["reference"] = lambda item, episode: reference_team(env, solution, item)
        if len(env.possible_agents) > 1:
            teams["one silent"] = lambda item, episode: _one_silent(env, solution, item, episode)
        others = [_next_other(rows, index) for index in range(len(rows))]
        if None not in others:
            teams["swapped"] = lambda item, episode: reference_team(env, solution, others[episode % len(others)] or item)
    return teams


def _everybody(env: BranchingEnv, policy: Policy) -> Team:
    return lambda item, episode: dict.fromkeys(env.possible_agents, policy)


def _one_silent(env: BranchingEnv, reference: Reference, item: Item, episode: int) -> dict[AgentID, ScriptedPolicy]:
    silent = env.possible_agents[episode % len(env.possible_agents)]
    return {**reference_team(env, reference, item), silent: ScriptedPolicy([""])}


def _next_other(rows: Sequence[Item], index: int) -> Item | None:
    """The first row from this position on, around the end, that is another one; None if all are alike."""
    return next((row for row in [*rows[index + 1 :], *rows[:index]] if row != rows[index]), None)


def _returns(
    env: BranchingEnv, policies: Mapping[AgentID, Policy], item: Item, index: int, key: tuple[int, ...]
) -> tuple[float, float]:
    """What an episode paid an agent on average, and the same of raw rewards, for which ranges are declared."""
    turns = [transition for _, transition in play_episode(env, policies, item, index, key)]
    count = len(env.possible_agents)
    paid = math.fsum(value for turn in turns for value in turn.rewards.values()) / count
    raw = math.fsum(turn.infos[agent].get("raw_reward", value) for turn in turns for agent, value in turn.rewards.items()) / count
    return paid, raw


def _reference_warnings(env: BranchingEnv, rows: Sequence[int], played: Sequence[tuple[float, float]]) -> list[str]:
    """Rows on which the reference solution earns less than on others, or less than can be earned: the first of them is named.

    The top of what can be earned is known of one turn only: a declared range is that of a turn.
    """
    warnings: list[str] = []
    low, high = min(played), max(played)
    if low[0] < high[0] - NEAR * abs(high[0]):
        row = rows[played.index(low)]
        warnings.append(f"the reference solution earns {low[0]:.4g} on row {row}, but {high[0]:.4g} on others: is it right there?")
    if env.num_turns == 1 and env.reward_range is not None:
        least, most = env.reward_range
        short = min(range(len(played)), key=lambda episode: played[episode][1])
        if played[short][1] < most - SHORT * (most - least):
            found = f"{played[short][1]:.4g} on row {rows[short]}"
            warnings.append(f"the reference solution earns {found}, less than the declared {most:.4g}: can that row be solved?")
    return warnings


def _warnings(results: Sequence[TeamReturns]) -> list[str]:
    by_name = {entry.team: entry for entry in results}
    worst, best = min(results, key=lambda e: e.mean), max(results, key=lambda e: e.mean)
    if min(e.min for e in results) == max(e.max for e in results):
        return [f"every team earns {best.mean:.4g}: this reward tells no answer from another"]
    warnings: list[str] = []
    chance = max(by_name[name].max for name in RANDOM)
    if chance <= by_name["empty"].min:
        warnings.append(
            "no random team ever earns more than the empty one: a policy that starts at chance has nothing to learn from"
        )
    reference = by_name.get("reference")
    if reference is None:
        better = [by_name[name] for name in TRIVIAL if by_name[name].mean > chance]
        return warnings + [
            f"the team '{e.team}' earns {e.mean:.4g}, more than any random team ever did ({chance:.4g})" for e in better
        ]
    if best.max > reference.max:
        top = max(results, key=lambda e: e.max)
        warnings.append(f"the team '{top.team}' earned {top.max:.4g}, more than the reference solution ({reference.max:.4g})")
    near = reference.mean - NEAR * (reference.mean - worst.mean)
    for name, reason in (
        *((name, "the task need not be done") for name in TRIVIAL),
        ("one silent", "an agent need not do anything"),
    ):
        if name in by_name and by_name[name].mean >= near:
            found = f"{by_name[name].mean:.4g} of the reference solution's {reference.mean:.4g}"
            warnings.append(f"the team '{name}' earns {found}: {reason} for it")
    return warnings
