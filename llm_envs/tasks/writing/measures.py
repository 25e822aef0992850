"""What is counted in a text, alone and beside another: word shares, runs of words in common, repetition, order, transitions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from llm_envs.tasks.words import words_of
from llm_envs.tasks.writing.lexicon import (
    ARTICLES,
    FUNCTION_WORDS,
    PREPOSITIONS,
    TRANSITION_PATTERNS,
    TRANSITIONS,
)

PASSAGE = 5
"""Words in a row that make a passage of the source."""

STEPS, APART = 6, 6
"""At least so many of the source's words, each at most so many places behind the last, keep step with it."""

NEAR = 3
"""Content words after one of the source that count as what comes next: two may be left out."""

_SUFFIXES = ("ing", "ied", "ies", "ed", "es", "ly", "s")
_VOWEL = re.compile(r"[aeiouy]")


@dataclass(frozen=True)
class Window:
    """A trapezoid: 1 in [`best_from`, `best_to`], falling linearly to 0 at `low` and `high`. In [0, 1].

    Attributes:
        low: 0 from here down.
        best_from: 1 from here on.
        best_to: 1 up to here.
        high: 0 from here up.
    """

    low: float
    best_from: float
    best_to: float = float("inf")
    high: float = float("inf")

    def __post_init__(self) -> None:
        if not self.low <= self.best_from <= self.best_to <= self.high:
            raise ValueError(f"a window needs low ≤ best_from ≤ best_to ≤ high, got {self}")

    def __contains__(self, value: float) -> bool:
        """Whether the value lies in [low, high]."""
        return self.low <= value <= self.high

    def __call__(self, value: float) -> float:
        """The height of the trapezoid at the value."""
        if self.best_from <= value <= self.best_to:
            return 1.0
        if value not in self:
            return 0.0
        if value < self.best_from:
            return (value - self.low) / (self.best_from - self.low)
        return (self.high - value) / (self.high - self.best_to)


def words(text: str) -> tuple[str, ...]:
    """The text's words in order, case folded; `don’t` as `don't`."""
    return tuple(words_of(text.replace("’", "'")))


def stem(word: str) -> str:
    """The word without its commonest endings, so that `hikes`, `hiked` and `hiking` are one; no word of a dictionary."""
    word = word.removesuffix("'s")
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and not word.endswith(("ss", "us", "eed")):
            rest = word[: -len(suffix)] + ("y" if suffix in ("ied", "ies") else "")
            if len(rest) >= 3 and _VOWEL.search(rest):
                word = rest
                break
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def content(text_words: Sequence[str]) -> frozenset[str]:
    """Stems of the words that are no function words."""
    return frozenset(_stems(text_words))


@dataclass(frozen=True)
class Source:
    """What texts are held against.

    Attributes:
        content: its stems.
        words: all of its words.
        pairs: its pairs of neighbours.
        followers: pairs of its content words, each with the next `NEAR`.
        passages: every `PASSAGE` words that stand together in it.
        places: of each word, from 0.
        length: its number of words.
    """

    content: frozenset[str]
    words: frozenset[str]
    pairs: frozenset[tuple[str, ...]]
    followers: frozenset[tuple[str, ...]]
    passages: frozenset[tuple[str, ...]]
    places: Mapping[str, tuple[int, ...]]
    length: int


@lru_cache(maxsize=256)
def source_of(text: str) -> Source:
    """The source, read once for all answers to it."""
    all_words = words(text)
    stems = _stems(all_words)
    return Source(
        content=content(all_words),
        words=frozenset(all_words),
        pairs=frozenset(_runs(all_words, 2)),
        followers=frozenset((one, other) for at, one in enumerate(stems) for other in stems[at + 1 : at + 1 + NEAR]),
        passages=frozenset(_runs(all_words, PASSAGE)),
        places={word: tuple(places) for word, places in _places(all_words).items()},
        length=len(all_words),
    )


def copied_share(text_words: Sequence[str], source: Source) -> float:
    """Share of the words that stand in a pair of neighbours of the source. In [0, 1].

    1 for pieces of the source of two or more words, in whatever order, with nothing between them.
    """
    return ratio(len(text_words), _covered(text_words, source.pairs, 2))


def passage_share(text_words: Sequence[str], source: Source) -> float:
    """Words in passages of the source, `PASSAGE` or more in a row, divided by those of the text or the source, if it is shorter.

    1 for a copy of the source with anything around it, and for any piece of it; above only where passages are repeated.
    """
    return ratio(min(len(text_words), source.length), _covered(text_words, source.passages, PASSAGE))


def aligned_share(text_words: Sequence[str], source: Source) -> float:
    """Words in stretches that keep step with the source, divided by those of the text or the source, if it is shorter.

    A stretch has at least `STEPS` words of the source, as far from each other as they are there, each at most `APART` places behind
    the last; what stands between is counted with it. 1 for the source with half of its words replaced, one for one.
    """
    distances: dict[int, list[int]] = {}
    for place, word in enumerate(text_words):
        for there in source.places.get(word, ()):
            distances.setdefault(there - place, []).append(place)
    inside = [False] * len(text_words)
    for places in distances.values():
        for stretch in _stretches(places):
            inside[stretch[0] : stretch[-1] + 1] = [True] * (stretch[-1] + 1 - stretch[0])
    return ratio(min(len(text_words), source.length), sum(inside))


def linked_share(text_words: Sequence[str], source: Source) -> float:
    """Of the pairs of neighbours whose words both stand in the source, the share that are neighbours there too. In (0, 1].

    Sentences on the same matter share some pairs with it (`of the`, `water butts`); its words in random order next to none.
    A short text in words of its own has few such pairs at all, so one more is taken to be known and linked.
    """
    known = [pair for pair in _runs(text_words, 2) if source.words.issuperset(pair)]
    return (sum(pair in source.pairs for pair in known) + 1) / (len(known) + 1)


def followed_share(text_words: Sequence[str], source: Source) -> float:
    """Of the source's content words in the text, taken without all else, the share of neighbours that come so in the source too.

    So means in this order with at most two content words between. 1 for a copy in which other words stand for some of the source's,
    whichever they are; what is said anew leaves the source's order. 0 for fewer than two such words. In [0, 1].
    """
    known = [one for one in _stems(text_words) if one in source.content]
    pairs = _runs(known, 2)
    return ratio(len(pairs), sum(pair in source.followers for pair in pairs))


def repeated_share(text_words: Sequence[str]) -> float:
    """1 − distinct pairs of neighbours / all pairs; 0 for fewer than two words. In [0, 1)."""
    pairs = _runs(text_words, 2)
    return 1.0 - len(set(pairs)) / len(pairs) if pairs else 0.0


def opening_share(text_words: Sequence[str]) -> float:
    """Share of articles and prepositions, which open phrases; 0 without words. Plain English has about a fifth. In [0, 1]."""
    return sum(word in ARTICLES or word in PREPOSITIONS for word in text_words) / len(text_words) if text_words else 0.0


def jaccard(one: frozenset[str], two: frozenset[str]) -> float:
    """Size of the intersection by that of the union; 0 for two empty sets. In [0, 1]."""
    return len(one & two) / len(one | two) if one or two else 0.0


def ratio(first: float, second: float) -> float:
    """second/first, 0 where first is 0."""
    return second / first if first else 0.0


def transition_categories(text: str) -> int:
    """Categories of transitions of which a whole word or phrase stands in the text. In {0, …, 12}."""
    lowered = " ".join(text.casefold().split())
    return sum(pattern.search(lowered) is not None for pattern in TRANSITION_PATTERNS.values())


def transition_substrings(text: str) -> int:
    """Categories of which a word or phrase occurs anywhere, as `so` in `some`: how the reference system counts."""
    lowered = text.lower()
    return sum(any(phrase in lowered for phrase in phrases) for phrases in TRANSITIONS.values())


def _stems(text_words: Sequence[str]) -> list[str]:
    return [stem(word) for word in text_words if word not in FUNCTION_WORDS]


def _places(text_words: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, word in enumerate(text_words):
        found.setdefault(word, []).append(place)
    return found


def _stretches(places: Sequence[int]) -> Iterator[Sequence[int]]:
    """Of rising places those of at least `STEPS` that are nowhere more than `APART` from the next."""
    start = 0
    for end in range(1, len(places) + 1):
        if end == len(places) or places[end] - places[end - 1] > APART:
            if end - start >= STEPS:
                yield places[start:end]
            start = end


def _runs(text_words: Sequence[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(text_words[start : start + length]) for start in range(len(text_words) - length + 1)]


def _covered(text_words: Sequence[str], runs: frozenset[tuple[str, ...]], length: int) -> int:
    """Words of the text that stand in one of the runs."""
    covered = [False] * len(text_words)
    for start, run in enumerate(_runs(text_words, length)):
        if run in runs:
            covered[start : start + length] = [True] * length
    return sum(covered)
