"""Guards what the writing tasks count in a text: golden values, a naive count of copied words, what holds for any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.tasks.writing.grounding import MEASURES, Grounding, Target, ground
from llm_envs.tasks.writing.lexicon import FUNCTION_WORDS, TRANSITIONS
from llm_envs.tasks.writing.measures import (
    APART,
    STEPS,
    Window,
    aligned_share,
    content,
    copied_share,
    followed_share,
    jaccard,
    linked_share,
    opening_share,
    passage_share,
    ratio,
    repeated_share,
    source_of,
    stem,
    transition_categories,
    transition_substrings,
    words,
)
from llm_envs.tasks.writing.parts import SEPARATOR, joined, parts_of, split_parts


def split(text):
    return tuple(text.split())


def test_a_window_is_a_trapezoid():
    window = Window(1.0, 2.0, 4.0, 8.0)
    heights = {0.9: 0.0, 1.0: 0.0, 1.25: 0.25, 2.0: 1.0, 3.0: 1.0, 4.0: 1.0, 6.0: 0.5, 8.0: 0.0, 9.0: 0.0}
    assert {value: window(value) for value in heights} == heights
    assert [value in window for value in (0.99, 1.0, 8.0, 8.01)] == [False, True, True, False]
    assert Window(1.3, 2.0)(1e9) == 1.0
    assert [Window(8, 8, 256, 256)(count) for count in (7, 8, 256, 257)] == [0.0, 1.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="low ≤ best_from ≤ best_to ≤ high, got Window"):
        Window(2.0, 1.0)


@pytest.mark.parametrize(
    "forms",
    [
        "hike hikes hiked hiking",
        "stop stops stopped stopping",
        "study studies studied studying",
        "glass glasses",
        "mother mother's",
    ],
)
def test_forms_of_a_word_have_one_stem(forms):
    assert len({stem(word) for word in forms.split()}) == 1


def test_short_words_and_double_s_stay_whole():
    assert [stem(word) for word in ("bus", "string", "thing", "need", "gas")] == ["bus", "string", "thing", "need", "gas"]


def test_content_leaves_function_words_out():
    assert content(words("The neighbour’s cats, and my own cat; I don’t know!")) == {"neighbour", "cat", "know"}
    assert all(word == word.casefold() and word == words(word)[0] for word in FUNCTION_WORDS)


SOURCE = source_of("a b c d e f. g h")


@pytest.mark.parametrize(
    ("text", "copied", "passages", "linked"),
    [
        ("a b c d e f g h", 1.0, 1.0, 1.0),
        ("a b x c d", 4 / 5, 0.0, 1.0),  # pairs known to the source: a b, c d; and one given
        ("g h e f c d a b", 1.0, 0.0, 5 / 8),  # linked: g h, e f, c d, a b of seven
        ("h g f e d c b a", 0.0, 0.0, 1 / 8),
        ("x a b c d e y z", 5 / 8, 5 / 8, 1.0),
        ("x x x x x a b c d e y y", 5 / 12, 5 / 8, 1.0),  # longer than the source: of its eight words
        ("a c x", 0.0, 0.0, 1 / 2),
        ("x y z", 0.0, 0.0, 1.0),
        ("", 0.0, 0.0, 1.0),
    ],
)
def test_what_is_taken_from_the_source(text, copied, passages, linked):
    found = split(text)
    assert (copied_share(found, SOURCE), passage_share(found, SOURCE), linked_share(found, SOURCE)) == (copied, passages, linked)


@pytest.mark.parametrize(
    ("text", "followed"),
    [
        ("storm tree house river bridge", 1.0),
        ("storm the tree thing river", 1.0),  # other words between, the house left out
        ("storm bridge", 0.0),  # three are left out
        ("bridge river house tree storm", 0.0),
        ("river storms, tree bridge", 2 / 3),  # stems; back from the river to the storm
        ("storm", 0.0),
        ("", 0.0),
    ],
)
def test_what_follows_the_order_of_the_source(text, followed):
    assert followed_share(words(text), source_of("storm tree house river bridge")) == followed


@pytest.mark.parametrize(
    ("text", "aligned"),
    [
        ("a b c d e f", 1.0),  # six in a row
        ("a b c d e", 0.0),  # one too few
        ("a x c x e x g x i x k", 1.0),  # every second
        ("x x a x c x e x g x i x k x x", 11 / 12),  # of the source's twelve words
        ("a x x x x x g h i j k", 1.0),  # five others between
        ("a x x c x x e x x g x x i x x k", 0.0),  # two for one: out of step
        ("b a d c f e h g j i", 0.0),
        ("a b c x d e f", 0.0),  # out of step behind the x
        ("a b x d e f g x x x g h i j k l", 13 / 12),  # two stretches, of seven places and six
        ("x", 0.0),
        ("", 0.0),
    ],
)
def test_what_keeps_step_with_the_source(text, aligned):
    """At least six words, at most five others between two of them."""
    assert aligned_share(split(text), source_of("a b c d e f g h i j k l")) == pytest.approx(aligned)


def naive_aligned(text, source):
    """Words of the text between the first and the last of at least `STEPS` that are at one distance from the source's."""
    inside = set()
    for distance in range(-len(text), len(source)):
        alike = [n for n, word in enumerate(text) if 0 <= n + distance < len(source) and source[n + distance] == word]
        for first in alike:
            chain = [first]
            while later := [n for n in alike if chain[-1] < n <= chain[-1] + APART]:
                chain.append(later[0])
            if len(chain) >= STEPS:
                inside.update(range(first, chain[-1] + 1))
    return len(inside) / min(len(text), len(source)) if text and source else 0.0


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
def test_steps_are_counted_as_by_hand(text, other):
    assert aligned_share(tuple(text), source_of(" ".join(other))) == pytest.approx(naive_aligned(text, other))


def naive_covered(text, source, length):
    """Words of the text inside of any window of this length that the source has too."""
    windows = [source[start : start + length] for start in range(len(source) - length + 1)]
    inside = set()
    for start in range(len(text) - length + 1):
        if text[start : start + length] in windows:
            inside.update(range(start, start + length))
    return len(inside)


FEW = st.lists(st.sampled_from("abcd"), max_size=14)


@given(FEW, FEW)
def test_copies_are_counted_as_by_hand(text, other):
    source = source_of(" ".join(other))
    by_pairs = naive_covered(text, other, 2) / len(text) if text else 0.0
    assert copied_share(tuple(text), source) == by_pairs
    shorter = min(len(text), len(other))
    assert passage_share(tuple(text), source) == (naive_covered(text, other, 5) / shorter if shorter else 0.0)


def test_repetition_opening_and_overlap():
    assert repeated_share(split("a b a b a")) == 1 - 2 / 4
    assert repeated_share(split("a b c")) == repeated_share(split("a")) == repeated_share(()) == 0.0
    assert opening_share(split("the cat sat on my mat")) == 3 / 6 and opening_share(()) == 0.0
    assert jaccard(frozenset("abc"), frozenset("bcd")) == 2 / 4 and jaccard(frozenset(), frozenset()) == 0.0
    assert ratio(4, 6) == 1.5 and ratio(0, 6) == 0.0


def test_transitions_are_words_and_not_pieces_of_words():
    """`so` in `some`, `if` in `gift`, `but` in `button`: three categories of the reference system, none of ours."""
    assert transition_categories("some gift button") == 0 and transition_substrings("some gift button") == 3
    assert transition_categories("So it rained.\nHowever, as  a\nresult, we left after that.") == 3  # result, contrast, time
    assert len(TRANSITIONS) == 12
    everything = " ".join(phrases[0] for phrases in TRANSITIONS.values())
    assert transition_categories(everything) == transition_substrings(everything) == 12


def test_recall_is_capped_by_its_target():
    """Half of the words, but no more than 10."""
    target = Target(0.5, 10)
    assert [target(found, 8) for found in (0, 2, 4, 8)] == [0.0, 0.5, 1.0, 1.0]
    assert target(5, 100) == 0.5


def test_the_grounding_of_a_text_is_the_product_of_its_windows():
    """Precision 0.25 of 0.5, copied 0.875 of 0.8 to 0.95, linked 0.1 of 0.05 to 0.15, the others full: ½ · ½ · ½ · ½."""
    measures = {
        "precision": 0.25,
        "copied": 0.875,
        "passages": 0.0,
        "aligned": 0.0,
        "linked": 0.1,
        "followed": 0.5,
        "repeated": 0.0,
        "opening": 0.2,
    }
    assert set(measures) == set(MEASURES)
    assert Grounding(0.5, measures).score == pytest.approx(1 / 16)


def test_a_text_of_the_source():
    """Content: storm, tree, fell, house against storm, tree, broke. Of its pairs `the storm` and `the tree` are there."""
    source = source_of("The storm broke the tree.")
    found = ground("After the storm the tree fell on a house.", source, Target(1.0, 10))
    assert found.recall == pytest.approx(2 / 3)
    assert found.measures["precision"] == 2 / 4
    assert found.measures["copied"] == 4 / 9
    assert found.measures["linked"] == (2 + 1) / (3 + 1)  # the storm, storm the, the tree
    assert found.measures["opening"] == 4 / 9


@given(st.text(max_size=60), st.text(max_size=60))
def test_measures_are_shares(text, other):
    source = source_of(other)
    found = ground(text, source, Target(0.3, 10))
    assert 0.0 <= found.score <= 1.0 and 0.0 <= found.recall <= 1.0
    per_source = {"passages", "aligned"}
    assert all(0.0 <= value <= 1.0 for name, value in found.measures.items() if name not in per_source)
    assert all(found.measures[name] >= 0.0 for name in per_source)


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        (f"one {SEPARATOR} two", "one", "two"),
        (f"Paragraph 1: one\n{SEPARATOR}\nparagraph 2: two", "one", "two"),
        (f"one{SEPARATOR}two{SEPARATOR}three", "one", f"two{SEPARATOR}three"),
        ("one\n\nParagraph 2: two\nmore", "one", "two\nmore"),
        ("Paragraph 1: see paragraph 2: later", "see paragraph 2: later", ""),
        ("no second part, however long it is", "no second part, however long it is", ""),
        ("", "", ""),
    ],
)
def test_one_text_is_taken_apart(text, first, second):
    assert split_parts(text) == parts_of([text]) == (first, second)
    assert parts_of([text, text]) == (text, text)


@given(st.text(alphabet="ab \n", max_size=9), st.text(alphabet="ab \n", max_size=9))
def test_what_was_joined_comes_apart(first, second):
    assert split_parts(joined(first, second)) == (first.strip(), second.strip())
