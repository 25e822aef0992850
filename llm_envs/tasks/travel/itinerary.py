"""A plan's values, looked up in the catalogue: where the party is on each day, and what it does there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from llm_envs.tasks.travel.team import EXPERIENCE, LOGISTICS, MEALS, SLOT_FIELDS, Slot
from llm_envs.tasks.travel.trips import Mode, Place, Restaurant, Ride, Room, Sight, Trip, fold, fold_city

_FROM_TO = re.compile(r"\bfrom\s+(.+?)\s+to\s+([^,;]+)", re.IGNORECASE)
_NUMBER = re.compile(r"flight number:\s*([^\s,;]+)", re.IGNORECASE)

_P = TypeVar("_P", bound=Place)


@dataclass(frozen=True)
class Day:
    """One day of a plan.

    Attributes:
        number: from 1.
        last: whether it is the trip's last day.
        values: of its slots, those that are not empty.
        cities: (city,) for a day in one, (from, to) for a day of travel, () if the value names none of the catalogue's cities.
        mode: of transport, as far as the value says one.
        ride: what the value of transportation names in the catalogue, on this day; None if nothing.
        meals: likewise, of each meal that names a restaurant.
        sights: likewise, of the value of attraction; () if one of those it names is not in the catalogue.
        room: likewise.
    """

    number: int
    last: bool
    values: Mapping[str, str]
    cities: tuple[str, ...]
    mode: Mode | None
    ride: Ride | None
    meals: Mapping[str, Restaurant]
    sights: tuple[Sight, ...]
    room: Room | None

    @property
    def travels(self) -> bool:
        """Whether it is a day of travel; where the plan does not say, the first and the last day are."""
        return len(self.cities) == 2 if self.cities else self.number == 1 or self.last

    @property
    def grounded(self) -> frozenset[str]:
        """Fields whose value is in the catalogue."""
        found = {
            "current_city": bool(self.cities),
            "transportation": self.ride is not None,
            "attraction": bool(self.sights),
            "accommodation": self.room is not None,
        }
        return frozenset([*(field for field, there in found.items() if there), *self.meals])

    @property
    def needed(self) -> frozenset[str]:
        """Fields that must not be empty.

        Where the party is; how it travels on a day of travel, else what it eats and sees; where it sleeps, but for the last day.
        """
        fields = {"current_city", *(("transportation",) if self.travels else EXPERIENCE)}
        return frozenset(fields if self.last else fields | {"accommodation"})


def needed_counts(trip: Trip) -> dict[str, int]:
    """How often each field is needed in a plan that visits as many cities as asked for."""
    travelled = trip.cities + 1
    counts = dict.fromkeys(SLOT_FIELDS, trip.days - travelled)
    return {**counts, **dict(zip(LOGISTICS, (trip.days, travelled, trip.days - 1), strict=True))}


def read_days(slots: Mapping[Slot, str], trip: Trip) -> tuple[Day, ...]:
    """Every day of the plan, in order."""
    return tuple(
        _read_day(number, {field: slots[number, field] for field in SLOT_FIELDS if (number, field) in slots}, trip)
        for number in range(1, trip.days + 1)
    )


def _read_day(number: int, values: Mapping[str, str], trip: Trip) -> Day:
    meals = {meal: _find(values.get(meal, ""), trip.restaurants_by_name) for meal in MEALS}
    sights = [_find(one, trip.sights_by_name) for one in values.get("attraction", "").split(";") if one.strip()]
    known = tuple(sight for sight in sights if sight is not None)
    transport = values.get("transportation", "")
    return Day(
        number=number,
        last=number == trip.days,
        values=values,
        cities=_cities(values.get("current_city", ""), trip),
        mode=_mode(transport),
        ride=_ride(transport, trip.dates[number - 1], trip),
        meals={meal: restaurant for meal, restaurant in meals.items() if restaurant is not None},
        sights=known if len(known) == len(sights) else (),
        room=_find(values.get("accommodation", ""), trip.rooms_by_name),
    )


def _cities(value: str, trip: Trip) -> tuple[str, ...]:
    travelled = _FROM_TO.fullmatch(value)
    named = travelled.groups() if travelled else (value,)
    found = [trip.city_names.get(fold_city(name)) for name in named]
    # From a city to itself is no travel.
    return tuple(name for name in found if name is not None) if None not in found and len(set(found)) == len(found) else ()


def _mode(value: str) -> Mode | None:
    folded = value.casefold()
    modes: tuple[Mode, ...] = ("flight", "self-driving", "taxi")
    return next((mode for mode in modes if mode in folded), None)


def _ride(value: str, date: str, trip: Trip) -> Ride | None:
    """The ride that starts on this date."""
    mode, towns, number = _mode(value), towns_of(value), _NUMBER.search(value)
    if mode is None or towns is None or (mode == "flight" and number is None):
        return None
    flight = (fold(number.group(1)), date) if mode == "flight" and number is not None else ("", "")
    return trip.rides_by_key.get((mode, flight[0], *towns, flight[1]))


def towns_of(value: str) -> tuple[str, str] | None:
    """The two cities that a value speaks of as "from … to …", as they are compared; None if it does not."""
    found = _FROM_TO.search(value)
    return None if found is None else (fold_city(found.group(1)), fold_city(found.group(2)))


def _find(value: str, places: Mapping[tuple[str, str], _P]) -> _P | None:
    # A name may have commas, a city has none.
    name, _, city = value.rpartition(",")
    return places.get((fold(name), fold_city(city)))


def total_cost(days: tuple[Day, ...], people: int) -> float:
    """What the grounded values of a plan cost all people together: rides, rooms by the night and meals; sights are free."""
    cost = 0.0
    for day in days:
        cost += day.ride.cost(people) if day.ride is not None else 0.0
        cost += day.room.cost(people) if day.room is not None else 0.0
        cost += sum(restaurant.price for restaurant in day.meals.values()) * people
    return cost
