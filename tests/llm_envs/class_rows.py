"""A small class and the playing of joint answers, for the tests of classeval-v0."""

from __future__ import annotations

import json

from llm_envs.env import TaskEnv
from llm_envs.tasks.classeval import classeval

SKELETON = '''class Tally:
    """Counts."""

    def __init__(self):
        self.n = 0

    def add(self, more):
        """
        Add a number and give the sum so far. This text is the longest of the three, so the first programmer writes this method.
        >>> tally = Tally()
        >>> tally.add(2)
        2
        >>> tally.add(3)
        5
        """

    @staticmethod
    def larger(one, two):
        """
        The larger one of two numbers.
        >>> Tally.larger(1, 4)
        4
        """

    def is_even(self):
        """Whether the count is even."""
'''
TEST = """import unittest


class TallyTestAdd(unittest.TestCase):
    def test_gives_the_sum(self):
        self.assertEqual(Tally().add(2), 2)

    def test_adds_up(self):
        tally = Tally()
        tally.add(10)
        tally.add(20)
        self.assertEqual(tally.n, 30)


class TallyTestLarger(unittest.TestCase):
    def test_larger(self):
        self.assertEqual(Tally.larger(3, 7), 7)


class TallyTestIsEven(unittest.TestCase):
    def test_even(self):
        self.assertTrue(Tally().is_even())

    def test_odd(self):
        tally = Tally()
        tally.n = 77
        self.assertIs(tally.is_even(), False)


class TallyTestStart(unittest.TestCase):
    def test_start(self):
        self.assertEqual(Tally().n, 0)
"""
"""Six tests; the skeleton passes the last one."""

ADD = "def add(self, more):\n    self.n += more\n    return self.n\n"
LARGER = "def larger(one, two):\n    return max(one, two)\n"
IS_EVEN = "def is_even(self):\n    return self.n % 2 == 0\n"
REST = f"{LARGER}\n{IS_EVEN}"
SOLUTION = "class Tally:\n    def __init__(self):\n        self.n = 0\n" + "".join(
    "    " + line.replace("\n", "\n    ") + "\n" for line in (ADD, f"@staticmethod\n{LARGER}", IS_EVEN)
)

TALLY = {
    "task_id": "t/tally",
    "skeleton": SKELETON,
    "test": TEST,
    "solution_code": SOLUTION,
    "import_statement": [],
    "class_name": "Tally",
    "methods_info": [{"method_name": name} for name in ("add", "larger", "is_even")],
}
OTHER = {**TALLY, "task_id": "t/other"}


def file_of(folder, rows):
    """A file of rows, as the option `path`."""
    file = folder / "rows.json"
    file.write_text(json.dumps(list(rows)))
    return str(file)


def env_of(folder, row=TALLY, **options):
    """The env of one row to train on. All have one sandbox unless they ask for other limits."""
    options = {"cpu_seconds": 0.25, **options}
    rows = [row, {**row, "task_id": "t/other"}]
    return TaskEnv(classeval.task(source="path", path=file_of(folder, rows), eval_ids=["t/other"], **options))


def play(env, *turns):
    """Rewards and terms for joint answers given turn by turn, and the last state."""
    state = env.initial(env.items[0], (0, 0), 0)
    rewards, terms = [], []
    for texts in turns:
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True))])
        assert len(set(transition.rewards.values())) == 1  # the team shares it
        info = transition.infos["coder_0"]
        rewards.append(info["raw_reward"])
        terms.append({name.removeprefix("reward/"): value for name, value in info.items() if name.startswith("reward/")})
        state = transition.state
    return rewards, terms, state
