"""Tests taken apart on their syntax tree: every statement that asserts something becomes a check that can be run by itself."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tests:
    """What a row's test source checks.

    Attributes:
        setup: to be run once before the checks, where the entry point is bound under its name.
        checks: sources, each of which fails or not by itself.
        shown: for each check, the asserting statement alone, for people.
        kinds: for each check, a text that it has in common with those that one constant answer passes together: they differ only in
            what the function is called with. None if that cannot be told.
        calls: for each check, the calls of the function that its asserting statement holds, under the function's own name.
    """

    setup: str
    checks: tuple[str, ...]
    shown: tuple[str, ...]
    kinds: tuple[str | None, ...]
    calls: tuple[frozenset[str], ...]

    def repeating(self, public: Collection[str]) -> frozenset[int]:
        """The checks that call the function only as public examples do; none if all of them would be."""
        found = frozenset(number for number, calls in enumerate(self.calls) if calls and calls <= set(public))
        return found if len(found) < len(self.checks) else frozenset()

    def constant_share(self, repeating: frozenset[int] = frozenset()) -> float:
        """The largest share that one constant answer gets.

        It is one of the checks that repeat no example, since who gives a constant elsewhere can know examples by heart. If one
        constant passes all of these, it is the share of who does not know them (see `share`); 0 if a constant passes everything.

        Args:
            repeating: numbers of checks that repeat a public example.
        """
        others = [kind for number, kind in enumerate(self.kinds) if number not in repeating]
        most = max((others.count(kind) / len(others) for kind in others if kind is not None), default=0.0)
        if most < 1.0:
            return most
        alone = self.share([kind == others[0] for kind in self.kinds], repeating)
        return 0.0 if alone == 1.0 else alone

    def share(self, passed: Sequence[bool], repeating: frozenset[int] = frozenset()) -> float:
        """The share of checks that pass, where those that repeat a public example count only if they fail.

        Args:
            passed: whether each check passes.
            repeating: numbers of those that repeat one.
        """
        counted = [good for number, good in enumerate(passed) if number not in repeating or not good]
        return sum(counted) / len(counted)


def read_tests(source: str, entry_point: str) -> Tests:
    """The tests of a source that has the HumanEval form: a function `check(candidate)` and what it needs.

    Every statement of `check` that holds an `assert` (or raises) is one check, a loop with asserts too, preceded by the statements
    before it that hold none. Asserts of a constant (`assert True`) are none. Chance in tests starts from a fixed seed.

    Args:
        source: of the tests.
        entry_point: name of the function under test.

    Raises:
        SyntaxError: if it does not parse.
        ValueError: without such a function, or if it checks nothing.
    """
    tree = ast.parse(source)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if len(functions) != 1 or len(functions[0].args.args) != 1:
        raise ValueError("the tests must have one function check(candidate)")
    (check,) = functions
    candidate = check.args.args[0].arg
    # A call of check at the end is ours to make.
    around = [node for node in tree.body if node is not check and not isinstance(node, ast.Expr)]
    setup = [*around, *ast.parse(f"{candidate} = {entry_point}").body]
    prefix = "import random as _random\n_random.seed(0)\n" if _draws(tree) else ""
    before: list[ast.stmt] = []
    asserting: list[tuple[list[ast.stmt], ast.stmt]] = []
    for statement in check.body:
        if not _asserts(statement):
            before.append(statement)
        elif _says_something(statement):
            asserting.append((list(before), statement))
    if not asserting:
        raise ValueError("the tests assert nothing")
    return Tests(
        setup="\n".join(ast.unparse(node) for node in setup),
        checks=tuple(prefix + _as_check([*needed, statement]) for needed, statement in asserting),
        shown=tuple(ast.unparse(statement) for _, statement in asserting),
        kinds=tuple(_kind(statement.test, candidate) if isinstance(statement, ast.Assert) else None for _, statement in asserting),
        calls=tuple(calls_of(statement, candidate, entry_point) for _, statement in asserting),
    )


def _as_check(statements: Sequence[ast.stmt]) -> str:
    # In a function of its own, as they were written: names that they bind are local, and `return` may stand there.
    module = ast.parse("def _check(): pass\n_check()")
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = list(statements)
    return ast.unparse(module)


def _asserts(statement: ast.stmt) -> bool:
    return any(isinstance(node, (ast.Assert, ast.Raise)) for node in ast.walk(statement))


def _says_something(statement: ast.stmt) -> bool:
    found = [node for node in ast.walk(statement) if isinstance(node, (ast.Assert, ast.Raise))]
    return any(isinstance(node, ast.Raise) or not isinstance(node.test, ast.Constant) for node in found)


def _draws(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] == "random" for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            return True
    return False


def calls_of(tree: ast.AST, name: str, called: str) -> frozenset[str]:
    """The calls of a function in a tree, written under another name; whole numbers without a point, because 1.0 == 1."""
    found = set()
    for node in ast.walk(_Whole().visit(ast.parse(ast.unparse(tree)))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            found.add(ast.unparse(ast.Call(ast.Name(called, ast.Load()), node.args, node.keywords)))
    return frozenset(found)


class _Whole(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        whole = isinstance(node.value, float) and node.value.is_integer()
        return ast.Constant(int(node.value)) if whole else node  # type: ignore[arg-type]


class _Called(ast.NodeTransformer):
    """Puts a name in the place of every call of the function."""

    def __init__(self, function: str) -> None:
        self.function = function

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == self.function:
            return ast.Name("_", ast.Load())
        return self.generic_visit(node)


def _kind(test: ast.expr, candidate: str) -> str:
    """The same text for checks that one constant answer passes together."""
    (again,) = ast.parse(ast.unparse(test)).body  # a copy, since the transformer changes what it visits
    assert isinstance(again, ast.Expr)
    text = ast.unparse(_Called(candidate).visit(again))
    return {"_": "_ == True", "_ is True": "_ == True", "not _": "_ == False", "_ is False": "_ == False"}.get(text, text)
