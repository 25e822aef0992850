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
