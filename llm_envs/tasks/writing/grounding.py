"""How well a text rests on its source: it says much of it, little else, in words of its own and in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llm_envs.tasks.writing.measures import (
    Source,
    Window,
    aligned_share,
    content,
    copied_share,
    followed_share,
    linked_share,
    opening_share,
    passage_share,
    ratio,
    repeated_share,
    source_of,
    words,
)

PRECISION = Window(0.0, 0.5)
"""Share of a text's content words that stand in the source."""

COPIED = Window(-1.0, 0.0, 0.8, 0.95)
"""Share of its words in pairs of neighbours of the source: all, in pieces of it however short."""

PASSAGES = Window(-1.0, 0.0, 0.35, 0.6)
"""Share of its words in passages of the source of five or more words."""

ALIGNED = Window(-1.0, 0.0, 0.7, 0.85)
"""Share of its words in stretches that keep step with the source: nearly all, where many words were replaced one for one."""

LINKED = Window(0.05, 0.15)
"""Share of its pairs of the source's words that are pairs there: next to none in shuffled words."""

FOLLOWED = Window(-1.0, 0.0, 0.86, 0.94)
"""Share of its neighbours among the source's content words that come so in the source: all, where words were only replaced."""

REPEATED = Window(-1.0, 0.0, 0.15, 0.5)
"""Share of its pairs of neighbours that stood in it before."""

OPENING = Window(-0.05, 0.08, 0.4, 0.7)
"""Share of articles and prepositions: keywords in a row have none, which earns little more than a third."""

MEASURES = {
    "precision": PRECISION,
    "copied": COPIED,
    "passages": PASSAGES,
    "aligned": ALIGNED,
    "linked": LINKED,
    "followed": FOLLOWED,
    "repeated": REPEATED,
    "opening": OPENING,
}
"""What is measured of a text beside its recall, and what is good."""


@dataclass(frozen=True)
class Target:
    """How many of a source's content words are enough.

    Attributes:
        share: of all, in (0, 1].
        most: no more than this many are asked of a long source.
    """

    share: float
    most: int

    def __call__(self, found: int, there: int) -> float:
        """min(1, found / target). In [0, 1]."""
        return min(1.0, ratio(min(self.share * there, self.most), found))


@dataclass(frozen=True)
class Grounding:
    """What was measured of one text beside its source.

    Attributes:
        recall: how much of the source it says, 1 from its target on. In [0, 1].
        measures: values by the names of `MEASURES`.
    """

    recall: float
    measures: dict[str, float]

    @property
    def score(self) -> float:
        """Product of the recall and every measure's window. In [0, 1]."""
        return self.recall * math.prod(window(self.measures[name]) for name, window in MEASURES.items())


def ground(text: str, source: Source, target: Target) -> Grounding:
    """The grounding of one text."""
    text_words = words(text)
    stems = content(text_words)
    shared = len(stems & source.content)
    return Grounding(
        recall=target(shared, len(source.content)),
        measures={
            "precision": ratio(len(stems), shared),
            "copied": copied_share(text_words, source),
            "passages": passage_share(text_words, source),
            "aligned": aligned_share(text_words, source),
            "linked": linked_share(text_words, source),
            "followed": followed_share(text_words, source),
            "repeated": repeated_share(text_words),
            "opening": opening_share(text_words),
        },
    )


@dataclass(frozen=True)
class JointGrounding:
    """What was measured of all texts.

    Attributes:
        texts: of each.
        coverage: how much of the source they say together, 1 from its target on. In [0, 1].
    """

    texts: tuple[Grounding, ...]
    coverage: float

    @property
    def score(self) -> float:
        """Product of the texts' scores and the coverage. In [0, 1]; 0 if one text says nothing of the source."""
        return self.coverage * math.prod(one.score for one in self.texts)


@dataclass(frozen=True)
class Targets:
    """How much the texts of a task have to say.

    Attributes:
        texts: for each text.
        together: for all of them.
    """

    texts: tuple[Target, ...]
    together: Target

    def ground(self, texts: Sequence[str], source_text: str) -> JointGrounding:
        """The grounding of a joint answer."""
        source = source_of(source_text)
        parts = tuple(ground(text, source, target) for text, target in zip(texts, self.texts, strict=True))
        said = frozenset().union(*(content(words(text)) for text in texts)) & source.content
        return JointGrounding(parts, self.together(len(said), len(source.content)))
