"""What must hold of a plan: the eight checks of common sense and the five hard constraints of TravelPlanner.

Facts of the checks are those of Xie et al., TravelPlanner (2024), https://arxiv.org/abs/2402.01622. They are decided anew here:
names are compared whole, a flight must go on its day, and the rule about parties is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from llm_envs.tasks.travel.itinerary import Day, total_cost, towns_of
from llm_envs.tasks.travel.team import MEALS, SLOT_FIELDS
from llm_envs.tasks.travel.trips import FORBIDDEN, Trip, fold, fold_city

Days = Sequence[Day]


def route_holds(days: Days, trip: Trip) -> bool:
    """Whether the trip starts and ends where it should, goes on each day from where it was, and visits so many cities once each."""
    here, visited = trip.city_names[fold_city(trip.org)], []
    for day in days:
        if not day.cities or day.cities[0] != here or (day.number == 1 and len(day.cities) == 1):
            return False
        here = day.cities[-1]
        if len(day.cities) == 2:
            visited.append(here)
    home = trip.city_names[fold_city(trip.org)]
    return (
        len(days[-1].cities) == 2
        and visited[-1:] == [home]
        and len(set(visited)) == len(visited) == trip.cities + 1
        and set(visited) - {home} <= set(trip.visitable)
    )


def restaurants_differ(days: Days, trip: Trip) -> bool:
    """Whether no restaurant is eaten in twice."""
    return _all_differ([day.values[meal] for day in days for meal in MEALS if meal in day.values])


def sights_differ(days: Days, trip: Trip) -> bool:
    """Whether no sight is seen twice."""
    return _all_differ([one for day in days for one in day.values.get("attraction", "").split(";") if one.strip()])


def _all_differ(values: Sequence[str]) -> bool:
    names = [(fold(name), fold_city(city)) for name, _, city in (value.rpartition(",") for value in values)]
    return len(set(names)) == len(names)


def minimum_nights_hold(days: Days, trip: Trip) -> bool:
    """Whether every room is taken for at least its fewest nights in a row."""
    return all(room is None or len(list(nights)) >= room.min_nights for room, nights in groupby(days, key=lambda day: day.room))


def transport_fits(days: Days, trip: Trip) -> bool:
    """Whether nobody leaves the own car behind: self-driving goes with neither flights nor taxis."""
    modes = {day.mode for day in days}
    return "self-driving" not in modes or not modes & {"flight", "taxi"}


def in_current_city(days: Days, trip: Trip) -> bool:
    """Whether everything is where the party is that day: rides between its two cities, the room in the one it ends the day in."""
    return all(_is_there(day) for day in days)


def _is_there(day: Day) -> bool:
    if not day.cities:
        return not day.values
    here = set(map(fold_city, day.cities))
    visited = [day.values[meal] for meal in MEALS if meal in day.values]
    visited += [one for one in day.values.get("attraction", "").split(";") if one.strip()]
    slept = day.values.get("accommodation")
    return (
        all(fold_city(one.rpartition(",")[2]) in here for one in visited)
        and (slept is None or fold_city(slept.rpartition(",")[2]) == fold_city(day.cities[-1]))
        and ("transportation" not in day.values or towns_of(day.values["transportation"]) == tuple(map(fold_city, day.cities)))
    )


def in_reference(days: Days, trip: Trip) -> bool:
    """Whether every value is in the catalogue."""
    return all(set(day.values) <= day.grounded for day in days)


def complete(days: Days, trip: Trip) -> bool:
    """Whether nothing is missing that a day needs."""
    return all(day.needed <= set(day.values) for day in days)


def budget_holds(days: Days, trip: Trip) -> bool:
    """Whether the plan costs no more than there is."""
    return total_cost(tuple(days), trip.people) <= trip.budget


def cuisines_hold(days: Days, trip: Trip) -> bool:
    """Whether every cuisine wished for is eaten somewhere away from home."""
    eaten = {
        fold(cuisine)
        for day in days
        for restaurant in day.meals.values()
        if fold_city(restaurant.city) != fold_city(trip.org)
        for cuisine in restaurant.cuisines
    }
    return set(map(fold, trip.wishes.cuisines)) <= eaten


def room_rule_holds(days: Days, trip: Trip) -> bool:
    """Whether every room allows what is wished for."""
    return all(trip.wishes.rule_holds(day.room) for day in days if day.room is not None)


def room_type_holds(days: Days, trip: Trip) -> bool:
    """Whether every room is of a type wished for."""
    return all(trip.wishes.type_holds(day.room) for day in days if day.room is not None)


def transport_allowed(days: Days, trip: Trip) -> bool:
    """Whether no means of transport is used that is not wanted."""
    return trip.wishes.transportation is None or FORBIDDEN[trip.wishes.transportation] not in {day.mode for day in days}


@dataclass(frozen=True)
class Check:
    """One thing that must hold.

    Attributes:
        holds: of days and trip.
        fields: whose values decide it.
    """

    holds: Callable[[Days, Trip], bool]
    fields: tuple[str, ...]


COMMON_SENSE = {
    "route": Check(route_holds, ("current_city",)),
    "restaurants": Check(restaurants_differ, MEALS),
    "sights": Check(sights_differ, ("attraction",)),
    "minimum nights": Check(minimum_nights_hold, ("accommodation",)),
    "transport": Check(transport_fits, ("transportation",)),
    "current city": Check(in_current_city, SLOT_FIELDS),
    "reference": Check(in_reference, SLOT_FIELDS),
    "complete": Check(complete, SLOT_FIELDS),
}
"""The checks of common sense by name."""

BUDGET = Check(budget_holds, ("transportation", "accommodation", *MEALS))

HARD = {
    "cuisine": Check(cuisines_hold, MEALS),
    "room rule": Check(room_rule_holds, ("accommodation",)),
    "room type": Check(room_type_holds, ("accommodation",)),
    "transport wish": Check(transport_allowed, ("transportation",)),
}
"""The hard constraints besides the budget by name."""


def wished(trip: Trip) -> list[str]:
    """Those of the hard constraints that this trip has, besides the budget."""
    wishes = trip.wishes
    there = {
        "cuisine": bool(wishes.cuisines),
        "room rule": wishes.house_rule is not None,
        "room type": wishes.room_type is not None,
        "transport wish": wishes.transportation is not None,
    }
    return [name for name in HARD if there[name]]


def check_plan(days: Days, trip: Trip) -> dict[str, bool]:
    """Whether each check holds that this trip has: those of common sense, the budget, and its hard constraints."""
    checks = {**COMMON_SENSE, "budget": BUDGET, **{name: HARD[name] for name in wished(trip)}}
    return {name: check.holds(days, trip) for name, check in checks.items()}


def failed_fields(name: str, days: Days) -> set[tuple[int, str]]:
    """The slots that a failed check is about.

    Of `complete` those that are missing, of `reference` those that are not in the catalogue, of others all whose values decide it.
    """
    if name == "complete":
        return {(day.number, field) for day in days for field in day.needed - set(day.values)}
    if name == "reference":
        return {(day.number, field) for day in days for field in set(day.values) - day.grounded}
    fields = {**COMMON_SENSE, "budget": BUDGET, **HARD}[name].fields
    return {(day.number, field) for day in days for field in fields}
