"""What planners read: the request, the part of the catalogue that their slots need, and how to answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from llm_envs.tasks.travel.hints import hints_for
from llm_envs.tasks.travel.team import MEALS, SLOT_FIELDS, Slot, Team
from llm_envs.tasks.travel.trips import SEATS, Ride, Trip, read_trip
from llm_envs.types import Item

_VALUES = {
    "current_city": 'a city; "from A to B" on a day of travel',
    "transportation": '"Flight Number: F, from A to B", "Self-driving, from A to B" or "Taxi, from A to B"',
    "breakfast": '"restaurant, city"',
    "lunch": '"restaurant, city"',
    "dinner": '"restaurant, city"',
    "attraction": '"sight, city"; several joined by ";"',
    "accommodation": '"room, city"',
}


@dataclass(frozen=True)
class Prompt:
    """The formatter of one agent.

    Attributes:
        team: all agents.
        agent: number of the one that reads.
        hints: whether the prompt says a route that works, shares of the budget, and what is looked at.
    """

    team: Team
    agent: int
    hints: bool

    def __call__(self, item: Item) -> str:
        """What the agent reads first."""
        trip = read_trip(item)
        part = self.team.part(self.agent, trip.days)
        # Who may fill any slot needs to know everything.
        fields: AbstractSet[str] = {field for _, field in part} if self.team.binding else set(SLOT_FIELDS)
        sections = [
            self._role(part),
            f"Request: {trip.query}",
            "Days: " + ", ".join(f"{number} is {date}" for number, date in enumerate(trip.dates, start=1)) + ".",
            *_catalogue(fields, trip),
        ]
        if self.hints:
            sections.append(hints_for(self.team, self.agent, trip))
        return "\n\n".join([*sections, self._answer(part, trip.days)])

    def _role(self, part: Sequence[Slot]) -> str:
        count = len(self.team.agents)
        if count == 1:
            return "You plan a trip."
        if self.team.role_mode == "same_prompt":
            return (
                f"You are one of {count} planners of one trip. Nobody sees what the others write. Every slot should be filled once."
            )
        name, slots = self.team.agents[self.agent], slots_in_words(part)
        if self.team.role_mode == "soft_roles":
            return (
                f"You are {name}, one of {count} planners of one trip. Nobody sees what the others write. Every slot should be "
                f"filled once, by whoever it is. Yours are, as a rule: {slots}. Leave the others' to them."
            )
        return (
            f"You are {name}, one of {count} planners of one trip. Each fills slots of its own and does not see what the others "
            f"write. Yours: {slots}."
        )

    def _answer(self, part: Sequence[Slot], days: int) -> str:
        fields = [field for field in SLOT_FIELDS if not self.team.binding or any(field == own for _, own in part)]
        values = "\n".join(f"- {field}: {_VALUES[field]}" for field in fields)
        most = self.team.most_slots(self.agent, days)
        return (
            f"Answer with a JSON list only, one object for each slot and at most {most}: "
            f'{{"day": 1, "field": "{fields[-1]}", "value": "-"}}. The value "-" leaves a slot empty. Values:\n{values}'
        )


def slots_in_words(slots: Iterable[Slot]) -> str:
    """The slots, those of days with the same fields together."""
    by_day: dict[int, list[str]] = {}
    for day, field in slots:
        by_day.setdefault(day, []).append(field)
    by_fields: dict[tuple[str, ...], list[int]] = {}
    for day, fields in by_day.items():
        by_fields.setdefault(tuple(fields), []).append(day)
    return "; ".join(
        f"{', '.join(fields)} of day{'s' if len(days) > 1 else ''} {', '.join(map(str, days))}"
        for fields, days in by_fields.items()
    )


# ---- the catalogue ----


def _catalogue(fields: AbstractSet[str], trip: Trip) -> Iterator[str]:
    """The sections that these slots need: prices of rides only for who chooses them, the connections for all."""
    if fields & {"current_city", "transportation"}:
        yield "Rides:\n" + _lines(_priced(ride) for ride in trip.rides)
    else:
        yield "Connections:\n" + _lines(_connections(trip))
    if "accommodation" in fields:
        yield "Rooms, price of a night:\n" + _lines(
            f"{room.text} | {room.price:g} | {room.type} | for {room.occupancy} | at least {_nights(room.min_nights)} | "
            + (", ".join(f"no {rule}" for rule in room.forbids) or "all allowed")
            for room in trip.rooms
        )
    if fields & set(MEALS):
        yield "Restaurants, price of a meal for one:\n" + _lines(
            f"{one.text} | {one.price:g} | {', '.join(one.cuisines)}" for one in trip.restaurants
        )
    if "attraction" in fields:
        yield "Sights:\n" + _lines(one.text for one in trip.sights)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _priced(ride: Ride) -> str:
    for_whom = {"flight": "a ticket", "self-driving": f"a car for {SEATS['self-driving']}", "taxi": f"a taxi for {SEATS['taxi']}"}
    return f"{ride.text}{f' on {ride.date}' if ride.date else ''} | {ride.price:g} {for_whom[ride.mode]}"


def _connections(trip: Trip) -> Iterator[str]:
    legs: dict[tuple[str, str], list[str]] = {}
    for ride in trip.rides:
        how = f"flight on {ride.date}" if ride.mode == "flight" else ride.mode
        known = legs.setdefault((ride.org, ride.dest), [])
        if how not in known:
            known.append(how)
    for (org, dest), how in legs.items():
        yield f"from {org} to {dest}: {', '.join(how)}"


def _nights(count: float) -> str:
    return f"{count:g} night{'' if count == 1 else 's'}"
