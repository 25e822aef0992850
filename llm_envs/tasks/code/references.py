"""Best joint answers: a row's own, or made of its reference solution by moving that into a helper."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass

from llm_envs.tasks.code.levels import Team
from llm_envs.tasks.code.problems import prompt_tree
from llm_envs.types import Item


@dataclass(frozen=True)
class Reference:
    """A best joint answer of a team on a row that has a reference solution.

    A row with `aux_solution` and `main_solution` has one for a team of two. Otherwise the first helper is the solution itself under
    the helper's name, and further helpers and main hand on what they get with a condition that changes nothing: no division of
    labour to learn from, but the tests pass, and the syntax tree shows one.
    """

    team: Team

    def __call__(self, item: Item) -> list[str]:
        """One text for each agent, helpers first."""
        if self.team.helpers == 1 and item.get("aux_solution") and item.get("main_solution"):
            return [item["aux_solution"], item["main_solution"]]
        tree = _solution(item)
        if not self.team.helpers:
            return [ast.unparse(tree)]
        entry = _entry(tree, item)
        first, *others = self.team.functions
        aux = copy.copy(entry)
        aux.name = first
        # What stands beside the entry point goes with its body; what the prompt defines is in every program anyway.
        known = {ast.dump(node) for node in prompt_tree(item["prompt"]).body}
        beside = [node for node in tree.body if node is not entry and ast.dump(node) not in known]
        texts = ["\n".join(ast.unparse(node) for node in [*beside, aux])]
        texts += [f"def {name}(value):\n    return {_handed_on('value')}" for name in others]
        return [*texts, _main(entry, first, others)]


def has_solution(item: Item) -> bool:
    """Whether the row has a reference solution."""
    return bool(item.get("canonical_solution"))


def _main(entry: ast.FunctionDef, first: str, others: Sequence[str]) -> str:
    arguments = entry.args
    passed = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    passed += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    passed += [f"{one.arg}={one.arg}" for one in arguments.kwonlyargs]
    passed += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    lines = [f"def {entry.name}({ast.unparse(arguments)}):", f"    result = {first}({', '.join(passed)})"]
    lines += [f"    result = {name}(result)" for name in others]
    return "\n".join([*lines, f"    return {_handed_on('result')}"])


def _handed_on(name: str) -> str:
    # No builtin is named: parameters may be called `list` or `str`.
    return f"{name} if {name} is not None else None"


def _solution(item: Item) -> ast.Module:
    """The reference solution as a whole: a module of its own, or what continues the prompt."""
    solution = item["canonical_solution"]
    try:
        tree = ast.parse(solution)
    except SyntaxError:
        tree = ast.parse(item["prompt"] + solution)
    if not any(isinstance(node, ast.FunctionDef) and node.name == item["entry_point"] for node in tree.body):
        tree = ast.parse(item["prompt"] + solution)
    return tree


def _entry(tree: ast.Module, item: Item) -> ast.FunctionDef:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == item["entry_point"]]
    if not functions:
        raise ValueError(f"row {item.get('task_id')!r}: its reference solution does not define {item['entry_point']!r}")
    entry = functions[-1]
    if ast.get_docstring(entry) is not None and len(entry.body) > 1:
        entry.body = entry.body[1:]
    return entry
