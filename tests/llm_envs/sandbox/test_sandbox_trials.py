"""Guards what a trial's report says: outcomes of loading, setup and checks, and what is a fault instead."""

from __future__ import annotations

import os
import pickle
import threading

import pytest

from llm_envs.sandbox import Limits, Outcome, Report, Sandbox, SandboxError, Trial
from llm_envs.sandbox.worker import parts_of


def statuses(report: Report) -> list[str]:
    return [check.status for check in report.checks]


def test_checks_pass_fail_and_err_one_by_one(run):
    report = run("def f(x):\n    return 10 // x", "assert f(5) == 2", "assert f(5) == 3, 'no'", "f(0)", "assert f(2) == 5")
    assert report.loaded == Outcome("load", "passed") and report.setup == Outcome("setup", "passed")
    assert report.checks == (
        Outcome("0", "passed"),
        Outcome("1", "failed", "AssertionError", "no", 1),
        Outcome("2", "error", "ZeroDivisionError", "integer division or modulo by zero", 2),  # line 2 of the solution
        Outcome("3", "passed"),
    )
    assert report.passed == 2 and report.pass_rate == 0.5 and report.names == {"f": "function"}


def test_setup_is_shared_and_checks_are_not(run):
    report = run(
        "def f(x): return x",
        "y = f(1); assert y + base == 11",
        "assert 'y' not in globals()",
        "assert double(f) == 4",
        setup="base = 10\ndef double(g):\n    return g(2) * 2",
    )
    assert statuses(report) == ["passed"] * 3


def test_names_are_told_apart_and_missing_ones_are_missing(run):
    report = run("class C: pass\nf = len\nn = 3", "assert n == 3", "absent()", names=("C", "f", "n", "absent"))
    assert dict(report.names) == {"C": "class", "f": "function", "n": "value"}
    assert report.checks[1] == Outcome("1", "error", "NameError", "name 'absent' is not defined", 1)


@pytest.mark.parametrize(
    ("solution", "status", "exception", "line"),
    [
        ("x = 1\nraise ValueError('no')", "error", "ValueError", 2),
        ("def f(:", "error", "SyntaxError", 1),
        ("import sys\nsys.exit(0)", "exited", "SystemExit", 2),
        ("raise KeyboardInterrupt", "error", "KeyboardInterrupt", 1),
        ("import os\nos._exit(0)", "exited", "", None),
        ("def g(n): return g(n + 1)\ng(0)", "error", "RecursionError", 1),
        ("assert False", "error", "AssertionError", 1),  # not a failure: no test said so
        ("import no_such_module", "error", "ModuleNotFoundError", 1),
    ],
)
def test_a_solution_that_does_not_load_passes_nothing(run, solution, status, exception, line):
    report = run(solution, "assert True", "assert f(1)")
    assert (report.loaded.status, report.loaded.exception, report.loaded.line) == (status, exception, line)
    assert statuses(report) == ["not run", "not run"] and report.setup.status == "not run" and not report.names


def test_after_an_end_the_rest_goes_on_in_a_new_process_three_times(run):
    solution = "import os\nn = 0\ndef f(x):\n    global n\n    n += 1\n    if x < 0: os._exit(3)\n    return n"
    ends = "f(-1)"
    report = run(solution, "assert f(1) == 1", "assert f(1) == 2", ends, "assert f(1) == 1", ends, ends, "assert f(1) == 1")
    assert statuses(report) == ["passed", "passed", "exited", "passed", "exited", "exited", "not run"]
    assert report.checks[2].message == "the solution's process ended with status 3"


def test_tests_that_catch_everything_do_not_hide_an_end(run):
    report = run("import os\ndef f(x): os._exit(0)", "try:\n    f(1)\nexcept BaseException:\n    pass")
    assert statuses(report) == ["exited"]


def test_unittest_methods_are_checks(run):
    tests = """
import unittest

class Second(unittest.TestCase):
    def setUp(self):
        self.x = f(1)
    def test_b(self):
        self.assertEqual(self.x, 1)
    def test_a(self):
        with self.assertRaises(ZeroDivisionError):
            f(0)
    def test_sub(self):
        for n in (1, 0):
            with self.subTest(n=n):
                f(n)
    @unittest.skip("not here")
    def test_skipped(self):
        pass

class First(unittest.TestCase):
    ready = []
    @classmethod
    def setUpClass(cls):
        cls.ready.append(f(1))
    def test_once(self):
        self.assertEqual(self.ready, [1])
    def test_twice(self):
        self.assertEqual(self.ready, [1, 1])
"""
    report = run("def f(x): return 1 // x", setup=tests, unittest=True)
    assert [(check.name, check.status) for check in report.checks] == [
        ("Second.test_a", "passed"),
        ("Second.test_b", "passed"),
        ("Second.test_skipped", "not run"),
        ("Second.test_sub", "error"),
        ("First.test_once", "passed"),
        ("First.test_twice", "failed"),
    ]


def test_unittest_methods_are_known_when_nothing_can_run(run):
    tests = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): f(1)"
    report = run("raise ValueError", setup=tests, unittest=True)
    assert report.checks == (Outcome("T.test_a", "not run"),)


def test_a_skip_by_the_solution_is_none(run):
    tests = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): f(1)"
    report = run("import unittest\ndef f(x): raise unittest.SkipTest('done')", setup=tests, unittest=True)
    assert report.checks[0].status == "error"


@pytest.mark.parametrize(
    "options",
    [
        {"setup": "def ("},
        {"checks": ("assert (",)},
        {"setup": "import no_such_module"},
        {"setup": "1 / 0", "solution": "raise ValueError", "unittest": True},
    ],
)
def test_faults_of_the_data_set_are_errors(sandbox, options):
    with pytest.raises(SandboxError, match=r"setup|check"):
        sandbox.run(Trial(**{"solution": "def f(x): return x", "names": ("f",), **options}))
    assert sandbox.run(Trial("f = 1", ("f",), checks=("assert f == 1",))).passed == 1


@pytest.mark.parametrize("setup", ["assert f(1) == 2", "g", "f(1).real.imag.no"])
def test_a_setup_that_fails_by_the_solution_is_an_outcome(run, setup):
    report = run("def f(x): return x", "assert True", setup=setup, names=("f", "g"))
    assert report.setup.status in ("failed", "error") and statuses(report) == ["not run"]


@pytest.mark.parametrize("solution", ["f = 5", "f = list", "f = None", ""])
@pytest.mark.parametrize("setup", ["x = f().bar()", "class C:\n    x = f.y.z", "def g():\n    return f() + [1].x\ng()"])
def test_a_setup_that_fails_by_a_name_that_is_data_is_an_outcome(run, solution, setup):
    report = run(solution, "assert True", setup=setup)
    assert report.setup.status == "error" and statuses(report) == ["not run"]


def test_output_is_kept_and_cut(run):
    report = run("import sys\nprint('a' * 600)\nprint('b' * 600, file=sys.stderr)\nf = 1", "assert f")
    assert len(report.output) == 1024 and report.output.startswith("a" * 600 + "\nbbb") and report.passed == 1


def test_reports_are_the_same_in_each_process(sandbox, tight):
    """Addresses, hashes of texts, the global generators and the folder's name do not show."""
    solution = (
        "import os, random, numpy\nclass C: pass\n"
        "def f(): return repr(C()), list({'a', 'b', 'c', 'd'}), random.random(), float(numpy.random.rand())\n"
        "def g(): raise ValueError(f'{C()} {os.getcwd()}/x')\nprint(C(), os.getcwd())"
    )
    trial = Trial(solution, ("f", "g"), checks=("assert f()[1:] == 0, f()[1:]", "g()"))
    report = sandbox.run(trial)
    assert report == tight.run(trial) and report.output == "<solution.C object at 0x…> .\n"
    assert report.checks[1].message == "<solution.C object at 0x…> ./x"


def test_equal_trials_are_run_once_and_results_keep_their_order(sandbox):
    trials = [Trial(f"def f(): return {n}", ("f",), checks=("assert f() % 2",)) for n in (1, 2, 1, 3, 4, 2)]
    reports = sandbox.run_all(trials)
    assert [report.passed for report in reports] == [1, 0, 1, 1, 0, 0]
    assert reports[0] is reports[2] and reports[0] is sandbox.run(trials[0])


def test_the_memory_of_reports_is_bounded_and_can_be_off(tight):
    a, b = (Trial("x = 1", ("x",), checks=(f"assert x == {n}",)) for n in (1, 2))
    with Sandbox(workers=1, cache=1) as one:
        first = one.run(a)
        assert one.run(a) is first
        one.run(b)
        assert one.run(a) is not first
    assert tight.run(a) == first and tight.run(a) is not tight.run(a)


def test_a_sandbox_is_picklable_and_starts_nothing_before_it_is_used(sandbox):
    copy = pickle.loads(pickle.dumps(sandbox))
    assert copy.limits == sandbox.limits and copy.workers == 2 and copy._pool._idle == []
    with copy:
        assert copy.run(Trial("x = 1", ("x",), checks=("assert x == 1",))).pass_rate == 1.0


def test_reports_are_values():
    report = Report(
        Outcome("load", "passed"), {"f": "function"}, Outcome("setup", "passed"), (Outcome("0", "failed"),), cpu_seconds=1
    )
    assert report == pickle.loads(pickle.dumps(report)) and hash(report) == hash(pickle.loads(pickle.dumps(report)))
    assert report == Report(report.loaded, report.names, report.setup, report.checks, cpu_seconds=2)  # time does not count
    with pytest.raises(TypeError):
        report.names["f"] = "class"
    assert Report(report.loaded, {}, report.setup, ()).pass_rate == 0.0


def test_several_threads_share_a_sandbox(sandbox):
    reports: dict[int, Report] = {}

    def ask(n: int) -> None:
        reports[n] = sandbox.run(Trial(f"def f(): return {n}", ("f",), checks=(f"assert f() == {n}", "assert f() == 2")))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [reports[n].passed for n in range(4)] == [1, 1, 2, 1]


@pytest.mark.slow
def test_a_forked_child_has_processes_of_its_own(sandbox):
    trial = Trial("x = 7", ("x",), checks=("assert x == 7",))
    sandbox.run(trial)
    child = os.fork()
    if child == 0:
        with sandbox:
            os._exit(0 if sandbox.run(Trial("x = 8", ("x",), checks=("assert x == 8",))).passed else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert sandbox.run(Trial("x = 9", ("x",), checks=("assert x == 9",))).passed == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpu_seconds": 0}, "cpu_seconds must be finite and above 0, got 0"),
        ({"wall_seconds": float("nan")}, "wall_seconds"),
        ({"processes": 1.5}, "processes must be a whole number, got 1.5"),
        ({"memory_mb": True}, "memory_mb"),
        ({"open_files": 3}, "open_files must be at least 16"),
        ({"cpu_seconds": "4"}, "cpu_seconds must be a number"),
    ],
)
def test_limits_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Limits(**options)


def test_trials_and_sandboxes_are_checked():
    with pytest.raises(ValueError, match="names must be Python identifiers, got 'a b'"):
        Trial("", ("a b",))
    with pytest.raises(TypeError, match="names must be several texts"):
        Trial("", "f")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be texts, got int"):
        Trial(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 1 checks as well"):
        Trial("", checks=("x",), unittest=True)
    with pytest.raises(ValueError, match="workers must be a whole number of at least 1, got 0"):
        Sandbox(workers=0)
    with pytest.raises(ValueError, match="cache"):
        Sandbox(cache=-1)
    with pytest.raises(ValueError, match=r"without may name .*, got dragons"):
        Sandbox(without=("dragons",))
    with pytest.raises(ValueError, match="status"):
        Outcome("0", "fine")  # type: ignore[arg-type]


def outcome(name: str) -> dict[str, object]:
    return vars(Outcome(name, "passed"))


BEFORE = [("loaded", outcome("load")), ("names", {}), ("setup", outcome("setup")), ("plan", ["0", "1"])]
CHECKS = [("check", outcome("0")), ("check", outcome("1"))]
DONE = [("done", None)]


def test_a_report_is_what_a_judge_says_once_and_in_order():
    trial = Trial("", checks=("assert True",) * 2)
    assert [one["name"] for one in parts_of(trial, BEFORE + CHECKS + DONE, "ended")["check"]] == ["0", "1"]
    assert parts_of(trial, BEFORE + DONE, "ended")["check"] == []  # nothing was run
    assert "done" not in parts_of(trial, BEFORE + CHECKS[:1], "timeout")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (BEFORE + CHECKS + DONE + CHECKS + DONE, "ended"),
        (BEFORE + CHECKS + DONE + CHECKS[1:], "ended"),
        (BEFORE + CHECKS + CHECKS + DONE, "ended"),
        (BEFORE + CHECKS[::-1] + DONE, "ended"),
        (BEFORE + CHECKS[1:] + DONE, "ended"),
        (BEFORE + BEFORE + CHECKS + DONE, "ended"),
        (BEFORE[:3] + CHECKS + DONE, "ended"),
        ([*BEFORE[:3], ("plan", ["0"]), *CHECKS[:1], *DONE], "ended"),
        ([*BEFORE, ("word", None), *DONE], "ended"),
        (BEFORE + CHECKS + DONE, "the judge's process ended with status 70"),
        (BEFORE + CHECKS + DONE, "timeout"),
        (BEFORE + CHECKS, "ended"),
        (DONE, "ended"),
        ([("fault", "no"), *DONE], "ended"),
    ],
)  # fmt: skip
def test_other_words_are_no_report(said, reason):
    with pytest.raises(SandboxError):
        parts_of(Trial("", checks=("assert True",) * 2), said, reason)
