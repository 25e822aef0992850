"""Ways from one agent's text to another's functions while the program runs: frames, hooks, module names, code made of texts.

Who reaches a function that way can put another in its place, and the syntax tree no longer says who did the work. So a text may
use nothing that leads there: only modules that compute, no attributes of frames, functions and classes that the interpreter keeps
for itself, no names that make code of texts. What is listed here as harmless is what programs of such tasks use.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Sequence

from llm_envs.tasks.code.bindings import bound_anywhere

MODULES = frozenset((
    *("__future__", "abc", "array", "base64", "binascii", "bisect", "calendar", "cmath", "collections", "colorsys", "contextlib"),
    *("copy", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions", "functools", "graphlib", "hashlib", "heapq"),
    *("html", "ipaddress", "itertools", "json", "math", "numbers", "numpy", "operator", "pprint", "queue", "random", "re"),
    *("secrets", "statistics", "string", "struct", "sys", "textwrap", "time", "typing", "unicodedata", "uuid", "zlib", "zoneinfo"),
))  # fmt: skip
"""Modules that a text may import; of `sys` only `_OF_SYS`."""

_OF_SYS = frozenset((
    *("maxsize", "maxunicode", "float_info", "int_info", "hash_info", "byteorder", "version_info", "getsizeof", "intern", "exit"),
    *("getrecursionlimit", "setrecursionlimit", "set_int_max_str_digits", "stdin", "stdout", "stderr"),
))  # fmt: skip
NAMES = frozenset(("exec", "compile", "globals", "locals", "vars", "setattr", "delattr", "open", "breakpoint"))
"""Builtins that a text may not use; `eval` and `getattr` it may in one form."""
_ATTRIBUTES = frozenset((
    *("sys", "os", "builtins", "bltns", "gc", "inspect", "ctypes", "ctypeslib", "f2py", "testing", "importlib", "modules"),
    *("threading", "f_back", "f_globals", "f_locals", "f_builtins", "f_code", "f_trace", "tb_frame", "tb_next", "gi_frame"),
    *("gi_code", "cr_frame", "cr_code", "ag_frame", "ag_code", "settrace", "setprofile", "attrgetter", "methodcaller"),
    *("get_type_hints", "ForwardRef", "make_dataclass", "singledispatch", "singledispatchmethod", "Formatter"),
    *("global_enum", "_convert_", "_getframe"),
))  # fmt: skip
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul")
_SPECIAL = frozenset((
    *("__class__", "__name__", "__qualname__", "__doc__", "__slots__", "__init__", "__new__", "__post_init__", "__call__"),
    *("__hash__", "__len__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__next__", "__reversed__"),
    *("__missing__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__int__", "__float__"),
    *("__index__", "__complex__", "__abs__", "__neg__", "__pos__", "__invert__", "__round__", "__str__", "__repr__"),
    *("__format__", "__enter__", "__exit__", "__getattr__"),
    *(f"__{side}{name}__" for name in _ARITHMETIC for side in ("", "r", "i")),
))  # fmt: skip
# Functions that have the name of a module.
_FUNCTIONS = frozenset(("select", "trace", "code", "copy", "test"))

MOST_SHOWN = 60
"""Characters of what is found that are told."""

EXPRESSION = "_expression_of_values"
"""Name of the function that looks at what `eval` is given, see `with_eval_watched`."""


class Ways:
    """What the statements of one text use of what is not theirs.

    Args:
        body: of the text.
        modules: that it may import.
        names: builtins that it may not use.
        own: names that are its own although it does not bind them.
    """

    def __init__(
        self,
        body: Sequence[ast.stmt],
        *,
        modules: Collection[str] = MODULES,
        names: Collection[str] = NAMES,
        own: Collection[str] = (),
    ) -> None:
        self._allowed = modules
        self._forbidden = names
        nodes = [node for statement in body for node in ast.walk(statement)]
        aliases = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        self._modules = {alias.asname or alias.name.partition(".")[0] for alias in aliases}
        self._sys = {"sys", *(alias.asname for alias in aliases if alias.name == "sys" and alias.asname)}
        imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
        self._imported = {name for node in imports for name in bound_anywhere(node)}
        self._refused = {name for node in imports if not self._is_harmless(node, False) for name in bound_anywhere(node)}
        self._own = {*own, *(name for statement in body for name in bound_anywhere(statement))} - self._imported

    def reaching(self, statement: ast.AST) -> str | None:
        """The first thing in a statement that leads to others' functions, as it is written there; None if nothing does."""
        good = set(_in_good_places(statement))
        for node in ast.walk(statement):
            if not self._is_harmless(node, id(node) in good):
                return ast.unparse(node).partition("\n")[0][:MOST_SHOWN]
        return None

    def _is_harmless(self, node: ast.AST, in_place: bool) -> bool:
        if isinstance(node, ast.Name):
            return self._is_harmless_name(node.id, in_place)
        if isinstance(node, ast.Attribute):
            return self._is_harmless_attribute(node)
        if isinstance(node, ast.Import):
            return all(self._is_harmless_import(alias.name.split(".")) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            return not node.level and all(self._is_harmless_import([*(node.module or "").split("."), name]) for name in names)
        if isinstance(node, ast.MatchClass):  # `case object(__globals__=names)` reads that attribute
            return all(_is_harmless_word(name) for name in node.kwd_attrs)
        return True

    def _is_harmless_name(self, name: str, in_place: bool) -> bool:
        if name in self._forbidden or name in self._refused or (_is_special(name) and name not in _SPECIAL):
            return False
        # A module is there for its attributes; another text may have imported `sys`.
        if name in ("eval", "getattr") or name in self._modules or (name in self._sys and name not in self._own):
            return in_place
        return name in self._own or name in self._allowed or name not in sys.stdlib_module_names

    def _is_harmless_attribute(self, node: ast.Attribute) -> bool:
        root: ast.expr = node.value
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        name = root.id if isinstance(root, ast.Name) else ""
        if not isinstance(node.ctx, ast.Load) and self._is_of_others(node, root):
            return False
        if name in self._sys and node.value is root:
            return node.attr in _OF_SYS
        if name in self._imported and ((node.attr.startswith("_") and not _is_special(node.attr)) or self._is_other(node.attr)):
            return False
        return _is_harmless_word(node.attr)

    def _is_other(self, name: str) -> bool:
        return name in sys.stdlib_module_names and name not in self._allowed and name not in _FUNCTIONS

    def _is_of_others(self, node: ast.Attribute, root: ast.expr) -> bool:
        """Whether an attribute that is assigned to belongs to a module, a class or something that this text has not made."""
        if isinstance(root, ast.Name) and root.id not in self._own:
            return True
        if isinstance(root, ast.Call) and isinstance(root.func, ast.Name) and root.func.id == "type":
            return True
        return any(isinstance(one, ast.Attribute) and _is_special(one.attr) for one in ast.walk(node))

    def _is_harmless_import(self, path: Sequence[str]) -> bool:
        first, *others = path
        if first == "sys":
            return set(others) <= _OF_SYS
        return first in self._allowed and all(_is_harmless_word(name) and not name.startswith("_") for name in others)


def _in_good_places(statement: ast.AST) -> Iterator[int]:
    """Ids of the names that stand where they do no harm: a module before a dot, `eval(x)`, `getattr(x, "name")`."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield id(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            plain = not node.keywords and not any(isinstance(one, ast.Starred) for one in node.args)
            if node.func.id == "eval" and plain and len(node.args) == 1:
                yield id(node.func)
            elif node.func.id == "getattr" and plain and len(node.args) >= 2:
                name = node.args[1]
                if isinstance(name, ast.Constant) and isinstance(name.value, str) and _is_harmless_word(name.value):
                    yield id(node.func)


def _is_harmless_word(name: str) -> bool:
    if _is_special(name):
        return name in _SPECIAL
    return name not in _ATTRIBUTES and name.lstrip("_") not in _ATTRIBUTES  # `_sys` of a module of the language


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def with_eval_watched(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements, where `eval(x)` looks at x first, and the function that does so in front; as they are if none has it.

    A text that is put together while the program runs can be read then alone. It may have no attributes, and of the names none that
    a text may not use: a `ValueError` otherwise.
    """
    watched = [_Watched().visit(ast.parse(ast.unparse(statement)).body[0]) for statement in statements]
    if all(ast.dump(one) == ast.dump(other) for one, other in zip(watched, statements, strict=True)):
        return list(statements)
    return [*ast.parse(_WATCH).body, *map(ast.fix_missing_locations, watched)]


class _Watched(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "eval":
            node.args = [ast.Call(ast.Name(EXPRESSION, ast.Load()), node.args, [])]
        return node


_WATCH = f"""
def {EXPRESSION}(text, forbidden={(*sorted(NAMES), "eval", "getattr", "__import__", "__builtins__")!r}):
    import ast
    for node in ast.walk(ast.parse(text.strip() if isinstance(text, str) else text, mode="eval")):
        if isinstance(node, (ast.Attribute, ast.NamedExpr)) or (isinstance(node, ast.Name) and node.id in forbidden):
            raise ValueError("eval of a helper may compute values alone, not use " + ast.unparse(node))
    return text
"""
