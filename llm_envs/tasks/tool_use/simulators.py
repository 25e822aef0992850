"""API simulators of an episode: built from the row's configuration, called by name with literals, compared by their attributes.

Nothing of a completion is evaluated. Calls reach the documented methods of the row's classes and nothing else.
"""

from __future__ import annotations

import copy
import decimal
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from llm_envs.calling import named_arguments
from llm_envs.tasks.tool_use import bfcl
from llm_envs.tasks.tool_use.calls import Call
from llm_envs.tasks.tool_use.own_apis import OWN, describe_class
from llm_envs.types import Item

LIMITS: Mapping[str, float] = {"exponent": 1000, "precision": 1000, "decimal_places": 1000}
"""Greatest absolute values of parameters that say how long a computation takes."""

LARGEST_NUMBER = 10**18
"""Greatest absolute value of any other number."""

LARGEST_STATE = 20_000
"""Most values a simulator may hold, counted as often as they are reached. (Copying folders into each other doubles them.)"""

CALL_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""What a simulator raises for arguments that make no sense: such an error is the answer to the call."""

FAILED = "Error during execution: "
"""What the benchmark's response to a failed call starts with."""

Apis = tuple[tuple[str, type], ...]
"""Users' own API classes by name; `Class(config)` makes a simulator."""


def api_functions(api: str, own: Apis = ()) -> tuple[Mapping[str, Any], ...]:
    """A description of each function of an API class: of a user's, of ours, or of bfcl-eval.

    Raises:
        ImportError: for a class of bfcl-eval without the package.
        ValueError: for an unknown class.
    """
    classes = {**OWN, **dict(own)}
    return describe_class(classes[api]) if api in classes else bfcl.functions(api)


class World:
    """The simulators of one row, to call until the episode's state is reached.

    Args:
        item: the row.
        own: users' API classes.
    """

    def __init__(self, item: Item, own: Apis = ()) -> None:
        long_context = "long_context" in str(item.get("category", ""))
        classes = {**OWN, **dict(own)}
        self.simulators: dict[str, Any] = {}
        self._methods: dict[str, Any] = {}
        self._full = False
        for api in item["involved_classes"]:
            config = copy.deepcopy(item["initial_config"].get(api, {}))
            made = classes[api](config) if api in classes else bfcl.simulator(api, config, long_context)
            self.simulators[api] = made
            self._methods.update({doc["name"]: getattr(made, doc["name"]) for doc in api_functions(api, own)})

    def run(self, call: Call) -> str:
        """The response to a call as text, as the benchmark writes it: a text as it is, a dictionary as JSON, else `str`.

        A call that fails, or asks for too much, has its error as response.
        """
        method = self._methods.get(call.name)
        if method is None:
            return f"{FAILED}there is no function '{call.name}'"
        if self._full:
            return f"{FAILED}the simulators are full"
        with ExitStack() as stack:
            # MathAPI sets the precision of the whole process.
            stack.enter_context(decimal.localcontext())
            if "mpmath" in sys.modules:
                mpmath = sys.modules["mpmath"]
                stack.enter_context(mpmath.workdps(mpmath.mp.dps))
            try:
                _check_size(method, call)
                response = _as_text(method(*copy.deepcopy(call.positional), **copy.deepcopy(dict(call.arguments))))
            except CALL_ERRORS as error:
                response = f"{FAILED}{error}"
        self._full = _exceeds(method.__self__, LARGEST_STATE)
        return response

    def same_as(self, other: World) -> bool:
        """Whether every simulator has the public attributes of the other world's one, as the benchmark compares them."""
        if self._full or other._full:
            return False
        try:
            return all(_same(self.simulators[api], simulator) for api, simulator in other.simulators.items())
        except RecursionError:  # folders in folders in folders, which the gold calls never make
            return False


def _same(one: Any, other: Any) -> bool:
    return all(getattr(one, name, None) == value for name, value in vars(other).items() if not name.startswith("_"))


def _as_text(response: Any) -> str:
    if isinstance(response, dict):
        try:
            return json.dumps(response)
        except (TypeError, ValueError):
            return str(response)
    return response if isinstance(response, str) else str(response)


def _check_size(method: Any, call: Call) -> None:
    # A call that does not fit fails by itself, with Python's own words.
    for name, value in (named_arguments(method, call.positional, call.arguments) or {}).items():
        for number in _numbers(value):
            limit = LIMITS.get(name, LARGEST_NUMBER)
            if abs(number) > limit:
                raise ValueError(f"{name} is too large: at most {limit}")


def _numbers(value: Any) -> Sequence[float]:
    if isinstance(value, Mapping):
        return [number for one in value.values() for number in _numbers(one)]
    if isinstance(value, (list, tuple)):
        return [number for one in value for number in _numbers(one)]
    return [value] if isinstance(value, (int, float)) else []


def _exceeds(simulator: Any, limit: int) -> bool:
    """Whether more than `limit` values are reached from the object, each as often as there are ways to it."""
    waiting = [simulator]
    count = 0
    while waiting:
        count += 1
        if count > limit:
            return True
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple, set)):
            waiting.extend(value)
        elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
            # A folder's parent leads back up.
            waiting.extend(one for name, one in vars(value).items() if name not in ("parent", "_current_dir"))
    return False
