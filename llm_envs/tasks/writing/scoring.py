"""What two texts earn: grounding and structural levels, weighed in our way or in the reference system's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from llm_envs.tasks.turns import turn_weight, weighed
from llm_envs.tasks.writing.grounding import MEASURES, JointGrounding, Targets
from llm_envs.tasks.writing.levels import LEVELS, GatedLevels, SoftLevels, Structure
from llm_envs.tasks.writing.parts import parts_of
from llm_envs.types import Item, State

SHARED: tuple[str, ...] = ("coverage", "length_ratio", "unique_ratio", "transitions", "jaccard")
"""Measures of both texts together; they are logged."""


@dataclass(frozen=True)
class GroundedScoring:
    """Ours: ½ for the grounding g, and ½ for the levels, in the reference's proportions and each multiplied by g. In [0, 1].

    Attributes:
        levels: the structural levels, in [0, 1].
    """

    factors: ClassVar[Mapping[str, float]] = {
        "grounding": 1 / 2,
        "length": 1 / 12,
        "ratio": 1 / 6,
        "vocabulary": 1 / 12,
        "style": 1 / 6,
    }
    most: ClassVar[Mapping[str, float]] = dict.fromkeys(factors, 1.0)
    top: ClassVar[float] = 1.0

    levels: SoftLevels

    def earned(self, grounding: float, levels: Mapping[str, float]) -> dict[str, float]:
        """The terms: g, and g times each level."""
        return {"grounding": grounding, **{name: grounding * levels[name] for name in LEVELS}}


@dataclass(frozen=True)
class ReferenceScoring:
    """The reference system's: the sum of its gated levels; the source counts for nothing. In [0, 2.98].

    Attributes:
        levels: the structural levels.
    """

    factors: ClassVar[Mapping[str, float]] = {"grounding": 0.0, **dict.fromkeys(LEVELS, 1.0)}
    most: ClassVar[Mapping[str, float]] = {"grounding": 1.0, "length": 0.5, "ratio": 1.0, "vocabulary": 0.5, "style": 0.98}
    top: ClassVar[float] = 2.98

    levels: GatedLevels

    def earned(self, grounding: float, levels: Mapping[str, float]) -> dict[str, float]:
        """The terms: g, which only is logged, and the levels."""
        return {"grounding": grounding, **levels}


Scoring: TypeAlias = GroundedScoring | ReferenceScoring


@dataclass(frozen=True)
class Verdict:
    """How good one joint answer is.

    Attributes:
        scoring: by which rules.
        grounding: of the texts in their source.
        structure: of the texts beside each other.
    """

    scoring: Scoring
    grounding: JointGrounding
    structure: Structure

    @property
    def levels(self) -> dict[str, float]:
        """The levels, before grounding is multiplied in."""
        # Each scoring has made the structure with its own levels.
        return self.scoring.levels.levels(self.structure)

    @property
    def earned(self) -> dict[str, float]:
        """The terms that count, and the grounding."""
        return self.scoring.earned(self.grounding.score, self.levels)

    @property
    def score(self) -> float:
        """The weighed sum of the terms. In [0, `scoring.top`]."""
        return math.fsum(self.scoring.factors[name] * value for name, value in self.earned.items())

    @property
    def perfect(self) -> bool:
        """Whether nothing is left to improve."""
        return self.score >= self.scoring.top - 1e-9

    def measures(self, roles: Sequence[str]) -> dict[str, float]:
        """Everything measured, by name; `<measure>_<role>` for what is measured of each text."""
        found = self.structure
        shared = (self.grounding.coverage, found.length_ratio, found.unique_ratio, float(found.transitions), found.jaccard)
        named = dict(zip(SHARED, shared, strict=True))
        for role, text, length in zip(roles, self.grounding.texts, found.length, strict=True):
            named |= {f"recall_{role}": text.recall, **{f"{name}_{role}": value for name, value in text.measures.items()}}
            named[f"words_{role}"] = float(length)
        return named


@dataclass(frozen=True)
class Judge:
    """The reward: every term and every measure of every joint answer; the terms weighed by what the turn counts.

    Attributes:
        roles: what the two texts are called.
        field: of the row that holds the source.
        targets: how much of the source the texts have to say.
        scoring: how it is weighed.
        num_turns: H.
    """

    roles: tuple[str, str]
    field: str
    targets: Targets
    scoring: Scoring
    num_turns: int

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest reward of a turn."""
        return 0.0, self.scoring.top

    @property
    def factors(self) -> dict[str, float]:
        """What each term counts; 0 for what is only logged."""
        names = [*SHARED, *(f"{name}_{role}" for role in self.roles for name in ("recall", *MEASURES, "words"))]
        return {**self.scoring.factors, **dict.fromkeys(names, 0.0)}

    def __call__(self, *responses: list[str], batch_items: Sequence[Item], states: Sequence[State]) -> list[dict[str, float]]:
        """The terms of each joint response, shared by the team. Their weighed sum lies in [0, 1]; reference scoring: [0, 2.98]."""
        rows = []
        for joint, state in zip(zip(*responses, strict=True), states, strict=True):
            verdict = self.verdict(joint, batch_items[0])
            weight = turn_weight(verdict.perfect, state.turn + 1, self.num_turns)
            rows.append({**weighed(verdict.earned, self.scoring.factors, weight), **verdict.measures(self.roles)})
        return rows

    def verdict(self, joint: Sequence[str], item: Item) -> Verdict:
        """The verdict on two agents' texts, or on one agent's text that holds both."""
        first, second = parts_of(joint)
        grounding = self.targets.ground((first, second), item[self.field])
        return Verdict(self.scoring, grounding, self.scoring.levels.structure(first, second))
