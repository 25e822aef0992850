"""`tldr-v0`: a short and a detailed summary of one post, in the form of TL;DR."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from llm_envs.task import Task
from llm_envs.tasks.rows import bundled_rows
from llm_envs.tasks.sources import HubData, Source, Sources
from llm_envs.tasks.writing.assembly import Form, ScoringName, WritingOptions, rows_with_ids
from llm_envs.tasks.writing.feedback import Mode
from llm_envs.tasks.writing.grounding import Target, Targets
from llm_envs.tasks.writing.levels import GatedLevels, SoftLevels
from llm_envs.tasks.writing.measures import Window
from llm_envs.tasks.writing.parts import SEPARATOR
from llm_envs.types import AgentID, Item

FIELD = "prompt"


def task(
    *,
    scoring: ScoringName = "grounded",
    source: Source = "builtin",
    path: str | None = None,
    eval_ids: Sequence[str] | None = None,
    eval_share: float | None = None,
    agents: int | Sequence[AgentID] = 2,
    num_turns: int = 1,
    feedback: Mode = "level_feedback",
    original_prompt: bool = True,
    previous_response: bool = True,
) -> Task:
    """Two writers summarise one post at once, without seeing each other's text: `summary_0` shortly, `detail_0` in detail.

    Both texts have to rest on the post (grounding g, in [0, 1]), and to fit each other: number of words, the detailed text 1.6 to
    3.2 times as long as the short one, twice as many different words, transitions in the detailed text, some overlap of words. A
    turn scores ½ · g + g · (length + 2 · ratio + vocabulary + 2 · style)/12, each level in [0, 1]. There is no term `solved`: no
    answer is the one right answer.

    `scoring="reference"` is the reward of the reference system (LLM_Collab_Writing): gated levels alone, with a maximum of 2.98. It
    does not read the post, so one fixed pair of texts earns 2.9 on every row; it is there for comparison.

    With several turns everybody reads the first prompt, its last answer and the feedback next. A turn's score counts 1/`num_turns`;
    the episode ends with the highest score, which is paid for the turns it saves as well.

    Range: rewards and returns in [0, 1], for the reference system's scoring in [0, 2.98]; shared by the team.

    Args:
        scoring: "grounded" or "reference".
        source: "builtin" (14 posts of our own), "path" (rows with the field `prompt`), "hub" (first 1,000 rows of `trl-lib/tldr`).
        path: of a file of rows with `source="path"`; another data set's name with `source="hub"`.
        eval_ids: ids of the evaluation rows.
        eval_share: share of rows for evaluation, by their ids; a quarter.
        agents: 2, or two names, for one text each; 1 that writes both texts, with `[PARAGRAPH_SPLIT]` between them.
        num_turns: tries.
        feedback: "plain", "level_passed" (which levels are full) or "level_feedback" (what was measured).
        original_prompt: repeat the first prompt in later ones.
        previous_response: show an agent its last answer.
    """
    options = WritingOptions(
        scoring=scoring,
        agents=agents,
        num_turns=num_turns,
        feedback=feedback,
        original_prompt=original_prompt,
        previous_response=previous_response,
        eval_ids=eval_ids,
        eval_share=eval_share,
    )
    return FORM.task(rows_with_ids(SOURCES, source, path, FIELD), options)


SHORT = "in one or two sentences that give the facts that matter most"
DETAILED = (
    "in detail, with facts that a short summary leaves out. Use more different words than a short summary, and join your sentences "
    "with transitions such as however or because"
)
KEEP_TO_IT = "Write plain sentences in your own words, and keep to what the post says."


def summary_prompt(item: Item) -> str:
    """What the writer of the short summary reads."""
    return (
        f"Read this post.\n\n{item[FIELD]}\n\n"
        f"Summarise the post {SHORT}. Another writer gives a detailed summary. {KEEP_TO_IT} Give the summary only."
    )


def detail_prompt(item: Item) -> str:
    """What the writer of the detailed summary reads."""
    return (
        f"Read this post.\n\n{item[FIELD]}\n\n"
        f"Summarise the post {DETAILED}. Another writer gives a short summary; yours should be two to three times as long. "
        f"{KEEP_TO_IT} Give the summary only."
    )


def single_prompt(item: Item) -> str:
    """What one agent reads that writes both."""
    return (
        f"Read this post.\n\n{item[FIELD]}\n\n"
        f"Write two summaries of the post, with {SEPARATOR} on a line between them. The first: {SHORT}. The second: {DETAILED}; "
        f"two to three times as long as the first. {KEEP_TO_IT} Give the summaries only."
    )


FORM = Form(
    name="tldr-v0",
    roles=("summary", "detail"),
    field=FIELD,
    prompts=(summary_prompt, detail_prompt),
    single_prompt=single_prompt,
    targets=Targets((Target(0.1, 10), Target(0.3, 30)), together=Target(0.4, 40)),
    levels=SoftLevels(
        length=(Window(4, 8, 64, 128), Window(12, 24, 192, 384)),
        ratio=Window(1.1, 1.6, 3.2, 5.0),
        vocabulary=Window(1.3, 2.0),
        overlap=Window(0.0, 0.05, 0.5, 0.9),
        transitions_in="second",
    ),
    gated=GatedLevels(
        length=Window(8, 8, 256, 256),
        ratio=Window(1.1, 1.6, 3.2, 5.0),
        vocabulary=Window(1.3, 2.0),
        overlap_cap=0.03,
        transitions_in="second",
    ),
)
"""The task's constants; those of `gated` are the reference system's."""


SOURCES = Sources(
    family="tldr-v0", builtin=partial(bundled_rows, "tldr"), fields=[FIELD], hub=HubData("trl-lib/tldr", split="train[:1000]")
)
"""Where posts come from. Those on the hub are Reddit's, under no licence that would let them be bundled."""
