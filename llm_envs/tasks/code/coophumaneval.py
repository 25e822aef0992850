"""`coophumaneval-v0`: problems that fall into a helper and a main function by themselves, in the form of CoopHumanEval."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import get_args

from llm_envs.task import Task
from llm_envs.tasks.code.assembly import CodeOptions, code_task
from llm_envs.tasks.code.experts import Expert
from llm_envs.tasks.code.options import KnownFaults, Mode, tell_known_faults
from llm_envs.tasks.code.problems import FIELDS
from llm_envs.tasks.options import checked_choice
from llm_envs.tasks.rows import bundled_rows
from llm_envs.tasks.sources import HubData, Source, Sources

EVALUATION = tuple(f"CoopHumanEval/{number}" for number in range(16))
"""Evaluation rows of the hub's data set, as in other work on it; the others are trained on."""

KNOWN_FAULTS = {
    "CoopHumanEval/12": "45 and 12 are products of three primes, but False is expected",
    "CoopHumanEval/30": "the first odd number with an even digit sum is 11, but 13 is expected",
    "CoopHumanEval/44": "a pair of reversed numbers is expected to be left out",
    "CoopHumanEval/45": "209 = 11 · 19 is expected to be prime",
    "CoopHumanEval/50": "ten angles of 140° add up to 1400° and not to 1440°, but True is expected",
}
"""Rows of the data set whose tests ask for something wrong."""


def task(
    *,
    source: Source = "builtin",
    path: str | None = None,
    known_faults: KnownFaults = "skip",
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
    """Programmers who act at once, on problems made for a helper and a main function.

    Prompts, levels, range and options are those of `humaneval-v0`. CoopHumanEval's own rows have no reference solutions; the
    bundled ones do.

    Range: rewards and returns in [0, 4], without helpers [0, 2.1]; shared by the team.

    Args:
        source: "builtin" (12 rows of our own), "path" or "hub".
        path: of a file of rows with `source="path"`; another data set's name with `source="hub"`.
        known_faults: "skip" the rows of CoopHumanEval whose tests are known to be wrong (`KNOWN_FAULTS`), which the log then says,
            or "keep" them.
        eval_ids: `task_id`s of the evaluation rows; CoopHumanEval/0 to 15 of the hub, without those that are skipped.
        eval_share: share of rows for evaluation, by their ids; a quarter of other rows.
        helpers: see `humaneval-v0`, as the following.
        num_turns: tries.
        feedback: what is said between turns.
        reveal_hidden: let the feedback be about the hidden tests too.
        original_prompt: repeat the first prompt in later ones.
        previous_response: show an agent its last answer.
        expert: who suggests edits.
        cpu_seconds: that one check may take.
    """
    checked_choice("known_faults", known_faults, get_args(KnownFaults))
    rows = SOURCES.rows(source, path)
    left_out = {row["task_id"]: KNOWN_FAULTS[row["task_id"]] for row in rows if row["task_id"] in KNOWN_FAULTS}
    if known_faults == "keep":
        left_out = {}
    tell_known_faults("coophumaneval-v0", left_out)
    for one in eval_ids if isinstance(eval_ids, Sequence) else ():
        if one in left_out:
            raise ValueError(f"eval_ids names {one!r}, which known_faults='skip' leaves out: {left_out[one]}")
    if source == "hub" and path is None and eval_ids is None and eval_share is None:
        eval_ids = [one for one in EVALUATION if one not in left_out]
    rows = [row for row in rows if row["task_id"] not in left_out]
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
    return code_task("coophumaneval-v0", rows, options, eval_ids=eval_ids, eval_share=eval_share)


SOURCES = Sources(
    family="coophumaneval-v0",
    builtin=partial(bundled_rows, "coophumaneval"),
    fields=FIELDS,
    hub=HubData("OpenMLRL/CoopHumanEval", split="train"),
)
"""Where rows of the CoopHumanEval form come from."""
