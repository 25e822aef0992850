"""Guards what is read out of completions for classeval-v0, how methods are divided, and the class that answers make."""

from __future__ import annotations

import ast
import textwrap
import warnings

import pytest
from class_rows import ADD, IS_EVEN, LARGER, REST, SKELETON, SOLUTION, TALLY
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.tasks.classeval.answers import merged, read_answer
from llm_envs.tasks.classeval.classes import ClassProblem, Method, class_of, is_stub, readable_skeleton
from llm_envs.tasks.classeval.dividing import divide
from llm_envs.tasks.classeval.examples import examples_of

INDENTED = textwrap.indent(ADD, "    ")
# The first line lost its indentation.
LOST = f"def add(self, more):\n        return more\n\n{textwrap.indent(IS_EVEN, '    ')}"
CLASS = f"class Tally:\n    def __init__(self):\n        self.n = 5\n\n{INDENTED}\n{textwrap.indent(IS_EVEN, '    ')}"


def names(text):
    return sorted(read_answer(text, "Tally").methods)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ADD, ["add"]),
        (f"{ADD}\n{IS_EVEN}", ["add", "is_even"]),
        (f"```python\n{ADD}```", ["add"]),
        (f"Here is my method:\n```\n{ADD}```\nIt adds.", ["add"]),
        (f"Here is my method:\n\n{ADD}\nIt adds.", ["add"]),  # no fences
        (f"{INDENTED}\n{textwrap.indent(IS_EVEN, '    ')}", ["add", "is_even"]),
        (f"{ADD}\n{textwrap.indent(IS_EVEN, '    ')}", ["add"]),  # Python takes the second one for a function in the first
        (LOST, ["add", "is_even"]),
        (CLASS, ["__init__", "add", "is_even"]),
        (CLASS.replace("class Tally", "class Other"), []),
        (f"{ADD}\ndef broken(self:\n    return 1\n\n{IS_EVEN}", ["add", "is_even"]),  # one that does not parse costs itself alone
        (f"{ADD}\ndef is_even(self):\n    return self.n %", ["add"]),  # cut off
        ("def add(\n    self,\n    more,\n):\n    return 1\n\nand so on\n", ["add"]),
        ("def add(self, more): return 1\nnot python\ndef is_even(self): return 2\n", ["add", "is_even"]),
        ("def add(self, more):\n    return \u201csum\u201d\n", ["add"]),
        ("async def add(self, more):\n    return 1\n", ["add"]),
        ("def add(self, more):\n    await more\n", []),  # parses, but cannot be compiled
        (f"\ufeff{ADD}", ["add"]),
        (ADD.replace("    ", "\xa0\xa0\xa0\xa0"), ["add"]),
        (f"{ADD}\x00", ["add"]),
        (f"Here are my methods:\n```\n{ADD}", ["add"]),
        (f"1. So:\n   ```python\n{textwrap.indent(ADD, '   ')}   ```", ["add"]),
        (ADD + "\nIt doesn't do more.\n" * 3000, ["add"]),
        (f"{ADD}\nThe end\n\ndef is_even(self):\n    return \u201cno\u201d\n", ["add", "is_even"]),
        ("add = 3", []),
        ("", []),
        ("\x00", []),
        ("def add(self, more):\n    return " + "(" * 500, []),
    ],
)
def test_methods_of_a_text(text, expected):
    assert names(text) == expected


def test_of_two_definitions_the_later_one_holds():
    again = "def add(self, more):\n    return 7\n"
    assert ast.unparse(read_answer(ADD + again, "Tally").methods["add"]).endswith("return 7")
    broken = "def add(self, more):\n    await more\n"
    answer = read_answer(ADD + broken, "Tally")
    assert answer.methods == {} and answer.broken == {"add": "'await' outside async function"}
    answer = read_answer(broken + ADD, "Tally")
    assert list(answer.methods) == ["add"] and answer.broken == {}


@pytest.mark.parametrize(
    ("default", "kept"),
    [
        ("None", True),
        ("-1", True),
        ("60 * 60", True),
        ("'x'", True),
        ("()", True),
        ("[1, {'a': (2,)}]", True),
        ("math.pi", True),
        ("LIMIT", True),
        ("print(1)", False),
        ("[print(1)]", False),
        ("(lambda: 1)", False),
        ("[x for x in 'ab']", False),
        ("(x := 1)", False),
        ("f'{print(1)}'", False),
        ("hook[0]", False),
        ("1 if LIMIT else 2", False),
    ],
)
def test_defaults_that_would_run_while_the_class_is_made(default, kept):
    for text in (f"def add(self, more={default}):\n    return 1\n", f"def add(self, *, more={default}):\n    return 1\n"):
        answer = read_answer(text, "Tally")
        assert list(answer.methods) == (["add"] if kept else [])
        assert kept or answer.broken["add"].endswith("is more than a literal or a name")


def test_typographic_quotes_stay_where_they_do_no_harm():
    text = "def add(self, more):\n    return '\u201c'\n"
    assert "\u201c" in ast.unparse(read_answer(text, "Tally").methods["add"])


def test_what_does_not_parse_is_told():
    assert read_answer(f"{ADD}x = (", "Tally").problem.startswith("line 4, column 5: '(' was never closed")
    assert read_answer(ADD, "Tally").problem is None


def test_no_warning_comes_from_a_text():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names("def add(self, more):\n    return '\\d' is more or 1 is 1\n") == ["add"]


PARTS = [ADD, IS_EVEN, "def add(", "```", "    ", "\n", "class Tally:\n", "@x\n", '"""', "text\n", "\u201c"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=8))
def test_any_text_is_read(parts):
    answer = read_answer("".join(parts), "Tally")
    assert set(answer.methods) <= {"add", "is_even"} and not set(answer.methods) & set(answer.broken)


@pytest.mark.parametrize(
    ("body", "stub"),
    [
        ("pass", True),
        ("...", True),
        ("'''Adds.'''", True),
        ("'''Adds.'''\n    pass\n    return", True),
        ("return None", True),
        ("raise NotImplementedError", True),
        ("raise NotImplementedError('later')", True),
        ("return 0", False),
        ("raise ValueError", False),
        ("'''Adds.'''\n    self.n = 1", False),
    ],
)
def test_stubs(body, stub):
    (function,) = ast.parse(f"def add(self, more):\n    {body}\n").body
    assert is_stub(function) == stub


def program(*texts, shares=(("add",), ("larger", "is_even"))):
    return merged(class_of(TALLY), shares, [read_answer(text, "Tally") for text in texts])


def test_the_class_of_all_answers():
    """Bodies of the owners, decorators of the skeleton, everything else as it was."""
    tree = ast.parse(program(ADD, f"@property\n{REST}"))
    (class_,) = tree.body
    methods = {node.name: node for node in class_.body if isinstance(node, ast.FunctionDef)}
    assert list(methods) == ["__init__", "add", "larger", "is_even"]
    assert [ast.unparse(one) for one in methods["larger"].decorator_list] == ["staticmethod"]
    assert methods["is_even"].decorator_list == []
    assert ast.unparse(methods["add"]) == ADD.strip() and ast.unparse(methods["__init__"]).endswith("self.n = 0")


def test_methods_of_others_are_not_taken():
    alone = program(ADD, "")
    assert alone == program(ADD, ADD.replace("more\n", "more + 1\n"))
    assert alone == program(f"{ADD}{REST}", "def other(self):\n    return 1\n")
    assert "self.n = 5" not in program(CLASS, "")  # the constructor is the skeleton's
    assert program("", "") == ast.unparse(ast.parse(SKELETON))


def test_imports_of_answers_stand_before_the_class():
    text = program(f"from __future__ import annotations\nimport math\n{ADD}", f"import re\n{REST}")
    assert text.split("\n")[:4] == ["from __future__ import annotations", "import math", "import re", "class Tally:"]


def test_annotations_cannot_keep_a_class_from_loading():
    text = program("def add(self: Tally, *more: List[int], **rest: Any) -> Missing:\n    x: Unknown = 1\n    return x\n", "")
    assert "def add(self, *more, **rest):\n        x: Unknown = 1" in text


def test_async_is_the_skeletons():
    row = {**TALLY, "skeleton": SKELETON.replace("def is_even", "async def is_even")}
    text = merged(class_of(row), (("is_even",),), [read_answer(IS_EVEN, "Tally")])
    assert "async def is_even(self):\n        return" in text
    text = merged(class_of(TALLY), (("add",),), [read_answer(f"async {ADD}", "Tally")])
    assert "async" not in text


# ---- skeletons ----


def test_skeletons_that_stand_in_quotes_or_have_other_ones():
    assert readable_skeleton("'''\n# A tally.\nclass Tally:\n    pass\n'''") == "# A tally.\nclass Tally:\n    pass\n"
    odd = "class Tally:\n    \u201d\u201c\u201dCounts.\u201d\u201c\u201d\n"
    assert readable_skeleton(odd) == 'class Tally:\n    """Counts."""\n'
    kept = "class Tally:\n    '''\u201cCounts\u201d'''\n"
    assert readable_skeleton(kept) == kept
    with pytest.raises(ValueError, match="its skeleton does not parse: line 2, column 5"):
        readable_skeleton('class Tally:\n    """Counts.\n')


def test_imports_that_only_the_row_names():
    lacking = readable_skeleton("import re\nclass Tally:\n    pass\n", ["import re", "from math import pi"])
    assert lacking == "from math import pi\n\nimport re\nclass Tally:\n    pass\n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"class_name": "Other"}, "its skeleton does not define the class 'Other'"),
        ({"methods_info": [{"method_name": "sub"}]}, "its methods_info names 'sub', which the class Tally of its skeleton lacks"),
        ({"methods_info": []}, "its methods_info names no method"),
        ({"methods_info": [{"method_name": "__init__"}]}, "its skeleton has a body of '__init__' already"),
        ({"test": "import unittest"}, "its test has no test methods"),
        ({"test": "class ("}, "its test does not parse: line 1, column 7"),
    ],
)
def test_rows_that_cannot_be_read(change, said):
    with pytest.raises(ValueError, match=rf"row 't/tally': .*{said}"):
        class_of({**TALLY, **change})


def test_examples_of_docstrings():
    """Expressions with a literal below, each after what stands before it."""
    assert [(one.method, one.before, one.expression, one.expected) for one in examples_of(class_of(TALLY))] == [
        ("add", "tally = Tally()", "tally.add(2)", "2"),
        ("add", "tally = Tally()\ntally.add(2)", "tally.add(3)", "5"),
        ("larger", "", "Tally.larger(1, 4)", "4"),
    ]


def test_examples_that_cannot_be_checked():
    lines = [">>> x = Tally()", "5", ">>> x", "<Tally>", ">>> x.add(1) +", ">>> x.add(1)", "1"]
    docstring = "\n        ".join(lines)
    row = {**TALLY, "skeleton": SKELETON.replace("Whether the count is even.", docstring)}
    assert [one.method for one in examples_of(class_of(row))] == ["add", "add", "larger"]
    row = {**TALLY, "skeleton": SKELETON.replace("Whether the count is even.", ">>>x.add(1)")}
    assert len(examples_of(class_of(row))) == 3


# ---- dividing ----


def problem_of(lengths):
    methods = tuple(Method(f"m{number}", "self", "", length) for number, length in enumerate(lengths))
    return ClassProblem("t/sizes", "Sizes", "", methods, "", "", "")


def test_dividing_by_hand():
    """9 goes to a and 8 to b; each has one, b has less text: 7 to b; then a has fewer: 1 to a."""
    assert divide(problem_of([9, 8, 7, 1]), 2) == (("m0", "m3"), ("m1", "m2"))
    assert divide(problem_of([1, 1, 1]), 2) == (("m0", "m2"), ("m1",))
    assert divide(problem_of([5]), 1) == (("m0",),)
    assert divide(class_of(TALLY), 2) == (("add",), ("larger", "is_even"))
    with pytest.raises(ValueError, match="row 't/sizes': 3 agents cannot share 2 methods"):
        divide(problem_of([1, 2]), 3)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(1, 12))
def test_nobody_is_idle(lengths, agents):
    if agents > len(lengths):
        return
    problem = problem_of(lengths)
    shares = divide(problem, agents)
    assert sorted(name for share in shares for name in share) == sorted(method.name for method in problem.methods)
    sizes = [len(share) for share in shares]
    assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1 and shares == divide(problem, agents)
    order = [method.name for method in problem.methods]
    assert all(list(share) == sorted(share, key=order.index) for share in shares)


def test_the_small_row_is_as_its_tests_take_it():
    assert class_of(TALLY).solution == SOLUTION and LARGER in REST
