"""Guards what the syntax tree says of a main function and its helpers: called, used, ignored, redefined, wrapped."""

from __future__ import annotations

import sys

import pytest

from llm_envs.tasks.code.collaboration import collaboration_of, is_trivial
from llm_envs.tasks.code.programs import read_program


def seen(text, helpers=("aux",)):
    return collaboration_of(read_program(text), "f", helpers)


def body(*lines):
    return "def f(x, y=0):\n" + "".join(f"    {line}\n" for line in lines)


USED = [
    ["return aux(x) + 1"],
    ["return [aux(a) for a in x]"],
    ["return list(map(aux, x))"],
    ["z = aux(x)", "return z"],
    ["z = aux(x)", "w = z + 1", "return w"],
    ["a, b = aux(x)", "return b"],
    ["z = [0]", "z[0] = aux(x)", "return z"],
    ["total = 0", "for a in x:", "    total += aux(a)", "return total"],
    ["if aux(x):", "    return 1", "return 2"],
    ["while aux(x):", "    x -= 1", "return x"],
    ["for a in aux(x):", "    y += a", "return y"],
    ["return sorted(x, key=aux)"],
    ["out = []", "out.append(aux(x))", "return out"],
    ["if (z := aux(x)) > 1:", "    return 1", "return 2"],
    ["try:", "    z = aux(x)", "except ValueError:", "    z = 0", "return z"],
    ["with held(aux(x)) as file:", "    return 1"],
    ["match aux(x):", "    case 1:", "        return 2", "return 3"],
    ["g = aux", "return g(x)"],
    ["def inner(a):", "    return aux(a)", "return inner(x)"],
    ["yield aux(x)"],
    ["assert aux(x)", "return 1"],
    ["return (lambda a: aux(a))(x)"],
]
IGNORED = [
    ["aux(x)", "return x"],
    ["z = aux(x)", "return x"],
    ["_ = aux(x)", "return x"],
    ["z = aux(x)", "z2 = z + 1", "return x"],
    ["z = aux(x)", "print(z)", "return x"],
    ["print(aux(x))", "return x"],
    ["if aux(x):", "    pass", "return x"],
    ["for a in aux(x):", "    continue", "return x"],
    ["def inner(a):", "    return aux(a)", "return x"],
    ["try:", "    aux(x)", "except Exception:", "    pass", "return x"],
]
NOT_CALLED = [
    ["return x"],
    ["return x", "return aux(x)"],  # never reached
    ["if False:", "    return aux(x)", "return x"],
    ["if True:", "    return x", "return aux(x)"],
    ["while 0:", "    x = aux(x)", "return x"],
    ["'aux(x)'", "return x"],
    ["return x.aux(1)"],
]


@pytest.mark.parametrize("lines", USED)
def test_a_result_that_can_matter(lines):
    found = seen(body(*lines))
    assert (found.called, found.used, found.ignored) == (("aux",), ("aux",), ())


@pytest.mark.parametrize("lines", IGNORED)
def test_a_result_that_goes_nowhere(lines):
    found = seen(body(*lines))
    assert (found.called, found.used, found.ignored) == (("aux",), (), ("aux",))


@pytest.mark.parametrize("lines", NOT_CALLED)
def test_a_helper_that_is_not_called(lines):
    found = seen(body(*lines))
    assert (found.called, found.used, found.ignored) == ((), (), ())


@pytest.mark.parametrize(
    "text",
    [
        "def aux(x):\n    return x\n" + body("return aux(x) + 1"),
        "aux = len\n" + body("return aux(x) + 1"),
        "from math import sqrt as aux\n" + body("return aux(x) + 1"),
        "import aux\n" + body("return aux(x) + 1"),
        "def f(aux):\n    return aux(1) + 1\n",
        body("def aux(a):", "    return a", "return aux(x) + 1"),
        body("aux = lambda a: a", "return aux(x) + 1"),
        body("for aux in x:", "    pass", "return aux(x) + 1"),
        body("return [aux(1) for aux in x]"),
        "class aux:\n    pass\n" + body("return aux() + 1"),
    ],
)
def test_an_aux_of_mains_own_is_no_collaboration(text):
    found = seen(text)
    assert (found.called, found.used, found.redefined) == ((), (), ("aux",))


def test_helpers_are_called_through_mains_own_functions():
    found = seen(
        "def g(x):\n    return aux(x) + 1\ndef h(x):\n    return aux_other(x)\n" + body("return g(x) * 2"), ("aux", "aux_other")
    )
    assert found.used == ("aux",) and not found.wrapper
    assert seen("def g(x):\n    return aux(x)\n" + body("return x + 1")).called == ()


def test_recursion_ends():
    assert seen(body("return f(x - 1) if x else aux(x)")).used == ("aux",)


def test_a_local_name_is_none_of_mains_functions():
    assert seen("def g(x):\n    return aux(x) + 1\n" + body("g = abs", "return g(x)")).called == ()


def calls_made(branches):
    """How many function calls the analysis of a chain of that length makes."""
    text = "def f(x):\n    if x == 0: h = 0\n" + "".join(f"    elif x == {i}: h = {i}\n" for i in range(1, branches))
    main = read_program(text + "    return aux(h)\n")
    assert main.problem is None
    made = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: made.append(event) if event == "call" else None)
    try:
        found = collaboration_of(main, "f", ("aux",))
    finally:
        sys.setprofile(before)
    assert found.used == ("aux",) and not found.wrapper
    return len(made)


def test_work_grows_with_the_length_of_a_chain_and_no_faster():
    assert calls_made(200) < 2.2 * calls_made(100)


def test_several_helpers():
    found = seen(body("a = aux_0(x)", "aux_1(x)", "return a"), ("aux_0", "aux_1", "aux_2"))
    assert (found.called, found.used, found.ignored) == (("aux_0", "aux_1"), ("aux_0",), ("aux_1",))


@pytest.mark.parametrize(
    ("lines", "wrapper"),
    [
        (["return aux(x)"], True),
        (["return aux(x, y)"], True),
        (["z = aux(x)", "return z"], True),
        (["'Say.'", "z = aux(x)", "w = z", "return w"], True),
        (["return sorted(aux(x))"], True),  # one operation
        (["return aux(x) + 1"], True),
        (["pass"], True),
        (["return aux_0(aux(x))"], True),  # helpers' calls are not main's work
        (["return len(aux(x)) + 1"], False),
        (["return aux(x + 1) * 2"], False),
        (["return aux(x) if x else 0"], False),
        (["return [a for a in aux(x)]"], False),
        (["if x:", "    return aux(x)", "return 0"], False),
        (["if True:", "    return aux(x)", "return 0"], True),  # a branch that is none
        (["return aux(x)", "for a in x:", "    y += a * a"], True),  # never reached
        (["return aux(x) or 0"], False),
    ],
)
def test_more_than_a_wrapper(lines, wrapper):
    assert seen(body(*lines), ("aux", "aux_0")).wrapper is wrapper


def test_without_the_entry_point_there_is_nothing():
    found = seen("def g(x):\n    return aux(x)\n")
    assert (found.called, found.used, found.redefined, found.wrapper) == ((), (), (), True)


@pytest.mark.parametrize(
    ("lines", "trivial"),
    [
        (["return 1"], True),
        (["return []"], True),
        (["return {'a': (-1, 2)}"], True),
        (["return None"], True),
        (["return x"], True),
        (["z = x + 1", "return x"], True),
        (["if x:", "    return 0", "return 0"], True),
        (["return y"], True),
        (["pass"], True),
        (["if x:", "    return True", "return False"], False),
        (["return x + 1"], False),
        (["x.sort()", "return x"], False),
        (["x[0] = 1", "return x"], False),
        (["x += 1", "return x"], False),
        (["yield 1"], False),
        (["return [x]"], False),
        (["return z"], False),
    ],
)
def test_helpers_that_do_nothing(lines, trivial):
    assert is_trivial(read_program(body(*lines)).function("f")) is trivial
