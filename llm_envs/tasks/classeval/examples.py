"""Public examples: what the docstrings of a class's methods show at Python's prompt, as checks that feedback may tell of."""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterator
from dataclasses import dataclass

from llm_envs.tasks.classeval.classes import ClassProblem, Method
from llm_envs.tasks.code.examples import literal


@dataclass(frozen=True)
class ClassExample:
    """What an expression gives after some statements.

    Attributes:
        method: whose docstring shows it.
        before: statements, one text.
        expression: as the docstring has it.
        expected: a literal.
    """

    method: str
    before: str
    expression: str
    expected: str

    @property
    def check(self) -> str:
        """A check that fails with a message saying what came instead."""
        return f"{self.before}\n_got = {self.expression}\nassert _got == {self.expected}, 'gave ' + repr(_got)[:200]"


def examples_of(problem: ClassProblem) -> tuple[ClassExample, ...]:
    """The examples that can be checked, in the order of the methods: expressions followed by the literal that they give.

    What comes before in the same docstring is run first. Other lines (printed text, objects) say nothing to check.
    """
    return tuple(example for method in problem.methods for example in _sessions(method))


def _sessions(method: Method) -> Iterator[ClassExample]:
    try:
        steps = doctest.DocTestParser().get_examples(method.description)
    except ValueError:  # ">>>x": no session
        return
    before: list[str] = []
    for step in steps:
        try:
            tree = ast.parse(step.source)
        except SyntaxError:
            return  # what follows may need it
        source = ast.unparse(tree)
        expected = literal(step.want) if step.want.strip() else None
        if expected is not None and len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
            yield ClassExample(method.name, "\n".join(before), source, expected)
        before.append(source)
