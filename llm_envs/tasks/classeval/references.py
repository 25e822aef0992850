"""Best joint answers, made of a row's own solution."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from llm_envs.tasks.classeval.classes import class_methods, class_of, tree_of
from llm_envs.tasks.classeval.dividing import divide
from llm_envs.types import Item


@dataclass(frozen=True)
class Reference:
    """Each agent's methods as the row's `solution_code` has them.

    Attributes:
        agents: number of programmers.
    """

    agents: int

    def __call__(self, item: Item) -> list[str]:
        """One text for each agent."""
        problem = class_of(item)
        methods = class_methods(tree_of(problem.solution, "its solution_code"), problem.name)
        return ["\n\n".join(ast.unparse(methods[name]) for name in share) for share in divide(problem, self.agents)]
