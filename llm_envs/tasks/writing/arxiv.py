"""`arxiv-v0`: the two paragraphs of an introduction, background and method, from the abstract of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from llm_envs.task import Task
from llm_envs.tasks.rows import bundled_rows
from llm_envs.tasks.sources import HubData, Source, Sources
from llm_envs.tasks.writing.assembly import Form, ScoringName, WritingOptions, renamed, rows_with_ids
from llm_envs.tasks.writing.feedback import Mode
from llm_envs.tasks.writing.grounding import Target, Targets
from llm_envs.tasks.writing.levels import GatedLevels, SoftLevels
from llm_envs.tasks.writing.measures import Window
from llm_envs.tasks.writing.parts import SEPARATOR
from llm_envs.types import AgentID, Item

FIELD = "abstract_text"


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
    """Two writers make an introduction of an abstract at once: `background_0` the first paragraph, `method_0` the second.

    Both paragraphs have to rest on the abstract and to cover it together (grounding g, in [0, 1]), and to fit each other: about as
    long, about as many different words, transitions, and little overlap, for they are not to repeat each other. A turn scores
    ½ · g + g · (length + 2 · ratio + vocabulary + 2 · style)/12, each level in [0, 1]. There is no term `solved`: no answer is the
    one right answer.

    `scoring="reference"`, several turns and the range are as for `tldr-v0`.

    Args:
        scoring: "grounded" or "reference".
        source: "builtin" (12 abstracts of invented studies), "path" (rows with the field `abstract_text`), "hub"
            (`OpenMLRL/arXiv_abstract`, its first 1,000 rows).
        path: of a file of rows with `source="path"`; another data set's name with `source="hub"`.
        eval_ids: ids of the evaluation rows; an `article_id` counts as id.
        eval_share: share of rows for evaluation, by their ids; a quarter.
        agents: 2, or two names, for a paragraph each; 1 that writes both, with `[PARAGRAPH_SPLIT]` between them.
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


BACKGROUND = "the background and the motivation of the work: what the problem is, and why it matters"
METHOD = "what was done and how, what was found, and what follows from it"
KEEP_TO_IT = "Write plain sentences in your own words, joined by transitions, and keep to what the abstract says."


def background_prompt(item: Item) -> str:
    """What the writer of the first paragraph reads."""
    return _prompt(item, "first", BACKGROUND, "second", METHOD)


def method_prompt(item: Item) -> str:
    """What the writer of the second paragraph reads."""
    return _prompt(item, "second", METHOD, "first", BACKGROUND)


def _prompt(item: Item, mine: str, gives: str, theirs: str, they_give: str) -> str:
    return (
        f"Read this abstract of a paper.\n\n{item[FIELD]}\n\n"
        f"The paper's introduction has two paragraphs. Write the {mine} one, which gives {gives}. Another writer gives the "
        f"{theirs} one, about as long as yours: {they_give}. Do not repeat what belongs there. {KEEP_TO_IT} "
        "Give the paragraph only."
    )


def single_prompt(item: Item) -> str:
    """What one agent reads that writes both."""
    return (
        f"Read this abstract of a paper.\n\n{item[FIELD]}\n\n"
        f"Write the two paragraphs of the paper's introduction, about equally long, with {SEPARATOR} on a line between them. The "
        f"first gives {BACKGROUND}. The second gives {METHOD}. Repeat nothing. {KEEP_TO_IT} Give the paragraphs only."
    )


FORM = Form(
    name="arxiv-v0",
    roles=("background", "method"),
    field=FIELD,
    prompts=(background_prompt, method_prompt),
    single_prompt=single_prompt,
    targets=Targets((Target(0.2, 20), Target(0.2, 20)), together=Target(0.5, 45)),
    levels=SoftLevels(
        length=(Window(20, 40, 200, 300), Window(20, 40, 200, 300)),
        ratio=Window(0.4, 0.67, 1.5, 2.5),
        vocabulary=Window(0.5, 0.7, 1.3, 1.7),
        overlap=Window(0.0, 0.03, 0.25, 0.5),
        transitions_in="both",
    ),
    gated=GatedLevels(
        length=Window(128, 128, 256, 256),
        ratio=Window(0.8, 1.3, 1.6, 2.0),
        vocabulary=Window(0.5, 0.7, 1.3, 1.7),
        overlap_cap=0.23,
        transitions_in="both",
    ),
)
"""The task's constants; those of `gated` are the reference system's."""


def convert(row: Item) -> Item:
    """A row of the data set on the hub as ours: its `article_id` is the `id`."""
    return renamed(row, {"article_id": "id"})


SOURCES = Sources(
    family="arxiv-v0",
    builtin=partial(bundled_rows, "arxiv"),
    fields=[FIELD],
    hub=HubData("OpenMLRL/arXiv_abstract", split="train[:1000]"),
    convert=convert,
)
"""Where abstracts come from. Those on the hub are arXiv's, under no licence that would let them be bundled."""
