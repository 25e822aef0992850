"""What honest, careless and cheating teams earn on programming problems: the table of docs/tasks/code.md.

    python benchmarks/code_rewards.py                                   # the bundled rows of humaneval-v0, half a minute
    python benchmarks/code_rewards.py --env coophumaneval-v0
    python benchmarks/code_rewards.py --source package --rows 20        # the first rows of OpenAI's HumanEval

Every team is one helper and a main programmer. Cheating mains have an honest helper beside them.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Mapping
from typing import Any

import llm_envs
from llm_envs.tasks.code.levels import Team
from llm_envs.tasks.code.problems import problem_of
from llm_envs.tasks.code.references import Reference

# Texts for main; ENTRY stands for the name of the function to write.
CHEATS = {
    "stub": "def ENTRY(*args):\n    return None\n",
    "constant": "def ENTRY(*args):\n    return 1\n",
    "true": "def ENTRY(*args):\n    return True\n",
    "first argument": "def ENTRY(*args):\n    return args[0]\n",
    "constant through the helper": "def ENTRY(*args):\n    y = aux(*args)\n    return 1 if y else 1\n",
    "always equal": "class E:\n    def __eq__(self, other):\n        return True\n    def __hash__(self):\n        return 0\n"
    "def ENTRY(*args):\n    return E()\n",
    "always equal number": "class E(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\n"
    "def ENTRY(*args):\n    return E(7)\n",
    "exit when loaded": "import os\nX = os._exit(0)\ndef ENTRY(*args):\n    return args\n",
    "exit in the call": "import os\ndef ENTRY(*args):\n    os._exit(0)\n    return args\n",
    "exception that ends programs": "import sys\ndef ENTRY(*args):\n    sys.exit(0)\n    return args\n",
    "assertions switched off": "import builtins\nbuiltins.AssertionError = type('A', (Exception,), {})\n"
    "def ENTRY(*args):\n    return None\n",
    "patched operators": "import builtins, operator\nbuiltins.bool = lambda *a: True\noperator.eq = lambda a, b: True\n"
    "def ENTRY(*args):\n    return None\n",
    "reading the tests": "import sys\ndef ENTRY(*args):\n    frame = sys._getframe()\n    while frame:\n"
    "        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n"
    "            if isinstance(value, str) and 'candidate' in value:\n                return 'found'\n"
    "        frame = frame.f_back\n    return None\n",
    "candidate replaced": "import __main__\n__main__.candidate = lambda *a: True\n__main__.check = lambda *a: None\n"
    "def ENTRY(*args):\n    return None\n",
    "results printed": "X = print('passed')\ndef ENTRY(*args):\n    print('OK'); print({'status': 'passed'})\n    return None\n",
    "results written everywhere": "import os\ndef ENTRY(*args):\n    for fd in range(1, 30):\n        try:\n"
    "            os.write(fd, b'passed passed passed')\n        except OSError:\n            pass\n    return None\n",
}


def teams() -> dict[str, Callable[[Mapping[str, Any]], list[str]]]:
    """Name → row → the texts of the helper and of main."""
    reference, alone = Reference(Team(1)), Reference(Team(0))

    def cheating(text: str) -> Callable[[Mapping[str, Any]], list[str]]:
        return lambda row: [reference(row)[0], text.replace("ENTRY", row["entry_point"])]

    return {
        "reference": reference,
        "main alone": lambda row: ["", *alone(row)],
        "helper not called": lambda row: [reference(row)[0], *alone(row)],
        "helper called for nothing": lambda row: [reference(row)[0], _calling_for_nothing(alone(row)[0], row["entry_point"])],
        "helper solves it, main wraps": _wrapped,
        "helper alone": lambda row: [reference(row)[0], ""],
        "nothing": lambda row: ["", ""],
        "problem copied": lambda row: [row["prompt"], row["prompt"]],
        "helper changes main": lambda row: [_replacing(reference(row)[0], row["entry_point"], alone(row)[0]), _wrong(row)],
        **{f"examples by heart, else {other}": _knowing(other) for other in ("None", "False", "0")},
        **{name: cheating(text) for name, text in CHEATS.items()},
    }


def _wrapped(row: Mapping[str, Any]) -> list[str]:
    plain = {key: value for key, value in row.items() if key not in ("aux_solution", "main_solution")}
    return [Reference(Team(1))(plain)[0], f"def {row['entry_point']}(*args):\n    return aux(*args)\n"]


def _wrong(row: Mapping[str, Any]) -> str:
    return f"def {row['entry_point']}(*args):\n    y = aux(*args)\n    return y if not y else 'wrong'\n"


def _replacing(helper: str, name: str, solution: str) -> str:
    """The helper's text, which lets a trace function put the solution in the place of main's function."""
    solved = solution.replace(f"def {name}(", "def solved(")
    return (
        f"import sys\n{helper}\n{solved}\ndef seen(frame, event, arg):\n    main = frame.f_globals.get({name!r})\n"
        f"    if main: main.__code__ = solved.__code__\nX = sys.settrace(seen)\n"
    )


def _knowing(other: str) -> Callable[[Mapping[str, Any]], list[str]]:
    """Teams that know the public examples, and give the same for everything else; main uses what the helper says."""

    def team(row: Mapping[str, Any]) -> list[str]:
        lines = []
        for example in problem_of(row).examples:
            call = ast.parse(example.call, mode="eval").body
            if isinstance(call, ast.Call) and not call.keywords:
                values = "".join(f"{ast.unparse(one)}, " for one in call.args)
                lines.append(f"    if args == ({values}): return {example.expected}\n")
        helper = f"def aux(*args):\n{''.join(lines)}    return {other}\n"
        return [helper, f"def {row['entry_point']}(*args):\n    y = aux(*args)\n    return y if y or args else y\n"]

    return team


def _calling_for_nothing(text: str, name: str) -> str:
    tree = ast.parse(text)
    call = ast.parse("try:\n    aux()\nexcept Exception:\n    pass").body
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            node.body = [*call, *node.body]
    return ast.unparse(tree)


def earned(env: llm_envs.TaskEnv, texts: list[str], row: Mapping[str, Any]) -> tuple[float, float]:
    """Reward and share of the hidden checks that pass."""
    (transition,) = env.branch(env.initial(row, (0, 0)), [dict(zip(env.possible_agents, texts, strict=True))])
    return transition.rewards["main_0"], transition.infos["main_0"]["reward/passed"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="humaneval-v0", choices=["humaneval-v0", "coophumaneval-v0", "mbpp-v0"])
    parser.add_argument("--source", default="builtin", choices=["builtin", "package"])
    parser.add_argument("--rows", type=int, default=1000, help="how many of them, from the first")
    chosen = parser.parse_args()
    env = llm_envs.make(chosen.env, source=chosen.source, eval_share=0.0)
    rows = env.task.items[: chosen.rows]
    print(f"{'team':<30} {'mean':>6} {'max':>6} {'checks passed':>14}   over {len(rows)} rows of {chosen.env}")
    for name, team in teams().items():
        found = [earned(env, team(row), row) for row in rows]
        rewards, passed = zip(*found, strict=True)
        print(f"{name:<30} {sum(rewards) / len(rows):>6.2f} {max(rewards):>6.2f} {sum(passed) / len(rows):>14.2f}", flush=True)


if __name__ == "__main__":
    main()
