"""Guards how programs are read out of completions and joined into one: fences, prose, cut ends, imports, names."""

from __future__ import annotations

import ast
import textwrap
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.tasks.code.parsing import MOST_DEPTH
from llm_envs.tasks.code.problems import problem_of
from llm_envs.tasks.code.programs import combined, helpers_part, read_program, returns_value, unfenced
from llm_envs.tasks.code.texts import MOST_CHARACTERS

ROW = {
    "task_id": "t/0",
    "prompt": 'from typing import List\n\n\ndef half(x):\n    return x / 2\n\n\ndef f(xs: List[int], k=2):\n    """Do it."""\n',
    "entry_point": "f",
    "test": "def check(candidate):\n    assert candidate([1]) == 1\n",
}


def names(text):
    """What the program in a text defines, and whether all of it parses."""
    source = read_program(text)
    kept = []
    for node in source.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            kept += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            kept.append(ast.unparse(node))
        else:
            kept.append(getattr(node, "name", type(node).__name__))
    return kept, source.problem is None


DOCUMENTED = 'def aux(x):\n    """Give it back.\n\n    ```python\n    aux(1)\n    ```\n    """\n    return x\n'
CODE = "import math\n\ndef aux(x):\n    return math.sqrt(x)\n"


@pytest.mark.parametrize(
    ("text", "kept", "whole"),
    [
        (CODE, ["math", "aux"], True),
        (f"```python\n{CODE}```", ["math", "aux"], True),
        (f"Sure:\n```\n{CODE}```\nThat is it.", ["math", "aux"], True),
        (f"~~~py\n{CODE}~~~", ["math", "aux"], True),
        (f"```python\n{CODE}", ["math", "aux"], True),  # never closed
        (f"{CODE}```\nHope this helps!", ["math", "aux"], True),  # the prompt had opened it
        (f"```json\n[1]\n```\n```python\n{CODE}```", ["math", "aux"], True),  # another language
        ("```python\ndef g():\n    return 1\n```\nand\n```python\ndef aux(x):\n    return g()\n```", ["g", "aux"], True),
        (CODE.replace("\n", "\r\n"), ["math", "aux"], True),
        (f"Here is the function.\n{CODE}", ["math", "aux"], False),
        (f"from what I see:\n{CODE}", ["math", "aux"], False),  # starts like an import
        (f"{CODE}\nThis takes a root.", ["math", "aux"], False),
        (f"{CODE}\ndef more(x):\n    y = (x +", ["math", "aux"], False),  # cut off: that function goes
        (f"{CODE}\ndef more(x):\n    '''cut", ["math", "aux"], False),
        ("def aux(x):\n    return x +\n", [], False),
        ("@cache\ndef aux(x):\n    return x\n", ["aux"], True),
        ("async def aux(x):\n    return x\n", ["aux"], True),
        ("LIMIT = 3\nTABLE: dict = {}\nclass C:\n    pass\n", ["LIMIT = 3", "TABLE: dict = {}", "C"], True),
        # What only runs is left out, tests and exits too.
        ("try:\n    import math as M\nexcept ImportError:\n    M = None\n", ["Try"], True),
        ("import sys\nif sys.version_info > (3,):\n    Z = 0\nelse:\n    Z = 1\n", ["sys", "If"], True),
        ("Z = 1\nZ -= 1\n", ["Z = 1", "AugAssign"], True),
        ("T = {}\nfor i in range(3):\n    T[i] = i\nwhile not T:\n    T.pop()\n", ["T = {}", "For", "While"], True),
        ("with suppress(ImportError):\n    import fast\n", ["With"], True),
        (f"{CODE}\nprint(aux(2))\nassert aux(4) == 2\nfor i in range(3):\n    aux(i)\nexit()\n", ["math", "aux"], True),
        (f"{CODE}\nif __name__ == '__main__':\n    aux(1)\n", ["math", "aux"], True),
        ("    return x * 2\n", [], False),  # a body alone is no function
        ("", [], True),
        ("word " * 400, [], False),
        ("\x00", [], True),
        ("x = 1\x00 + 1\n", [], False),
        (f"\ufeff{CODE}", ["math", "aux"], True),
        (f"\ufeff```python\n\ufeff{CODE}```", ["math", "aux"], True),
        (CODE.replace("    ", "\xa0\xa0\xa0\xa0"), ["math", "aux"], True),
        (CODE + "\x00\x00", ["math", "aux"], True),
        (CODE + "s = \u201cx\u201d\n", ["math", "aux", "s = 'x'"], True),
        ("s = '\u201c'\n", ["s = '\u201c'"], True),  # where they do no harm they stay
        (f"Here is the code:\n```\n{CODE}", ["math", "aux"], True),
        (f"Here is the code, def first:\n```\n{CODE}", ["math", "aux"], True),
        (f"{CODE}```\nUse it so:\ndef main(): ...\n", ["math", "aux"], True),
        (textwrap.indent(CODE, "   "), ["math", "aux"], True),
        (f"1. So:\n\n   ```python\n{textwrap.indent(CODE, '   ')}   ```\n", ["math", "aux"], True),
        (DOCUMENTED, ["aux"], True),
        (f"So:\n```python\n{DOCUMENTED}```\nThat is it.", ["aux"], True),
        ("(" * 5000, [], False),
        ("-" * 100_000 + "1", [], False),
        ("x = " + "+".join(["1"] * 20_000), [], False),
        ("def f():\n" * 200, [], False),
    ],
)
def test_what_is_read(text, kept, whole):
    assert names(text) == (kept, whole)


def test_of_a_long_program_the_beginning_is_read():
    text = "x = 1\n" * (MOST_CHARACTERS // 6)
    assert read_program(text).problem is None
    longer = read_program(text + "y = 1\n" * 6)
    assert ast.unparse(longer.body[-1]) == "x = 1" and f"of which {MOST_CHARACTERS} are read" in str(longer.problem)


def test_long_prose_after_code_costs_the_level_alone():
    source = read_program(CODE + "\nThis takes a root, as one doesn't say.\n" * 2000)
    assert source.function("aux") is not None and f"of which {MOST_CHARACTERS} are read" in str(source.problem)


def test_what_is_nested_too_deep_is_left_out():
    deep = "def g(x):\n    return " + "-" * (MOST_DEPTH + 1) + "x\n"
    source = read_program(CODE + deep)
    assert source.problem == f"line 6: nested more than {MOST_DEPTH} levels deep" and list(source.functions) == ["aux"]
    chain = (
        "def g(x):\n    if x == 0: y = 0\n" + "".join(f"    elif x == {i}: y = {i}\n" for i in range(MOST_DEPTH)) + "    return y\n"
    )
    assert read_program(chain).problem is None  # next to each other


def test_a_problem_names_line_and_column():
    assert read_program("def aux(x):\n    return x\nthis goes wrong\n").problem == "line 3, column 6: invalid syntax"


def test_doubtful_escapes_are_no_problem_whatever_the_filters():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = read_program("def aux(x):\n    return '\\d'\n")
    assert source.problem is None and source.function("aux") is not None


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(["def f(x):", "    return x", "```", "text", "import a", ")", '"""'])).map("\n".join)
)
def test_any_text_can_be_read(text):
    """And what is kept is a program again."""
    body = read_program(text).body
    ast.parse("\n".join(ast.unparse(node) for node in body))
    assert unfenced(text).count("\n") <= text.count("\n") + text.count("\r")


@pytest.mark.parametrize(
    ("body", "returns"),
    [
        ("return x", True),
        ("yield x", True),
        ("if x:\n        return 1", True),
        ("pass", False),
        ("return", False),
        ("print(x)", False),
        ("def inner():\n        return 1", False),
        ("y = lambda: 1", False),
    ],
)
def test_returning_something(body, returns):
    assert returns_value(read_program(f"def aux(x):\n    {body}\n").function("aux")) is returns


def test_the_last_definition_counts():
    assert ast.unparse(read_program("def aux():\n    return 1\ndef aux():\n    return 2\n").function("aux")).endswith("return 2")


def program(*texts, names=("aux",)):
    *helpers, main = map(read_program, texts)
    parts = [helpers_part(one, {"f", *names} - {name}) for name, one in zip(names, helpers, strict=True)]
    return combined(problem_of(ROW), parts, main)


def run(code):
    namespace = {}
    exec(compile(code, "program", "exec"), namespace)
    return namespace


def test_one_program_with_imports_and_helpers_of_everybody():
    aux = "from math import prod\ndef twice(x):\n    return 2 * x\ndef aux(xs):\n    return twice(prod(xs))\n"
    main = "import statistics\nK = 10\ndef f(xs, k=2):\n    return half(aux(xs)) + statistics.mean(xs) * K\n"
    code = program(aux, main)
    assert run(code)["f"]([2, 4]) == 8 + 30
    assert code.index("from typing import List") < code.index("def half") < code.index("def aux") < code.index("def f")


def test_imports_from_the_future_come_first():
    assert program(
        "def aux():\n    return 1\n", "from __future__ import annotations\ndef f(x: Undefined):\n    return aux()\n"
    ).startswith("from __future__")


def test_nobody_writes_anothers_function():
    first = "def aux_0():\n    return 1\ndef aux_1():\n    return 'of aux_0'\ndef f():\n    return 'of aux_0'\n"
    second = "def aux_1():\n    return 2\ndef aux_0():\n    return 'of aux_1'\n"
    main = "def f():\n    return aux_0(), aux_1()\n"
    assert run(program(first, second, main, names=("aux_0", "aux_1")))["f"]() == (1, 2)
    assert "def f" not in program(first, second, "", names=("aux_0", "aux_1"))


@pytest.mark.parametrize(
    "attack",
    [
        "{} = lambda *a: 9",
        "class {}:\n    pass",
        "{} = 0\n{} += 1",
        "from math import sqrt as {}",
        "for {} in [abs]:\n    pass",
        "with open('x') as {}:\n    pass",
        "x = [({} := abs) for _ in [1]]",
        "del {}",
        "def set_it():\n    global {}\n    {} = abs\nx = set_it()",
        "{}.__code__ = (lambda *a: 9).__code__",
        "if True:\n    def {}(*a):\n        return 9",
        "try:\n    {} = abs\nexcept ValueError:\n    pass",
    ],
)
@pytest.mark.parametrize("name", ["aux_0", "f"])
def test_nobody_binds_anothers_function(attack, name):
    """In whatever way; the rest of the text stays."""
    second = attack.replace("{}", name) + "\nK = 5\ndef aux_1():\n    f = aux_0 = 2\n    return f\n"
    code = program("def aux_0():\n    return 1\n", second, "def f():\n    return aux_0(), aux_1(), K\n", names=("aux_0", "aux_1"))
    code = code.replace("x = set_it()\n", "")  # calls what is left out
    assert run(code)["f"]() == (1, 2, 5)


def test_main_may_define_a_helper_again():
    """It holds then, as in any module; collaboration does not count it."""
    assert run(program("def aux():\n    return 1\n", "def aux():\n    return 2\ndef f():\n    return aux()\n"))["f"]() == 2
