"""Guards the bridge between tests and solutions: what crosses as data, what stays an object, and that tests see one process."""

from __future__ import annotations

import pytest

SHOP = """
class Shop:
    kinds = ["a"]
    def __init__(self, name="x"):
        self.name = name
        self.goods = {}
        self.log = []
    def add(self, what, parts):
        self.goods[what] = parts
        self.log.append(what)
        return self
    def total(self):
        return sum(len(parts) for parts in self.goods.values())
    def __len__(self):
        return len(self.goods)
    @staticmethod
    def twice(x):
        return 2 * x
    @property
    def first(self):
        return self.log[0]
"""


USES = (
    # attributes and methods
    "s = Shop('n'); assert s.name == 'n' and s.total() == 0 and len(s) == 0 and Shop.twice(4) == 8",
    "s = Shop(); s.name = 'm'; assert s.name == 'm'; del s.name; assert not hasattr(s, 'name')",
    "s = Shop(name='k'); assert isinstance(s, Shop) and s.add('a', []) is s and type(s) is Shop and type(s).__name__ == 'Shop'",
    "s = Shop()\ntry: s.first\nexcept IndexError as e:\n    assert str(e) == 'list index out of range'\nelse:\n    assert 0",
    # containers that both sides have
    "s = Shop(); goods = s.goods; s.add('a', [1]); assert goods == {'a': [1]} and type(goods) is dict",
    "s = Shop(); s.goods['b'] = [1, 2]; assert s.total() == 2",
    "s = Shop(); s.goods['b'] = [1, 2]; s.goods['b'].append(3); assert s.total() == 3",
    "s = Shop(); parts = [1]; s.add('a', parts); parts.append(2); assert s.total() == 2",
    "s = Shop(); parts = [1]; s.add('a', parts); assert s.goods['a'] is parts",
    "s = Shop(); s.log.append('z'); assert s.first == 'z'; s.log.clear(); s.log += ['q', 'r']; assert s.log == ['q', 'r']",
    "Shop.kinds.append('b'); assert Shop.kinds == Shop().kinds == ['a', 'b']",
    "s, t = Shop(), Shop(); assert s != t and s == s and len({s, t, s}) == 2 and t in [s, t]",
    "import copy; s = Shop(); t = copy.deepcopy(s); t.add('a', [1]); assert s.total() == 0 and t.total() == 1",
)


def test_objects(run):
    report = run(SHOP, *USES, names=("Shop",))
    assert [(use, check) for use, check in zip(USES, report.checks, strict=True) if not check.passed] == []


@pytest.mark.parametrize(
    ("solution", "check"),
    [
        # arguments that the solution changes
        ("def f(x): x.sort()", "a = [3, 1]; f(a); assert a == [1, 3]"),
        ("def f(x): x['k'] = {1}", "a = {}; f(a); assert a == {'k': {1}}"),
        ("def f(x):\n    for row in x: row[0] = 9", "a = [[1, 2]] * 2; f(a); assert a == [[9, 2], [9, 2]] and a[0] is a[1]"),
        ("def f(x): x.append(x)", "a = []; f(a); assert a[0] is a"),
        ("kept = []\ndef f(x):\n    kept.append(x); return kept", "a = {1}; assert f(a)[0] is a"),
        # what is iterated over
        ("def f(n):\n    for i in range(n): yield i", "g = f(3); assert next(g) == 0 and list(g) == [1, 2] and list(g) == []"),
        ("def f(x): return map(abs, x)", "assert sorted(f([-2, 1])) == [1, 2]"),
        ("def f(x): return {1: 2}.items()", "assert list(f(0)) == [(1, 2)] and (1, 2) in f(0) and (1, 3) not in f(0)"),
        ("def f(x): return sum(x)", "assert f(n for n in range(4)) == 6 and f(iter([1, 2])) == 3 and f({1: 2}.values()) == 2"),
        ("def f(g):\n    with g: return 1",
         "import unittest.mock as m; x = m.MagicMock(); assert f(x) == 1 and x.__exit__.called"),
        # functions both ways
        ("def f(g, x): return [g(n) for n in x]", "assert f(lambda n: n + 1, [1, 2]) == [2, 3] and f(str, [1]) == ['1']"),
        ("def f(n): return lambda x: x + n", "assert f(3)(4) == 7 and callable(f(3)) and list(map(f(1), [1])) == [2]"),
        ("def f(g):\n    try: g()\n    except KeyError as e: return e.args",
         "def g(): raise KeyError('k')\nassert f(g) == ('k',)"),
        ("def f(g): return g(g)", "def g(h): return h is g\nassert f(g)"),
        ("def f(m): return m.send('x', n=1)",
         "import unittest.mock as k; m = k.MagicMock(); f(m); m.send.assert_called_with('x', n=1)"),
        ("def f(m): m.x = [1]; return m.y", "class M: y = 2\nm = M(); assert f(m) == 2 and m.x == [1]"),
        ("import functools\ndef f(x): return sorted(x, key=functools.cmp_to_key(lambda a, b: b - a))",
         "assert f([1, 2]) == [2, 1]"),
        # classes of plain data
        ("class L(list):\n    def last(self): return self[-1]\ndef f(x): return L(x)",
         "assert f([1]) == [1] and type(f([1])) is not list and f([1]).last() == 1"),
        ("import enum\nclass f(enum.Enum):\n    A = 1\n    B = 2",
         "assert f.A is f.A and f.A != f.B and f.B.value == 2 and len(f) == 2"),
        ("import enum\nclass f(enum.IntEnum):\n    A = 1", "assert f.A == 1 and f['A'] == 1"),
        ("import collections\nP = collections.namedtuple('P', 'x y')\ndef f(): return P(1, 2)",
         "assert f() == (1, 2) and f().y == 2"),
        ("import collections\ndef f(x): return collections.Counter(x)", "assert f('aab').most_common(1) == [('a', 2)]"),
        ("import collections\ndef f(n): return collections.deque([1, 2], n)", "d = f(2); d.append(3); assert list(d) == [2, 3]"),
        ("import dataclasses\n@dataclasses.dataclass\nclass f:\n    x: int",
         "assert f(1) == f(1) != f(2) and repr(f(1)) == 'f(x=1)'"),
        ("class f(list):\n    def last(self): return self[-1]",
         "s = f([1, 2]); assert s.last() == 2 and s == [1, 2] and s != [1] and len(s) == 2"),
        # operators among the solution's own objects
        (
            "class f:\n    def __init__(s, n): s.n = n\n    def __add__(s, o): return f(s.n + o.n)\n"
            "    def __lt__(s, o): return s.n < o.n",
            "assert (f(1) + f(2)).n == 3 and sorted([f(2), f(1)])[0].n == 1 and f(1) < f(2)",
        ),
        ("class f:\n    def __bool__(self): return False\n    def __str__(self): return 's'",
         "assert not f() and str(f()) == f'{f()}' == 's'"),
        ("class f:\n    def __float__(self): return 1.5\n    def __index__(self): return 1",
         "assert float(f()) == 1.5 and 'ab'[f()] == 'b'"),
        ("class f:\n    def __enter__(self): return 5\n    def __exit__(self, *a): return True",
         "with f() as x:\n    assert x == 5\n    1 / 0"),
        ("class f:\n    def __getitem__(self, k): return k\n    def __call__(self): return 'c'",
         "assert f()[1:2] == slice(1, 2) and f()() == 'c'"),
        # exceptions
        ("class E(ValueError):\n    def __init__(s, c):\n        super().__init__('m'); s.c = c\ndef f(): raise E(3)",
         "try: f()\nexcept ValueError as e: assert e.c == 3 and str(e) == 'm' and type(e).__name__ == 'E'\nelse: assert 0"),
        ("class f(Exception): pass\ndef g(): raise f('x')", "try: g()\nexcept f as e: assert e.args == ('x',)\nelse: assert 0"),
        ("def f(): return ValueError('x')", "e = f(); assert isinstance(e, ValueError) and e.args == ('x',)"),
        ("def f(p): open(p)", "try: f('no')\nexcept FileNotFoundError as e: assert e.errno == 2\nelse: assert 0"),
        # files of both
        ("def f(p): return open(p).read()", "open('a.txt', 'w').write('hi'); assert f('a.txt') == 'hi'"),
        ("def f(p): open(p, 'w').write('ho')",
         "import tempfile, os; p = os.path.join(tempfile.gettempdir(), 'b'); f(p); assert open(p).read() == 'ho'"),
    ],
)  # fmt: skip
def test_values_functions_and_classes(run, solution, check):
    report = run(solution, check, names=("f", "g"))
    assert report.passed == 1, report.checks


def test_what_nobody_has_is_let_go(run):
    """A solution's object is gone when the test has dropped it, as in one process."""
    solution = """
alive = set()
class f:
    def __init__(self, n):
        self.n = n
        alive.add(n)
    def __del__(self):
        alive.discard(self.n)
def count():
    return len(alive)
"""
    check = "a = [f(n) for n in range(3)]\nassert count() == 3\ndel a[0]\nassert count() == 2\na.clear()\nassert count() == 0"
    assert run(solution, check, names=("f", "count")).passed == 1


def test_messages_do_not_grow_with_what_was_passed_before(run):
    """A thousand lists that nobody keeps are not compared at each call."""
    assert run("def f(x): return len(x)", "for n in range(1000):\n    assert f([n] * 50) == 50").passed == 1


def test_operators_with_the_tests_values_must_be_allowed(sandbox, run):
    solution = (
        "class f:\n    def __init__(s, n): s.n = n\n    def __mul__(s, k): return f(s.n * k)\n    def __lt__(s, n): return s.n < n"
    )
    checks = ("assert (f(2) * 3).n == 6", "assert f(2) < 3")
    assert [check.exception for check in run(solution, *checks).checks] == ["TypeError", "TypeError"]
    assert run(solution, *checks, operators=True).passed == 2


KEYS = """
from collections import OrderedDict
class P:
    def __init__(self, i): self.i = i
    def __eq__(self, other): return isinstance(other, P) and self.i == other.i
    def __hash__(self): return hash(self.i)
def f(kind, first=None):
    made = {"ordered": OrderedDict, "dict": dict}[kind]((P(i), i) for i in range(3))
    if first is not None:
        made.move_to_end(P(first))
    return made
def sets(): return {P(1), P(2)}, frozenset([P(1), P(2)])
def back(x): return [k.i for k in x], list(x.values()), P(1) in x
"""


def test_keys_that_say_what_they_equal(run):
    """All have one hash in the judge, so that a container compares them while a message is written or read."""
    checks = (
        "r = f('ordered'); assert [k.i for k in r] == [0, 1, 2] and r[P(1)] == 1 and P(7) not in r",
        "r = f('ordered', 0); assert back(r) == ([1, 2, 0], [1, 2, 0], True); r.move_to_end(P(1)); assert back(r)[0] == [2, 0, 1]",
        "r = f('dict'); r[P(5)] = 5; r[P(1)] = 6; assert back(r) == ([0, 1, 2, 5], [0, 6, 2, 5], True)",
        "a, b = sets(); a.add(P(2)); assert len(a) == len(b) == 2 and a == b and P(2) in b and P(4) not in a",
        "r = OrderedDict((P(i), i) for i in range(3)); assert back(r) == ([0, 1, 2], [0, 1, 2], True)",
    )
    in_one_process = {}
    exec(KEYS, in_one_process)
    for check in checks:
        exec(check, dict(in_one_process))
    report = run(KEYS, *checks, names=("f", "P", "sets", "back"), setup="from collections import OrderedDict")
    assert report.passed == len(checks), report.checks
