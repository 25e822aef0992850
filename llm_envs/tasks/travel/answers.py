"""What agents write: JSON of slots, read strictly, and put together into one plan."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm_envs.tasks.fences import fenced_text
from llm_envs.tasks.travel.team import SLOT_FIELDS, Slot, Team
from llm_envs.tasks.travel.trips import fold

_LIST = re.compile(r"\s*\[")

EMPTY = ("", "-")
"""Values that say there is nothing in a slot."""


@dataclass(frozen=True)
class Answer:
    """What was read from one agent's text.

    Attributes:
        slots: its values that are not empty.
        problem: why the text was rejected as a whole; "" if it was not.
    """

    slots: Mapping[Slot, str] = field(default_factory=dict)
    problem: str = ""


def read_answer(text: str, days: int, most: int) -> Answer:
    """The slots in the text, which must be a JSON list of `{"day": …, "field": …, "value": …}` and nothing else.

    Of a text with fenced blocks these are read (`fences`). An empty value is "-" or "".

    Args:
        text: of one agent.
        days: of the trip.
        most: slots that the answer may have, empty ones included. With more it is rejected.
    """
    try:
        entries = json.loads(fenced_text(text, _LIST))
    except (ValueError, RecursionError):
        return Answer(problem="is no JSON")
    if not isinstance(entries, list):
        return Answer(problem="is no JSON list")
    if len(entries) > most:
        return Answer(problem=f"has more than {most} slots")
    slots: dict[Slot, str] = {}
    for entry in entries:
        if not _is_slot(entry, days):
            return Answer(problem="has an entry that is no slot")
        slot = (entry["day"], entry["field"])
        if slot in slots:
            return Answer(problem="has a slot twice")
        slots[slot] = entry["value"].strip()
    return Answer({slot: value for slot, value in slots.items() if value not in EMPTY})


def _is_slot(entry: Any, days: int) -> bool:
    return (
        isinstance(entry, dict)
        and set(entry) == {"day", "field", "value"}
        and type(entry["day"]) is int
        and 1 <= entry["day"] <= days
        and entry["field"] in SLOT_FIELDS
        and isinstance(entry["value"], str)
    )


def write_answer(slots: Mapping[Slot, str], part: Sequence[Slot]) -> str:
    """The text that an agent with this part writes for these slots, one a line."""
    entries = [{"day": day, "field": field, "value": slots.get((day, field), "-")} for day, field in part]
    return "[" + ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "]"


@dataclass(frozen=True)
class Merged:
    """The plan that the agents' answers make.

    Attributes:
        answers: of each agent.
        slots: value of every slot that is not empty and on which those who wrote it agree.
        writers: of each of those slots, the agents' numbers.
        conflicts: slots that were removed because agents wrote different values.
        overlap: values beyond the first in a slot, removed ones included, over all values. In [0, 1).
    """

    answers: tuple[Answer, ...]
    slots: Mapping[Slot, str]
    writers: Mapping[Slot, tuple[int, ...]]
    conflicts: tuple[Slot, ...]
    overlap: float


def merge(texts: Sequence[str], team: Team, days: int) -> Merged:
    """The answers put together. It does not depend on the agents' order but for the spelling of values that several wrote."""
    answers = tuple(read_answer(text, days, team.most_slots(agent, days)) for agent, text in enumerate(texts))
    writers: dict[Slot, list[int]] = {}
    for agent, answer in enumerate(answers):
        for slot in answer.slots:
            writers.setdefault(slot, []).append(agent)
    slots: dict[Slot, str] = {}
    conflicts: list[Slot] = []
    for slot in sorted(writers):
        values = [answers[agent].slots[slot] for agent in writers[slot]]
        if len({fold(value) for value in values}) == 1:
            slots[slot] = values[0]
        else:
            conflicts.append(slot)
    written = sum(map(len, writers.values()))
    overlap = (written - len(writers)) / written if written else 0.0
    return Merged(answers, slots, {slot: tuple(writers[slot]) for slot in slots}, tuple(conflicts), overlap)
