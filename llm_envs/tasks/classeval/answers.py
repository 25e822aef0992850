"""Methods read out of completions, and one class made of them."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from llm_envs.tasks.classeval.classes import FUNCTIONS, ClassProblem, Function
from llm_envs.tasks.code.parsing import compile_problem
from llm_envs.tasks.code.programs import Source, read_program
from llm_envs.tasks.code.reaching import MODULES, NAMES, Ways, with_eval_watched
from llm_envs.tasks.code.texts import mended, shortened, unfenced

MOST_BLOCKS = 100
"""So many `def`s of a text that does not parse are tried one by one."""

MOST_SHOWN = 60
"""Characters of a default that are told."""

_FILES = frozenset(("csv", "io", "logging", "os", "pathlib", "shutil", "socket", "sqlite3", "tempfile", "urllib", "xml", "zipfile"))
"""Modules that classes use beside those that compute."""

_DEFAULTS = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp),
    *(ast.expr_context, ast.unaryop, ast.operator),
)
_DEF = re.compile(r"([ \t]*)(?:async\s+)?def\s+\w+")


@dataclass(frozen=True, eq=False)
class Answer:
    """What was read out of one completion.

    Attributes:
        methods: that it defines and that compile, by name; of two with one name the later one.
        broken: what keeps others from being used, by name: the compiler's message, a default that is computed, or a way to others'
            methods.
        imports: at its top level.
        problem: what does not parse ("line 3, column 7: invalid syntax"); None if the whole text does.
    """

    methods: Mapping[str, Function]
    broken: Mapping[str, str]
    imports: tuple[ast.stmt, ...]
    problem: str | None


def read_answer(text: str, class_name: str, *, methods: Collection[str] = (), modules: Collection[str] = ()) -> Answer:
    """The methods in a completion: its functions at top level, indented or not, and those of a class with that name.

    It is read as a program is (`programs.read_program`); what does not parse as a whole, `def` by `def`. A method that could put
    another in the place of somebody else's while the class is at work is not used (`reaching.Ways`).

    Args:
        text: of the completion.
        class_name: of the class.
        methods: names of those that have to be written, which nobody may assign to.
        modules: that the skeleton imports.
    """
    source = read_program(text)
    if source.problem is not None:
        source = _read_blocks(text, source)
    found: dict[str, Function] = {}
    broken: dict[str, str] = {}
    ways = Ways(source.body, modules={*MODULES, *_FILES, *modules}, names=NAMES - {"open"}, own=[class_name])
    for node in _functions(source.body, class_name):
        problem = compile_problem(f"class _:\n{textwrap.indent(ast.unparse(bare(node)), ' ')}")
        problem = problem or _default_problem(node) or _reaching_problem(node, ways, methods)
        if problem is None:
            found[node.name] = node
            broken.pop(node.name, None)
        else:
            broken[node.name] = problem
            found.pop(node.name, None)
    imports = tuple(node for node in source.body if isinstance(node, (ast.Import, ast.ImportFrom)))
    return Answer(found, broken, imports, source.problem)


def _reaching_problem(function: Function, ways: Ways, methods: Collection[str]) -> str | None:
    """How a method could change one of somebody else's while the class is at work; None if in no way that is known."""
    assigned = (node for node in ast.walk(function) if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load))
    way = next((ast.unparse(node) for node in assigned if node.attr in methods), None) or ways.reaching(function)
    return None if way is None else f"by {way[:MOST_SHOWN]} it could change others' methods"


def _default_problem(function: Function) -> str | None:
    """What is wrong with a parameter's default; it runs while the class is made, where it could change the others' methods."""
    for default in (*function.args.defaults, *function.args.kw_defaults):
        if default is not None and not all(isinstance(node, _DEFAULTS) for node in ast.walk(default)):
            return f"the default {ast.unparse(default)[:MOST_SHOWN]} is more than a literal or a name"
    return None


def bare(function: Function) -> Function:
    """The function without decorators and without annotations of parameters and result, which could only keep it from loading."""
    (again,) = ast.parse(ast.unparse(function)).body
    assert isinstance(again, FUNCTIONS)
    again.decorator_list, again.returns = [], None
    arguments = again.args
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if one is not None:
            one.annotation = None
    return again


def merged(problem: ClassProblem, shares: Sequence[Sequence[str]], answers: Sequence[Answer]) -> str:
    """The skeleton with the bodies that the owners of its methods gave; methods without one are as they were.

    Decorators, and whether a method is `async`, are the skeleton's. Imports of the answers stand before the class.

    Args:
        problem: whose skeleton it is.
        shares: names of each agent's methods.
        answers: of the agents.
    """
    tree = problem.tree()
    given: dict[str, Function] = {}
    for share, answer in zip(shares, answers, strict=True):
        given.update({name: answer.methods[name] for name in share if name in answer.methods})
    class_ = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == problem.name][-1]
    class_.body = [_filled(node, given) for node in class_.body]
    imports = [node for answer in answers for node in answer.imports]
    future = [node for node in imports if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    place = tree.body.index(class_)
    tree.body[place:place] = [node for node in imports if node not in future]
    return "\n".join(ast.unparse(node) for node in [*future, *with_eval_watched(tree.body)])


def _filled(node: ast.stmt, given: Mapping[str, Function]) -> ast.stmt:
    if not isinstance(node, FUNCTIONS) or node.name not in given:
        return node
    function = bare(given[node.name])
    filled = ast.copy_location(type(node)(**dict(ast.iter_fields(function))), node)
    filled.decorator_list = node.decorator_list
    return filled


def _functions(body: Sequence[ast.stmt], class_name: str) -> Iterator[Function]:
    for node in body:
        if isinstance(node, FUNCTIONS):
            yield node
        elif isinstance(node, ast.ClassDef) and node.name == class_name:
            yield from (method for method in node.body if isinstance(method, FUNCTIONS))


def _read_blocks(text: str, whole: Source) -> Source:
    """What parses of the functions of a text, each by itself, and the problem of the whole text."""
    *_, code = mended(shortened(unfenced(text)))
    found: list[ast.stmt] = [node for node in whole.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    for block in islice(_blocks(code.split("\n")), MOST_BLOCKS):
        found += read_program(block).body
    return Source(tuple(found), whole.problem)


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """The text of each function, by indentation."""
    number = 0
    while number < len(lines):
        match = _DEF.match(lines[number])
        if match is None:
            number += 1
            continue
        end = _end_of(lines, number, len(match[1]))
        yield textwrap.dedent("\n".join(lines[number:end]))
        number = end


def _end_of(lines: Sequence[str], start: int, indentation: int) -> int:
    """The line after a function that starts there: the first one that is indented less than its body."""
    number, brackets = start, _open_brackets(lines[start])
    while number + 1 < len(lines) and brackets > 0:
        number += 1
        brackets += _open_brackets(lines[number])
    inside: int | None = None
    end = number + 1
    for number in range(end, len(lines)):
        if not lines[number].strip():
            continue
        depth = len(lines[number]) - len(lines[number].lstrip())
        if inside is None:
            inside = max(depth, indentation + 1)
        if depth < inside:
            break
        end = number + 1
    return end


def _open_brackets(line: str) -> int:
    return sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
