"""How the main program works with its helpers, read off the syntax tree: whose result matters, and what main does itself.

It sees where values can go, not what they are: `real + 0 * aux(x)` uses the helper.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from llm_envs.tasks.code.bindings import bound_anywhere
from llm_envs.tasks.code.programs import Source, own_nodes
from llm_envs.tasks.code.reaching import Ways

OWN_WORK = 2
"""Operations (calls of anything but helpers, operators, comparisons, subscripts) that make more than a wrapper."""

_BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.Match, ast.comprehension, ast.BoolOp)
_OPERATIONS = (ast.Call, ast.BinOp, ast.Compare, ast.Subscript, ast.JoinedStr)
_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@dataclass(frozen=True)
class Collaboration:
    """What one main program does with the team's helpers, by the names of their functions.

    Attributes:
        called: helpers that the entry point reaches, itself or through main's further functions.
        used: those of them whose result can matter: it reaches a returned value, a condition, a loop, a stored element or a method.
        redefined: helpers whose name main's text binds itself: such a helper is neither called nor used.
        wrapper: whether main has no branch, loop or comprehension and fewer than `OWN_WORK` operations of its own.
        reaching: what in main's text leads to others' functions while the program runs (`reaching.Ways`), so that the tree does not
            tell who does what: there is no collaboration then. None if nothing does.
    """

    called: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    redefined: tuple[str, ...] = ()
    wrapper: bool = True
    reaching: str | None = None

    @property
    def ignored(self) -> tuple[str, ...]:
        """Helpers that are called for nothing."""
        return tuple(name for name in self.called if name not in self.used)


def collaboration_of(main: Source, entry_point: str, helpers: Sequence[str]) -> Collaboration:
    """How main's text works with the helpers; without the entry point, not at all."""
    entry = main.function(entry_point)
    if entry is None:
        return Collaboration()
    bound = {name for node in main.body for name in bound_anywhere(node)}
    redefined = tuple(name for name in helpers if name in bound)
    ways = Ways(main.body)
    reaching = next((reason for node in main.body if (reason := ways.reaching(node)) is not None), None)
    if reaching is not None:
        return Collaboration(redefined=redefined, reaching=reaching)
    names = [name for name in helpers if name not in bound]
    called: set[str] = set()
    used: set[str] = set()
    work, branches = 0, False
    for function in _reachable(main, entry):
        body = _live(function.body)
        flow = _Flow()
        flow.read(body)
        called |= flow.loaded & set(names)
        used |= flow.reaching() & set(names)
        inside = [node for statement in body for node in _walk_live(statement)]
        branches = branches or any(isinstance(node, _BRANCHES) for node in inside)
        work += sum(isinstance(node, _OPERATIONS) and not _is_call_of(node, helpers) for node in inside)
    return Collaboration(
        called=tuple(name for name in names if name in called),
        used=tuple(name for name in names if name in used),
        redefined=redefined,
        wrapper=not branches and work < OWN_WORK,
    )


def is_trivial(helper: ast.FunctionDef) -> bool:
    """Whether a helper does nothing: it always returns the same constant, or the same parameter as it came."""
    arguments = helper.args
    parameters = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    parameters |= {one.arg for one in (arguments.vararg, arguments.kwarg) if one is not None}
    nodes = list(own_nodes(helper.body))
    changed = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes):
        return False
    # A parameter that a method or an element's assignment changes is not what it was.
    changed |= {
        node.value.id for node in nodes if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Name)
    }
    returned = [node.value for node in nodes if isinstance(node, ast.Return) and node.value is not None]
    if len({ast.dump(value) for value in returned}) > 1:
        return False
    return all(_is_constant(value) or (isinstance(value, ast.Name) and value.id in parameters - changed) for value in returned)


def _is_constant(value: ast.expr) -> bool:
    return all(
        isinstance(node, (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.unaryop, ast.expr_context))
        for node in ast.walk(value)
    )


@dataclass
class _Flow:
    """Where the names that a function reads can go, whatever the order of its statements.

    Attributes:
        loaded: every name that is read.
        sinks: names read where it matters.
        edges: (names assigned to, names read for it).
    """

    loaded: set[str] = field(default_factory=set)
    sinks: set[str] = field(default_factory=set)
    edges: list[tuple[set[str], set[str]]] = field(default_factory=list)

    def reaching(self) -> set[str]:
        """Names whose values can reach a place where they matter."""
        leading: dict[str, list[set[str]]] = {}
        for targets, sources in self.edges:
            for target in targets:
                leading.setdefault(target, []).append(sources)
        found = set(self.sinks)
        waiting = list(found)
        while waiting:
            for sources in leading.pop(waiting.pop(), ()):
                waiting += sources - found
                found |= sources
        return found

    def read(self, statements: Iterable[ast.stmt]) -> None:
        """Take in statements and those inside of them, each once however deep they stand."""
        waiting = list(statements)
        for node in (inner for statement in waiting for inner in _walk_live(statement)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.loaded.add(node.id)
            elif isinstance(node, ast.NamedExpr):
                self.edges.append(({node.target.id}, _loads(node.value)))
        while waiting:
            for block in self._read(waiting.pop()):
                waiting += _live(block)

    def _read(self, node: ast.stmt) -> Sequence[list[ast.stmt]]:
        """Take in one statement; the blocks inside of it are handed back."""
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            if node.value is not None:
                self._assign(node.targets if isinstance(node, ast.Assign) else [node.target], node.value)
        elif isinstance(node, ast.Expr):
            if _has_effect(node.value):
                self.sinks |= _loads(node.value)
        elif isinstance(node, (ast.If, ast.While, ast.For, ast.AsyncFor)):
            if not _does_nothing([*node.body, *node.orelse]):
                self.sinks |= _loads(node.test if isinstance(node, (ast.If, ast.While)) else node.iter)
            return node.body, node.orelse
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self.sinks |= {name for item in node.items for name in _loads(item.context_expr)}
            return (node.body,)
        elif isinstance(node, ast.Try):
            return node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody
        elif isinstance(node, ast.Match):
            self.sinks |= _loads(node.subject)
            return [case.body for case in node.cases]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.edges.append(({node.name}, _loads(node)))  # what it reads matters if it does
        else:
            self.sinks |= _loads(node)
        return ()

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        sources = _loads(value)
        nodes = [node for target in targets for node in ast.walk(target)]
        if any(isinstance(node, (ast.Attribute, ast.Subscript)) for node in nodes):
            self.sinks |= sources.union(*map(_loads, targets))
        names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self.edges.append((names - {"_"}, sources))


def _reachable(main: Source, entry: ast.FunctionDef) -> list[ast.FunctionDef]:
    """The entry point and those of main's functions that it reaches by names that are not its own."""
    found, waiting = {entry.name: entry}, [entry]
    while waiting:
        function = waiting.pop()
        own = set(bound_anywhere(function)) - {function.name}
        for name in {name for statement in _live(function.body) for name in _loads(statement)} - own:
            if name in main.functions and name not in found:
                found[name] = main.functions[name]
                waiting.append(main.functions[name])
    return list(found.values())


def _live(statements: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Statements of a block that can be reached: branches on constants are decided, what follows a return is not there."""
    found: list[ast.stmt] = []
    waiting = [iter(statements)]
    while waiting:
        statement = next(waiting[-1], None)
        if statement is None:
            waiting.pop()
            continue
        decided = _decided(statement)
        if decided is not None:
            waiting.append(iter(decided))
            continue
        found.append(statement)
        if isinstance(statement, _ENDS):
            break
    return found


def _decided(statement: ast.stmt) -> list[ast.stmt] | None:
    """What stands for a statement that is known to do this and nothing else; None for any other."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return []  # a docstring
    if isinstance(statement, ast.If) and isinstance(statement.test, ast.Constant):
        return statement.body if statement.test.value else statement.orelse
    if isinstance(statement, ast.While) and isinstance(statement.test, ast.Constant) and not statement.test.value:
        return statement.orelse
    return None


def _walk_live(node: ast.AST) -> Iterator[ast.AST]:
    """The node and those inside of it that can be reached; in one loop, since a long `elif` chain is as deep as it is long."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                parts = _live(value) if value and isinstance(value[0], ast.stmt) else value
                waiting += [part for part in parts if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST):
                waiting.append(value)


def _loads(node: ast.AST) -> set[str]:
    return {one.id for one in _walk_live(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _has_effect(value: ast.expr) -> bool:
    """Whether a bare expression can change anything for what follows: a method, or a wait or yield."""
    if isinstance(value, (ast.Await, ast.Yield, ast.YieldFrom)):
        return True
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)


def _does_nothing(statements: Sequence[ast.stmt]) -> bool:
    return all(
        isinstance(one, (ast.Pass, ast.Continue)) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in statements
    )


def _is_call_of(node: ast.AST, names: Sequence[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
