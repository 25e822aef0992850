"""What a joint answer earns: six weighed terms that sum to 1, and what is logged beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from llm_envs.tasks.travel.answers import Merged, merge
from llm_envs.tasks.travel.checks import COMMON_SENSE, check_plan, wished
from llm_envs.tasks.travel.itinerary import Day, needed_counts, read_days, total_cost
from llm_envs.tasks.travel.team import Team
from llm_envs.tasks.travel.trips import Trip, read_trip
from llm_envs.tasks.turns import turn_weight, weighed
from llm_envs.types import Item, State

WEIGHTS = {"grounding": 0.25, "common_sense": 0.25, "hard": 0.1, "budget": 0.1, "collaboration": 0.1, "success": 0.2}
"""What the terms count. They sum to 1."""

LOGGED = ("solved", "format", "overlap", "conflicts", "cost")
"""Terms that count nothing."""


@dataclass(frozen=True)
class Verdict:
    """How good one joint answer is.

    Attributes:
        team: whose.
        trip: what was asked for.
        merged: the plan that it makes.
    """

    team: Team
    trip: Trip
    merged: Merged

    @cached_property
    def days(self) -> tuple[Day, ...]:
        """The plan's days."""
        return read_days(self.merged.slots, self.trip)

    @cached_property
    def checks(self) -> dict[str, bool]:
        """Whether each check holds that the trip has."""
        return check_plan(self.days, self.trip)

    @cached_property
    def recall(self) -> float:
        """Share of the needed values that are there and in the catalogue, counted field by field. In [0, 1]."""
        needed = needed_counts(self.trip)
        found = sum(min(count, sum(field in day.grounded for day in self.days)) for field, count in needed.items())
        return found / sum(needed.values())

    @property
    def grounding(self) -> float:
        """F1 of recall and of the share of values that are in the catalogue. In [0, 1]; 0 without values."""
        written = len(self.merged.slots)
        if not written or not self.recall:
            return 0.0
        precision = sum(len(day.grounded) for day in self.days) / written
        return 2 * precision * self.recall / (precision + self.recall)

    @property
    def cost_ratio(self) -> float:
        """What the grounded values cost, over the budget; 2 if a budget of 0 is exceeded."""
        cost = total_cost(self.days, self.trip.people)
        return cost / self.trip.budget if self.trip.budget else 2.0 * (cost > 0)

    @property
    def collaboration(self) -> float:
        """How much the weakest agent did of what it should, less overlap. In [0, 1].

        What an agent did counts where a day needs it and it is in the catalogue and in the merged plan. An agent should do what its
        part needs. Where parts do not bind, it may do anything, and half an even share is enough; where there are none, agents
        beyond the number of needed values may be idle.
        """
        needed = {(day.number, field) for day in self.days for field in day.needed}
        good = needed & {(day.number, field) for day in self.days for field in day.grounded}
        agents = range(len(self.team.agents))
        done = [{slot for slot in good if agent in self.merged.writers[slot]} for agent in agents]
        own = [needed.intersection(part) for part in self.team.parts(self.trip.days)]
        half = max(1.0, len(needed) / len(agents)) / 2
        if self.team.binding:
            shares = [_share(len(done[agent] & own[agent]), len(own[agent])) for agent in agents]
        elif self.team.role_mode == "soft_roles":
            shares = [_share(len(done[agent]), min(half, len(own[agent]))) for agent in agents]
        else:
            shares = sorted(_share(len(did), half) for did in done)[-len(needed) :]
        return min(shares) * (1.0 - self.merged.overlap)

    @property
    def solved(self) -> bool:
        """Whether every check holds and every agent did its part, and nothing twice: then and only then the score is 1."""
        return all(self.checks.values()) and self.collaboration == 1.0

    def terms(self) -> dict[str, float]:
        """Every term, in one turn. What holds of a plan is paid in proportion to how much of a plan there is."""
        wishes = wished(self.trip)
        solved = float(self.solved)
        return {
            "grounding": self.grounding,
            "common_sense": self.recall * sum(self.checks[name] for name in COMMON_SENSE) / len(COMMON_SENSE),
            "hard": self.recall * (sum(self.checks[name] for name in wishes) / len(wishes) if wishes else 1.0),
            "budget": self.recall * min(1.0, max(0.0, 2.0 - self.cost_ratio)),
            "collaboration": self.collaboration,
            "success": solved,
            "solved": solved,
            "format": sum(not answer.problem for answer in self.merged.answers) / len(self.merged.answers),
            "overlap": self.merged.overlap,
            "conflicts": float(len(self.merged.conflicts)),
            "cost": self.cost_ratio,
        }

    @property
    def score(self) -> float:
        """The weighed sum of the terms. In [0, 1]."""
        return math.fsum(WEIGHTS[name] * value for name, value in self.terms().items() if name in WEIGHTS)


def _share(done: float, enough: float) -> float:
    return min(1.0, done / enough) if enough else 1.0


@dataclass(frozen=True)
class Judge:
    """The reward: every term of each joint answer, those that count weighed by what the turn counts. The sum lies in [0, 1].

    Attributes:
        team: who plans.
        num_turns: H.
    """

    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    team: Team
    num_turns: int

    def __call__(self, *responses: list[str], batch_items: Sequence[Item], states: Sequence[State]) -> list[dict[str, float]]:
        """The terms of each joint response, for the team."""
        trip = read_trip(batch_items[0])
        rows = []
        for texts, state in zip(zip(*responses, strict=True), states, strict=True):
            verdict = self.verdict(texts, trip)
            weight = turn_weight(verdict.solved, state.turn + 1, self.num_turns)
            rows.append(weighed(verdict.terms(), WEIGHTS, weight))
        return rows

    def verdict(self, texts: Sequence[str], trip: Trip) -> Verdict:
        """The verdict on one joint answer."""
        return Verdict(self.team, trip, merge(texts, self.team, trip.days))
