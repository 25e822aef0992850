"""Which rows a task starts from: the bundled ones, or the user's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import TypeAlias

from llm_envs.types import Item

Rows: TypeAlias = Sequence[Item] | Iterable[Item]


def choose_rows(items: Rows | None, eval_items: Rows | None, bundled: Mapping[str, Sequence[Item]]) -> tuple[Rows, Rows | None]:
    """Training and evaluation rows: own ones where given, else the bundled `train` and `eval`.

    Own training rows without evaluation rows leave the evaluation empty: bundled rows would measure another data set.
    """
    if items is None:
        return bundled["train"], bundled["eval"] if eval_items is None else eval_items
    return items, eval_items


def load_data(name: str) -> Mapping[str, list[str]]:
    """The bundled file `data/<name>.json`."""
    return json.loads((files("llm_envs.tasks") / "data" / f"{name}.json").read_text(encoding="utf-8"))
