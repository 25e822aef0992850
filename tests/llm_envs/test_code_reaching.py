"""Guards that no agent's text puts a function in the place of another's while the program runs, and that honest texts are free."""

from __future__ import annotations

import ast

import pytest
from code_rows import AUX, MAIN, env_of, play

from llm_envs.tasks.code.programs import read_program
from llm_envs.tasks.code.reaching import Ways

WRONG = "def f(x):\n    y = aux(x)\n    return y - 99 if y else 0\n"
REAL = "def real(x):\n    return x + 1\n"
CHANGES = "setattr({}, '__code__', real.__code__)"


def aux(body, before=""):
    return f"{before}{REAL}def aux(x):\n    {body}\n    return x + 0\n"


TAKEOVERS = {
    "frame of the caller": aux("sys._getframe(1).f_globals['f'].__code__ = real.__code__", "import sys\n"),
    "under another name": aux("frame(1).f_globals['f'].__code__ = real.__code__", "from sys import _getframe as frame\n"),
    "names of the module": aux(CHANGES.format("globals()['f']")),
    "names of a function": aux(CHANGES.format("aux.__globals__['f']")),
    "names of a pattern": aux("match aux:\n        case object(__globals__=names): names['abs'] = real"),
    "modules": aux(CHANGES.format("vars(sys.modules['solution'])['f']"), "import sys\n"),
    "a module's module": aux(CHANGES.format("typing.sys.modules['solution'].f"), "import typing\n"),
    "imports": aux(CHANGES.format("solution.f"), "import solution\n"),
    "gc": aux(
        "for o in gc.get_objects():\n        if getattr(o, '__name__', '') == 'f':\n            " + CHANGES.format("o"),
        "import gc\n",
    ),
    "settrace": "import sys\ndef local(frame, event, arg):\n"
    "    if 'y' in frame.f_locals: frame.f_locals['y'] = frame.f_locals['x'] + 100\n    return local\n"
    "X = sys.settrace(lambda frame, event, arg: local if frame.f_code.co_name == 'f' else None)\n" + AUX,
    "setprofile": f"import sys\n{REAL}def seen(frame, event, arg):\n"
    f"    if frame.f_code.co_name == 'f': {CHANGES.format('frame.f_globals[chr(102)]')}\nX = sys.setprofile(seen)\n{AUX}",
    "a thread": f"import threading\n{REAL}def late():\n    while 'f' not in globals(): pass\n"
    f"    {CHANGES.format('globals()[chr(102)]')}\n"
    f"T = threading.Thread(target=late, daemon=True)\nX = T.start()\n{AUX}",
    "a traceback": aux(
        "try:\n        1 / 0\n    except ZeroDivisionError as e:\n        "
        + CHANGES.format("e.__traceback__.tb_frame.f_back.f_globals['f']")
    ),
    "a generator": aux("def g():\n        yield made.gi_frame.f_back.f_globals\n    made = g()\n    next(made)['abs'] = real"),
    "exec": aux("exec('f.__code__ = real.__code__', globals())"),
    "eval": aux(f"eval({CHANGES.format('f')!r})"),
    "eval of pieces": aux("eval('set' + 'attr(f, chr(95) * 2 + \"code\" + chr(95) * 2, real.__co' + 'de__)')"),
    "getattr": aux("getattr(f, '__set' + 'attr__')('__code__', getattr(real, '__co' + 'de__'))"),
    "getattr handed on": aux("list(map(getattr, [f], ['__code__']))\n    g = f\n    g.__code__ = real.__code__"),
    "attrgetter": aux("attrgetter('__setattr__')(f)('__code__', real.__code__)", "from operator import attrgetter\n"),
    "mock": aux("mock.patch.object(solution.f, '__code__', real.__code__).start()", "from unittest import mock\nimport solution\n"),
    "the function by its name": aux("g = f\n    g.__code__ = real.__code__"),
    "a builtin": "def abs(x):\n    return x + 1\n" + AUX,
    "a builtin of all": aux("builtins.abs = lambda x: x + 1", "import builtins\n"),
    "a function of a library": aux("math.floor = lambda x: x + 1", "import math\n"),
    "members of an enum": "import enum\n@enum.global_enum\nclass K(enum.Enum):\n    abs = 1\n"
    "    def __call__(self, x):\n        return x + 1\n" + AUX,
}
BUILTIN = "def f(x):\n    y = aux(x)\n    return abs(x) if y else abs(0)\n"
MAINS = {
    **dict.fromkeys(("a builtin", "a builtin of all", "names of a pattern", "a generator", "members of an enum"), BUILTIN),
    "a function of a library": "import math\ndef f(x):\n    y = aux(x)\n    return math.floor(x) if x + y else math.floor(x)\n",
}


@pytest.mark.parametrize("name", TAKEOVERS)
def test_a_helper_does_not_do_mains_work(name):
    """Main is wrong. Whatever the helper does to it, the team earns no more than for two functions that are there."""
    (reward,), (found,), _ = play(env_of(), [TAKEOVERS[name], MAINS.get(name, WRONG)])
    assert reward <= 0.3 + 1e-9 and found["collaboration"] == 0.0


def test_the_rest_of_a_helpers_text_stays():
    text = f"import threading\nimport sys\nX = sys.settrace(None)\nLIMIT = sys.maxsize\n{AUX}"
    (reward,), _, _ = play(env_of(), [text, MAIN])
    assert reward == 4.0


@pytest.mark.parametrize(
    "reaching",
    [
        "globals()['aux'] = g",
        "import sys\nsys.modules['solution'].aux = g",
        "exec('aux = g')",
        "setattr(aux, '__code__', g.__code__)",
    ],
)
def test_a_main_program_that_reaches_a_helper_does_not_work_with_it(reaching):
    main = f"def g(x):\n    return x + 1\n{MAIN}if g:\n    " + reaching.replace("\n", "\n    ") + "\n    Z = 1\n"
    (reward,), (found,), _ = play(env_of(), ["def aux(x):\n    return -x\n", main])
    assert found["collaboration"] == 0.0 and found["penalty"] == 0.0 and reward <= 2.5


@pytest.mark.parametrize(
    "text",
    [
        "import sys, math as m\nfrom collections import Counter, defaultdict\nX = sys.maxsize\nY = -sys.maxsize - 1\nY = m.inf",
        "from functools import lru_cache\n@lru_cache(maxsize=None)\ndef aux(x):\n    return x",
        "import collections.abc\nfrom typing import *\nZ = collections.abc.Mapping",
        "class P:\n    __slots__ = ('_x',)\n    def __init__(self, x):\n        super().__init__()\n        self._x = x\n"
        "    def __lt__(self, other):\n        return self._x < other._x\n"
        "    def __repr__(self):\n        return self.__class__.__name__",
        "class Node:\n    def add(self, node):\n        self.next = node\n        node.last = self\n        self._select = 1",
        "def aux(x):\n    aux.calls = 1\n    return eval(x) + getattr(x, 'real', 0) + hasattr(x, '__len__')",
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef aux(x):\n    return P(1, 2)._replace(x=x)._asdict()",
        "import numpy as np\ndef aux(x):\n    return np.linalg.norm(np.array(x)) + np.select([x], [x]) + np.random.rand()",
        "def aux(x):\n    try:\n        return int(x)\n    except ValueError as e:\n        return str(e.args)",
        "def aux(x):\n    os = [sys for sys in x]\n    return [code for code in os]",
        "import datetime\ndef aux(x):\n    return datetime.datetime.strptime(x, '%d').date().replace(day=1)",
        "def aux(x):\n    print(x)\n    return dict.fromkeys(x), type(x)(), sorted(x, key=lambda y: y.__len__())",
        "def aux(x):\n    match x:\n        case int(real=r): return r\n        case {'a': y}: return y",
    ],
)
def test_what_programs_need_is_harmless(text):
    body = read_program(text).body
    assert body and [Ways(body).reaching(node) for node in body] == [None] * len(body)


@pytest.mark.parametrize(
    "statement",
    [
        *(
            "import os",
            "import numpy.testing",
            "from sys import *",
            "from sys import modules",
            "from . import x",
            "import os.path as math",
        ),
        *("from collections import _sys", "from typing import get_type_hints", "import unknown", "from enum import sys"),
        *("open('x')", "vars(x)", "locals()", "breakpoint()", "eval", "eval('x', {})", "eval(*x)", "getattr", "getattr(x, y)"),
        *("getattr(x, '__globals__')", "__builtins__", "__import__('os')", "os.system", "gc", "x = sys", "f(math)", "math._x"),
        *(
            "x.__dict__",
            "x._sys",
            "x.f_back",
            "x.__class__.go = 1",
            "type(x).go = 1",
            "del math.sqrt",
            "math.pi += 1",
            "Counter.go = 1",
        ),
        *("unknown.go = 1", "class K:\n    __match_args__ = ('__globals__',)", "string.Formatter", "import sys as s\ns.path"),
        *(
            "import threading\nthreading.x",
            "def f():\n    import gc",
            "lambda: exec",
            "f'{x.__globals__}'",
            "[y.__code__ for y in x]",
        ),
    ],
)
def test_what_leads_to_others_functions_is_found(statement):
    body = ast.parse(f"import math\nfrom collections import Counter\nimport string\n{statement}").body
    ways = Ways(body)
    assert any(ways.reaching(node) for node in body)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("'1+2*3'", 7), ("' 2 ** 3'", 8), ("'max(x, 4)'", 4), ("'[y for y in (x, 2)]'", [1, 2]), ("b'1'", 1)],
)
def test_a_helper_may_have_values_computed_from_texts(expression, value):
    env = env_of()
    main = f"def f(x):\n    y = aux(1)\n    return x + 1 if y == {value!r} else 0\n"
    (reward,), _, _ = play(
        env, [f"class K:\n    def go(self, x):\n        return eval({expression})\ndef aux(x):\n    return K().go(x)\n", main]
    )
    assert reward == 4.0


def test_agents_are_told():
    env = env_of(num_turns=2)
    _, _, state = play(env, [TAKEOVERS["settrace"], MAIN.replace("return", "globals()\n    return")])
    told = state.observations
    assert "left out of the text for `aux` is what binds or uses `frame.f_locals` and `sys.settrace`" in told["aux_0"]
    assert "collaboration: none, since the text for `f` uses `globals`" in told["main_0"]
