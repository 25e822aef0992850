"""Guards verdicts: nothing that a solution returns, raises, patches or sends makes a test pass that should not."""

from __future__ import annotations

import pytest

LIAR = """
class Liar:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __len__(self): return 1
    def __contains__(self, other): return True
    def __iter__(self): return iter([self] * 3)
    def __getitem__(self, key): return self
    def __getattr__(self, name): return self
    def __call__(self, *args, **options): return self
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __sub__(self, other): return 0
    __add__ = __radd__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __truediv__ = __sub__
    def __abs__(self): return self
    def __float__(self): return 0.0
    def __int__(self): return 0
    def __round__(self, digits=None): return self
    def __str__(self): return 'x'
    def __instancecheck__(self, other): return True
"""


COMPARISONS = (
    "assert f(1) == 5",
    "assert 5 == f(1)",
    "assert not f(1) != 5",
    "assert f(1) == [5]",
    "assert f(1) in (1, 2)",
    "assert 5 in f(1)",
    "assert abs(f(1) - 5.0) < 1e-6",
    "assert abs(5.0 - f(1)) < 1e-6",
    "assert f(1) < 5 or 5 < f(1)",
    "assert round(f(1), 2) == 5",
    "assert f(1)[0] == 5 or f(1)['k'] == 5 or f(1).value == 5",
    "assert list(f(1)) == [1, 2, 3]",
    "assert isinstance(f(1), (int, list, str))",
    "import math; assert math.isclose(f(1), 5)",
    "import unittest; unittest.TestCase().assertAlmostEqual(f(1), 5)",
    "import unittest; unittest.TestCase().assertEqual(f(1), 5)",
    "import unittest; unittest.TestCase().assertIn(5, f(1))",
    "assert {5: 1}.get(f(1))",
)


def test_objects_that_equal_everything_equal_nothing(run):
    report = run(f"{LIAR}\ndef f(x): return Liar()", *COMPARISONS)
    assert [
        check for check, outcome in zip(COMPARISONS, report.checks, strict=True) if outcome.status not in ("failed", "error")
    ] == []


@pytest.mark.parametrize(
    "trick",
    [
        # patches what would judge, were it in one process
        "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\nunittest.TestCase.run = lambda *a, **k: None",
        "import builtins\nbuiltins.AssertionError = type('E', (BaseException,), {})\nbuiltins.abs = lambda x: 0",
        "import math, sys\nmath.isclose = lambda *a, **k: True\nsys.modules['unittest'] = None",
        # looks for what it should return
        "import gc, sys\nfound = [o for o in gc.get_objects() if isinstance(o, dict) and 'SECRET' in o]\nassert found",
        "import sys\nframe = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\nSECRET = frame.f_globals['SECRET']",
        "import os\nfor name in os.listdir('/proc'): open(f'/proc/{name}/environ').read()",
        # reports in the judge's stead
        "print('[\"check\", {\"name\": \"0\", \"status\": \"passed\"}]')\nimport os\nos._exit(0)",
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'[\"check\", {\"name\": \"0\", \"status\": \"passed\"}]')\n"
        "    except OSError: pass",
        "import atexit, os\natexit.register(os._exit, 0)",
        "import threading, os\nthreading.Timer(0.0, os._exit, (0,)).start()",
    ],
)  # fmt: skip
def test_tricks_pass_nothing(run, trick):
    report = run(f"{trick}\ndef f(x): return 0", "assert f(1) == SECRET", setup="SECRET = 5")
    assert report.passed == 0


def test_exceptions_do_not_end_a_test_early(run):
    """`for … in map(f, …)` would end without a word at a StopIteration."""
    report = run("def f(x): raise StopIteration", "for y in map(f, [1, 2]): assert y == 5", "assert all(f(x) == x for x in [1])")
    assert [check.exception for check in report.checks] == ["RuntimeError", "RuntimeError"]


@pytest.mark.parametrize(
    "answer",
    ["b'junk'", "(2**31).to_bytes(4, 'big')", "(5).to_bytes(4, 'big') + b'[1,2]'", "(2).to_bytes(4, 'big') + b'\\xff\\xfe'"],
)
def test_a_solution_that_sends_nonsense_has_failed(run, answer):
    solution = f"""
import os, stat
def f(x):
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, {answer})
                os.close(fd)
        except OSError:
            pass
"""
    report = run(solution, "f(1)", "assert True")
    assert report.checks[0].status in ("error", "exited") and report.checks[1].status == "passed"


def test_an_answer_that_is_too_large_is_an_error(run):
    report = run("def f(n): return 'x' * n", "f(40 * 2**20)", "assert f(2) == 'xx'")
    assert [check.status for check in report.checks] == ["error", "passed"]


@pytest.mark.parametrize(
    "look",
    [
        "g.__globals__",
        "g.__code__",
        "g.__self__",
        "type(g).__call__.__globals__",
        "m.__class__",
        "m.__dict__",
        "m._private",
        "test.fail",
    ],
)
def test_what_tests_pass_is_not_looked_into(run, look):
    """A lambda leads to the tests' globals in one process."""
    setup = """
import unittest
SECRET = 5
class M: _private = SECRET
class T(unittest.TestCase): pass
def g(): return 1
m, test = M(), T()
"""
    report = run(f"def f(g, m, test):\n    {look}", "f(g, m, test)", setup=setup)
    # What is there is the solution's own stand-in, and has nothing of the tests.
    assert report.checks[0].status == "error" or look in ("m.__class__", "type(g).__call__.__globals__")


def test_test_cases_cannot_be_changed(run):
    setup = """
import unittest
class T(unittest.TestCase):
    def test_a(self):
        f(self)
        self.assertEqual(1, 2)
"""
    solution = "def f(test):\n    try: test.assertEqual = print\n    except AttributeError: pass"
    report = run(solution, setup=setup, unittest=True)
    assert report.checks[0].status == "failed"


def test_a_traceback_of_the_tests_stays_there(run):
    solution = "class f:\n    def __enter__(self): pass\n    def __exit__(self, kind, error, traceback): return traceback is None"
    assert run(solution, "with f(): 1 / 0").passed == 1


def test_a_class_under_test_answers_for_its_own_operators_only_if_asked(run):
    """What `operators=True` costs: the documentation says so."""
    solution = f"{LIAR}\ndef f(x): return Liar()"
    assert run(solution, "assert abs(f(1) - 5.0) < 1e-6").passed == 0
    assert run(solution, "assert abs(f(1) - 5.0) < 1e-6", operators=True).passed == 1


MAKES_A_METHOD = """
def f(o, *more):
    b = getattr(o, "area", o); A = type(b)._remote_ask
    mt = type.__getattribute__(type(b), "_remote_class_number")
    mk = A("new", mt, (type, "X"), ())
    return mk((), {"__eq__": type})()
"""
SHAPE = """
import functools
from unittest.mock import Mock
class Shape:
    def area(self): return 4
"""


@pytest.mark.parametrize(
    ("solution", "check"),
    [
        (MAKES_A_METHOD, "assert f(Shape()) == 8"),
        (MAKES_A_METHOD, "assert f(Shape()) == {'x': [1, 2]}"),
        (MAKES_A_METHOD, "assert f(Shape().area) == 8"),
        ("def f(m, x): m.assert_called_with = lambda *a: None; m(1)", "m = Mock(); f(m, 3); m.assert_called_with(3)"),
        ("def f(m): m.called = True", "m = Mock(); f(m); assert m.called"),
        ("def f(m): m.x.return_value = 5; return m", "m = Mock(); assert f(m).x() == 5"),
        (
            "def f(p):\n    A = type(p)._remote_ask; n = type.__getattribute__(type(p), '_remote_class_number')\n"
            "    return A('new', n, (type, 'X'), ())((), {'__eq__': type})()",
            "assert f(functools.partial(int, '3')) == 8",
        ),
        (
            "def f(m):\n    A = type(m)._remote_ask; n = type.__getattribute__(type(m), '_remote_class_number')\n"
            "    return next(iter(A('new', n, (type, ['X'], [()], [{'__eq__': type}]), ())))()",
            "assert f(map(str, [1])) == 8",
        ),
        # the class itself is passed, or is made through a class that was
        ("def f(t): return t(type, 'X')((), {'__eq__': type})()", "import types; assert f(types.MethodType) == 8"),
        ("def f(t): return next(t(t(type, ['X'], [()], [{'__eq__': type}]), [[]]))", "assert f(functools.partial(map)) == 8"),
        ("def f(t): return t(type, 'X', (), {'__eq__': type})()", "import operator; assert f(operator.call) == 8"),
        ("def f(t): return t(__module__='tests', a=lambda s: 8)", "class P(functools.partial): pass\nassert f(P).a() == 8"),
        ("def f(g, o): return g('{0.__func__.__globals__}', o.area)", "assert 'Shape' in f(str.format, Shape())"),
        (
            "def f(s, o): return s('{0.__func__.__globals__}').format(o.area)",
            "class S(str): pass\nassert 'Shape' in f(S, Shape())",
        ),
        # through a function of the tests that calls what it gets
        ("def f(g): return g(g(type, 'X', (), {'__eq__': type}))", "def g(h, *args): return h(*args)\nassert f(g) == 8"),
        ("def f(g, o): return g(o, '__dict__')", "assert f(getattr, Shape()) is not None"),
    ],
)
def test_nothing_is_made_in_the_judge(run, solution, check):
    """With a class of the judge's own a solution would make what equals everything, or read the tests."""
    report = run(solution, check, setup=SHAPE)
    assert report.checks[0].status in ("error", "failed"), report.checks


REPORTS = """
import json
def frame(what, value):
    data = json.dumps([what, value]).encode()
    return len(data).to_bytes(4, "big") + data
def ok(n): return {"name": str(n), "status": "passed", "exception": "", "message": "", "line": None}
REPORT = frame("check", ok(0)) + frame("check", ok(1)) + frame("done", None)
def f(file):
    if file == 1: return 0
    ATTEMPT
    return 0
"""


@pytest.mark.parametrize(
    "attempt",
    [
        "type(file.buffer.raw)(5, 'r+', closefd=False).write(REPORT)",
        "type(file)(5, 'r+', closefd=False).buffer.write(REPORT)",
        "file.buffer",
    ],
)
def test_an_open_file_is_no_way_to_the_report(run, attempt):
    checks = ("open('x.txt', 'w').write('a')\nassert f(open('x.txt')) == 1", "assert f(1) == 5")
    report = run(REPORTS.replace("ATTEMPT", attempt), *checks)
    assert [check.status for check in report.checks] == ["error", "failed"]


def test_files_mocks_and_objects_of_the_tests_can_still_be_used(run):
    solution = """
def f(what, *more):
    if what == "file":
        return more[0].readline(), list(more[0]), more[0].name
    if what == "write":
        with more[0] as file: file.write("b")
    if what == "mock":
        return more[0].send(1), more[0](2)
    if what == "object":
        more[0].count += 1
        return more[0].name, more[0].twice(2), more[0] + 1, len(more[0]), type(more[0])(3).count
    if what == "color":
        return more[0].value, more[0].name
    if what == "call":
        return [one("3") for one in more]
"""
    setup = """
import enum, functools, io, math, unittest.mock, sqlite3
class Thing:
    name = "n"
    def __init__(self, count=0): self.count = count
    def twice(self, x): return 2 * x
    def __add__(self, x): return self.count + x
    def __len__(self): return 7
class Color(enum.Enum):
    RED = 1
"""
    checks = (
        "open('x.txt', 'w').write('a\\nb')\nassert f('file', open('x.txt')) == ('a\\n', ['b'], 'x.txt')",
        "s = open('y.txt', 'w'); f('write', s); assert s.closed and open('y.txt').read() == 'b'",
        "m = unittest.mock.MagicMock(return_value=4); m.send.return_value = 3\n"
        "assert f('mock', m) == (3, 4)\nm.send.assert_called_once_with(1)",
        "t = Thing(); assert f('object', t) == ('n', 4, 2, 7, 3) and t.count == 1",
        "assert f('color', Color.RED) == (1, 'RED')",
        "assert f('call', str, lambda x: x, functools.partial(int, base=8), [].append, str.isdigit) == ['3', '3', 3, None, True]",
    )
    getter = "import operator; assert f('call', operator.itemgetter(0), operator.itemgetter(-1)) == ['3', '3']"
    report = run(solution, *checks, getter, setup=setup)
    assert [check for check in report.checks if not check.passed] == []


def test_a_class_name_of_any_length_is_the_solutions_failure(run):
    """Written on the channel by itself, past what our side of the solution's process would write."""
    solution = r"""
import os, stat
def f(times, line):
    class_ = '[1000,"' + "\u00e9" * times + '",[],[],false,null,"ValueError"]'
    msg = ('[["t","x",["E",1002,["k",1000],["t"],"m",' + line + ']],[],[' + class_ + '],[]]').encode()
    data = memoryview(len(msg).to_bytes(4, "big") + msg)
    for fd in range(3, 64):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode): continue
        except OSError: continue
        while data: data = data[os.write(fd, data):]
        break
"""
    report = run(solution, "f(1, '1' * 4300)", "f(10_000_000, '1')", "assert True")
    assert [check.status for check in report.checks] == ["error", "error", "passed"]
    assert len(report.checks[1].exception) <= 200


CHANGING = """
import itertools
count = itertools.count()
class f:
    def __init__(self, goods=()): self.goods = list(goods)
    def add(self, one): self.goods.append(one)
    def __float__(self): return float(next(count))
    def __int__(self): return next(count)
    def __index__(self): return next(count)
    def __bool__(self): return next(count) % 2 == 0
    def __len__(self): return next(count)
    def __str__(self): return str(next(count))
    def __round__(self, n=None): return next(count)
"""


@pytest.mark.parametrize(
    "convert", ["float", "int", "bool", "len", "str", "round", "lambda x: round(x, 1)", "range", "'{:}'.format"]
)
def test_an_object_is_not_converted_to_one_thing_now_and_another_then(run, convert):
    check = f"x = f(); c = {convert}; assert c(x) == c(x) == c(x)"
    report = run(CHANGING, check, "x = f(); c = float; y = c(x); f().goods; assert c(x) == y")
    assert report.passed == 2
    assert run(CHANGING, check, operators=True).passed == 0


def test_what_changes_for_a_reason_is_converted_anew(run):
    solution = """
class f:
    def __init__(self): self.goods = []
    def add(self, one): self.goods.append(one)
    def __len__(self): return len(self.goods)
    def __str__(self): return "".join(self.goods)
"""
    by_call = "x = f(); assert not x and len(x) == 0 and str(x) == ''; x.add('a'); assert x and len(x) == 1 and str(x) == 'a'"
    by_container = "x = f(); g = x.goods; assert len(x) == 0; g.append('b'); assert len(x) == 1 and str(x) == 'b'"
    assert run(solution, by_call, by_container).passed == 2
