"""The structural levels: lengths, their ratio, vocabulary, and style, by the reference system's formulas and by ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from llm_envs.tasks.writing.lexicon import FUNCTION_WORDS
from llm_envs.tasks.writing.measures import Window, content, jaccard, ratio, transition_categories, transition_substrings, words

LEVELS: tuple[str, ...] = ("length", "ratio", "vocabulary", "style")

TRANSITIONS, OVERLAP = 0.4, 0.6
"""Parts of the style: transitions, and overlap between both texts."""

WHERE: TypeAlias = Literal["second", "both"]
"""In which texts transitions are looked for."""

_WORD = re.compile(r"\b\w+\b")


@dataclass(frozen=True)
class Structure:
    """What was measured of two texts beside each other.

    Attributes:
        length: words of each, split at white space.
        length_ratio: characters of the second / of the first; 0 if the first is empty.
        unique_ratio: different words of the second / of the first; 0 if the first has none.
        transitions: categories of transitions.
        jaccard: overlap of their words that are no function words.
    """

    length: tuple[int, int]
    length_ratio: float
    unique_ratio: float
    transitions: int
    jaccard: float


@dataclass(frozen=True)
class SoftLevels:
    """Our levels, each in [0, 1] and each for itself.

    * length: product of both texts' windows on their number of words.
    * ratio, vocabulary: windows on the ratios of characters and of different words.
    * style: 0.4 · min(1, categories of transitions / `enough`) + 0.6 · window on the overlap of stems. Transitions are whole words.

    Attributes:
        length: window on the words of each text.
        ratio: window on second / first in characters.
        vocabulary: window on second / first in different words.
        overlap: window on the Jaccard index of the texts' stems.
        transitions_in: "second" or "both" texts.
        enough: categories of transitions that earn all.
    """

    length: tuple[Window, Window]
    ratio: Window
    vocabulary: Window
    overlap: Window
    transitions_in: WHERE
    enough: int = 3

    def structure(self, first: str, second: str) -> Structure:
        """What is measured of the texts."""
        one, two = words(first), words(second)
        return Structure(
            length=(len(first.split()), len(second.split())),
            length_ratio=ratio(len(first), len(second)),
            unique_ratio=ratio(len(set(one)), len(set(two))),
            transitions=transition_categories(second if self.transitions_in == "second" else f"{first}\n{second}"),
            jaccard=jaccard(content(one), content(two)),
        )

    def levels(self, found: Structure) -> dict[str, float]:
        """Every level, in [0, 1]."""
        transitions = min(1.0, found.transitions / self.enough)
        return {
            "length": self.length[0](found.length[0]) * self.length[1](found.length[1]),
            "ratio": self.ratio(found.length_ratio),
            "vocabulary": self.vocabulary(found.unique_ratio),
            "style": TRANSITIONS * transitions + OVERLAP * self.overlap(found.jaccard),
        }


@dataclass(frozen=True)
class GatedLevels:
    """The reference system's levels (LLM_Collab_Writing): the first gate that fails ends the evaluation. Sum in [0, 2.98].

    * length: ½ if both texts have 8 to 256 words (or as `length` says), else nothing at all.
    * ratio: 1 · window on the ratio of characters; beyond it nothing more.
    * vocabulary: ½ · window on the ratio of different words; beyond it nothing more.
    * style: 0.4 · T + 0.6 · min(overlap, cap)/cap, with T = 0.4 + 0.05 · (n − 1) for n ≥ 1 of twelve categories of transitions, so
      never more than 0.95. Transitions are substrings; for `both` the texts are joined without a space between them.

    The source is not read. The reference system's lists of transitions and stop words are not published under a licence; ours stand
    in for them.

    Attributes:
        length: window on the words of each text.
        ratio: window on second / first in characters.
        vocabulary: window on second / first in different words.
        overlap_cap: Jaccard index of the texts' words that earns all.
        transitions_in: "second" or "both" texts.
    """

    length: Window
    ratio: Window
    vocabulary: Window
    overlap_cap: float
    transitions_in: WHERE

    def structure(self, first: str, second: str) -> Structure:
        """What is measured of the texts."""
        one, two = (frozenset(_WORD.findall(text.lower())) for text in (first, second))
        return Structure(
            length=(len(first.split()), len(second.split())),
            length_ratio=ratio(len(first), len(second)),
            unique_ratio=ratio(len(one), len(two)),
            transitions=transition_substrings(second if self.transitions_in == "second" else first + second),
            jaccard=jaccard(one - FUNCTION_WORDS, two - FUNCTION_WORDS),
        )

    def levels(self, found: Structure) -> dict[str, float]:
        """Every level: at most ½, 1, ½, 0.98."""
        steps = {
            "length": (all(count in self.length for count in found.length), 0.5),
            "ratio": (found.length_ratio in self.ratio, self.ratio(found.length_ratio)),
            "vocabulary": (found.unique_ratio in self.vocabulary, 0.5 * self.vocabulary(found.unique_ratio)),
            "style": (True, self._style(found)),
        }
        earned = dict.fromkeys(LEVELS, 0.0)
        for name, (passed, value) in steps.items():
            if not passed:
                break
            earned[name] = value
        return earned

    def _style(self, found: Structure) -> float:
        transitions = min(1.0, 0.4 + 0.05 * (found.transitions - 1)) if found.transitions else 0.0
        return TRANSITIONS * transitions + OVERLAP * min(found.jaccard, self.overlap_cap) / self.overlap_cap
