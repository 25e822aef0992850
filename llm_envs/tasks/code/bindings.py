"""Which names a statement binds, read off its syntax tree: whose function a text defines, and whose it must leave alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

_CACHES = ("cache", "lru_cache")
"""Decorators that leave a function what it is."""

_CODE = ("__code__", "__defaults__", "__kwdefaults__", "__globals__")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def bound_anywhere(node: ast.AST) -> Iterator[str]:
    """Every name that is bound anywhere in the node, in whatever scope."""
    for one in ast.walk(node):
        yield from _bound_by(one)


def bound_in_module(statement: ast.stmt) -> set[str]:
    """The names that a statement of a module binds there, and those that its functions bind there when they are called.

    A name whose code is assigned to (`f.__code__ = …`) counts too: its function is another one afterwards.
    """
    return _bound_at_once(statement) | _bound_later(statement)


def _bound_at_once(statement: ast.stmt) -> set[str]:
    found: set[str] = set()
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _SCOPES):
            found.add(node.name)
            waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]
        elif isinstance(node, ast.Lambda):
            waiting += [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            found |= {one.target.id for one in ast.walk(node) if isinstance(one, ast.NamedExpr)}
        elif not isinstance(node, ast.arg):
            found.update(_bound_by(node))
            waiting += ast.iter_child_nodes(node)
    return found


def _bound_later(statement: ast.stmt) -> set[str]:
    """By functions and classes in the statement: the module's names are theirs only if they say `global`."""
    found: set[str] = set()
    waiting: list[tuple[ast.AST, bool]] = [(statement, False)]
    while waiting:
        node, inside = waiting.pop()
        if inside and isinstance(node, (ast.Global, ast.Attribute, ast.Subscript)):
            found.update(_bound_by(node))
        waiting += [(child, inside or isinstance(node, _SCOPES)) for child in ast.iter_child_nodes(node)]
    return found


def plain_functions(body: Sequence[ast.stmt]) -> Mapping[str, ast.FunctionDef]:
    """The functions of a module by name, without those whose name's last binding is anything but a plain `def` at top level.

    A `def` is plain without decorators; `cache` and `lru_cache` do no harm, also as `f = cache(f)` below.
    """
    found: dict[str, ast.FunctionDef] = {}
    at_once = [_bound_at_once(node) for node in body]
    later = {name for node in body for name in _bound_later(node)}
    imports = [isinstance(node, (ast.Import, ast.ImportFrom)) for node in body]
    own = later.union(*(names for names, imported in zip(at_once, imports, strict=True) if not imported))
    for node, names in zip(body, at_once, strict=True):
        for name in names - _cached(node, own):
            found.pop(name, None)
        if isinstance(node, ast.FunctionDef) and all(_is_cache(one, own) for one in node.decorator_list):
            found[node.name] = node
    return {name: function for name, function in found.items() if name not in later}


def _cached(node: ast.stmt, own: set[str]) -> set[str]:
    """The name of a function that the statement puts a cache around, as a set."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
        (target,), call = node.targets, node.value
        if isinstance(target, ast.Name) and len(call.args) == 1 and not call.keywords and _is_cache(call.func, own):
            return {target.id} if isinstance(call.args[0], ast.Name) and call.args[0].id == target.id else set()
    return set()


def _is_cache(decorator: ast.expr, own: set[str]) -> bool:
    if isinstance(decorator, ast.Call):
        values = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
        return all(isinstance(value, ast.Constant) for value in values) and _is_cache(decorator.func, own)
    if isinstance(decorator, ast.Attribute):
        return decorator.attr in _CACHES and isinstance(decorator.value, ast.Name) and decorator.value.id not in own
    return isinstance(decorator, ast.Name) and decorator.id in _CACHES and decorator.id not in own


def _bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node itself binds, without those inside of it."""
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, _SCOPES):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.Global):
        yield from node.names
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        if node.name:
            yield node.name
    elif isinstance(node, ast.MatchMapping):
        if node.rest:
            yield node.rest
    elif isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        yield from _changed_inside(node)


def _changed_inside(target: ast.expr) -> Iterator[str]:
    code = False
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        code = code or (isinstance(target, ast.Attribute) and target.attr in _CODE)
        target = target.value
    if code and isinstance(target, ast.Name):
        yield target.id
