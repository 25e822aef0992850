"""What each programmer reads first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llm_envs.tasks.classeval.classes import ClassProblem, class_of
from llm_envs.tasks.classeval.dividing import divide
from llm_envs.tasks.code.prompts import listed
from llm_envs.types import Item

ONLY_DEFS = "Answer with the `def` blocks of your methods only: no class header, no imports, no markdown fences."


@dataclass(frozen=True)
class CoderPrompt:
    """The formatter of a programmer.

    Attributes:
        agents: number of programmers.
        number: which of them.
    """

    agents: int
    number: int

    def __call__(self, item: Item) -> str:
        """The class, and which methods to write."""
        problem = class_of(item)
        shares = divide(problem, self.agents)
        mine = shares[self.number]
        others = [method.name for method in problem.methods if method.name not in mine]
        beside = f" The others write {listed(others)}: call these, do not write them." if others else ""
        return (
            f"{_intro(self.agents)}\n\n{problem.skeleton.strip()}\n\n"
            f"You write {listed(signatures(problem, mine))}.{beside} {ONLY_DEFS}"
        )


def signatures(problem: ClassProblem, names: Sequence[str]) -> list[str]:
    """The methods of these names with their parameters: `add(self, amount)`."""
    return [f"{method.name}({method.parameters})" for method in problem.methods if method.name in names]


def _intro(agents: int) -> str:
    if agents == 1:
        return "Complete this class:"
    return f"{agents} programmers complete this class together. They write at the same time and do not see each other's code."
