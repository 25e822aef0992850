"""What the package `bfcl-eval` has: the rows of the Berkeley Function Calling Leaderboard, its function docs and API simulators.

Only data files and the simulators' own modules are touched. The package's other modules need dozens of further packages.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from llm_envs.types import Item

INSTALL = "pip install --no-deps bfcl-eval==2026.3.23 && pip install mpmath"
"""Without its dependencies: it pins numpy, faiss, models' clients and more, none of which is needed here."""

PARALLEL = ("parallel", "parallel_multiple", "live_parallel", "live_parallel_multiple")
MULTI_TURN = ("multi_turn_base", "multi_turn_long_context", "multi_turn_miss_func", "multi_turn_miss_param")

SIMULATORS: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""API class → its module and its file of function docs."""

_MODULES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"


def rows(category: str) -> list[dict[str, Any]]:
    """The benchmark's rows of a category, each with its `ground_truth` and `category`.

    Raises:
        ImportError: without the package, with the `pip install` line.
        ValueError: for a category there is none of here.
    """
    if category not in (*PARALLEL, *MULTI_TURN):
        raise ValueError(f"categories must be of {', '.join((*PARALLEL, *MULTI_TURN))}, got {category!r}")
    name = f"BFCL_v4_{category}.json"
    answers = {row["id"]: row["ground_truth"] for row in _lines(data_folder() / "possible_answer" / name)}
    found = list(_lines(data_folder() / name))
    return [{**row, "category": category, "ground_truth": answers[row["id"]]} for row in found]


@cache
def functions(api: str) -> tuple[Mapping[str, Any], ...]:
    """The benchmark's description of each function of an API class, without what it returns.

    Raises:
        ImportError: without the package.
        ValueError: for another class.
    """
    name = _module_name(api)  # first: what is no class of the package is not to be looked for by installing it
    file = data_folder() / "multi_turn_func_doc" / f"{name}.json"
    return tuple({key: value for key, value in doc.items() if key != "response"} for doc in _lines(file))


def simulator(api: str, config: Item, long_context: bool) -> Any:
    """A new simulator of an API class.

    Args:
        api: the class.
        config: its part of the row's initial configuration; the simulator's to keep.
        long_context: whether it fills files and lists with much that is not needed.

    Raises:
        ImportError: without the package, or without mpmath.
        ValueError: for another class.
    """
    name = _module_name(api)
    data_folder()
    try:
        module = importlib.import_module(f"{_MODULES}.{name}")
    except ImportError as error:
        raise ImportError(f"the simulator {api} of bfcl-eval cannot be imported ({error}): {INSTALL}") from error
    made = getattr(module, api)()
    if hasattr(made, "_load_scenario"):  # MathAPI has no state
        made._load_scenario(config, long_context=long_context)
    return made


def data_folder() -> Path:
    """Where the package keeps its data; the package is found, not imported.

    Raises:
        ImportError: without the package, with the `pip install` line.
    """
    found = importlib.util.find_spec("bfcl_eval")
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"rows and simulators of BFCL need the package bfcl-eval: {INSTALL}")
    return Path(next(iter(found.submodule_search_locations))) / "data"


def _module_name(api: str) -> str:
    if api not in SIMULATORS:
        raise ValueError(f"there is no API class {api!r}; known: {', '.join(SIMULATORS)}")
    return SIMULATORS[api]


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip():
            yield json.loads(line)
