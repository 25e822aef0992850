"""Which rows a task starts from: the bundled ones, or the user's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, TypeAlias

from llm_envs.types import Item

Rows: TypeAlias = Sequence[Item] | Iterable[Item]


def choose_rows(items: Rows | None, eval_items: Rows | None, bundled: Mapping[str, Sequence[Item]]) -> tuple[Rows, Rows | None]:
    """Training and evaluation rows: own ones where given, else the bundled `train` and `eval`.

    Own training rows without evaluation rows leave the evaluation empty: bundled rows would measure another data set.
    """
    if items is None:
        return bundled["train"], bundled["eval"] if eval_items is None else eval_items
    return items, eval_items


def bundled_rows(name: str) -> list[Item]:
    """The rows of the bundled file `data/<name>.json`: a list, or what stands under `rows`."""
    data = load_data(name)
    return list(data["rows"] if isinstance(data, Mapping) else data)


def load_data(name: str) -> Any:
    """The bundled file `data/<name>.json`."""
    return json.loads((files("llm_envs.tasks") / "data" / f"{name}.json").read_text(encoding="utf-8"))
