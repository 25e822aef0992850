"""The cheapest plan of a trip, by search: what a request can cost at least, and a plan to show for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from typing import TypeAlias, TypeVar

from llm_envs.tasks.travel.team import MEALS, Slot
from llm_envs.tasks.travel.trips import Mode, Place, Restaurant, Ride, Room, Sight, Trip, fold, fold_city

_P = TypeVar("_P", bound=Place)


@dataclass(frozen=True)
class Solution:
    """A plan for which every check holds but, if the budget is too small, that of the budget.

    Attributes:
        slots: its values.
        rides: of its days of travel, by day.
        logistics: cost of rides and rooms.
        meals: cost of meals.
    """

    slots: Mapping[Slot, str]
    rides: Mapping[int, Ride]
    logistics: float
    meals: float

    @property
    def cost(self) -> float:
        """Of all of it."""
        return self.logistics + self.meals


@dataclass(frozen=True)
class _Frame:
    """A route with its rides and rooms, the meals still open.

    Attributes:
        cities: visited, in order; their names folded.
        starts: day of arrival in each, and the day of the way home.
        rides: to each city and home.
        rooms: in each city.
        cost: of rides and rooms.
    """

    cities: tuple[str, ...]
    starts: tuple[int, ...]
    rides: tuple[Ride, ...]
    rooms: tuple[Room, ...]
    cost: float


def cheapest_plan(trip: Trip) -> Solution | None:
    """The cheapest plan that keeps every rule and wish; None if there is none. The budget is not looked at.

    Every order of cities, every choice of travel days and both ways of travelling (own car, or flights and taxis) are tried. A room
    for a whole stay is never dearer than a change of rooms: whatever may be taken for a part of it may be taken for all of it.
    Meals are the cheapest different ones that a stay needs and that have the cuisines wished for; meals on a day of travel, which
    nobody needs, are eaten only for a cuisine's sake and only where the party arrives, on the way home where it leaves.
    """
    best: Solution | None = None
    kitchen = _Kitchen(trip)
    for frame in sorted(_frames(trip), key=lambda frame: frame.cost):
        if best is not None and frame.cost >= best.cost:
            break  # meals only add to it
        meals = kitchen.meals(frame)
        if meals is None:
            continue
        cost = sum(restaurant.price for restaurant in meals.values()) * trip.people
        if best is None or frame.cost + cost < best.cost:
            best = _solution(frame, meals, cost, trip)
    return best


# ---- routes, rides and rooms ----

_TOGETHER: tuple[tuple[Mode, ...], ...] = (("self-driving",), ("flight", "taxi"))
"""Modes that may be used in one trip."""


def _frames(trip: Trip) -> Iterator[_Frame]:
    home, rides = fold_city(trip.org), _rides_by_leg(trip)
    rooms = _by_city([r for r in trip.rooms_by_name.values() if trip.wishes.rule_holds(r) and trip.wishes.type_holds(r)])
    sights = _by_city(trip.sights_by_name.values())
    for starts in combinations(range(2, trip.days), trip.cities - 1):
        arrivals = (1, *starts, trip.days)
        for cities in permutations(map(fold_city, trip.visitable), trip.cities):
            stays = _rooms(cities, arrivals, rooms, trip.people)
            if stays is None or not _enough(sights, cities, arrivals):
                continue
            for modes in _TOGETHER:
                legs = _legs((home, *cities, home), arrivals, rides, modes, trip)
                if legs is not None:
                    cost = sum(ride.cost(trip.people) for ride in legs)
                    cost += sum(
                        room.cost(trip.people) * (end - start) for room, (start, end) in zip(stays, pairwise(arrivals), strict=True)
                    )
                    yield _Frame(cities, arrivals, legs, stays, cost)


def _by_city(places: Iterable[_P]) -> dict[str, list[_P]]:
    found: dict[str, list[_P]] = {}
    for place in places:
        found.setdefault(fold_city(place.city), []).append(place)
    return found


def _rides_by_leg(trip: Trip) -> dict[tuple[str, str], list[Ride]]:
    found: dict[tuple[str, str], list[Ride]] = {}
    for ride in trip.rides_by_key.values():
        if trip.wishes.allows(ride.mode):
            found.setdefault((fold_city(ride.org), fold_city(ride.dest)), []).append(ride)
    return found


def _enough(sights: Mapping[str, Sequence[Sight]], cities: Sequence[str], arrivals: Sequence[int]) -> bool:
    """Whether there is a sight for every day without travel."""
    stays = zip(cities, pairwise(arrivals), strict=True)
    return all(len(sights.get(city, ())) >= end - start - 1 for city, (start, end) in stays)


def _rooms(
    cities: Sequence[str], arrivals: Sequence[int], rooms: Mapping[str, Sequence[Room]], people: int
) -> tuple[Room, ...] | None:
    """The cheapest room for each stay."""
    chosen = []
    for city, (start, end) in zip(cities, pairwise(arrivals), strict=True):
        fitting = [room for room in rooms.get(city, ()) if room.min_nights <= end - start]
        if not fitting:
            return None
        chosen.append(min(fitting, key=lambda room: room.cost(people)))
    return tuple(chosen)


def _legs(
    stops: Sequence[str],
    days: Sequence[int],
    rides: Mapping[tuple[str, str], Sequence[Ride]],
    modes: Sequence[Mode],
    trip: Trip,
) -> tuple[Ride, ...] | None:
    """The cheapest ride of these modes for each leg."""
    chosen = []
    for (org, dest), day in zip(pairwise(stops), days, strict=True):
        fitting = [ride for ride in rides.get((org, dest), ()) if ride.mode in modes and ride.date in ("", trip.dates[day - 1])]
        if not fitting:
            return None
        chosen.append(min(fitting, key=lambda ride: ride.cost(trip.people)))
    return tuple(chosen)


# ---- meals ----

_Menu: TypeAlias = dict[int, tuple[float, tuple[Restaurant, ...]]]
"""Wanted cuisines that a choice of restaurants has, a bit each → the cheapest such choice and what it costs one person."""


class _Kitchen:
    """Finds the cheapest meals for a route."""

    def __init__(self, trip: Trip) -> None:
        self._wanted = {cuisine: 1 << number for number, cuisine in enumerate(dict.fromkeys(map(fold, trip.wishes.cuisines)))}
        self._restaurants = _by_city(sorted(trip.restaurants_by_name.values(), key=lambda restaurant: restaurant.price))
        self._menus: dict[tuple[str, int, int], _Menu] = {}

    def meals(self, frame: _Frame) -> dict[Slot, Restaurant] | None:
        """The cheapest meals; None if they cannot be had."""
        needed, optional = _meal_slots(frame)
        best: dict[int, tuple[float, tuple[tuple[Restaurant, ...], ...]]] = {0: (0.0, ())}
        for city in frame.cities:
            menu = self._menu(city, len(needed[city]), len(needed[city]) + len(optional[city]))
            grown: dict[int, tuple[float, tuple[tuple[Restaurant, ...], ...]]] = {}
            for mask, (cost, chosen) in best.items():
                for more, (price, meals) in menu.items():
                    if cost + price < grown.get(mask | more, (math.inf,))[0]:
                        grown[mask | more] = (cost + price, (*chosen, meals))
            best = grown
        everything = (1 << len(self._wanted)) - 1
        if everything not in best:
            return None
        slots: dict[Slot, Restaurant] = {}
        for city, meals in zip(frame.cities, best[everything][1], strict=True):
            slots.update(zip([*needed[city], *optional[city]], meals, strict=False))
        return slots

    def _menu(self, city: str, least: int, most: int) -> _Menu:
        key = (city, least, most)
        if key not in self._menus:
            self._menus[key] = _menu(self._restaurants.get(city, ()), least, most, self._wanted)
        return self._menus[key]


def _meal_slots(frame: _Frame) -> tuple[dict[str, list[Slot]], dict[str, list[Slot]]]:
    """For each city, the meals of its days without travel, and those of the days on which the party arrives or leaves for home."""
    needed: dict[str, list[Slot]] = {}
    optional: dict[str, list[Slot]] = {}
    home = frame.starts[-1]
    for city, (start, end) in zip(frame.cities, pairwise(frame.starts), strict=True):
        needed[city] = [(day, meal) for day in range(start + 1, end) for meal in MEALS]
        days = (start, home) if end == home else (start,)
        optional[city] = [(day, meal) for day in days for meal in reversed(MEALS)]
    return needed, optional


def _menu(restaurants: Sequence[Restaurant], least: int, most: int, wanted: Mapping[str, int]) -> _Menu:
    """The cheapest choice of `least` to `most` restaurants for each set of wanted cuisines that it has, a bit each."""
    if not wanted:
        enough = tuple(restaurants[:least])
        return {0: (sum(r.price for r in enough), enough)} if len(enough) == least else {}
    best: list[_Menu] = [{0: (0.0, ())}, *({} for _ in range(most))]
    for restaurant in restaurants:
        bits = 0
        for cuisine in restaurant.cuisines:
            bits |= wanted.get(fold(cuisine), 0)
        for count in range(most, 0, -1):
            for mask, (cost, chosen) in best[count - 1].items():
                if cost + restaurant.price < best[count].get(mask | bits, (math.inf,))[0]:
                    best[count][mask | bits] = (cost + restaurant.price, (*chosen, restaurant))
    menu: _Menu = {}
    for count in range(least, most + 1):
        for mask, (cost, chosen) in best[count].items():
            if cost < menu.get(mask, (math.inf,))[0]:
                menu[mask] = (cost, chosen)
    return menu


# ---- the plan in words ----


def _solution(frame: _Frame, meals: Mapping[Slot, Restaurant], cost: float, trip: Trip) -> Solution:
    slots: dict[Slot, str] = {slot: restaurant.text for slot, restaurant in meals.items()}
    stops = (trip.org, *(trip.city_names[city] for city in frame.cities), trip.org)
    seen = _by_city(trip.sights_by_name.values())
    for ride, day, (org, dest) in zip(frame.rides, frame.starts, pairwise(stops), strict=True):
        slots[day, "current_city"] = f"from {org} to {dest}"
        slots[day, "transportation"] = ride.text
    for city, room, (start, end) in zip(frame.cities, frame.rooms, pairwise(frame.starts), strict=True):
        sights = iter(seen.get(city, ()))
        for day in range(start, end):
            slots[day, "accommodation"] = room.text
            if day > start:
                slots[day, "current_city"] = trip.city_names[city]
                slots[day, "attraction"] = next(sights).text
    return Solution(slots, dict(zip(frame.starts, frame.rides, strict=True)), frame.cost, cost)
