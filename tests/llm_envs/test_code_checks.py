"""Guards how tests are taken apart and how public examples are read from a problem's text."""

from __future__ import annotations

import pytest

from llm_envs.tasks.code.checks import read_tests
from llm_envs.tasks.code.examples import Example, contradicts, read_examples
from llm_envs.tasks.code.problems import problem_of


def outcomes(test, function, name="f", prelude=""):
    """Which checks pass for a function, each run by itself."""
    tests = read_tests(test, name)
    passed = []
    for check in tests.checks:
        namespace = {name: function}
        exec(f"{prelude}\n{tests.setup}", namespace)
        try:
            exec(check, namespace)
        except AssertionError:
            passed.append(False)
        else:
            passed.append(True)
    return passed


LOOPS = """
import math

METADATA = {"author": "x"}


def near(a, b):
    return math.isclose(a, b)


def check(candidate):
    assert True, "this says nothing"
    assert candidate(1) == 2, "simple"
    assert near(
        candidate(2),
        4.0,
    )
    values = [3, 4]
    from fractions import Fraction
    for x in values:
        assert candidate(x) == 2 * x
    if candidate(0) != 0:
        raise AssertionError("zero")
    with_fraction = candidate(Fraction(1, 2))
    assert with_fraction == 1
    values = []
    assert 1


check(f)
"""


def test_statements_that_assert_are_checks():
    tests = read_tests(LOOPS, "f")
    assert [shown.split("\n")[0] for shown in tests.shown] == [
        "assert candidate(1) == 2, 'simple'",
        "assert near(candidate(2), 4.0)",
        "for x in values:",
        "if candidate(0) != 0:",
        "assert with_fraction == 1",
    ]
    assert outcomes(LOOPS, lambda x: 2 * x) == [True] * 5
    assert outcomes(LOOPS, lambda x: x + 1) == [True, False, False, False, False]
    assert outcomes(LOOPS, lambda x: 4) == [False, True, False, False, False]


def test_chance_in_tests_is_the_same_each_time():
    test = (
        "def check(candidate):\n    import random\n    assert candidate(random.random())\n    assert candidate(random.random())\n"
    )
    seen = []
    for _ in range(2):
        outcomes(test, lambda x: seen.append(x) or True)
    assert len(set(seen)) == 1 and len(seen) == 4
    assert "random" not in read_tests("def check(candidate):\n    assert candidate(1)\n", "f").checks[0]


def test_a_return_in_check_and_another_name_for_candidate():
    test = "def check(under_test):\n    if under_test is None:\n        return\n    assert under_test(1) == 1\n"
    assert outcomes(test, lambda x: x) == [True]


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("assert f(1)", "one function check"),
        ("def check(candidate):\n    assert True\n", "assert nothing"),
        ("def check(candidate):\n    candidate(1)\n", "assert nothing"),
        ("def check():\n    assert 1 == 1\n", "one function check"),
    ],
)
def test_tests_that_check_nothing(test, message):
    with pytest.raises(ValueError, match=message):
        read_tests(test, "f")


@pytest.mark.parametrize(
    ("asserts", "share"),
    [
        (["candidate(1) == 1", "candidate(2) == 2", "candidate(3) == 3"], 1 / 3),
        (["candidate(1) == True", "candidate(2) is True", "candidate(3)", "not candidate(4)"], 3 / 4),
        (["candidate(1) == [2]", "candidate(2, 3) == [2], 'said'", "candidate(3) == [3]"], 2 / 3),
        (["set(candidate(1)) == {1}", "set(candidate(2)) == {1}", "candidate(3) == 5"], 2 / 3),
        (["candidate(1) == 1", "candidate(2) == 1"], 0.0),  # a constant solves it: nothing to correct
        (["candidate(1) == 1"], 0.0),
    ],
)
def test_share_of_a_constant(asserts, share):
    test = "def check(candidate):\n" + "".join(f"    assert {one}\n" for one in asserts)
    assert read_tests(test, "f").constant_share() == pytest.approx(share, abs=1e-12)


def test_a_loop_is_no_check_that_a_constant_passes():
    test = "def check(candidate):\n    assert candidate(1) == 1\n    for x in (1, 2):\n        assert candidate(x) == 1\n"
    assert read_tests(test, "f").constant_share() == 0.5


def test_checks_that_repeat_public_examples_count_if_they_fail():
    """By hand: of five checks the first two repeat examples."""
    asserts = ["candidate(1) == 2", "abs(candidate(5) - 6) < 1", "candidate(3) == 2", "candidate(7) == 8", "candidate(8) == 9"]
    tests = read_tests("def check(candidate):\n" + "".join(f"    assert {one}\n" for one in asserts), "f")
    repeating = tests.repeating(["f(1)", "f(5)"])
    assert repeating == {0, 1}
    assert tests.share([True, True, False, False, False], repeating) == 0.0
    assert tests.share([True] * 5, repeating) == 1.0
    assert tests.share([True, False, True, True, False], repeating) == 2 / 4
    assert tests.constant_share(repeating) == 1 / 3  # by heart the first two, and 2 elsewhere
    assert tests.constant_share() == 2 / 5
    assert tests.repeating(["f(1)", "f(3)", "f(5)", "f(7)", "f(8)"]) == frozenset()  # nothing else would be left
    assert tests.repeating(["f(x)"]) == frozenset()


def test_a_constant_beside_the_examples():
    """By hand: all that is no example is False; who says False everywhere fails the two examples, and gets 2 of 4."""
    asserts = ["candidate(1) == True", "candidate(2) == True", "candidate(3) == False", "not candidate(4)"]
    tests = read_tests("def check(candidate):\n" + "".join(f"    assert {one}\n" for one in asserts), "f")
    repeating = tests.repeating(["f(1)", "f(2)"])
    assert repeating == {0, 1} and tests.constant_share(repeating) == 0.5
    assert tests.share([True, True, False, False], repeating) == 0.0  # by heart alone
    assert tests.share([False, False, True, True], repeating) == 0.5


def test_a_call_is_the_same_with_whole_numbers_as_floats():
    tests = read_tests("def check(candidate):\n    assert candidate([1.0, 2]) == 3\n    assert candidate([1.5]) == 3\n", "f")
    assert tests.repeating(["f([1, 2])"]) == {0}


# ---- examples ----


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (">>> f(1)\n2", [("f(1)", "2")]),
        (">>>f( 1 )\n  2  ", [("f(1)", "2")]),
        (">>> f([1,\n... 2])\n[3]", [("f([1, 2])", "[3]")]),
        (">>> round(f(1), 2)  # about\n0.5", [("round(f(1), 2)", "0.5")]),
        (">>> f('a') == 'b'", [("f('a')", "'b'")]),
        (">>> f(1) == f(2)\nTrue", [("f(1) == f(2)", "True")]),
        ("f(1) == 2", [("f(1)", "2")]),
        ("    * f(1) => 2", [("f(1)", "2")]),
        ("f(1) ==> [1, 2]  # a list", [("f(1)", "[1, 2]")]),
        ("f(1)==>True", [("f(1)", "True")]),
        ("f(1) ➞ 'x'", [("f(1)", "'x'")]),
        ("f(1) -> -3", [("f(1)", "-3")]),
        ("f(1) = 3", [("f(1)", "3")]),
        ("f(2, [4, 5]) returns 9.", [("f(2, [4, 5])", "9")]),
        ("f('(') should return ')'", [("f('(')", "')'")]),
        ("f(1)   # returns 'db1db'", [("f(1)", "'db1db'")]),
        ("f(\"x\") # => 'Yes'", [("f('x')", "'Yes'")]),
        ("f(1) => true", [("f(1)", "True")]),
        ("f([\n  [1],\n  [2]\n]) == [(0, 0)]", [("f([[1], [2]])", "[(0, 0)]")]),
        ("f(1) == 2\nf(1) == 2", [("f(1)", "2")]),  # twice the same
        # What is no example:
        ("For x = 1 the output should be 2", []),  # nobody said what the parameters are
        ("f(1) == 2 or f(1) == 3", []),
        ("f(1) == 2\n>>> f(1)\n3", []),  # they contradict each other
        ("f(word) => True", []),
        ("f(1) ->19 - 5 = 14", []),
        ("f(1) is not defined", []),
        ("f(1", []),
        ("self.f(1) == 2, g(1) == 2, ff(1) == 2", []),
        (">>> x = 1\n2", []),
        (">>> f(1)", []),
        (">>> f(1)\nTraceback (most recent call last):", []),
        ("f(x) = x + 1", []),
        ("", []),
    ],
)
def test_examples_in_a_text(text, found):
    assert [(example.call, example.expected) for example in read_examples(text, "f")] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("For xs = [1, 2], k = 3 the output should be 4.", [("f([1, 2], 3)", "4")]),
        ("If k = 3, xs = [1], the result should be: 'a'", [("f([1], 3)", "'a'")]),
        ("For n = [], m = 0, the sum will be 6 the output should be true", [("f([], 0)", "True")]),
        ("Input: xs = [ [1,2] ], k = 1\nOutput: [1]  # a list", [("f([[1, 2]], 1)", "[1]")]),
        ("    Input: [4, 2], 1\n    Output: (2, 1)\n    Explanation: it is", [("f([4, 2], 1)", "(2, 1)")]),
        ("For xs = [1] the output should be 4.", []),  # too few
        ("For xs = y, k = 1 the output should be 4", []),
        ("For xs = 1, k = 1 the output should be small", []),
        ("Input: a list and a number\nOutput: 3", []),
        ("Input: 1, 2\n\nOutput: 3", []),
        ("For all the output should be 3", []),
    ],
)
def test_examples_that_name_what_is_put_in(text, found):
    assert [(example.call, example.expected) for example in read_examples(text, "f", ("xs", "k"))] == found


def test_an_example_says_what_came_instead():
    check = Example("f(1)", "2").check
    exec(check, {"f": lambda x: 2})
    with pytest.raises(AssertionError, match=r"^gave \[3\]$"):
        exec(check, {"f": lambda x: [3]})
    with pytest.raises(AssertionError) as failed:
        exec(check, {"f": lambda x: "y" * 1000})
    assert len(str(failed.value)) < 250


def test_examples_that_hidden_tests_contradict_are_none():
    example = Example("f([1, 2])", "3")
    assert contradicts(example, ["assert candidate([1,2]) == 4"], "f")
    assert not contradicts(example, ["assert candidate([1, 2]) == 3.0", "assert candidate([2]) == 4"], "f")
    assert not contradicts(example, ["assert candidate([1, 2]) != 4", "for x in []:\n    assert candidate([1, 2]) == 5"], "f")
    row = {"prompt": 'def f(x):\n    """\n    f(1) == 2\n    f(2) == 3\n    """\n', "entry_point": "f"}
    row["test"] = "def check(candidate):\n    assert candidate(1) == 5\n    assert candidate(2) == 3\n"
    assert [one.call for one in problem_of(row).examples] == ["f(2)"]


# ---- problems ----


def test_the_entry_point_is_not_the_first_function():
    row = {
        "prompt": 'import math\n\ndef g(a):\n    """Help."""\n    return a\n\ndef f(xs: list, *, k: int = 3):\n    """Do."""\n',
        "entry_point": "f",
        "test": "def check(candidate):\n    assert candidate([]) == g(1)\n",
    }
    problem = problem_of(row)
    assert problem.parameters == "xs: list, *, k: int=3" and problem.description == "Do."
    assert "import math" in problem.prelude and "def g" in problem.prelude and "def f" not in problem.prelude
    assert problem.setup.endswith("candidate = f")


def test_rows_that_cannot_be_read():
    good = {"task_id": "t/7", "prompt": "def f(x):", "entry_point": "f", "test": "def check(candidate):\n    assert candidate(1)\n"}
    assert problem_of(good).parameters == "x"  # a signature alone
    for wrong, message in (
        ({"prompt": "def (:"}, "row 't/7': SyntaxError"),
        ({"test": "def check(candidate):\n    assert"}, "row 't/7': SyntaxError"),
        ({"test": "x = 1"}, "row 't/7': ValueError: the tests must have one function check"),
        ({"entry_point": "g"}, "row 't/7': its prompt does not define 'g'"),
    ):
        with pytest.raises(ValueError, match=message):
            problem_of({**good, **wrong})
