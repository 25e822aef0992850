"""`mbpp-v0`: short problems in a sentence, in the form of MBPP; the asserts that come with each are its hidden tests."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from llm_envs.task import Task
from llm_envs.tasks.code.assembly import CodeOptions, code_task
from llm_envs.tasks.code.experts import Expert
from llm_envs.tasks.code.options import Mode
from llm_envs.tasks.code.problems import FIELDS
from llm_envs.tasks.rows import bundled_rows
from llm_envs.tasks.sources import HubData, Source, Sources
from llm_envs.types import Item


def task(
    *,
    source: Source = "builtin",
    path: str | None = None,
    eval_ids: Sequence[str] | None = None,
    eval_share: float | None = None,
    helpers: int = 1,
    num_turns: int = 1,
    feedback: Mode = "level_feedback",
    reveal_hidden: bool = False,
    original_prompt: bool = True,
    previous_response: bool = True,
    expert: Expert | None = None,
    cpu_seconds: float = 3.0,
) -> Task:
    """Programmers who act at once, on problems described in a sentence.

    Prompts, levels, range and options are those of `humaneval-v0`. The prompt is a signature, with the parameters of the reference
    solution, and the sentence; it has no examples, so feedback says nothing of tests unless `reveal_hidden`.

    Range: rewards and returns in [0, 4], without helpers [0, 2.1]; shared by the team.

    Args:
        source: "builtin" (12 rows of our own), "path" (a file of MBPP or of its sanitised form), "hub" (sanitised, its test part).
        path: of a file of rows with `source="path"`; another data set's name with `source="hub"`.
        eval_ids: `task_id`s of the evaluation rows, as texts.
        eval_share: share of rows for evaluation, by their ids; a quarter.
        helpers: see `humaneval-v0`, as the following.
        num_turns: tries.
        feedback: what is said between turns.
        reveal_hidden: let the feedback be about the hidden tests too.
        original_prompt: repeat the first prompt in later ones.
        previous_response: show an agent its last answer.
        expert: who suggests edits.
        cpu_seconds: that one check may take.
    """
    options = CodeOptions(
        helpers=helpers,
        num_turns=num_turns,
        feedback=feedback,
        reveal_hidden=reveal_hidden,
        original_prompt=original_prompt,
        previous_response=previous_response,
        expert=expert,
        cpu_seconds=cpu_seconds,
    )
    return code_task("mbpp-v0", SOURCES.rows(source, path), options, eval_ids=eval_ids, eval_share=eval_share)


def convert(row: Item) -> Item:
    """A row of MBPP as one of the HumanEval form.

    Entry point is the function that the tests call, of those that the reference solution defines; its parameters are that
    function's. Asserts stay whole; only the function's own name in them becomes `candidate`. Imports of the tests, and what the
    tests use of the solution besides the function (an import, a class), stand in front of the prompt, where everybody has them.

    Args:
        row: `task_id`, `prompt` or `text`, `code`, `test_list`, and if there are any `test_imports` (sanitised) or
            `test_setup_code`. `aux_solution` and `main_solution` are kept.

    Raises:
        KeyError: without a field.
        SyntaxError: if code or tests do not parse.
        ValueError: if no function of the code is called in every test.
    """
    text = row["prompt"] if row.get("prompt") is not None else row["text"]
    asserts = [statement for source in row["test_list"] for statement in ast.parse(source).body]
    code = ast.parse(row["code"])
    function = tested_function(code, asserts)
    # The data set runs solutions and tests in one namespace, so each may use what the other one imports.
    given = [*(row.get("test_imports") or ()), *map(ast.unparse, _needed(code, function, asserts))]
    check = ast.parse("def check(candidate): pass").body[0]
    assert isinstance(check, ast.FunctionDef)
    check.body = [_renamed(statement, function.name) for statement in asserts]
    kept = {key: row[key] for key in ("aux_solution", "main_solution") if row.get(key) is not None}
    return {
        "task_id": str(row["task_id"]),
        "prompt": "".join(f"{line}\n" for line in given) + _prompt(function, text),
        "entry_point": function.name,
        "canonical_solution": row["code"].replace("\r\n", "\n"),
        "test": "\n".join(filter(None, [row.get("test_setup_code"), ast.unparse(check)])),
        **kept,
    }


def tested_function(code: ast.Module, tests: Sequence[ast.stmt]) -> ast.FunctionDef:
    """The function of the code that every test calls; the one that stands outermost in the first test if there are several.

    Raises:
        ValueError: if there is none.
    """
    defined = {node.name: node for node in code.body if isinstance(node, ast.FunctionDef)}
    called = [_called(statement) for statement in tests]
    for name in called[0] if called else ():
        if name in defined and all(name in names for names in called):
            return defined[name]
    raise ValueError(f"no function of the code ({', '.join(defined) or 'none'}) is called in every test")


def _needed(code: ast.Module, function: ast.FunctionDef, tests: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements of the code, other than the function, that bind a name which the tests read."""
    read = {node.id for test in tests for node in ast.walk(test) if isinstance(node, ast.Name)} - {function.name}
    return [node for node in code.body if node is not function and read & _binds(node)]


def _binds(statement: ast.stmt) -> set[str]:
    """The names that a statement of a module gives a meaning to."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _called(statement: ast.stmt) -> list[str]:
    """Names of the functions called, outer ones first."""
    return [node.func.id for node in ast.walk(statement) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]


def _renamed(statement: ast.stmt, name: str) -> ast.stmt:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and node.id == name:
            node.id = "candidate"
    return statement


def _prompt(function: ast.FunctionDef, text: str) -> str:
    signature = ast.parse(f"def {function.name}({ast.unparse(function.args)}): pass").body[0]
    assert isinstance(signature, ast.FunctionDef)
    signature.body = [ast.Expr(ast.Constant(text.strip()))]
    return ast.unparse(ast.fix_missing_locations(signature)) + "\n"


def _builtin() -> list[Item]:
    return [convert(row) for row in bundled_rows("mbpp")]


SOURCES = Sources(
    family="mbpp-v0",
    builtin=_builtin,
    fields=FIELDS,
    hub=HubData("google-research-datasets/mbpp", "sanitized", "test"),
    convert=convert,
)
"""Where rows of the MBPP form come from."""
