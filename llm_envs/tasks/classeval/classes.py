"""What a row says: the class to complete, which methods are missing, what its tests need."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from llm_envs.tasks.code.parsing import parsed
from llm_envs.tasks.code.quotes import plain_quotes
from llm_envs.types import Item

FIELDS = ("task_id", "skeleton", "test", "class_name", "methods_info")
"""That every row has; `solution_code` and `import_statement` are read where there are any."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Method:
    """One that has to be written.

    Attributes:
        name: of the method.
        parameters: as they stand between its parentheses.
        description: its docstring.
        characters: of its part of the skeleton, a measure of how much there is to do.
    """

    name: str
    parameters: str
    description: str
    characters: int


@dataclass(frozen=True)
class ClassProblem:
    """A row, read.

    Attributes:
        task_id: of the row.
        name: of the class.
        skeleton: the module that agents read; its class lacks the bodies of `methods`.
        methods: to be written, as the skeleton has them.
        imports: what tests and examples need besides the class; as source.
        tests: source of the hidden tests, classes of `unittest`.
        solution: a module that passes them; empty if none is known.
    """

    task_id: str
    name: str
    skeleton: str
    methods: tuple[Method, ...]
    imports: str
    tests: str
    solution: str

    def tree(self) -> ast.Module:
        """The skeleton as a syntax tree of its own."""
        return tree_of(self.skeleton, "the skeleton")

    @property
    def modules(self) -> frozenset[str]:
        """Modules that the skeleton imports, by the first part of their names."""
        nodes = ast.parse(self.imports).body
        named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        named += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        return frozenset(name.partition(".")[0] for name in named)


def class_of(item: Item) -> ClassProblem:
    """The problem of a row; reading it again costs little.

    Raises:
        KeyError: without a field.
        ValueError: naming the row, if its skeleton or its tests do not parse, or do not have what its other fields say.
    """
    return _problem(
        str(item["task_id"]),
        item["class_name"],
        item["skeleton"],
        item["test"],
        tuple(method["method_name"] for method in item["methods_info"]),
        tuple(item.get("import_statement") or ()),
        item.get("solution_code") or "",
    )


@lru_cache(maxsize=1024)
def _problem(
    task_id: str, name: str, skeleton: str, test: str, wanted: tuple[str, ...], statements: tuple[str, ...], solution: str
) -> ClassProblem:
    try:
        shown = readable_skeleton(skeleton, statements)
        tree = tree_of(shown, "its skeleton")
        methods = class_methods(tree, name)
        _check_methods(methods, wanted, name)
        _check_tests(test)
    except ValueError as error:
        raise ValueError(f"row {task_id!r}: {error}") from error
    lines = shown.split("\n")
    return ClassProblem(
        task_id=task_id,
        name=name,
        skeleton=shown,
        methods=tuple(_method(node, lines) for node in methods.values() if node.name in wanted),
        imports="\n".join(ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))),
        tests=test,
        solution=solution,
    )


def readable_skeleton(skeleton: str, statements: Sequence[str] = ()) -> str:
    """The skeleton as agents read it, a module that parses.

    Typographic quotes become plain ones if it does not parse otherwise; a skeleton that stands in quotes as a whole is taken out of
    them; imports that the row names elsewhere only are put in front.

    Args:
        skeleton: as the row has it.
        statements: imports that the row names beside it.

    Raises:
        ValueError: it does not parse in any of these forms.
    """
    text = skeleton if parsed(skeleton)[0] is not None else plain_quotes(skeleton)
    tree = tree_of(text, "its skeleton")
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant):
        text = str(tree.body[0].value.value).strip("\n") + "\n"
        tree = tree_of(text, "its skeleton")
    there = {ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}
    wanted = [ast.unparse(node) for statement in statements for node in tree_of(statement, "its import_statement").body]
    lacking = [line for line in wanted if line not in there]
    # Around the text and not from the tree: comments and the layout of docstrings are part of what the data set asks.
    return "\n".join([*lacking, "", text]) if lacking else text


def tree_of(code: str, what: str) -> ast.Module:
    """The syntax tree of a row's source.

    Raises:
        ValueError: naming what does not parse, and where.
    """
    tree, problem, _ = parsed(code)
    if tree is None:
        raise ValueError(f"{what} does not parse: {problem}")
    return tree


def class_methods(tree: ast.Module, name: str) -> dict[str, Function]:
    """The methods of a class in a module, by name.

    Raises:
        ValueError: no such class.
    """
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if not classes:
        raise ValueError(f"its skeleton does not define the class {name!r}")
    return {node.name: node for node in classes[-1].body if isinstance(node, FUNCTIONS)}


def is_stub(function: Function) -> bool:
    """Whether a function does nothing: a docstring, constants, `pass`, `return`, or saying that it is not implemented."""
    return all(_does_nothing(statement) for statement in function.body)


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Return):
        return statement.value is None or (isinstance(statement.value, ast.Constant) and statement.value.value is None)
    if isinstance(statement, ast.Raise):
        error = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return isinstance(error, ast.Name) and error.id in ("NotImplementedError", "NotImplemented")
    return isinstance(statement, ast.Pass)


def _method(node: Function, lines: Sequence[str]) -> Method:
    text = " ".join(" ".join(lines[node.lineno - 1 : node.end_lineno]).split())
    return Method(
        name=node.name,
        parameters=ast.unparse(node.args),
        description=ast.get_docstring(node) or "",
        characters=len(text),
    )


def _check_methods(methods: dict[str, Function], wanted: Sequence[str], name: str) -> None:
    if not wanted:
        raise ValueError("its methods_info names no method")
    for method in wanted:
        if method not in methods:
            raise ValueError(f"its methods_info names {method!r}, which the class {name} of its skeleton lacks")
        if not is_stub(methods[method]):
            raise ValueError(f"its skeleton has a body of {method!r} already")


def _check_tests(source: str) -> None:
    tests = [
        node
        for class_ in tree_of(source, "its test").body
        if isinstance(class_, ast.ClassDef)
        for node in class_.body
        if isinstance(node, FUNCTIONS) and node.name.startswith("test")
    ]
    if not tests:
        raise ValueError("its test has no test methods")
