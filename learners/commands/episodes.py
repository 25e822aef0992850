"""Evaluations as people read them: means with standard errors, and episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from learners import credit
from learners.commands.display import number, print_table
from learners.evaluation import by_episode, evaluation_metrics, item_of, pass_at_k, solved_by_item
from learners.report import readable, show_completions
from llm_envs.types import AgentID, EnvStep

_INDENT = 2
_CHARACTERS = 160


@dataclass(frozen=True)
class Estimate:
    """A mean over items.

    Attributes:
        mean: of the items' values.
        standard_error: sample standard deviation / √items; None for a single one.
    """

    mean: float
    standard_error: float | None

    def __str__(self) -> str:
        return number(self.mean) if self.standard_error is None else f"{number(self.mean)} ± {number(self.standard_error)}"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error of one value an item."""
    mean = credit.mean(values)
    if len(values) < 2:
        return Estimate(mean, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Estimate(mean, math.sqrt(variance / len(values)))


def episode_estimate(steps: Sequence[EnvStep], value: Callable[[list[EnvStep]], float]) -> Estimate:
    """Mean and standard error of a value of episodes. Those on one item are not independent: their mean counts once."""
    by_item: dict[int, list[float]] = {}
    for episode in by_episode(steps):
        by_item.setdefault(item_of(episode), []).append(value(episode))
    return estimate([credit.mean(values) for values in by_item.values()])


def return_of(episode: Sequence[EnvStep]) -> float:
    """Undiscounted return of an episode, averaged over its agents."""
    return math.fsum(reward for step in episode for reward in step.rewards.values()) / len(episode[0].rewards)


def agent_returns(steps: Sequence[EnvStep]) -> dict[AgentID, Estimate]:
    """Each agent's undiscounted return."""

    def of_agent(agent: AgentID) -> Estimate:
        return episode_estimate(steps, lambda episode: math.fsum(step.rewards[agent] for step in episode))

    return {agent: of_agent(agent) for agent in steps[0].rewards}


def pass_rates(steps: Sequence[EnvStep], ks: Sequence[int] | None = None) -> dict[int, float]:
    """pass@k by k: mean over the items of the unbiased estimate (`learners.evaluation.pass_at_k`).

    Args:
        steps: of n episodes on each item.
        ks: at most n each; by default those of 1, 3, 5 and 10 that are.

    Raises:
        ValueError: for a k above n.
    """
    solved = solved_by_item(steps)
    if solved is None:
        return {}
    least = min(map(len, solved.values()))
    chosen = [k for k in (1, 3, 5, 10) if k <= least] if ks is None else ks
    return {k: credit.mean([pass_at_k(len(found), sum(found), k) for found in solved.values()]) for k in chosen}


def shared(steps: Sequence[EnvStep]) -> bool:
    """Whether all agents always got the same reward."""
    return all(len(set(step.rewards.values())) == 1 for step in steps)


def evaluation_rows(steps: Sequence[EnvStep], num_turns: int) -> list[tuple[str, str]]:
    """Names and values of an evaluation: the return, each agent's if they differ, turns if several can be, rewards and terms."""
    episodes = by_episode(steps)
    rows = [("return", str(episode_estimate(steps, return_of)))]
    if not shared(steps):
        rows += [(f"return of {agent}", str(value)) for agent, value in agent_returns(steps).items()]
    if num_turns > 1:
        rows.append(("turns", str(episode_estimate(steps, lambda episode: float(len(episode))))))
    # With one turn the reward is the return.
    hidden = ("expected_return",) if num_turns > 1 else ("expected_return", "reward_mean")
    rows += [(name, number(value)) for name, value in evaluation_metrics(steps).items() if not name.endswith(hidden)]
    limit = [c.finish_reason == "length" for step in steps for c in step.completions.values()]
    rows.append(("completions cut at the limit", f"{100 * sum(limit) / len(limit):.0f} %"))
    rows.append(("episodes", str(len(episodes))))
    return rows


def show_comparison(console: Console, before: Sequence[EnvStep], after: Sequence[EnvStep], num_turns: int) -> None:
    """Print two evaluations beside each other."""
    later = dict(evaluation_rows(after, num_turns))
    earlier = dict(evaluation_rows(before, num_turns))
    names = list(dict.fromkeys([*earlier, *later]))
    print_table(console, [(name, earlier.get(name, ""), later.get(name, "")) for name in names], ("", "before", "after"))


def show_episodes(console: Console, steps: Sequence[EnvStep], count: int) -> None:
    """Print the first episodes: what each agent read and wrote, and what it earned."""
    shown = [step for episode in by_episode(steps)[:count] for step in episode]
    show_completions(shown, limit=len(shown), console=console)


def show_changes(console: Console, before: Sequence[EnvStep], after: Sequence[EnvStep], count: int) -> None:
    """Print what a team wrote on the same items before and after training."""
    for old, new in list(zip(by_episode(before), by_episode(after), strict=True))[:count]:
        _show_prompts(console, old[0].prompts)
        for label, step in (("before", old[0]), ("after", new[0])):
            _line(console, f"{label}, reward {_rewards(step.rewards)}")
            for agent, completion in step.completions.items():
                _line(console, f"{agent}: {_short(completion.text)}", indent=2 * _INDENT)


def _show_prompts(console: Console, prompts: Mapping[AgentID, str]) -> None:
    if len(set(prompts.values())) == 1:
        _line(console, f"prompt: {_short(next(iter(prompts.values())))}", style="cyan")
        return
    for agent, prompt in prompts.items():
        _line(console, f"prompt of {agent}: {_short(prompt)}", style="cyan")


def _short(text: str) -> str:
    return readable(" ".join(text.split()), _CHARACTERS)


def _rewards(rewards: Mapping[AgentID, float]) -> str:
    if len(set(rewards.values())) == 1:
        return number(next(iter(rewards.values())))
    return ", ".join(f"{agent} {number(reward)}" for agent, reward in rewards.items())


def _line(console: Console, text: str, *, indent: int = _INDENT, style: str = "") -> None:
    console.print(Padding(Text(text, style=style), (0, 0, 0, indent), expand=False))
