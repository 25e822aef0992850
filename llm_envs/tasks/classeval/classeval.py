"""`classeval-v0`: the methods of a class are divided among programmers; hidden tests of the whole class decide."""

from __future__ import annotations

import ast
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, TypeAlias, get_args

from llm_envs.rewards import terms
from llm_envs.task import Task
from llm_envs.tasks.classeval.classes import FIELDS, class_of, tree_of
from llm_envs.tasks.classeval.dividing import divide
from llm_envs.tasks.classeval.faults import KNOWN_FAULTS, UNPLAYABLE, repaired
from llm_envs.tasks.classeval.feedback import ClassFeedback
from llm_envs.tasks.classeval.levels import FACTORS, Judge
from llm_envs.tasks.classeval.prompts import CoderPrompt
from llm_envs.tasks.classeval.references import Reference
from llm_envs.tasks.code.experts import Expert
from llm_envs.tasks.code.options import KnownFaults, Mode, TurnOptions, tell_known_faults
from llm_envs.tasks.options import checked_choice, checked_count
from llm_envs.tasks.rows import bundled_rows
from llm_envs.tasks.sources import HubData, Source, Sources, split_rows
from llm_envs.types import Item

EVALUATION = tuple(f"ClassEval_{number}" for number in range(66, 82))
"""Evaluation rows of ClassEval, as in other work on teams; all others are trained on."""

Unavailable: TypeAlias = Literal["error", "skip"]


def task(
    *,
    source: Source = "builtin",
    path: str | None = None,
    unavailable: Unavailable = "error",
    known_faults: KnownFaults = "skip",
    eval_ids: Sequence[str] | None = None,
    eval_share: float | None = None,
    agents: int = 2,
    num_turns: int = 1,
    feedback: Mode = "level_feedback",
    reveal_hidden: bool = False,
    original_prompt: bool = True,
    previous_response: bool = True,
    expert: Expert | None = None,
    cpu_seconds: float = 3.0,
) -> Task:
    """Programmers `coder_0`, `coder_1`, … who act at once: each writes its share of the methods that a class lacks.

    All read the whole skeleton and the names of their own methods (`dividing.divide`). Their texts become one class, which is
    tested in a sandbox. A turn scores the sum of

    * methods (at most 2): 2 · share of the methods that their owner gave and that are more than stubs;
    * tests (4): 4 · (hidden tests passed − those that the skeleton passes) / (all − those that the skeleton passes), at least 0;
    * overlap (−1): share of the methods that somebody gave who does not own them. These are not used.

    Of the first a fifth is earned at once and the rest in proportion to the tests. `passed` (share of the hidden tests) and
    `solved` (all of them) are logged. With several turns a score is divided by their number; the episode ends with the highest
    score, which is paid for the turns it saves as well.

    Range: rewards and returns in [−1, 6]; shared by the team.

    Args:
        source: "builtin" (8 classes of our own), "path" or "hub" (FudanSELab/ClassEval).
        path: of a file of rows with `source="path"`; another data set's name with `source="hub"`.
        unavailable: what to do about rows that cannot be played here: "error", or "skip" them with a warning. Both list them: those
            whose skeleton does not parse, whose packages are absent, that have fewer methods than there are agents.
        known_faults: "skip" the tests of ClassEval that right classes fail (`faults.KNOWN_FAULTS`), which the log then says, or
            "keep" them.
        eval_ids: `task_id`s of the evaluation rows; ClassEval_66 to 81 if there are rows with these ids.
        eval_share: share of rows for evaluation, by their ids; a quarter of other rows.
        agents: number of programmers.
        num_turns: tries.
        feedback: what is said between turns: "plain" (nothing), "passed" (whether all levels are), "level_passed" (each level),
            "level_feedback" (what is wrong), "expert_edits" (what an expert suggests), "bandit" (one turn, whatever `num_turns`).
        reveal_hidden: let the feedback name hidden tests that fail too, instead of the docstrings' examples alone.
        original_prompt: repeat the first prompt in later ones.
        previous_response: show an agent its last answer.
        expert: who suggests edits: messages → text; see `code.experts.PolicyExpert`.
        cpu_seconds: CPU time of one test, in seconds; a class has three times as much.
    """
    checked_count("agents", agents, 1)
    checked_choice("unavailable", unavailable, get_args(Unavailable))
    checked_choice("known_faults", known_faults, get_args(KnownFaults))
    options = TurnOptions(
        num_turns=num_turns,
        feedback=feedback,
        reveal_hidden=reveal_hidden,
        original_prompt=original_prompt,
        previous_response=previous_response,
        expert=expert,
        cpu_seconds=cpu_seconds,
    )
    train, held = _split(SOURCES.rows(source, path), eval_ids, eval_share)
    train, held = _playable(train, held, agents, unavailable)
    if known_faults == "skip":
        faults = [KNOWN_FAULTS.get(str(row["task_id"]), {}) for row in (*train, *held)]
        tell_known_faults("classeval-v0", {test: reason for tests in faults for test, reason in tests.items()})
    turns = options.num_turns
    judge = Judge(agents, turns, options.limits, all_tests=known_faults == "keep")
    return Task(
        name="classeval-v0",
        items=train,
        eval_items=held or None,
        agents=judge.names,
        formatters=[CoderPrompt(agents, number) for number in range(agents)],
        reward=terms(judge, **FACTORS),
        transition=_transition(judge, options) if turns > 1 else None,
        num_turns=turns,
        external_prompt_passthrough=True,
        reference=Reference(agents) if all(row.get("solution_code") for row in (*train, *held)) else None,
    )


def why_unplayable(row: Item, agents: int) -> str | None:
    """Why a row cannot be played here by so many agents; None if it can."""
    if row["task_id"] in UNPLAYABLE:
        return UNPLAYABLE[row["task_id"]]
    try:
        problem = class_of(row)
        divide(problem, agents)
    except ValueError as error:
        return str(error).partition(": ")[2]
    absent = _absent_packages(f"{problem.imports}\n{problem.tests}")
    return f"it needs {', '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not installed" if absent else None


def _playable(train: Sequence[Item], held: Sequence[Item], agents: int, unavailable: Unavailable) -> tuple[list[Item], list[Item]]:
    """Both parts without the rows that cannot be played.

    Raises:
        ValueError: there are some and they are not to be skipped, or none is left to train on.
    """
    reasons = {row["task_id"]: reason for row in (*train, *held) if (reason := why_unplayable(row, agents)) is not None}
    if reasons:
        listing = "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
        count = f"{len(reasons)} of {len(train) + len(held)} rows"
        if unavailable == "error":
            raise ValueError(f"classeval-v0: {count} cannot be played; unavailable='skip' leaves them out:\n{listing}")
        warnings.warn(f"classeval-v0: {count} are left out:\n{listing}", stacklevel=3)
    kept = [[row for row in rows if row["task_id"] not in reasons] for rows in (train, held)]
    if not kept[0]:
        raise ValueError("classeval-v0: no row is left to train on")
    return kept[0], kept[1]


def _split(rows: Sequence[Item], eval_ids: Sequence[str] | None, eval_share: float | None) -> tuple[Sequence[Item], Sequence[Item]]:
    if eval_ids is None and eval_share is None:
        eval_ids = [row["task_id"] for row in rows if row["task_id"] in EVALUATION] or None
    train, held = split_rows(rows, "task_id", eval_ids=eval_ids, eval_share=eval_share)
    return train, held or []


def _absent_packages(source: str) -> list[str]:
    """Top-level packages that a source imports and that are not installed."""
    names: dict[str, None] = {}
    for node in _statements(tree_of(source, "its imports and tests")):
        if isinstance(node, ast.Import):
            names.update(dict.fromkeys(alias.name.partition(".")[0] for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names[node.module.partition(".")[0]] = None
    return [name for name in names if name not in sys.stdlib_module_names and importlib.util.find_spec(name) is None]


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.excepthandler))]


def _transition(judge: Judge, options: TurnOptions) -> ClassFeedback:
    return ClassFeedback(
        judge=judge,
        mode=options.feedback,
        reveal_hidden=options.reveal_hidden,
        original_prompt=options.original_prompt,
        previous_response=options.previous_response,
        expert=options.expert,
    )


SOURCES = Sources(
    family="classeval-v0",
    builtin=partial(bundled_rows, "classeval"),
    fields=FIELDS,
    hub=HubData("FudanSELab/ClassEval", split="test"),
    convert=repaired,
)
"""Where rows of the ClassEval form come from."""
