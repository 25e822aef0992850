"""Guards classeval-v0 as a whole: bundled rows at their best, options, splits, and ClassEval itself where its file is there."""

from __future__ import annotations

import ast
import os
import warnings
from pathlib import Path

import pytest
from class_rows import TALLY, file_of

import llm_envs
from llm_envs.env import TaskEnv
from llm_envs.tasks.classeval import classeval
from llm_envs.tasks.classeval.classes import FIELDS, class_methods, class_of, is_stub
from llm_envs.tasks.classeval.dividing import divide
from llm_envs.tasks.classeval.faults import KNOWN_FAULTS, REPAIRS, UNPLAYABLE
from llm_envs.tasks.sources import read_rows
from llm_envs.testing import audit_rewards, check_task

SHARED = Path(os.environ.get("LLM_ENVS_SHARED", Path(__file__).parents[3] / "shared"))
CLASSEVAL = SHARED / "data" / "classeval" / "ClassEval_data.json"
needs_data = pytest.mark.skipif(not CLASSEVAL.exists(), reason=f"there is no {CLASSEVAL}; LLM_ENVS_SHARED names another folder")


def all_rows(task):
    return [*task.items, *(task.eval_items or ())]


def best(task, rows):
    """What the reference earns on rows, by id, with the terms."""
    env = TaskEnv(task)
    found = {}
    for row in rows:
        answers = dict(zip(env.possible_agents, task.reference(row), strict=True))
        (transition,) = env.branch(env.initial(row, (0, 0), 0), [answers])
        found[row["task_id"]] = transition.infos["coder_0"]
    return found


def not_best(found):
    return {name: info for name, info in found.items() if info["raw_reward"] != 6.0 or info["reward/solved"] != 1.0}


@pytest.mark.parametrize("agents", [1, 2, 3])
def test_reference_earns_the_most_on_every_bundled_row(agents):
    task = classeval.task(agents=agents)
    found = best(task, all_rows(task))
    assert len(found) == 8 and not not_best(found)


def test_bundled_rows():
    task = classeval.task()
    assert (len(task.items), len(task.eval_items)) == (6, 2)
    for row in all_rows(task):
        assert set(FIELDS) <= set(row)
        problem = class_of(row)
        assert len(problem.methods) >= 3
        assert f"class {problem.name}" in row["solution_code"] and {one["test_class"] for one in row["methods_info"]} < set(
            row["test_classes"]
        )


def test_tasks_hold_their_rules():
    check_task(classeval.task(num_turns=2), scored_rows=1)


def test_careless_teams():
    audit = audit_rewards(llm_envs.make("classeval-v0"), rows=1, episodes_per_row=2)
    assert audit["reference"].min == 6.0
    for team in ("empty", "constant", "copied prompt", "longest", "random text", "random words"):
        assert audit[team].max <= 0.0, team
    assert audit["one silent"].mean < 3.0


# ---- options ----


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"agents": 0}, "agents must be a whole number of at least 1, got 0"),
        ({"agents": True}, "agents must be a whole number of at least 1, got True"),
        ({"unavailable": "drop"}, "unavailable must be one of error, skip, got 'drop'"),
        ({"known_faults": "fix"}, "known_faults must be one of skip, keep, got 'fix'"),
        ({"feedback": "loud"}, "feedback must be one of plain, passed"),
        ({"feedback": "expert_edits"}, "needs an expert"),
        ({"source": "package"}, "source must be one of builtin, path, hub, got 'package'"),
        ({"eval_ids": ["builtin-classeval/3"], "eval_share": 0.5}, "give eval_ids or eval_share, not both"),
        (
            {"agents": 9},
            r"8 of 8 rows cannot be played; unavailable='skip' leaves them out:\n  builtin-classeval/0: 9 agents cannot share 4",
        ),
        ({"cpu_seconds": 0}, "cpu_seconds must be finite and above 0"),
    ],
)
def test_options_that_cannot_be(options, said):
    with pytest.raises(ValueError, match=said):
        classeval.task(**options)


def test_splits_by_id(tmp_path):
    task = classeval.task(eval_ids=["builtin-classeval/3"])
    assert [row["task_id"] for row in task.eval_items] == ["builtin-classeval/3"] and len(task.items) == 7
    assert classeval.task(eval_share=0.0).eval_items is None
    named = file_of(tmp_path, [{**TALLY, "task_id": f"ClassEval_{number}"} for number in (0, 65, 66, 81, 82)])
    task = classeval.task(source="path", path=named)
    assert [row["task_id"] for row in task.eval_items] == ["ClassEval_66", "ClassEval_81"]


def test_rows_that_cannot_be_played(tmp_path):
    """All are named, with the reason; none is left out in silence."""
    odd = [
        {**TALLY, "task_id": "open", "skeleton": 'class Tally:\n    """Counts.\n'},
        {**TALLY, "task_id": "package", "import_statement": ["import no_such_package.part", "import json"]},
        {**TALLY, "task_id": "test", "test": f"from no_such_package import x\n{TALLY['test']}"},
        {**TALLY, "task_id": "few", "methods_info": TALLY["methods_info"][:1]},
        {**TALLY, "task_id": "ClassEval_45"},
    ]
    where = {"source": "path", "path": file_of(tmp_path, [TALLY, {**TALLY, "task_id": "t/other"}, *odd]), "eval_ids": ["t/other"]}
    expected = [
        "open: its skeleton does not parse: line 2, column 5: unterminated triple-quoted string literal",
        "package: it needs no_such_package, which is not installed",
        "test: it needs no_such_package, which is not installed",
        "few: 2 agents cannot share 1 methods",
        f"ClassEval_45: {UNPLAYABLE['ClassEval_45']}",
    ]
    with pytest.raises(ValueError, match="classeval-v0: 5 of 7 rows cannot be played; unavailable='skip'") as error:
        classeval.task(**where)
    with pytest.warns(UserWarning, match="classeval-v0: 5 of 7 rows are left out") as warned:
        task = classeval.task(unavailable="skip", **where)
    for line in expected:
        assert line in str(error.value) and line in str(warned[0].message)
    assert [row["task_id"] for row in all_rows(task)] == ["t/tally", "t/other"]
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="no row is left to train on"):
        classeval.task(unavailable="skip", source="path", path=file_of(tmp_path, odd[:2]), eval_share=0.0)


def test_rows_without_solutions(tmp_path):
    rows = [{key: value for key, value in TALLY.items() if key != "solution_code"} | {"task_id": name} for name in "ab"]
    assert classeval.task(source="path", path=file_of(tmp_path, rows), eval_share=0.0).reference is None


# ---- ClassEval ----

QUICK = ("ClassEval_5", "ClassEval_33", "ClassEval_46", "ClassEval_51", "ClassEval_84")
"""In quotes as a whole; other constructors; typographic quotes; mended solution; a mock among the attributes."""


def made(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what is left out depends on what is installed
        return classeval.task(source="path", path=str(CLASSEVAL), unavailable="skip", **options)


def numbers(rows):
    return [int(row["task_id"].rpartition("_")[2]) for row in rows]


@needs_data
@pytest.mark.slow
def test_the_data_and_its_split():
    task = made()
    always = {22, 45, 52}
    assert not always & set(numbers(all_rows(task)))
    assert set(numbers(task.eval_items)) <= set(range(66, 82)) and not set(numbers(task.items)) & set(range(66, 82))
    with pytest.raises(
        ValueError, match=r"ClassEval_22: its skeleton does not parse: .*\n(.*\n)*  ClassEval_45: its tests hand Pillow"
    ):
        classeval.task(source="path", path=str(CLASSEVAL))


@needs_data
@pytest.mark.slow
def test_nobody_is_idle_in_classeval():
    """405 methods in 99 classes: each of two programmers has work in every class, of three in 87."""
    problems = [class_of(classeval.repaired(row)) for row in read_rows(CLASSEVAL) if row["task_id"] != "ClassEval_22"]
    assert len(problems) == 99 and sum(len(problem.methods) for problem in problems) == 405
    assert all(min(map(len, divide(problem, 2))) >= 1 for problem in problems)
    assert sum(len(problem.methods) >= 3 for problem in problems) == 87


@needs_data
def test_tables_name_what_is_there():
    rows = {row["task_id"]: row for row in read_rows(CLASSEVAL)}
    assert set(UNPLAYABLE) < set(rows)
    for name, tests in KNOWN_FAULTS.items():
        for test in tests:
            class_name, _, method = test.partition(".")
            assert f"class {class_name}(" in rows[name]["test"] and f"def {method}(" in rows[name]["test"]
    for name, repairs in REPAIRS.items():
        assert all(old in rows[name][field] for field, old, _ in repairs)


def test_tests_with_known_faults_are_told(tmp_path, caplog):
    caplog.set_level("INFO", "llm_envs")
    where = {"source": "path", "path": file_of(tmp_path, [{**TALLY, "task_id": "ClassEval_35"}, TALLY]), "eval_share": 0.0}
    assert classeval.task(known_faults="keep", **where) and classeval.task() and not caplog.messages
    assert classeval.task(**where).items[0]["task_id"] == "ClassEval_35"
    (said,) = caplog.messages
    assert said.startswith(
        "classeval-v0: known_faults='skip' leaves out 1: EightPuzzleTestSolve.test_solve_3 (takes ClassEval's own"
    )


@needs_data
@pytest.mark.slow
def test_no_solution_is_a_stub():
    for row in read_rows(CLASSEVAL):
        if row["task_id"] != "ClassEval_22":
            problem = class_of(classeval.repaired(row))
            solution = class_methods(ast.parse(problem.solution), problem.name)
            assert not [method.name for method in problem.methods if is_stub(solution[method.name])], row["task_id"]


@needs_data
def test_tricky_solutions_earn_the_most(tmp_path):
    rows = [row for row in read_rows(CLASSEVAL) if row["task_id"] in QUICK]
    task = classeval.task(source="path", path=file_of(tmp_path, rows), eval_share=0.0)
    assert len(rows) == 5 and not not_best(best(task, task.items))


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("agents", [1, 2])
def test_every_solution_earns_the_most(agents):
    """Of all rows whose packages are installed; also when the examples of its docstrings are tried on it."""
    task = made(agents=agents)
    found = best(task, all_rows(task))
    assert len(found) >= 87 and not not_best(found)


@needs_data
@pytest.mark.slow
def test_faults_are_faults():
    """With all tests no reference solution passes where tests are known to be wrong."""
    task = made(known_faults="keep", eval_ids=list(KNOWN_FAULTS))
    found = best(task, task.eval_items)
    assert set(not_best(found)) == set(KNOWN_FAULTS)


@needs_data
@pytest.mark.slow
def test_untouched_skeletons_earn_nothing():
    task = made()
    env = TaskEnv(task)
    for row in all_rows(task):
        (transition,) = env.branch(env.initial(row, (0, 0)), [dict.fromkeys(env.possible_agents, "")])
        assert transition.rewards["coder_0"] == 0.0, row["task_id"]
