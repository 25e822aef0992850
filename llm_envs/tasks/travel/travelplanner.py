"""Rows of TravelPlanner (osunlp/TravelPlanner on the hub) as trips: their reference texts are read back into a catalogue."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_envs.tasks.travel.trips import HOUSE_RULES
from llm_envs.types import Item

_COLUMNS = {
    "Attractions": ("Name", "Latitude", "Longitude", "Address", "Phone", "Website", "City"),
    "Restaurants": ("Name", "Average Cost", "Cuisines", "Aggregate Rating", "City"),
    "Accommodations": (
        "NAME",
        "price",
        "room type",
        "house_rules",
        "minimum nights",
        "maximum occupancy",
        "review rate number",
        "city",
    ),
    "Flight": (
        "Flight Number",
        "Price",
        "DepTime",
        "ArrTime",
        "ActualElapsedTime",
        "FlightDate",
        "OriginCityName",
        "DestCityName",
        "Distance",
    ),
}
"""Columns of each kind of table, as pandas prints them."""

_KIND = re.compile(r"(Attractions|Restaurants|Accommodations|Flight|Self-driving|Taxi)\b")
_DRIVE = re.compile(r"(?:self-driving|taxi), from (.+?) to (.+?), duration:.*, cost: (\d+)", re.IGNORECASE)
_NOTHING = re.compile(r"there (is|are) no|no valid information", re.IGNORECASE)

_RULES = {"parities": "parties"}
"""What is misspelled there → what is meant."""


def convert_row(row: Item) -> Item:
    """A row as it is on the hub, as a row of this family; one that has a `catalogue` already, as it is.

    Raises:
        KeyError, ValueError: naming the field that cannot be read.
    """
    if "catalogue" in row:
        return row
    wishes = dict(
        _of_type("local_constraint", _literal("local_constraint", row["local_constraint"]), Mapping, "a mapping of wishes")
    )
    if wishes.get("house rule") is not None:
        wishes["house rule"] = _RULES.get(wishes["house rule"], wishes["house rule"])
    converted = {
        "query": row["query"],
        "org": row["org"],
        "dest": row["dest"],
        "days": _number("days", row["days"], int),
        "visiting_city_number": _number("visiting_city_number", row["visiting_city_number"], int),
        "date": list(_of_type("date", _literal("date", row["date"]), (list, tuple), "a list of dates")),
        "people_number": _number("people_number", row["people_number"], int),
        "local_constraint": wishes,
        "budget": _number("budget", row["budget"], float),
        "level": row["level"],
    }
    # Rows have no id of their own; the request says which it is.
    text = json.dumps(converted, sort_keys=True)
    name = str(row["id"]) if row.get("id") is not None else hashlib.sha256(text.encode()).hexdigest()[:16]
    sections = _literal("reference_information", row["reference_information"])
    texts = "a list of sections, each with 'Description' and 'Content'"
    for one in _of_type("reference_information", sections, (list, tuple), texts):
        if not isinstance(one, Mapping) or not all(isinstance(one.get(part), str) for part in ("Description", "Content")):
            raise ValueError(f"'reference_information' must be {texts}, got {one!r:.200}")
    return {"id": name, **converted, "catalogue": read_reference(sections)}


def read_reference(sections: Sequence[Mapping[str, str]]) -> dict[str, list[dict[str, Any]]]:
    """The catalogue of reference texts, `{"Description": …, "Content": …}` each; annotated plans and all else are left out.

    Raises:
        KeyError, ValueError: naming the section that cannot be read.
    """
    catalogue: dict[str, list[dict[str, Any]]] = {"flights": [], "drives": [], "rooms": [], "restaurants": [], "sights": []}
    drives: dict[tuple[str, str], dict[str, Any]] = {}
    for section in sections:
        title, content = section["Description"], section["Content"]
        kind = _KIND.match(title)
        if kind is None:
            raise ValueError(f"unknown kind of reference information: {title!r}")
        try:
            _read_section(kind.group(1), content, catalogue, drives)
        except ValueError as error:
            raise ValueError(f"{title!r}: {error}") from error
    catalogue["drives"] = list(drives.values())
    return catalogue


def _read_section(
    kind: str, content: str, catalogue: dict[str, list[dict[str, Any]]], drives: dict[tuple[str, str], dict[str, Any]]
) -> None:
    if kind in ("Self-driving", "Taxi"):
        found = _DRIVE.match(content)
        if found is not None:
            org, dest, cost = found.groups()
            drives.setdefault((org, dest), {"from": org, "to": dest})[kind.lower()] = int(cost)
        elif not _NOTHING.search(content):
            raise ValueError(f"expected a drive with its cost, got {content!r:.200}")
        return
    if _NOTHING.match(content.strip()) or content.startswith("Empty DataFrame"):
        return
    rows = read_table(content, _COLUMNS[kind])
    if kind == "Flight":
        catalogue["flights"] += [
            {
                "number": one["Flight Number"],
                "from": one["OriginCityName"],
                "to": one["DestCityName"],
                "date": one["FlightDate"],
                "price": float(one["Price"]),
            }
            for one in rows
        ]
    elif kind == "Accommodations":
        catalogue["rooms"] += [_room(one) for one in rows]
    elif kind == "Restaurants":
        catalogue["restaurants"] += [
            {
                "name": one["Name"],
                "city": one["City"],
                "price": float(one["Average Cost"]),
                "cuisines": [cuisine.strip() for cuisine in one["Cuisines"].split(",")],
            }
            for one in rows
        ]
    else:
        catalogue["sights"] += [{"name": one["Name"], "city": one["City"]} for one in rows]


def _room(one: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": one["NAME"],
        "city": one["city"],
        "price": float(one["price"]),
        "type": one["room type"],
        "forbids": [rule for rule in HOUSE_RULES if f"no {rule}" in one["house_rules"].casefold()],
        "min_nights": float(one["minimum nights"]),
        "occupancy": int(float(one["maximum occupancy"])),
    }


def read_table(text: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a table as pandas' `to_string` prints it, with or without an index.

    Every column is as wide as its widest entry, flush right. So it ends where its title ends, and an entry may have spaces in it.

    Raises:
        ValueError: if the titles are not these, or lines differ in length.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    width = max(map(len, lines), default=0)
    # Spaces at the text's very beginning are easily lost on the way.
    lines = [lines[0].rjust(width), *lines[1:]] if lines else []
    titles = re.fullmatch(r"\s*" + r"\s+".join(f"({re.escape(title)})" for title in columns), lines[0] if lines else "")
    if titles is None:
        raise ValueError(f"expected a table with the columns {', '.join(columns)}, got {text!r:.200}")
    if any(len(line) != width for line in lines):
        raise ValueError(f"the lines of a table must be of one length, got {sorted(set(map(len, lines)))}")
    ends = [titles.end(number + 1) for number in range(len(columns))]
    # An index is flush left, so that every line begins with a number and the two spaces that are then between columns.
    index = [re.match(r"\d+(?=  )", line) for line in lines[1:]]
    starts = [max((found.end() for found in index if found is not None), default=0) if all(index) else 0, *ends[:-1]]
    return [{title: line[start:end].strip() for title, start, end in zip(columns, starts, ends, strict=True)} for line in lines[1:]]


def _number(name: str, value: Any, kind: Callable[[Any], int | float]) -> Any:
    """The value as a number, which may be a text: CSV files hold texts only."""
    try:
        return kind(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name!r} must be a number, got {value!r:.200}") from error


def _of_type(name: str, value: Any, kind: Any, expected: str) -> Any:
    """The value, if it is of that type."""
    if not isinstance(value, kind):
        raise ValueError(f"{name!r} must be {expected}, got {value!r:.200}")
    return value


def _literal(name: str, value: Any) -> Any:
    """The value, or what its text says as a Python literal: CSV files hold texts only."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{name!r} must be a Python literal, got {value!r:.200}: {error}") from error
