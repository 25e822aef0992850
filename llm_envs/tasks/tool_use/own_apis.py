"""Two small simulated APIs of our own, a library's desk and a planner, so that the multi-turn task runs without other packages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from types import FunctionType
from typing import Any

from llm_envs.calling import REQUIRED, parameters_of

_KINDS = {"str": "string", "int": "integer", "float": "float", "bool": "boolean"}


class LibraryDesk:
    """The desk of a library: what is on its shelves, and who has what until when."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.today = config["today"]
        self.copies: dict[str, int] = dict(config["copies"])
        self.shelves: dict[str, str] = dict(config.get("shelves", {}))
        self.loans: dict[str, dict[str, Any]] = dict(config.get("loans", {}))

    def find_book(self, title: str) -> dict[str, Any]:
        """Say where a book stands and how many copies can be lent.

        Args:
            title: Title of the book.
        """
        if title not in self.copies:
            return {"error": f"There is no book '{title}'."}
        return {"shelf": self.shelves.get(title, "unsorted"), "copies": self.copies[title]}

    def lend(self, title: str, reader: str, days: int = 21) -> dict[str, Any]:
        """Lend a copy of a book.

        Args:
            title: Title of the book.
            reader: Name of the reader.
            days: For how many days.
        """
        if self.copies.get(title, 0) < 1:
            return {"error": f"No copy of '{title}' can be lent."}
        if not 1 <= days <= 365:
            return {"error": "Books are lent for 1 to 365 days."}
        self.copies[title] -= 1
        loan_id = f"L{len(self.loans) + 1}"
        due = (date.fromisoformat(self.today) + timedelta(days=days)).isoformat()
        self.loans[loan_id] = {"title": title, "reader": reader, "due": due}
        return {"loan_id": loan_id, "due": due}

    def take_back(self, loan_id: str) -> dict[str, Any]:
        """Take a lent book back.

        Args:
            loan_id: Id of the loan.
        """
        loan = self.loans.get(loan_id)
        if loan is None or loan["due"] is None:
            return {"error": f"There is no open loan '{loan_id}'."}
        self.copies[loan["title"]] = self.copies.get(loan["title"], 0) + 1
        self.loans[loan_id] = {**loan, "due": None}
        return {"title": loan["title"]}

    def loans_of(self, reader: str) -> dict[str, Any]:
        """List the open loans of a reader.

        Args:
            reader: Name of the reader.
        """
        open_loans = {key: loan for key, loan in self.loans.items() if loan["reader"] == reader and loan["due"] is not None}
        return {key: {"title": loan["title"], "due": loan["due"]} for key, loan in open_loans.items()}


class Planner:
    """A planner with events on days."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.events: dict[str, dict[str, str]] = dict(config.get("events", {}))
        self.next_number = len(self.events) + 1

    def add_event(self, day: str, title: str) -> dict[str, Any]:
        """Enter an event.

        Args:
            day: Day of the event, YYYY-MM-DD.
            title: What it is.
        """
        event_id = f"E{self.next_number}"
        self.next_number += 1
        self.events[event_id] = {"day": day, "title": title}
        return {"event_id": event_id}

    def events_on(self, day: str) -> dict[str, Any]:
        """List the events of a day.

        Args:
            day: The day, YYYY-MM-DD.
        """
        return {key: event["title"] for key, event in self.events.items() if event["day"] == day}

    def move_event(self, event_id: str, day: str) -> dict[str, Any]:
        """Move an event to another day.

        Args:
            event_id: Id of the event.
            day: The new day, YYYY-MM-DD.
        """
        if event_id not in self.events:
            return {"error": f"There is no event '{event_id}'."}
        self.events[event_id] = {**self.events[event_id], "day": day}
        return {"moved": True}

    def remove_event(self, event_id: str) -> dict[str, Any]:
        """Remove an event.

        Args:
            event_id: Id of the event.
        """
        if self.events.pop(event_id, None) is None:
            return {"error": f"There is no event '{event_id}'."}
        return {"removed": True}


OWN: Mapping[str, type] = {"LibraryDesk": LibraryDesk, "Planner": Planner}


def describe_class(api: type) -> tuple[Mapping[str, Any], ...]:
    """A description of each public method in BFCL's form, from its signature and Google docstring.

    Raises:
        TypeError: for a parameter whose annotation is none of str, int, float, bool.
    """
    methods = [one for name, one in vars(api).items() if isinstance(one, FunctionType) and not name.startswith("_")]
    return tuple(_describe(method) for method in methods)


def _describe(method: FunctionType) -> Mapping[str, Any]:
    lines = [line.strip() for line in (method.__doc__ or "").splitlines()]
    told = lines[lines.index("Args:") + 1 :] if "Args:" in lines else []
    said = dict(line.split(": ", 1) for line in told if ": " in line)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, (annotation, default) in list(parameters_of(method).items())[1:]:
        kind = getattr(annotation, "__name__", annotation)
        if kind not in _KINDS:
            raise TypeError(f"{method.__qualname__}: {name!r} must be annotated as one of {', '.join(_KINDS)}, got {kind!r}")
        shown = "" if default is REQUIRED else f" Default is {default!r}."
        properties[name] = {"type": _KINDS[kind], "description": said.get(name, "") + shown}
        if default is REQUIRED:
            required.append(name)
    parameters = {"type": "dict", "properties": properties, "required": required}
    return {"name": method.__name__, "description": lines[0] if lines else "", "parameters": parameters}
