"""A run after the fact, in words: a summary in numbers, and completions to read."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from learners.progress import headline_return
from learners.run_folder import METRICS_FILE
from learners.tracking import read_metrics
from llm_envs.types import AgentID, EnvStep

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@dataclass(frozen=True)
class RunSummary:
    """A run in numbers.

    Attributes:
        env_steps: joint actions evaluated in training.
        first_evaluation: metrics of the first evaluation, by names without `eval/`; {} without one.
        last_evaluation: of the last.
        training_seconds: time of collecting and updating, from the logged speeds, so about; None if they were not logged.
    """

    env_steps: int
    first_evaluation: Mapping[str, float]
    last_evaluation: Mapping[str, float]
    training_seconds: float | None

    def __str__(self) -> str:
        text = f"{self.env_steps:,} env steps"
        if self.training_seconds is not None:
            text += f" in about {self.training_seconds:,.0f} s"
        first, last = headline_return(self.first_evaluation), headline_return(self.last_evaluation)
        if first is not None and last is not None:
            text += f"; evaluation return {first:.3f} → {last:.3f}"
        return text


def summarize(run_dir: str | Path) -> RunSummary:
    """Env steps, first and last evaluation, and time of a run.

    Raises:
        FileNotFoundError: there is no `metrics.jsonl` in the folder.
    """
    entries = read_metrics(Path(run_dir) / METRICS_FILE)
    evaluations = [_evaluation(entry.values) for entry in entries]
    evaluations = [values for values in evaluations if values]
    seconds, measured = 0.0, 0
    for entry in entries:
        speed = entry.values.get("time/env_steps_per_second")
        if speed:
            seconds += (entry.env_step - measured) / speed
            measured = entry.env_step
    return RunSummary(
        env_steps=max((entry.env_step for entry in entries), default=0),
        first_evaluation=evaluations[0] if evaluations else {},
        last_evaluation=evaluations[-1] if evaluations else {},
        training_seconds=seconds if measured else None,
    )


def _evaluation(values: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix("eval/"): value for name, value in values.items() if name.startswith("eval/")}


def show_completions(steps: Sequence[EnvStep], *, limit: int = 4, characters: int = 400, console: Console | None = None) -> None:
    """Print what agents read, wrote and earned: tables on a terminal, plain text elsewhere.

    Args:
        steps: env steps, such as `Trainer.last_evaluation` or those of a recorded stream.
        limit: how many are shown, spread evenly.
        characters: longer texts are cut and their rest counted.
        console: of rich, to print to; a new one on standard output by default.

    Raises:
        ImportError: rich is not installed.
    """
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError as error:
        raise ImportError("tables need rich: pip install 'llm-envs[train]', or print completions_text(steps)") from error
    console = Console(highlight=False) if console is None else console
    if not console.is_terminal:
        console.print(Text(completions_text(steps, limit=limit, characters=characters)), soft_wrap=True)
        return
    for step in _spread(steps, limit):
        console.print(_completions_table(step, characters))


def completions_text(steps: Sequence[EnvStep], *, limit: int = 4, characters: int = 400) -> str:
    """What `show_completions` prints outside a terminal."""
    blocks = []
    for step in _spread(steps, limit):
        lines = [_heading(step)]
        for agents, prompt in _prompts(step):
            lines += [f"  prompt of {agents}:", *_indented(readable(prompt, characters))]
        for agent, completion in step.completions.items():
            lines += [f"  {agent}, reward {step.rewards[agent]:.3f}:", *_indented(readable(completion.text, characters))]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _completions_table(step: EnvStep, characters: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=_heading(step), title_justify="left", expand=True, show_lines=True)
    table.add_column("agent", no_wrap=True)
    table.add_column("text", ratio=1, overflow="fold")
    table.add_column("reward", justify="right", no_wrap=True)
    for agents, prompt in _prompts(step):
        table.add_row(Text(f"prompt of {agents}", style="dim"), Text(readable(prompt, characters), style="dim"), "")
    for agent, completion in step.completions.items():
        table.add_row(Text(agent, style="bold"), Text(readable(completion.text, characters)), f"{step.rewards[agent]:.3f}")
    return table


def _spread(steps: Sequence[EnvStep], limit: int) -> list[EnvStep]:
    if limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    count = min(limit, len(steps))
    return [steps[index * len(steps) // count] for index in range(count)]


def _heading(step: EnvStep) -> str:
    return f"env step {step.env_step:,} · episode {step.episode} · turn {step.turn}"


def _prompts(step: EnvStep) -> list[tuple[str, str]]:
    """Prompts and who reads each; one that all read is given once."""
    readers: dict[str, list[AgentID]] = {}
    for agent, prompt in step.prompts.items():
        readers.setdefault(str(prompt), []).append(agent)
    return [("all" if len(agents) == len(step.prompts) > 1 else ", ".join(agents), prompt) for prompt, agents in readers.items()]


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.split("\n")]


def readable(text: str, characters: int | None = None) -> str:
    """A text that is safe to print: what would steer a terminal or break an encoding is shown as its escape code.

    Args:
        text: of a model, so any characters at all.
        characters: a longer text is cut there, and the rest counted.
    """
    kept = text if characters is None else text[:characters]
    # Cc: control characters; Cf: invisible ones, which can reorder a line; Cs: lone surrogates.
    shown = "".join(
        character if character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs") else _escape(character)
        for character in kept
    )
    rest = len(text) - len(kept)
    return f"{shown}… (+{rest:,} characters)" if rest else shown or "(empty)"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
