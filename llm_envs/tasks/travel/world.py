"""A made-up world by seed and size: cities in regions, rooms, restaurants, sights, and how to get from one city to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from llm_envs.tasks.travel.trips import HOUSE_RULES

CUISINES = ("Bakery", "Chinese", "French", "Indian", "Italian", "Mexican", "Noodles", "Seafood")
TYPES = ("Entire home/apt", "Private room", "Shared room")

REGION = 5
"""Cities of a region, at least."""

LONGEST_DRIVE = 1200
"""Kilometres beyond which nobody drives."""

_STARTS = ("Al", "Bel", "Cor", "Dun", "El", "Fen", "Gal", "Har", "Is", "Jor", "Kel", "Lor", "Mar", "Nor", "Or", "Per", "Ros", "Sel")
_ENDS = ("berg", "bury", "dale", "ford", "garth", "ham", "holm", "ley", "mere", "mont", "port", "stead", "thorpe", "ton", "wick")
_LANDS = ("avia", "ania", "emark", "istan", "oria", "undy")
_ROOM_WORDS = (
    "Airy",
    "Blue",
    "Calm",
    "Cosy",
    "Garden",
    "Large",
    "Modern",
    "Old",
    "Plain",
    "Quiet",
    "Rustic",
    "Sunny",
    "Tidy",
    "White",
)
_ROOM_KINDS = {
    "Entire home/apt": ("Apartment", "Cottage", "Flat", "House", "Loft", "Studio"),
    "Private room": ("Attic", "Chamber", "Guest Room", "Room", "Side Room", "Single"),
    "Shared room": ("Bunk", "Dormitory", "Hall", "Hostel", "Shared Loft", "Shared Room"),
}
_TABLE_WORDS = (
    "Amber",
    "Brass",
    "Copper",
    "Crooked",
    "Empty",
    "Green",
    "Happy",
    "Iron",
    "Lazy",
    "Little",
    "Red",
    "Salty",
    "Silver",
    "Tall",
)
_TABLE_KINDS = ("Anchor", "Basket", "Bowl", "Goose", "Kettle", "Ladle", "Lantern", "Oven", "Pan", "Pot", "Spoon", "Table")
_SIGHT_WORDS = ("Botanic", "Castle", "Clock", "Glass", "Harbour", "Lake", "Market", "Mill", "Queen's", "River", "Stone", "Upper")
_SIGHT_KINDS = ("Bridge", "Gallery", "Garden", "Museum", "Park", "Tower", "Walk", "Wall")


@dataclass(frozen=True)
class Size:
    """How large a world is.

    Attributes:
        cities: of the world, 10 to 100.
        rooms: of a city, 2 to 60.
        restaurants: of a city, 3 to 60.
        sights: of a city, 1 to 60.
    """

    cities: int = 30
    rooms: int = 6
    restaurants: int = 8
    sights: int = 4

    def __post_init__(self) -> None:
        for option, least, most in (("cities", 10, 100), ("rooms", 2, 60), ("restaurants", 3, 60), ("sights", 1, 60)):
            value = getattr(self, option)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise ValueError(f"{option} must be a whole number from {least} to {most}, got {value!r}")


@dataclass(frozen=True)
class World:
    """Cities, and what is in them.

    Attributes:
        seed: path of the world's random numbers.
        cities: their names.
        regions: name → its cities' names.
        kilometres: by road between two cities, [cities, cities].
        roads: whether there is a road between two cities that is not too long, [cities, cities].
        rooms: city → rows of its rooms, as in a catalogue.
        restaurants: likewise.
        sights: likewise.
    """

    seed: tuple[int, ...]
    cities: tuple[str, ...]
    regions: Mapping[str, tuple[str, ...]]
    kilometres: np.ndarray
    roads: np.ndarray
    rooms: Mapping[str, list[dict[str, Any]]]
    restaurants: Mapping[str, list[dict[str, Any]]]
    sights: Mapping[str, list[dict[str, Any]]]

    def drive(self, org: str, dest: str) -> dict[str, Any] | None:
        """The drive from a city to another; None if there is none. A car costs 0.05 a kilometre, a taxi 1, as in TravelPlanner."""
        pair = self.cities.index(org), self.cities.index(dest)
        if not self.roads[pair]:
            return None
        length = int(self.kilometres[pair])
        return {"from": org, "to": dest, "self-driving": length // 20, "taxi": length}

    def flights(self, org: str, dest: str, date: str, day: int, count: int) -> list[dict[str, Any]]:
        """The flights from a city to another on a day, the same whenever they are asked for.

        Args:
            org: where they start.
            dest: where they end.
            date: in words.
            day: its number in the calendar, 0 to 83.
            count: how many.
        """
        start, end = self.cities.index(org), self.cities.index(dest)
        rng = random_stream(*self.seed, 1, start, end, day)
        prices = 30 + 0.1 * self.kilometres[start, end] * rng.uniform(0.6, 1.8, count)
        # Multiplying by a number without a common factor turns different places into different numbers, in no order.
        places = [((start * 100 + end) * 84 + day) * 4 + k for k in range(count)]
        return [
            {"number": f"F{place * 2_654_435_761 % 9_999_991:07d}", "from": org, "to": dest, "date": date, "price": int(price)}
            for place, price in zip(places, prices, strict=True)
        ]


def build_world(seed: tuple[int, ...], size: Size) -> World:
    """The world of this seed and size."""
    rng = random_stream(*seed, 0)
    cities = tuple(_names(rng, _STARTS, _ENDS, "", size.cities))
    count = size.cities // REGION
    lands = _names(rng, _STARTS, _LANDS, "", count)
    members = [cities[number::count] for number in range(count)]
    where = np.empty((size.cities, 2))
    for number in range(count):
        centre = rng.uniform((0, 0), (2400, 1200))
        where[number::count] = centre + rng.uniform(-130, 130, (len(members[number]), 2))
    kilometres = np.maximum(20, 1.2 * np.linalg.norm(where[:, None] - where[None], axis=-1)).astype(int)
    same = np.arange(size.cities)[:, None] % count == np.arange(size.cities)[None] % count
    open_roads = np.triu(rng.random((size.cities, size.cities)) < 0.7, 1)
    roads = (same | open_roads | open_roads.T) & (kilometres <= LONGEST_DRIVE)
    return World(
        seed=seed,
        cities=cities,
        regions=dict(zip(lands, members, strict=True)),
        kilometres=kilometres,
        roads=roads,
        rooms={city: _rooms(rng, city, size.rooms) for city in cities},
        restaurants={city: _restaurants(rng, city, size.restaurants) for city in cities},
        sights={city: _sights(rng, city, size.sights) for city in cities},
    )


def random_stream(*path: int) -> np.random.Generator:
    """The random numbers of a path; a world's own begins with its seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(path)))


def _names(rng: np.random.Generator, first: tuple[str, ...], second: tuple[str, ...], between: str, count: int) -> list[str]:
    """Different names of two parts."""
    chosen = rng.choice(len(first) * len(second), size=count, replace=False)
    return [f"{first[int(n) // len(second)]}{between}{second[int(n) % len(second)]}" for n in chosen]


def _rooms(rng: np.random.Generator, city: str, count: int) -> list[dict[str, Any]]:
    rooms: list[dict[str, Any]] = []
    words = rng.permutation(len(_ROOM_WORDS) * 6)[:count]
    for number in range(count):
        # One of each type first, and the first two may be taken for a single night.
        kind = TYPES[number] if number < len(TYPES) else TYPES[int(rng.integers(len(TYPES)))]
        word, noun = divmod(int(words[number]), 6)
        occupancy = int(rng.integers(1, 3) if kind != TYPES[0] else rng.integers(2, 7))
        price = int({TYPES[0]: 60, TYPES[1]: 40, TYPES[2]: 20}[kind] * rng.uniform(1.0, 3.0)) + 8 * occupancy
        banned = rng.random(len(HOUSE_RULES)) < 0.25
        rooms.append(
            {
                "name": f"{_ROOM_WORDS[word]} {_ROOM_KINDS[kind][noun]}",
                "city": city,
                "price": price,
                "type": kind,
                "forbids": [rule for rule, no in zip(HOUSE_RULES, banned, strict=True) if no],
                "min_nights": 1 if number < 2 else int(rng.integers(1, 5)),
                "occupancy": occupancy,
            }
        )
    return [rooms[int(n)] for n in rng.permutation(count)]


def _restaurants(rng: np.random.Generator, city: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "city": city,
            "price": int(rng.integers(8, 70)),
            "cuisines": [CUISINES[int(n)] for n in sorted(rng.choice(len(CUISINES), size=int(rng.integers(1, 4)), replace=False))],
        }
        for name in _names(rng, _TABLE_WORDS, _TABLE_KINDS, " ", count)
    ]


def _sights(rng: np.random.Generator, city: str, count: int) -> list[dict[str, Any]]:
    return [{"name": name, "city": city} for name in _names(rng, _SIGHT_WORDS, _SIGHT_KINDS, " ", count)]
