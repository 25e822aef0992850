"""What a row says: signature, imports and helpers of its prompt, hidden checks, public examples."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache

from llm_envs.tasks.code.checks import Tests, calls_of, read_tests
from llm_envs.tasks.code.examples import Example, contradicts, read_examples
from llm_envs.types import Item

FIELDS = ("task_id", "prompt", "entry_point", "test")
"""That every row has."""


@dataclass(frozen=True)
class Problem:
    """A row, read.

    Attributes:
        entry_point: name of the function to write.
        parameters: of that function, as they stand between its parentheses.
        description: its docstring.
        prelude: what else the prompt defines: imports, helper functions, constants; as source.
        tests: the hidden ones.
        examples: public ones that do not contradict each other or a hidden test.
        repeating: numbers of the hidden checks that only repeat them.
    """

    entry_point: str
    parameters: str
    description: str
    prelude: str
    tests: Tests
    examples: tuple[Example, ...]
    repeating: frozenset[int]

    def prelude_nodes(self) -> list[ast.stmt]:
        """The prelude as a syntax tree of its own."""
        return ast.parse(self.prelude).body

    @property
    def setup(self) -> str:
        """What the judge runs before the checks: the prompt's definitions, then the tests' own."""
        return f"{self.prelude}\n{self.tests.setup}"


def problem_of(item: Item) -> Problem:
    """The problem of a row; reading it again costs nothing.

    Raises:
        KeyError: without one of the fields prompt, entry_point and test.
        ValueError: naming the row, if prompt or tests cannot be read, or the prompt does not define the entry point.
    """
    return _problem(item["prompt"], item["entry_point"], item["test"], str(item.get("task_id", "")))


@lru_cache(maxsize=1024)
def _problem(prompt: str, entry_point: str, test: str, task_id: str) -> Problem:
    try:
        tree = prompt_tree(prompt)
        tests = read_tests(test, entry_point)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"row {task_id!r}: {type(error).__name__}: {error}") from error
    # The function itself, not the first one: helpers may stand before it.
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry_point]
    if not functions:
        raise ValueError(f"row {task_id!r}: its prompt does not define {entry_point!r}")
    description = ast.get_docstring(functions[-1]) or ""
    arguments = functions[-1].args
    parameters = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    examples = [
        example
        for example in read_examples(description, entry_point, parameters)
        if not contradicts(example, tests.shown, entry_point)
    ]
    public = {call for example in examples for call in calls_of(ast.parse(example.call), entry_point, entry_point)}
    return Problem(
        entry_point=entry_point,
        parameters=ast.unparse(functions[-1].args),
        description=description,
        prelude="\n".join(ast.unparse(node) for node in tree.body if node not in functions),
        tests=tests,
        examples=tuple(examples),
        repeating=tests.repeating(public),
    )


def prompt_tree(prompt: str) -> ast.Module:
    """The syntax tree of a prompt, which ends in a function without a body.

    Raises:
        SyntaxError: if it does not parse.
    """
    try:
        return ast.parse(prompt)
    except SyntaxError:
        return ast.parse(prompt.rstrip() + "\n    pass\n")  # a signature without a docstring has no body yet
