"""What honest, careless and cheating teams earn on classes: the table of docs/tasks/classeval.md.

    python benchmarks/class_rewards.py                                              # the bundled rows, half a minute
    python benchmarks/class_rewards.py --path ClassEval_data.json --rows 20         # the first rows of ClassEval that can be played

Every team has two programmers. A cheating team does the same in every method.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import llm_envs
from llm_envs.tasks.classeval.classes import class_of
from llm_envs.tasks.classeval.dividing import divide
from llm_envs.tasks.classeval.references import Reference

# Bodies of every method.
CHEATS = {
    "stub": "pass",
    "None": "x = 1\n    return None",
    "True": "return True",
    "0": "return 0",
    "empty list": "return []",
    "always equal": "class E:\n        __eq__ = lambda s, o: True\n        __hash__ = lambda s: 0\n"
    "        __bool__ = lambda s: True\n        __getattr__ = lambda s, n: s\n        __call__ = lambda s, *a: s\n    return E()",
    "exit": "raise SystemExit(0)",
    "exit of the process": "import os\n    os._exit(0)",
    "assertions patched": "import unittest\n    for name in dir(unittest.TestCase):\n        if name.startswith('assert'):\n"
    "            setattr(unittest.TestCase, name, lambda *a, **k: None)\n    return None",
    "results printed and written": "import os\n    print({'status': 'passed'})\n    for number in range(1, 30):\n        try:\n"
    "            os.write(number, b'passed passed')\n        except OSError:\n            pass",
}
Team = Callable[[Mapping[str, Any]], list[str]]


def cheating(body: str) -> Team:
    """A team that writes this body into every method."""

    def texts(row: Mapping[str, Any]) -> list[str]:
        problem = class_of(row)
        parameters = {method.name: method.parameters for method in problem.methods}
        return ["\n".join(f"def {name}({parameters[name]}):\n    {body}\n" for name in share) for share in divide(problem, 2)]

    return texts


def teams() -> dict[str, Team]:
    """Name → row → the texts of the two programmers."""
    reference, alone = Reference(2), Reference(1)
    return {
        "reference": reference,
        "everybody writes everything": lambda row: alone(row) * 2,
        "one writes everything": lambda row: ["", *alone(row)],
        "one is silent": lambda row: [reference(row)[0], ""],
        "nothing": lambda row: ["", ""],
        "skeleton copied": lambda row: [row["skeleton"]] * 2,
        **{name: cheating(body) for name, body in CHEATS.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", help="a file of rows; those that cannot be played are left out with a warning")
    parser.add_argument("--rows", type=int, default=1000, help="how many of them, from the first")
    chosen = parser.parse_args()
    source = {"source": "path", "path": chosen.path, "unavailable": "skip"} if chosen.path else {}
    env = llm_envs.make("classeval-v0", eval_share=0.0, **source)
    rows = env.task.items[: chosen.rows]
    print(f"{'team':<30} {'mean':>6} {'max':>6} {'tests passed':>13}   over {len(rows)} rows")
    for name, team in teams().items():
        rewards, passed = [], []
        for row in rows:
            answers = dict(zip(env.possible_agents, team(row), strict=True))
            (transition,) = env.branch(env.initial(row, (0, 0)), [answers])
            rewards.append(transition.rewards["coder_0"])
            passed.append(transition.infos["coder_0"]["reward/passed"])
        print(f"{name:<30} {sum(rewards) / len(rows):>6.2f} {max(rewards):>6.2f} {sum(passed) / len(rows):>13.2f}", flush=True)


if __name__ == "__main__":
    main()
