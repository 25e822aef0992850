"""Guards the structural levels of the writing tasks and what they weigh: the reference system's formulas by hand, and ours."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from writing_pairs import (
    FORMS,
    KEPT,
    TASKS,
    all_rows,
    careless_pairs,
    nonsense_pair,
    replaced_pair,
    scores,
    swapped_pair,
    terms_of,
)

from llm_envs.tasks.writing.grounding import JointGrounding
from llm_envs.tasks.writing.levels import Structure
from llm_envs.tasks.writing.measures import words
from llm_envs.tasks.writing.scoring import GroundedScoring, ReferenceScoring, Verdict

PAGE = (Path(__file__).parents[2] / "docs" / "tasks" / "writing.md").read_text(encoding="utf-8")
FITTING = {
    "tldr-v0": Structure((20, 50), 2.5, 2.5, 3, 0.1),
    "arxiv-v0": Structure((150, 160), 1.4, 1.0, 3, 0.23),
}


built = functools.cache(lambda name, scoring: TASKS[name](scoring=scoring))


def reference_levels(name, **changes):
    return FORMS[name].gated.levels(dataclasses.replace(FITTING[name], **changes))


def soft_levels(name, **changes):
    return FORMS[name].levels.levels(dataclasses.replace(FITTING[name], **changes))


# ---- the reference system's, with its constants ----


@pytest.mark.parametrize(
    ("name", "ratio", "earned"),
    [
        ("tldr-v0", 1.09, None),
        ("tldr-v0", 1.1, 0.0),
        ("tldr-v0", 1.35, 0.5),
        ("tldr-v0", 1.6, 1.0),
        ("tldr-v0", 3.2, 1.0),
        ("tldr-v0", 4.1, 0.5),
        ("tldr-v0", 5.01, None),
        ("arxiv-v0", 0.79, None),
        ("arxiv-v0", 1.05, 0.5),
        ("arxiv-v0", 1.3, 1.0),
        ("arxiv-v0", 1.6, 1.0),
        ("arxiv-v0", 1.8, 0.5),
        ("arxiv-v0", 2.01, None),
    ],
)
def test_reference_ratio_and_its_gate(name, ratio, earned):
    """Beyond the window (None) only the ½ of the lengths is kept."""
    levels = reference_levels(name, length_ratio=ratio)
    assert levels["ratio"] == pytest.approx(earned or 0.0)
    if earned is None:
        assert levels == {"length": 0.5, "ratio": 0.0, "vocabulary": 0.0, "style": 0.0}
    else:
        assert levels["vocabulary"] == 0.5


@pytest.mark.parametrize(
    ("name", "unique", "earned"),
    [
        ("tldr-v0", 1.29, None),
        ("tldr-v0", 1.65, 0.25),
        ("tldr-v0", 2.0, 0.5),
        ("tldr-v0", 9.0, 0.5),
        ("arxiv-v0", 0.49, None),
        ("arxiv-v0", 0.6, 0.25),
        ("arxiv-v0", 1.3, 0.5),
        ("arxiv-v0", 1.5, 0.25),
        ("arxiv-v0", 1.71, None),
    ],
)
def test_reference_vocabulary_and_its_gate(name, unique, earned):
    levels = reference_levels(name, unique_ratio=unique)
    assert levels["vocabulary"] == pytest.approx(earned or 0.0) and levels["ratio"] == 1.0
    assert (levels["style"] == 0.0) == (earned is None)


@pytest.mark.parametrize(("name", "least", "most"), [("tldr-v0", 8, 256), ("arxiv-v0", 128, 256)])
def test_reference_length_gates_everything(name, least, most):
    for length in ((least, most), (most, least)):
        assert reference_levels(name, length=length)["length"] == 0.5
    for length in ((least - 1, most), (least, most + 1)):
        assert set(reference_levels(name, length=length).values()) == {0.0}


@pytest.mark.parametrize(
    ("transitions", "overlap", "style"),
    [(0, 0.0, 0.0), (1, 0.0, 0.16), (3, 0.0, 0.2), (12, 0.0, 0.38), (0, 0.5, 0.3), (12, 1.0, 0.98), (12, 2.0, 0.98)],
)
def test_reference_style(transitions, overlap, style):
    """0.4 · (0.4 + 0.05 · (n − 1)) + 0.6 · min(j, cap)/cap; the overlap here in caps, 0.03 and 0.23."""
    for name, cap in (("tldr-v0", 0.03), ("arxiv-v0", 0.23)):
        assert reference_levels(name, transitions=transitions, jaccard=overlap * cap)["style"] == pytest.approx(style)


def test_reference_counts_as_the_reference_does():
    """Substrings in the second text, in both joined without a space (`is over` has `so`); stop words count as different words."""
    tldr, arxiv = (FORMS[name].gated for name in FORMS)
    assert tldr.structure("so therefore", "some rain").transitions == 1
    assert arxiv.structure("what it is", "over there").transitions == 1
    found = tldr.structure("The cat's hat", "The the cat and a dog")
    assert found == Structure((3, 6), 21 / 13, 5 / 4, 0, 1 / 4)  # cat of cat, s, hat, dog


# ---- ours ----


def test_our_levels_by_hand():
    tldr = soft_levels("tldr-v0", length=(6, 18), length_ratio=1.35, unique_ratio=1.65, transitions=2, jaccard=0.025)
    assert tldr == {
        "length": pytest.approx(0.5 * 0.5),
        "ratio": pytest.approx(0.5),
        "vocabulary": pytest.approx(0.5),
        "style": pytest.approx(0.4 * 2 / 3 + 0.6 * 0.5),
    }
    arxiv = soft_levels("arxiv-v0", length=(30, 250), length_ratio=2.0, unique_ratio=1.5, transitions=7, jaccard=0.375)
    assert arxiv == {
        "length": pytest.approx(0.5 * 0.5),
        "ratio": pytest.approx(0.5),
        "vocabulary": pytest.approx(0.5),
        "style": pytest.approx(0.4 + 0.6 * 0.5),
    }


def test_our_structure_reads_whole_words_and_stems():
    tldr, arxiv = FORMS["tldr-v0"].levels, FORMS["arxiv-v0"].levels
    assert tldr.structure("so therefore", "some rain").transitions == 0
    assert arxiv.structure("so", "but some").transitions == 2
    found = tldr.structure("The cats slept", "The cat is sleeping and a dog barks")
    assert found == Structure((3, 8), 35 / 14, 8 / 3, 0, 1 / 5)  # cat of cat, slept, sleep, dog, bark


def test_paragraphs_that_repeat_each_other_earn_less():
    row = all_rows("arxiv-v0")[0]
    task = TASKS["arxiv-v0"]()
    twice = terms_of(task, row, (row["background"], row["background"]))
    assert twice["jaccard"] == 1.0 and twice["style"] == pytest.approx(twice["grounding"] * 0.4)


# ---- how they are weighed ----


def found_verdict(scoring, grounding, structure):
    return Verdict(scoring, JointGrounding((), grounding), structure)


def test_weights():
    """g = ½; levels 1, 1, 1 and style 1: ½·½ + ½·(1 + 2 + 1 + 2)/12 = ½. Nothing of it counts in the reference's scoring."""
    form, found = FORMS["tldr-v0"], FITTING["tldr-v0"]
    ours = found_verdict(GroundedScoring(form.levels), 0.5, found)
    assert ours.earned == {"grounding": 0.5, "length": 0.5, "ratio": 0.5, "vocabulary": 0.5, "style": 0.5}
    assert ours.score == pytest.approx(0.5) and not ours.perfect
    half = dataclasses.replace(found, length=(20, 18), unique_ratio=1.65)  # two levels at ½
    assert found_verdict(GroundedScoring(form.levels), 1.0, half).score == pytest.approx(1 - 1 / 24 - 1 / 24)
    assert found_verdict(GroundedScoring(form.levels), 1.0, found).score == 1.0
    theirs = found_verdict(ReferenceScoring(form.gated), 0.0, dataclasses.replace(found, transitions=12))
    assert theirs.score == pytest.approx(2.98) and theirs.perfect


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("scoring", ["grounded", "reference"])
@given(texts=st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60)), min_size=1, max_size=3))
@settings(max_examples=40)
def test_any_texts_earn_within_the_range(name, scoring, texts):
    task = built(name, scoring)
    low, high = task.reward.function.reward_range
    assert (low, high) == (0.0, 1.0 if scoring == "grounded" else 2.98)
    assert all(low <= value <= high for value in scores(task, task.items[0], texts))
    assert all(math.isfinite(value) for value in terms_of(task, task.items[0], texts[0]).values())


# ---- what careless teams earn ----


@pytest.mark.parametrize("name", TASKS)
def test_the_reference_answer_earns_all_on_every_row(name):
    task = TASKS[name]()
    for row in all_rows(name):
        assert scores(task, row, [task.reference(row)]) == [1.0], row["id"]


@pytest.mark.parametrize("name", TASKS)
def test_teams_that_do_not_do_the_task_earn_little_on_every_row(name):
    task = TASKS[name]()
    for number, row in enumerate(all_rows(name)):
        pairs = careless_pairs(name, row, random.Random(number))
        earned = dict(zip(pairs, scores(task, row, list(pairs.values())), strict=True))
        assert max(earned.values()) <= 0.05, (row["id"], earned)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("by", [None, "quartz"], ids=["small words", "a word of its own"])
def test_the_source_with_words_replaced_earns_little_on_every_row(name, by):
    """Pieces of the source too short to be copied ones, and small or strange words between: nothing was read for it."""
    task = TASKS[name]()
    for row in all_rows(name):
        earned = scores(task, row, [swapped_pair(name, row, every, by) for every in range(2, 9)])
        assert max(earned) <= 0.3, (row["id"], earned)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("kept", KEPT)
def test_the_source_with_most_words_replaced_earns_little(name, kept):
    """By words of which the source has none, all different: in whatever places, and also two for one."""
    task = TASKS[name]()
    earned = [scores(task, row, [replaced_pair(name, row, kept, random.Random(1))])[0] for row in all_rows(name)]
    assert sum(earned) / len(earned) <= 0.2 and max(earned) <= 0.35, earned


@pytest.mark.parametrize("name", TASKS)
def test_pieces_of_three_words_with_a_strange_one_between_pass(name):
    """What the page says under Limits. Whoever mends it mends the page."""
    task, chance = TASKS[name](), random.Random(0)
    for row in all_rows(name)[:3]:
        source = row[FORMS[name].field].split()
        pieces = [(*source[start : start + 3], f"quartz{start}") for start in range(0, len(source), 3)]
        chance.shuffle(pieces)
        short, long = {"tldr-v0": (12, 34), "arxiv-v0": (24, 24)}[name]
        pair = [" ".join(word for piece in part for word in piece) for part in (pieces[:short], pieces[-long:])]
        assert scores(task, row, [(pair[0], f"However, because {pair[1]}")])[0] > 0.5


@pytest.mark.parametrize("name", TASKS)
def test_the_answer_to_another_row_earns_next_to_nothing(name):
    task, rows = TASKS[name](), all_rows(name)
    for row in rows:
        assert max(scores(task, row, [task.reference(other) for other in rows if other["id"] != row["id"]])) <= 0.05, row["id"]


@pytest.mark.parametrize("name", TASKS)
def test_the_source_in_random_order_earns_little(name):
    """Single words by chance find a neighbour of theirs, so the mean of twenty shuffles is bounded."""
    task, chance, lengths = TASKS[name](), random.Random(0), {"tldr-v0": (25, 65), "arxiv-v0": (65, 70)}[name]
    for row in all_rows(name)[:6]:
        found = row[FORMS[name].field].split()
        pairs = [tuple(" ".join(chance.sample(found, length)) for length in lengths) for _ in range(20)]
        earned = scores(task, row, pairs)
        assert sum(earned) / len(earned) <= 0.1 and max(earned) <= 0.5, row["id"]


@pytest.mark.parametrize("name", TASKS)
def test_one_silent_writer_earns_nothing(name):
    task = TASKS[name]()
    for row in all_rows(name):
        first, second = task.reference(row)
        assert scores(task, row, [(first, ""), ("", second)]) == [0.0, 0.0]


@pytest.mark.parametrize("name", TASKS)
def test_a_fixed_pair_of_the_commonest_words_earns_little(name):
    """The words that most rows have, in an order of their own: it fits no row well."""
    rows, form = all_rows(name), FORMS[name]
    sources = [set(words(row[form.field])) for row in rows]
    common = sorted(set().union(*sources), key=lambda word: (-sum(word in source for source in sources), word))
    pair = (" ".join(common[:60:2]), " ".join(common[1:160:2]))
    task = TASKS[name]()
    assert max(scores(task, row, [pair])[0] for row in rows) <= 0.1


def test_the_exploit_table_is_true():
    """The reference system's scoring takes a fixed pair of nonsense for nearly perfect on every row; ours does not."""
    table = PAGE.split("## A fixed pair of texts")[1].split("\n## ")[0]
    said = {
        (name, scoring): (float(least), float(most))
        for name, scoring, least, most in re.findall(
            r"^\| `(.+?)` \| `(.+?)` \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|", table, re.MULTILINE
        )
    }
    found = {}
    for name, make in TASKS.items():
        for scoring in ("reference", "grounded"):
            task = make(scoring=scoring)
            earned = [scores(task, row, [nonsense_pair(name)])[0] for row in all_rows(name)]
            found[name, scoring] = (round(min(earned), 2), round(max(earned), 2))
    assert said == found
    assert min(found["tldr-v0", "reference"]) > 2.9 and min(found["arxiv-v0", "reference"]) > 2.9
