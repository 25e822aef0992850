"""Guards what classes earn: levels by hand, the skeleton's share taken off, turns, and answers that cheat."""

from __future__ import annotations

import pickle

import pytest
from class_rows import ADD, IS_EVEN, LARGER, REST, TALLY, env_of, play

from llm_envs.tasks.classeval.levels import Judge


def terms(env, *texts):
    return play(env, texts)[1][0]


def test_everything_right_earns_the_most(tmp_path):
    env = env_of(tmp_path)
    assert terms(env, ADD, REST) == {"methods": 2.0, "tests": 4.0, "overlap": 0.0, "passed": 1.0, "solved": 1.0}
    assert play(env, [ADD, REST])[0] == [6.0]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Nothing: the skeleton passes one test of six, which earns nothing.
        ("", "", {"methods": 0.0, "tests": 0.0, "overlap": 0.0, "passed": 1 / 6, "solved": 0.0}),
        # Two of the three methods, and the two tests of add fail: (4 − 1) / (6 − 1) = 0.6; form 0.2 + 0.8 · 0.6 = 0.68.
        ("", REST, {"methods": 2 * 2 / 3 * 0.68, "tests": 4 * 0.6, "passed": 4 / 6, "solved": 0.0}),
        # Stubs are no methods.
        ("def add(self, more):\n    pass\n", REST, {"methods": 2 * 2 / 3 * 0.68, "tests": 2.4}),
        ("def add(self, more):\n    raise NotImplementedError()\n", "", {"methods": 0.0, "tests": 0.0}),
        # A method that passes nothing is paid a fifth: 2 · 1/3 · 0.2.
        ("def add(self, more):\n    return 'no'\n", "", {"methods": 2 / 15, "tests": 0.0, "passed": 1 / 6}),
        # Others' methods: not taken, and each costs a third. Those of the second one are enough here.
        (f"{ADD}{IS_EVEN}", REST, {"methods": 2.0, "tests": 4.0, "overlap": -1 / 3, "solved": 1.0}),
        (f"{ADD}{REST}", f"{ADD}{REST}", {"methods": 2.0, "tests": 4.0, "overlap": -1.0, "solved": 1.0}),
        ("", f"{ADD}{REST}", {"tests": 2.4, "overlap": -1 / 3}),
        (REST, ADD, {"methods": 0.0, "tests": 0.0, "overlap": -1.0}),
        # Others' stubs cost nothing: the whole class was written down, with one's own methods filled in.
        (f"{ADD}\ndef is_even(self):\n    'Not mine.'\n", REST, {"methods": 2.0, "overlap": 0.0}),
    ],
)
def test_levels_by_hand(tmp_path, first, second, expected):
    found = terms(env_of(tmp_path), first, second)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_what_the_skeleton_passes_and_the_class_breaks_counts_against_it(tmp_path):
    """As many pass as if one of the others had failed: (5 − 1) / 5."""
    breaking = (
        "def is_even(self):\n    even = self.n % 2 == 0\n"
        "    if self.n == 77: Tally.n = property(lambda self: 4, lambda self, n: None)\n    return even\n"
    )
    found = terms(env_of(tmp_path), ADD, LARGER + breaking)
    assert found["passed"] == 5 / 6 and found["tests"] == pytest.approx(4 * 0.8)


TAKEOVERS = (
    "type(self).is_even = lambda s: s.n % 2 == 0\n    type(self).larger = staticmethod(max)",
    "Tally.is_even = lambda s: s.n % 2 == 0\n    Tally.larger = staticmethod(max)",
    "K = self.__class__\n    K.is_even, K.larger = (lambda s: s.n % 2 == 0), staticmethod(max)",
    "setattr(type(self), 'is_even', lambda s: s.n % 2 == 0)\n    setattr(type(self), 'larger', staticmethod(max))",
    "def even(s): return s.n % 2 == 0\n    def large(one, two): return max(one, two)\n"
    "    K = type(self)\n    K.is_even.__code__, K.larger.__code__ = even.__code__, large.__code__",
    'eval(\'[setattr(K, m, f) for K in (type(self),) for m, f in (("larger", staticmethod(max)),'
    ' ("is_even", lambda s: s.n % 2 == 0))]\', {**locals(), **globals()})',
)


@pytest.mark.parametrize("takeover", TAKEOVERS)
def test_nobody_does_anothers_work_while_the_class_is_at_work(tmp_path, takeover):
    """Without a check of what methods reach, these earn 6: `add` runs first and puts right what another got wrong."""
    wrong = "def larger(one, two):\n    return one - two\n\ndef is_even(self):\n    return 'even' + str(self)\n"
    found = terms(env_of(tmp_path), ADD.replace("self.n +=", f"{takeover}\n    self.n +="), wrong)
    assert found["tests"] < 4 * 2 / 5 + 1e-9 and found["solved"] == 0.0


def test_a_method_may_compute_from_texts(tmp_path):
    add = "def add(self, more):\n    self.n = eval(str(self.n) + '+' + str(more))\n    return self.n\n"
    assert play(env_of(tmp_path), [add, REST])[0] == [6.0]
    _, (found,), _ = play(env_of(tmp_path), [add.replace("str(more)", "str(more) + '+0 .real'"), REST])
    assert found["tests"] == pytest.approx(4 * 3 / 5)


def test_the_lowest_reward(tmp_path):
    assert play(env_of(tmp_path), [REST, ADD])[0] == [-1.0]
    assert Judge(2, 1, env_of(tmp_path).task.reward.function.limits).reward_range == (-1.0, 6.0)


def test_a_class_that_cannot_be_loaded(tmp_path):
    assert terms(env_of(tmp_path), ADD, f"import missing_module\n{REST}") == pytest.approx(
        {"methods": 0.4, "tests": 0.0, "overlap": 0.0, "passed": 0.0, "solved": 0.0}
    )


@pytest.mark.parametrize(("agents", "texts"), [(1, [f"{ADD}{REST}"]), (3, [ADD, LARGER, IS_EVEN])])
def test_other_numbers_of_agents(tmp_path, agents, texts):
    env = env_of(tmp_path, agents=agents)
    assert env.possible_agents == [f"coder_{number}" for number in range(agents)]
    assert play(env, texts)[0] == [6.0]


def test_turns(tmp_path):
    """Each of two turns counts half; a solution ends the episode and is paid for the turn it saves."""
    env = env_of(tmp_path, num_turns=2)
    rewards, found, state = play(env, ["", REST], [ADD, REST])
    assert rewards == pytest.approx([(2 * 2 / 3 * 0.68 + 2.4) / 2, 3.0]) and state.terminated
    assert found[0]["passed"] == 4 / 6 and found[1]["solved"] == 1.0  # logged as they are
    rewards, _, state = play(env, [ADD, REST])
    assert rewards == [6.0] and state.terminated


def test_a_row_with_nothing_to_earn(tmp_path):
    head, rest = TALLY["test"].split("class TallyTestAdd")
    test = head + "class TallyTestStart" + rest.partition("class TallyTestStart")[2]
    with pytest.raises(Exception, match="row 't/tally': its skeleton passes all 1 tests") as caught:
        play(env_of(tmp_path, {**TALLY, "test": test}), [ADD, REST])
    assert "reward" in str(caught.value)


def test_the_judge_is_a_value(tmp_path):
    env = env_of(tmp_path, num_turns=2)
    again = pickle.loads(pickle.dumps(env))
    assert play(again, ["", REST]) == play(env, ["", REST])


EQUAL = (
    "class E:\n            __eq__ = lambda s, o: True\n            __ne__ = lambda s, o: False\n"
    "            __hash__ = lambda s: 0\n            __getattr__ = lambda s, n: s\n            __call__ = lambda s, *a: s\n"
    "            __bool__ = lambda s: True\n"
)
EQUAL_NUMBER = "class E(int):\n            __eq__ = lambda s, o: True\n            __hash__ = int.__hash__\n        return E(8)"
# What every method of the class does.
CHEATS = {
    "constant": "return 1",
    "true": "return True",
    "always equal": f"{EQUAL}        return E()",
    "always equal number": EQUAL_NUMBER,
    "exit": "import os\n        os._exit(0)",
    "exit of the interpreter": "raise SystemExit(0)",
    "assertions patched": "import unittest\n        for name in dir(unittest.TestCase):\n"
    "            if name.startswith('assert'):\n"
    "                setattr(unittest.TestCase, name, lambda *a, **k: None)\n        return None",
    "results reported": "import unittest\n        unittest.TestResult.wasSuccessful = lambda s: True\n"
    "        unittest.TestCase.run = lambda *a, **k: None\n        print('OK', {'status': 'passed'})\n        return 'OK'",
    "results written everywhere": "import os\n        for number in range(1, 30):\n            try:\n"
    "                os.write(number, b'passed passed')\n            except OSError:\n                pass\n        return 'OK'",
    "looking for the tests": "import sys\n        frame = sys._getframe()\n        while frame:\n"
    "            for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n"
    "                if type(value).__name__.startswith('TallyTest'):\n                    return 'found'\n"
    "            frame = frame.f_back\n        return None",
    "endless": "while True: pass",
}


ANYTHING_TRUE = {"constant", "true", "always equal", "always equal number", "results reported", "results written everywhere"}


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_earn_little(tmp_path, name):
    """2 · 0.2 for three methods that are no stubs, and what the answer honestly passes: True passes one of five tests."""
    methods = [f"def {head}:\n        {CHEATS[name]}\n" for head in ("add(self, more)", "larger(one, two)", "is_even(self)")]
    first, *rest = ["    " + method for method in methods]
    found = terms(env_of(tmp_path), first, "\n".join(rest))
    honest = name in ANYTHING_TRUE
    assert found["tests"] <= 4 * honest / 5 and found["solved"] == 0.0
    assert found["methods"] <= 2 * (0.2 + 0.8 * honest / 5) + 1e-9
