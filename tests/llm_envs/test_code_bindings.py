"""Guards which names statements bind, and which function of a text is the one that its name stands for in the end."""

from __future__ import annotations

import ast

import pytest

from llm_envs.tasks.code.bindings import bound_in_module, plain_functions


def statement(text):
    (node,) = ast.parse(text).body
    return node


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(x, y=1):\n    z = 1", {"f"}),
        ("async def f(): pass", {"f"}),
        ("class f:\n    g = 1\n    def h(self): pass", {"f"}),
        ("f = g = lambda x: x", {"f", "g"}),
        ("(f, [g, *h]), t[0], o.a = 1", {"f", "g", "h"}),
        ("f: int = 1", {"f"}),
        ("f += 1", {"f"}),
        ("del f", {"f"}),
        ("import f.g", {"f"}),
        ("import f as g", {"g"}),
        ("from f import g, h as i", {"g", "i"}),
        ("for f in []: g = 1", {"f", "g"}),
        ("while (f := 1): g = 1", {"f", "g"}),
        ("with a as f, b as (g, h): pass", {"f", "g", "h"}),
        ("try: f = 1\nexcept E as g: h = 1\nelse: i = 1\nfinally: j = 1", {"f", "g", "h", "i", "j"}),
        ("match a:\n    case [f, *g]: pass\n    case {'a': h, **i}: pass\n    case A() as j: pass", {"f", "g", "h", "i", "j"}),
        ("if a: f = 1\nelif b: g = 1\nelse: h = 1", {"f", "g", "h"}),
        ("x = [f := 1 for y in z]", {"x", "f"}),
        ("x = [f for f in z]", {"x"}),
        ("x = lambda f, g=(h := 1): f", {"x", "h"}),
        ("def x(f, g=(h := 1)):\n    f = i = 1\n    for j in f: pass", {"x", "h"}),
        ("@(f := deco)\ndef x(): pass", {"x", "f"}),
        ("def x():\n    def y():\n        global f\n        f = 1", {"x", "f"}),
        ("class x:\n    global f\n    f = 1", {"x", "f"}),
        ("if a:\n    def x():\n        global f", {"x", "f"}),
        ("f.__code__ = g.__code__", {"f"}),
        ("f.__globals__['g'] = 1", {"f"}),
        ("def x(): f.__code__ = g.__code__", {"x", "f"}),
        ("f.cache = {}", set()),
        ("f[0] = 1", set()),
        ("print(f)", set()),
    ],
)
def test_names_that_a_statement_binds_in_its_module(text, names):
    assert bound_in_module(statement(text)) == names


DEF = "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (DEF, True),
        (f"f = 1\n{DEF}", True),
        (f"{DEF}f = 1\n", False),
        (f"{DEF}f = lambda x: 1\n", False),
        (f"{DEF}class f: pass\n", False),
        (f"{DEF}from m import f\n", False),
        (f"{DEF}if 1:\n    f = g\n", False),
        (f"{DEF}[f := g for _ in [1]]\n", False),
        (f"{DEF}del f\n", False),
        (f"{DEF}f.__code__ = g.__code__\n", False),
        (f"def g():\n    global f\n    f = 1\n{DEF}", False),
        (f"def g():\n    f = 1\n{DEF}", True),
        (f"{DEF}f.cache = {{}}\n", True),
        (f"if 1:\n    {DEF.replace(chr(10), chr(10) + '    ')}\n", False),
        (f"async {DEF}", False),
        (f"@cache\n{DEF}", True),
        (f"import functools\n@functools.lru_cache(maxsize=None)\n{DEF}", True),
        (f"{DEF}f = cache(f)\n", True),
        (f"{DEF}f = lru_cache(None)(f)\n", True),
        (f"{DEF}f = cache(g)\n", False),
        (f"def cache(g): return h\n@cache\n{DEF}", False),
        (f"@(lambda f: g)\n{DEF}", False),
        (f"@other\n{DEF}", False),
    ],
)
def test_the_last_binding_counts(text, plain):
    assert ("f" in plain_functions(ast.parse(text).body)) is plain
