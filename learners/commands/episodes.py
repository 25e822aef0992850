"""Evaluations as people read them: means with standard errors, and episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from learners import credit
from learners.commands.display import number, print_table
from learners.evaluation import by_episode, evaluation_metrics
from learners.report import readable, show_completions
from llm_envs.types import AgentID, EnvStep

_INDENT = 2
_CHARACTERS = 160


@dataclass(frozen=True)
class Estimate:
    """A mean over episodes.

    Attributes:
        mean: of the episodes' values.
        standard_error: sample standard deviation / √episodes; None for a single one.
    """

    mean: float
    standard_error: float | None

    def __str__(self) -> str:
        return number(self.mean) if self.standard_error is None else f"{number(self.mean)} ± {number(self.standard_error)}"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error of one value an episode."""
    mean = credit.mean(values)
    if len(values) < 2:
        return Estimate(mean, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Estimate(mean, math.sqrt(variance / len(values)))


def episode_returns(steps: Sequence[EnvStep]) -> list[float]:
    """Undiscounted return of each episode, averaged over its agents."""
    return [
        math.fsum(reward for step in episode for reward in step.rewards.values()) / len(episode[0].rewards)
        for episode in by_episode(steps)
    ]


def agent_returns(steps: Sequence[EnvStep]) -> dict[AgentID, Estimate]:
    """Each agent's undiscounted return."""
    agents = list(steps[0].rewards)
    episodes = by_episode(steps)
    return {agent: estimate([math.fsum(step.rewards[agent] for step in episode) for episode in episodes]) for agent in agents}


def shared(steps: Sequence[EnvStep]) -> bool:
    """Whether all agents always got the same reward."""
    return all(len(set(step.rewards.values())) == 1 for step in steps)


def evaluation_rows(steps: Sequence[EnvStep], num_turns: int) -> list[tuple[str, str]]:
    """Names and values of an evaluation: the return, each agent's if they differ, turns if several can be, rewards and terms."""
    episodes = by_episode(steps)
    rows = [("return", str(estimate(episode_returns(steps))))]
    if not shared(steps):
        rows += [(f"return of {agent}", str(value)) for agent, value in agent_returns(steps).items()]
    if num_turns > 1:
        rows.append(("turns", str(estimate([float(len(episode)) for episode in episodes]))))
    # With one turn the reward is the return.
    hidden = ("expected_return",) if num_turns > 1 else ("expected_return", "reward_mean")
    rows += [(name, number(value)) for name, value in evaluation_metrics(steps).items() if not name.endswith(hidden)]
    limit = [c.finish_reason == "length" for step in steps for c in step.completions.values()]
    rows.append(("completions cut at the limit", f"{100 * sum(limit) / len(limit):.0f} %"))
    rows.append(("episodes", str(len(episodes))))
    return rows


def show_evaluation(console: Console, steps: Sequence[EnvStep], num_turns: int) -> None:
    """Print an evaluation as a table."""
    print_table(console, evaluation_rows(steps, num_turns), ("", "mean ± standard error"))


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
