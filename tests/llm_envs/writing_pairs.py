"""Pairs of texts for the writing tasks that do not do the task."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable

from llm_envs.env import TaskEnv
from llm_envs.tasks.writing import arxiv, tldr
from llm_envs.tasks.writing.lexicon import FUNCTION_WORDS, TRANSITIONS
from llm_envs.tasks.writing.measures import words

FORMS = {"tldr-v0": tldr.FORM, "arxiv-v0": arxiv.FORM}
TASKS = {"tldr-v0": tldr.task, "arxiv-v0": arxiv.task}
LENGTHS = {"tldr-v0": (25, 65), "arxiv-v0": (65, 70)}
"""Words of a fitting pair."""

ONE_OF_EACH = [phrases[0] for phrases in TRANSITIONS.values()]


def nonsense_pair(name: str) -> tuple[str, str]:
    """Made-up words with a transition of every category: what the reference system's levels take for a nearly perfect answer."""
    if name == "tldr-v0":
        return "plum river stone mortar lantern gate copper field", " ".join([*ONE_OF_EACH, "plum", "amber", "quartz"])
    # 128 words against 130 of which 56 are shared, longer ones for the ratio of lengths.
    first = [f"w{number:04d}" for number in range(128)]
    second = [*first[:56], *(f"w{number:09d}" for number in range(200, 262)), *ONE_OF_EACH]
    return " ".join(first), " ".join(second)


@functools.cache
def all_rows(name: str) -> list[dict]:
    """Every bundled row; not to be changed."""
    task = TASKS[name]()
    return [dict(row) for rows in (task.items, task.eval_items or ()) for row in rows]


def careless_pairs(name: str, row: dict, chance: random.Random) -> dict[str, tuple[str, str]]:
    """What teams write on a row that do not do the task, by name."""
    form = FORMS[name]
    source = row[form.field]
    in_order = source.split()
    content = [word for word in words(source) if word not in FUNCTION_WORDS]
    others = [word for other in all_rows(name) for word in other[form.field].split()]
    short, long = LENGTHS[name]

    def cut(pieces: list[str]) -> tuple[str, str]:
        return " ".join(pieces[:short]), " ".join(pieces[-long:])

    def shuffled(size: int) -> list[str]:
        pieces = [in_order[start : start + size] for start in range(0, len(in_order), size)]
        chance.shuffle(pieces)
        return [word for piece in pieces for word in piece]

    prompts = tuple(prompt(row) for prompt in form.prompts)
    return {
        "empty": ("", ""),
        "constant": ("ok", "ok"),
        "copied prompt": (prompts[0], prompts[1]),
        "source copied": (source, source),
        "pieces of the source": cut(in_order),
        "a piece of the source and padding": (
            " ".join([*in_order[:15], "as far as anybody can tell from all that was written here"]),
            " ".join([*in_order[-45:], *["this is what the writer wants us to know about it and what everybody should think of"]]),
        ),
        "nonsense and transitions": nonsense_pair(name),
        "keywords in order": cut(content),
        "keywords shuffled": cut(chance.sample(content, len(content))),
        "two words each, shuffled": cut(shuffled(2)),
        "four words each, shuffled": cut(shuffled(4)),
        "every third word left out": cut([word for position, word in enumerate(in_order) if position % 3 != 2]),
        "random words": cut(chance.choices(others, k=short + long)),
    }


SMALL_WORDS = ("of", "the", "and", "so", "also", "but", "a", "to", "in")


def swapped_pair(name: str, row: dict, every: int, by: str | None = None) -> tuple[str, str]:
    """The source's own words with every so-manyth replaced by `by`, or by small words, and two transitions in front."""
    source = row[FORMS[name].field].split()
    first, second = (source[:36], source[:100]) if name == "tldr-v0" else (source[:70], source[60:130])

    def swapped(pieces: list[str], words_in: tuple[str, ...]) -> str:
        other = itertools.cycle(words_in)
        return " ".join(next(other) if place % every == 0 else word for place, word in enumerate(pieces, start=1))

    return (
        swapped(first, (by or "the",)),
        "However, because " + swapped(second, (by,) if by else SMALL_WORDS),
    )


KEPT: dict[str, Callable[[int, random.Random], bool]] = {
    "every second": lambda place, chance: place % 2 == 0,
    "every second, the others": lambda place, chance: place % 2 == 1,
    "every third": lambda place, chance: place % 3 == 0,
    "two of four": lambda place, chance: place % 4 < 2,
    "two of five": lambda place, chance: place % 5 in (0, 2),
    "two of five by chance": lambda place, chance: chance.random() < 0.4,
    "half by chance": lambda place, chance: chance.random() < 0.5,
    "three of five by chance": lambda place, chance: chance.random() < 0.6,
    "every second, two for one": lambda place, chance: place % 2 == 0,
}
"""Which of the source's words stay."""


def replaced_pair(name: str, row: dict, kept: str, chance: random.Random) -> tuple[str, str]:
    """Two pieces of the source, with other words for those that do not stay."""
    source = row[FORMS[name].field].split()
    first, second = (source[:36], source[:100]) if name == "tldr-v0" else (source[:70], source[60:130])
    strange = (f"quartz{number}" for number in itertools.count())
    count = 2 if "two for one" in kept else 1

    def replaced(pieces: list[str]) -> str:
        stays = [KEPT[kept](place, chance) for place in range(len(pieces))]
        return " ".join(
            word if stay else " ".join(itertools.islice(strange, count)) for word, stay in zip(pieces, stays, strict=True)
        )

    return replaced(first), "However, because " + replaced(second)


def scores(task, row, pairs) -> list[float]:
    """The first turn's raw reward of each pair."""
    env = TaskEnv(task)
    state = env.initial(row, (0, 0), 0)
    transitions = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True)) for texts in pairs])
    return [transition.infos[env.possible_agents[0]]["raw_reward"] for transition in transitions]


def terms_of(task, row, texts) -> dict[str, float]:
    """Every term of one joint answer, by name."""
    env = TaskEnv(task)
    (transition,) = env.branch(env.initial(row, (0, 0), 0), [dict(zip(env.possible_agents, texts, strict=True))])
    info = transition.infos[env.possible_agents[0]]
    return {key.removeprefix("reward/"): value for key, value in info.items() if key.startswith("reward/")}
