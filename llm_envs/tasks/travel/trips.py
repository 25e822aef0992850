"""A row as a trip: what is asked for, and the catalogue of flights, drives, rooms, restaurants and sights to plan it from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar

from llm_envs.types import Item

FIELDS = ("id", "query", "org", "dest", "days", "visiting_city_number", "date", "people_number", "budget", "catalogue")
"""What every row needs; `level` and `local_constraint` may be left out. All but `id` and `catalogue` are TravelPlanner's names."""

LEVELS = ("easy", "medium", "hard")
HOUSE_RULES = ("parties", "smoking", "children under 10", "visitors", "pets")
ROOM_TYPES = {
    "entire room": ("Entire home/apt",),
    "private room": ("Private room",),
    "shared room": ("Shared room",),
    "not shared room": ("Entire home/apt", "Private room"),
}
"""What a wish for a type of room allows."""

Mode: TypeAlias = Literal["flight", "self-driving", "taxi"]
FORBIDDEN: dict[str, Mode] = {"no flight": "flight", "no self-driving": "self-driving"}
"""What a wish about transport rules out."""

SEATS: dict[Mode, int] = {"flight": 1, "taxi": 4, "self-driving": 5}
"""People that one ticket, taxi or car carries."""


def fold(name: str) -> str:
    """The name as it is compared: without case and double spaces."""
    return " ".join(name.casefold().split())


def fold_city(name: str) -> str:
    """The city's name as it is compared: without case, double spaces, and a region in parentheses behind it."""
    return fold(re.sub(r"\([^()]*\)\s*$", "", name) if "(" in name else name)


@dataclass(frozen=True)
class Ride:
    """One way from a city to another.

    Attributes:
        mode: flight, self-driving or taxi.
        org: where it starts.
        dest: where it ends.
        price: of one ticket, car or taxi.
        number: of a flight, else "".
        date: of a flight, else "": cars go on any day.
    """

    mode: Mode
    org: str
    dest: str
    price: float
    number: str = ""
    date: str = ""

    def cost(self, people: int) -> float:
        """For that many people: as many tickets, taxis of 4 or cars of 5 as they need."""
        return self.price * math.ceil(people / SEATS[self.mode])

    @property
    def text(self) -> str:
        """As the value of a slot."""
        what = f"Flight Number: {self.number}" if self.mode == "flight" else self.mode.capitalize()
        return f"{what}, from {self.org} to {self.dest}"


@dataclass(frozen=True)
class Place:
    """Something in a city that has a name."""

    name: str
    city: str

    @property
    def text(self) -> str:
        """As the value of a slot."""
        return f"{self.name}, {self.city}"


@dataclass(frozen=True)
class Sight(Place):
    """A sight. It costs nothing."""


@dataclass(frozen=True)
class Restaurant(Place):
    """A restaurant: price of a meal for one, and its cuisines."""

    price: float
    cuisines: tuple[str, ...]


@dataclass(frozen=True)
class Room(Place):
    """A room or flat.

    Attributes:
        price: of a night.
        type: one of those in `ROOM_TYPES`.
        forbids: of `HOUSE_RULES`, what is not allowed.
        min_nights: fewest nights in a row.
        occupancy: people that one of it takes.
    """

    price: float
    type: str
    forbids: tuple[str, ...]
    min_nights: float
    occupancy: int

    def cost(self, people: int) -> float:
        """Of a night for that many people, in as many of it as they need."""
        return self.price * math.ceil(people / self.occupancy)


@dataclass(frozen=True)
class Wishes:
    """Hard constraints besides the budget.

    Attributes:
        cuisines: each must be eaten at least once away from home.
        house_rule: what every room must allow; None for no wish.
        room_type: of every room, a key of `ROOM_TYPES`; None for no wish.
        transportation: a key of `FORBIDDEN`; None for no wish.
    """

    cuisines: tuple[str, ...] = ()
    house_rule: str | None = None
    room_type: str | None = None
    transportation: str | None = None

    def rule_holds(self, room: Room) -> bool:
        """Whether the room allows what is wished for."""
        return self.house_rule is None or self.house_rule not in room.forbids

    def type_holds(self, room: Room) -> bool:
        """Whether the room is of a type that is wished for."""
        return self.room_type is None or room.type in ROOM_TYPES[self.room_type]

    def allows(self, mode: Mode) -> bool:
        """Whether one may travel so."""
        return self.transportation is None or FORBIDDEN[self.transportation] != mode


@dataclass(frozen=True)
class Trip:
    """What is asked for, and what there is.

    Attributes:
        query: the request in words.
        org: city where the trip starts and ends.
        dest: city or region to be visited.
        dates: of its days.
        cities: how many cities to visit.
        people: who travel.
        budget: for all of them.
        wishes: further hard constraints.
        rides: flights and drives.
        rooms: to sleep in.
        restaurants: to eat in.
        sights: to see.
    """

    query: str
    org: str
    dest: str
    dates: tuple[str, ...]
    cities: int
    people: int
    budget: float
    wishes: Wishes
    rides: tuple[Ride, ...]
    rooms: tuple[Room, ...]
    restaurants: tuple[Restaurant, ...]
    sights: tuple[Sight, ...]

    @property
    def days(self) -> int:
        """How many days it takes."""
        return len(self.dates)

    @cached_property
    def visitable(self) -> tuple[str, ...]:
        """Cities that may be visited: those with something in them, but for where the trip starts. Sorted by name."""
        places: tuple[Place, ...] = (*self.rooms, *self.restaurants, *self.sights)
        names = _first((fold_city(place.city), place.city) for place in places)
        return tuple(names[key] for key in sorted(names) if key != fold_city(self.org))

    @cached_property
    def city_names(self) -> dict[str, str]:
        """Folded name → name of every city that a plan may speak of."""
        return {fold_city(name): name for name in (self.org, *self.visitable)}

    @cached_property
    def rides_by_key(self) -> dict[tuple[str, str, str, str, str], Ride]:
        """(mode, number, from, to, date) → ride, the names folded."""
        return _first(
            ((ride.mode, fold(ride.number), fold_city(ride.org), fold_city(ride.dest), ride.date), ride) for ride in self.rides
        )

    @cached_property
    def rooms_by_name(self) -> dict[tuple[str, str], Room]:
        """(name, city) → room, the names folded."""
        return _by_name(self.rooms)

    @cached_property
    def restaurants_by_name(self) -> dict[tuple[str, str], Restaurant]:
        """(name, city) → restaurant, the names folded."""
        return _by_name(self.restaurants)

    @cached_property
    def sights_by_name(self) -> dict[tuple[str, str], Sight]:
        """(name, city) → sight, the names folded."""
        return _by_name(self.sights)


_K = TypeVar("_K")
_V = TypeVar("_V")
_P = TypeVar("_P", bound=Place)


def _first(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, _V]:
    """A mapping in which of several values of one key the first stands: TravelPlanner has restaurants twice, at two prices."""
    found: dict[_K, _V] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found


def _by_name(places: Sequence[_P]) -> dict[tuple[str, str], _P]:
    return _first(((fold(place.name), fold_city(place.city)), place) for place in places)


# ---- reading a row ----


def read_trip(item: Item) -> Trip:
    """The row as a trip.

    Raises:
        KeyError: without a field.
        ValueError, TypeError: naming what is wrong with one.
    """
    if not isinstance(item["date"], (list, tuple)):
        raise ValueError(f"'date' must hold a date for each of 'days', got {item['date']!r}")
    dates = tuple(map(str, item["date"]))
    if len(dates) != item["days"] or not dates:
        raise ValueError(f"'date' must hold a date for each of 'days', got {item['date']!r} for {item['days']!r}")
    cities = _whole("visiting_city_number", item["visiting_city_number"])
    if len(dates) <= cities:
        raise ValueError(f"{cities} cities and the way home need {cities + 1} days, got {len(dates)}")
    catalogue = _catalogue(item["catalogue"])
    return Trip(
        query=str(item["query"]),
        org=str(item["org"]),
        dest=str(item["dest"]),
        dates=dates,
        cities=cities,
        people=_whole("people_number", item["people_number"]),
        budget=_amount("budget", item["budget"]),
        wishes=_wishes(item.get("local_constraint") or {}),
        rides=tuple(_flight(one) for one in catalogue["flights"])
        + tuple(ride for one in catalogue["drives"] for ride in _drives(one)),
        rooms=tuple(_room(one) for one in catalogue["rooms"]),
        restaurants=tuple(_restaurant(one) for one in catalogue["restaurants"]),
        sights=tuple(Sight(str(one["name"]), str(one["city"])) for one in catalogue["sights"]),
    )


def _catalogue(given: Any) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """The catalogue, if it has its parts and they list mappings."""
    parts = ("flights", "drives", "rooms", "restaurants", "sights")
    if not isinstance(given, Mapping) or any(part not in given for part in parts):
        raise ValueError(f"'catalogue' must be a mapping with {', '.join(parts)}, got {given!r:.200}")
    for part in parts:
        if not isinstance(given[part], (list, tuple)) or not all(isinstance(one, Mapping) for one in given[part]):
            raise ValueError(f"the catalogue's {part!r} must be a list of mappings, got {given[part]!r:.200}")
    return given


def _wishes(given: Any) -> Wishes:
    if not isinstance(given, Mapping):
        raise ValueError(f"'local_constraint' must be a mapping of wishes, got {given!r:.200}")
    known: dict[str, Iterable[str]] = {"house rule": HOUSE_RULES, "room type": ROOM_TYPES, "transportation": FORBIDDEN}
    for name in given:
        if name not in (*known, "cuisine"):
            raise ValueError(f"'local_constraint' knows {', '.join(known)} and cuisine, got {name!r}")
    for name, values in known.items():
        if given.get(name) is not None and given[name] not in values:
            raise ValueError(f"the local constraint {name!r} must be one of {', '.join(values)}, got {given[name]!r}")
    cuisines = given.get("cuisine") or ()
    if not isinstance(cuisines, (list, tuple)):
        raise ValueError(f"the local constraint 'cuisine' must be a list of cuisines, got {cuisines!r}")
    return Wishes(tuple(map(str, cuisines)), given.get("house rule"), given.get("room type"), given.get("transportation"))


def _flight(one: Mapping[str, Any]) -> Ride:
    price = _amount("price", one["price"])
    return Ride("flight", str(one["from"]), str(one["to"]), price, str(one["number"]), str(one["date"]))


def _drives(one: Mapping[str, Any]) -> Iterator[Ride]:
    """By car and by taxi, as far as there is a price."""
    modes: tuple[Mode, ...] = ("self-driving", "taxi")
    for mode in modes:
        if one.get(mode) is not None:
            yield Ride(mode, str(one["from"]), str(one["to"]), _amount(mode, one[mode]))


def _room(one: Mapping[str, Any]) -> Room:
    return Room(
        name=str(one["name"]),
        city=str(one["city"]),
        price=_amount("price", one["price"]),
        type=str(one["type"]),
        forbids=tuple(map(str, one["forbids"])),
        min_nights=_amount("min_nights", one["min_nights"]),
        occupancy=_whole("occupancy", one["occupancy"]),
    )


def _restaurant(one: Mapping[str, Any]) -> Restaurant:
    cuisines = tuple(map(str, one["cuisines"]))
    return Restaurant(str(one["name"]), str(one["city"]), _amount("price", one["price"]), cuisines)


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name!r} must be a whole number of at least 1, got {value!r}")
    return value


def _amount(name: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"{name!r} must be a number of at least 0, got {value!r}")
    return value
