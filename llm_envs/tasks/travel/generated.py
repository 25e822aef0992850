"""Requests by seed in made-up worlds, with budgets that can be kept: training rows in one world, evaluation rows in another."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from llm_envs.tasks.travel.solver import cheapest_plan
from llm_envs.tasks.travel.trips import FORBIDDEN, HOUSE_RULES, LEVELS, ROOM_TYPES, read_trip
from llm_envs.tasks.travel.world import CUISINES, Size, World, build_world, random_stream

CITIES = {3: 1, 5: 2, 7: 3}
"""Days → cities to visit, as in TravelPlanner."""

CALENDAR = datetime.date(2027, 4, 1)
LAST_START = 76

TRIES = 200
"""Requests drawn for each one that is wanted, before the world counts as too small."""


@dataclass(frozen=True, kw_only=True)
class Generated:
    """Which requests are made.

    Attributes:
        seed: of worlds and requests.
        train_rows: their number.
        eval_rows: their number.
        size: of the worlds.
        days: lengths of trips, of `CITIES`; rows take them in turn.
        levels: of `LEVELS`, by the number of hard constraints besides the budget: none, one, three. Rows take them in turn.
        spare_cities: of the region that is visited, cities in the catalogue beyond those that must be visited.
        margin: by what share the budget is above the cheapest plan's cost.
    """

    seed: int = 0
    train_rows: int = 64
    eval_rows: int = 16
    size: Size = field(default_factory=Size)
    days: tuple[int, ...] = tuple(CITIES)
    levels: tuple[str, ...] = LEVELS
    spare_cities: int = 0
    margin: float = 0.3

    def __post_init__(self) -> None:
        for option, least in (("seed", 0), ("train_rows", 1), ("eval_rows", 1), ("spare_cities", 0)):
            value = getattr(self, option)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{option} must be a whole number of at least {least}, got {value!r}")
        for option, known in (("days", tuple(CITIES)), ("levels", LEVELS)):
            value = getattr(self, option)
            if not value or not all(one in known for one in value):
                raise ValueError(f"{option} must be some of {', '.join(map(str, known))}, got {value!r}")
        if self.spare_cities > 2:
            raise ValueError(f"spare_cities must be at most 2, got {self.spare_cities}: a region has five cities")
        if isinstance(self.margin, bool) or not isinstance(self.margin, (int, float)) or not 0 <= self.margin < math.inf:
            raise ValueError(f"margin must be a number of at least 0, got {self.margin!r}")


@lru_cache(maxsize=8)
def generated_rows(options: Generated) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]:
    """Training and evaluation rows: every one can be solved, and no two are the same. Do not change them, they are kept.

    Raises:
        ValueError: if a world of this size gives too few.
    """
    train, held = (
        rows_in(build_world((options.seed, part), options.size), count, options, prefix)
        for part, (prefix, count) in enumerate((("train", options.train_rows), ("eval", options.eval_rows)))
    )
    return tuple(train), tuple(held)


def rows_in(world: World, count: int, options: Generated, prefix: str) -> list[dict[str, Any]]:
    """So many different requests in a world, all of which can be solved.

    Raises:
        ValueError: if they are not found.
    """
    rng = random_stream(*world.seed, 2)
    rows: list[dict[str, Any]] = []
    queries: set[str] = set()
    for number in range(count):
        level = options.levels[number % len(options.levels)]
        days = options.days[number // len(options.levels) % len(options.days)]
        for _ in range(TRIES):
            row = _drawn_row(world, rng, level, days, options)
            if row is not None and row["query"] not in queries:
                break
        else:
            raise ValueError(f"no {level} request of {days} days was found in {TRIES} tries: make the world larger, {options.size}")
        queries.add(row["query"])
        rows.append({"id": f"{prefix}-{options.seed}-{number}", **row})
    return rows


def _drawn_row(world: World, rng: np.random.Generator, level: str, days: int, options: Generated) -> dict[str, Any] | None:
    """A request with its catalogue and budget; None if it cannot be solved."""
    count = CITIES[days]
    region = str(rng.choice(list(world.regions)))
    members = [str(city) for city in rng.permutation(world.regions[region])]
    visited, spare = members[:count], members[count : count + options.spare_cities]
    org = str(rng.choice([city for city in world.cities if city not in world.regions[region]]))
    start = int(rng.integers(LAST_START))
    dates = [(CALENDAR + datetime.timedelta(start + day)).isoformat() for day in range(days)]
    row: dict[str, Any] = {
        "org": org,
        "dest": visited[0] if count == 1 else region,
        "days": days,
        "visiting_city_number": count,
        "date": dates,
        "people_number": int(rng.integers(1, {"easy": 3, "medium": 5, "hard": 7}[level])),
        "local_constraint": _constraints(rng, level, days),
        "level": level,
        "catalogue": _catalogue(world, rng, org, visited, spare, dates, start),
    }
    solution = cheapest_plan(read_trip({**row, "query": "", "budget": 0}))
    if solution is None:
        return None
    row["budget"] = math.ceil(solution.cost * (1 + options.margin) / 10) * 10
    return {"query": _query(row, sorted(visited + spare)), **row}


def _constraints(rng: np.random.Generator, level: str, days: int) -> dict[str, Any]:
    """None, one or three wishes besides the budget; only hard requests have one about transport."""
    wishes: dict[str, Any] = dict.fromkeys(("house rule", "cuisine", "room type", "transportation"))
    count = {"easy": 0, "medium": 1, "hard": 3}[level]
    open_to = list(wishes) if level == "hard" else list(wishes)[:3]
    for name in (open_to[int(n)] for n in rng.permutation(len(open_to))[:count]):
        if name == "cuisine":
            number = int(rng.integers(1, 3)) + (days > 3)
            wishes[name] = [CUISINES[int(n)] for n in sorted(rng.choice(len(CUISINES), size=number, replace=False))]
        else:
            known = {"house rule": HOUSE_RULES, "room type": tuple(ROOM_TYPES), "transportation": tuple(FORBIDDEN)}[name]
            wishes[name] = known[int(rng.integers(len(known)))]
    return wishes


def _catalogue(
    world: World,
    rng: np.random.Generator,
    org: str,
    visited: Sequence[str],
    spare: Sequence[str],
    dates: Sequence[str],
    start: int,
) -> dict[str, Any]:
    """What is in the cities, and the ways of the route: two nights in each city. To spare cities one may go on any of its days."""
    stops = [org, *visited, org]
    legs = [(a, b, 2 * number) for number, (a, b) in enumerate(pairwise(stops))]
    flights = [flight for a, b, day in legs for flight in world.flights(a, b, dates[day], start + day, int(rng.integers(1, 3)))]
    cities = [*visited, *spare]
    ways = [(org, b) for b in cities] + [(a, b) for a in cities for b in cities if a != b] + [(a, org) for a in cities]
    if spare:
        others = [
            (a, b, day) for _, _, day in legs for a, b in ways if (a == org) == (day == 0) and (b == org) == (day == legs[-1][2])
        ]
        for a, b, day in others:
            if (a, b, day) not in legs and rng.random() < 0.5:
                flights += world.flights(a, b, dates[day], start + day, 1)
    driven = ways if spare else list(pairwise(stops))
    return {
        "flights": flights,
        "drives": [drive for a, b in driven if (drive := world.drive(a, b)) is not None],
        "rooms": [room for city in sorted(cities) for room in world.rooms[city]],
        "restaurants": [place for city in sorted(cities) for place in world.restaurants[city]],
        "sights": [place for city in sorted(cities) for place in world.sights[city]],
    }


def _query(row: dict[str, Any], cities: Sequence[str]) -> str:
    """The request in words."""
    people, count, wishes = row["people_number"], row["visiting_city_number"], row["local_constraint"]
    party = "one person" if people == 1 else f"{people} people"
    goal = row["dest"] if count == 1 else f"{count} cities of {row['dest']} ({', '.join(cities)})"
    if count == 1 and len(cities) > 1:
        goal = f"one of the cities {', '.join(cities)}"
    text = (
        f"Plan a trip of {row['days']} days for {party} from {row['org']} to {goal}, "
        f"from {row['date'][0]} to {row['date'][-1]}. The budget is {row['budget']}."
    )
    if wishes["cuisine"]:
        text += f" They want to eat these cuisines: {', '.join(wishes['cuisine'])}."
    if wishes["house rule"]:
        text += f" Their rooms must allow {wishes['house rule']}."
    if wishes["room type"]:
        text += f" They want this type of room: {wishes['room type']}."
    if wishes["transportation"]:
        text += f" They want {wishes['transportation']}."
    return text
