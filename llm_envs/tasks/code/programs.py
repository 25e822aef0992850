"""Reading programs out of completions: fences off, what parses kept, and one module made of a team's texts."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from llm_envs.tasks.code.bindings import bound_in_module, plain_functions
from llm_envs.tasks.code.parsing import parsed
from llm_envs.tasks.code.problems import Problem
from llm_envs.tasks.code.reaching import EXPRESSION, Ways, with_eval_watched
from llm_envs.tasks.code.texts import MOST_CHARACTERS, mended, shortened, unfenced

MOST_ATTEMPTS = 50
"""How often a text that does not parse is tried again, shorter, before it counts as no program."""

_DEFINING = (
    *(ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Delete),
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr),
)
_BLOCKS = (ast.If, ast.Try, ast.With, ast.For, ast.While, ast.Match)
_BUILTINS = frozenset((EXPRESSION, *(name for name in dir(builtins) if not name.startswith("_"))))
_START = re.compile(r"(?:def|class|import|from|async|@)\b|@")


@dataclass(frozen=True, eq=False)
class Source:
    """What was read out of one completion.

    Attributes:
        body: its imports, functions, classes and assignments at top level, in order, and blocks (`if`, `try`, `with`, loops) that
            define or change something. Anything else there (calls, prints, what stands under `if __name__ == "__main__"`) is left
            out: a program defines things, the tests call them.
        problem: what does not parse ("line 3, column 7: invalid syntax"); None if the whole program does.
        left_out: what its statements use that are left out because they are no business of this agent's; see `helpers_part`.
    """

    body: tuple[ast.stmt, ...]
    problem: str | None
    left_out: tuple[str, ...] = ()

    @cached_property
    def functions(self) -> Mapping[str, ast.FunctionDef]:
        """Its functions by name; none whose name is bound to anything else in the end (`bindings.plain_functions`)."""
        return plain_functions(self.body)

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that it binds at top level."""
        return frozenset(name for node in self.body for name in bound_in_module(node))

    def function(self, name: str) -> ast.FunctionDef | None:
        """The function of that name, the last one if there are several; None if there is none."""
        return self.functions.get(name)


def read_program(text: str) -> Source:
    """The program in a completion.

    Fenced blocks are the program if there are any (of Python, or of no named language), else the whole text is. If that does not
    parse, it is tried as `texts.mended` has it; then the longest beginning made of whole statements is kept, from the first line on
    that starts like code: so prose around code and a function that was cut off at the end are dropped, and `problem` tells. Of a
    program that is too long the beginning is read.
    """
    whole = unfenced(text)
    code = shortened(whole)
    tree, problem, _ = parsed(code)
    if len(code) < len(whole):
        problem = f"it has {len(whole)} characters, of which {MOST_CHARACTERS} are read"
    if tree is not None:
        return Source(_kept(tree), problem)
    candidates = list(mended(code))
    for candidate in candidates:
        tree, wrong, _ = parsed(candidate)
        if tree is not None and (not candidate.strip() or _kept(tree)):
            return Source(_kept(tree), problem if len(code) < len(whole) else wrong)
    parts = [_kept(part) for candidate in candidates if (part := _longest_part(candidate.split("\n"))) is not None]
    return Source(max(parts, key=len, default=()), problem)


def returns_value(function: ast.FunctionDef) -> bool:
    """Whether the function, not one defined inside it, returns or yields something."""
    return any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) or (isinstance(node, ast.Return) and node.value is not None)
        for node in own_nodes(function.body)
    )


def own_nodes(body: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """Every node of the body except those inside of further functions and classes."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))


def helpers_part(source: Source, others: Collection[str]) -> Source:
    """What of a helper's text goes into the team's program.

    Left out are statements that bind the name of another's function or of a builtin, and those that lead to others' functions while
    the program runs (`reaching.Ways`): what another agent wrote would no longer be what runs under its name.

    Args:
        source: what was read from the helper.
        others: names of the other helpers' functions and of the entry point.
    """
    ways, kept, left_out = Ways(source.body), [], []
    for node in source.body:
        bound = sorted(bound_in_module(node) & {*others, *_BUILTINS})
        reason = bound[0] if bound else ways.reaching(node)
        if reason is None:
            kept.append(node)
        else:
            left_out.append(reason)
    return Source(tuple(kept), source.problem, tuple(dict.fromkeys(left_out)))


def combined(problem: Problem, helpers: Sequence[Source], main: Source) -> str:
    """The team's program: the prompt's imports and helpers, each helper's part in order, the main text.

    It is one module, so of two definitions of one name the later one holds.

    Args:
        problem: whose prompt it is.
        helpers: what `helpers_part` leaves of their texts.
        main: what was read from the main programmer.
    """
    nodes: list[ast.stmt] = list(problem.prelude_nodes())
    nodes += with_eval_watched([node for source in helpers for node in source.body])
    nodes += main.body
    future = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    nodes = future + [node for node in nodes if node not in future]
    return "\n".join(ast.unparse(node) for node in nodes)


def _kept(tree: ast.Module) -> tuple[ast.stmt, ...]:
    return tuple(node for node in tree.body if _is_kept(node))


def _is_kept(statement: ast.stmt) -> bool:
    if isinstance(statement, _BLOCKS):
        if isinstance(statement, ast.If) and any(
            isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
        ):
            return False
        return any(isinstance(node, _DEFINING) or _calls_method(node) for node in own_nodes([statement]))
    return isinstance(statement, _DEFINING)


def _calls_method(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)


def _longest_part(lines: list[str]) -> ast.Module | None:
    """The longest beginning made of whole statements that parses, from the earliest line that one starts at; None without any."""
    tops = [number for number, line in enumerate(lines) if line[:1].strip() and line[0] not in ")]}#"]
    attempts = 0
    for start in [number for number in tops if _START.match(lines[number])]:
        end = len(lines)
        while end > start and attempts < MOST_ATTEMPTS:
            attempts += 1
            tree, _, line = parsed("\n".join(lines[start:end]))
            if tree is not None and tree.body:
                return tree
            # The statement with the error goes, and all after it.
            end = max((number for number in tops if start < number < end and number < start + line), default=start)
    return None
