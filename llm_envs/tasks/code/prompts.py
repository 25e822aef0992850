"""What each programmer reads first."""

from __future__ import annotations

from dataclasses import dataclass

from llm_envs.tasks.code.levels import Team
from llm_envs.tasks.code.problems import problem_of
from llm_envs.types import Item

ONLY_CODE = "Answer with Python code only."


@dataclass(frozen=True)
class HelperPrompt:
    """The formatter of a helper.

    Attributes:
        team: whose.
        number: which of the helpers.
    """

    team: Team
    number: int

    def __call__(self, item: Item) -> str:
        """The problem, and which function to write for it."""
        problem = problem_of(item)
        mine = self.team.functions[self.number]
        others = [name for name in self.team.functions if name != mine]
        beside = f" Other helpers write {listed(others)}." if others else ""
        return (
            f"{_intro(self.team)}\n\n{item['prompt'].strip()}\n\n"
            f"You are a helper. Write the function `{mine}`: it does a part of the work, and the main programmer calls it in "
            f"`{problem.entry_point}({problem.parameters})` and works on with what it returns.{beside} "
            f"Do not write `{problem.entry_point}` itself. {ONLY_CODE}"
        )


@dataclass(frozen=True)
class MainPrompt:
    """The formatter of the main programmer."""

    team: Team

    def __call__(self, item: Item) -> str:
        """The problem, and which helpers there will be."""
        problem = problem_of(item)
        signature = f"`{problem.entry_point}({problem.parameters})`"
        start = f"{_intro(self.team)}\n\n{item['prompt'].strip()}\n\n"
        if not self.team.helpers:
            return f"{start}Write the function {signature}. {ONLY_CODE}"
        names = listed(self.team.functions)
        write, them, they = (
            ("A helper writes", "it", "it returns") if self.team.helpers == 1 else ("Helpers write", "them", "they return")
        )
        return (
            f"{start}You are the main programmer. Write the function {signature}. "
            f"{write} {names} for it at the same time, with parameters that you have to guess: "
            f"call {them}, and do your own part of the work on what {they}. Do not write {names} yourself. {ONLY_CODE}"
        )


def listed(names: tuple[str, ...] | list[str]) -> str:
    """The functions' names in a sentence: `a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _intro(team: Team) -> str:
    if not team.helpers:
        return "Solve this problem:"
    return (
        f"{team.helpers + 1} programmers solve this problem together. They write at the same time and do not see each other's code."
    )
