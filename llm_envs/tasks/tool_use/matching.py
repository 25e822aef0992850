"""Which calls are right: the rules of the Berkeley Function Calling Leaderboard (BFCL) for values, calls, and parallel calls.

A gold call lists, for each parameter, the values that are allowed; an empty text among them says that it may be left out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from llm_envs.tasks.tool_use.calls import Call

Schema: TypeAlias = Mapping[str, Any]
"""A function as BFCL describes it: name, description, parameters with properties and required."""

Gold: TypeAlias = Mapping[str, Mapping[str, Sequence[Any]]]
"""One gold call: `{name: {parameter: [allowed values]}}`."""

TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
    # JSON Schema's own names, which rows from elsewhere have.
    "number": float,
    "object": dict,
}

_IGNORED = re.compile(r"[ ,./\-_*^]")


def standard(text: str) -> str:
    """The text as values are compared: lower case, without blanks and `,./-_*^`, one kind of quotation mark."""
    return _IGNORED.sub("", text).lower().replace("'", '"')


def _standardised(value: Any) -> Any:
    return standard(value) if isinstance(value, str) else value


def value_fits(value: Any, allowed: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    """Whether a value is of the parameter's type and one of the allowed ones.

    Texts are compared in their `standard` form, also inside of lists and as values of dictionaries. A whole number passes for a
    float. A text where the gold has a text instead of the parameter's type (a variable's name) must be equal
    to it. Lists keep their order.

    Args:
        value: given.
        allowed: the gold's list.
        schema: of the parameter: `type`, and `items` for lists.
    """
    kind = str(schema["type"])
    expected = TYPES[kind]
    inner = TYPES[str(schema["items"]["type"])] if kind in ("array", "tuple") and "items" in schema else None
    if kind == "tuple" and isinstance(value, tuple):
        value = list(value)
    if expected is float and type(value) is int:
        value = float(value)
    known = next((type(one) for one in allowed if one != ""), None)
    if type(value) is not expected:
        # Then it must be the gold's own stand-in, such as a variable's name.
        return known is not None and type(value) is known and value in allowed
    if inner is not None and not _items_fit(value, allowed, inner):
        return False
    if known is not None and known is not expected:
        return value in allowed
    if expected is dict:
        return any(_dict_fits(value, one) for one in allowed if one != "")
    if expected is list and inner is dict:
        return any(_dicts_fit(value, one) for one in allowed if one != "")
    if expected is list:
        given = [_standardised(one) for one in value]
        return any(given == [_standardised(item) for item in one] for one in allowed)
    if expected is str:
        return standard(value) in [standard(one) for one in allowed if isinstance(one, str)]
    return value in allowed


def _items_fit(value: Sequence[Any], allowed: Sequence[Any], inner: type) -> bool:
    """Whether every item is of the inner type, or of the type that an allowed list has instead."""
    for one in allowed:
        if not isinstance(one, list):
            return True  # an optional parameter's empty text stands for any type
        known = next((type(item) for item in one if item != ""), None)
        if all(type(item) is inner or (known is not None and type(item) is known) for item in value):
            return True
    return False


def _dict_fits(value: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]]) -> bool:
    if not isinstance(value, Mapping) or any(key not in allowed for key in value):
        return False
    given = all(_standardised(one) in [_standardised(item) for item in allowed[key]] for key, one in value.items())
    return given and all(key in value or "" in items for key, items in allowed.items())


def _dicts_fit(value: Sequence[Any], allowed: Sequence[Mapping[str, Sequence[Any]]]) -> bool:
    return len(value) == len(allowed) and all(_dict_fits(one, items) for one, items in zip(value, allowed, strict=True))


# ---- one call ----


def gold_name(gold: Gold) -> str:
    """The function that a gold call calls."""
    return next(iter(gold))


def call_fits(call: Call, gold: Gold, schema: Schema) -> bool:
    """Whether a call is this gold call: the function, every required argument, no other ones, and every value allowed."""
    name = gold_name(gold)
    if call.name != name or call.positional:
        return False
    allowed, properties = gold[name], schema["parameters"]["properties"]
    if any(parameter not in call.arguments for parameter in schema["parameters"].get("required") or ()):
        return False
    if any(parameter not in allowed or parameter not in properties for parameter in call.arguments):
        return False
    if any(parameter not in call.arguments and "" not in values for parameter, values in allowed.items()):
        return False
    return all(value_fits(value, allowed[key], properties[key]) for key, value in call.arguments.items())


def arguments_right(call: Call, gold: Gold, schema: Schema) -> float:
    """Share of the arguments that are right, among those of the call and of the gold; 0 for another function. In [0, 1].

    An optional argument that is left out is right. 1 without any arguments on either side.
    """
    name = gold_name(gold)
    if call.name != name:
        return 0.0
    allowed, properties = gold[name], schema["parameters"]["properties"]
    keys = list(dict.fromkeys([*allowed, *call.arguments]))
    right = 0
    for key in keys:
        if key in call.arguments:
            right += key in allowed and key in properties and value_fits(call.arguments[key], allowed[key], properties[key])
        else:
            right += "" in allowed[key]
    count = len(keys) + len(call.positional)
    return right / count if count else 1.0


# ---- all calls of a request ----


@dataclass(frozen=True)
class Comparison:
    """How a team's calls compare with the gold ones.

    Attributes:
        names: F1 of the functions' names, each as often as it is called.
        arguments: shares of right arguments of the calls that were matched, summed, over the larger number of calls.
        exact: whether there are as many calls as gold ones and each is one of them, in any order.
        first_fit: whether the benchmark's own matching finds that too: it takes, gold call by gold call, the first call that fits,
            and may so miss a perfect matching where a call fits several. Depends on the order of the calls.
    """

    names: float
    arguments: float
    exact: bool
    first_fit: bool


def compare(calls: Sequence[Call], gold: Sequence[Gold], functions: Sequence[Schema]) -> Comparison:
    """The comparison of calls with the gold ones, whose order does not matter.

    Calls are matched so that as many as possible are exact, the others by their shares of right arguments, best first.
    """
    schemas = {schema["name"]: schema for schema in functions}
    wanted = [schemas[gold_name(one)] for one in gold]
    fits = [[call_fits(call, one, wanted[j]) for j, one in enumerate(gold)] for call in calls]
    exact = _matching(fits, len(gold))
    total = float(len(exact))
    free_calls = [i for i in range(len(calls)) if i not in exact]
    free_gold = [j for j in range(len(gold)) if j not in exact.values()]
    shares = [(arguments_right(calls[i], gold[j], wanted[j]), -i, -j) for i in free_calls for j in free_gold]
    for share, i, j in sorted(shares, reverse=True):
        if -i in free_calls and -j in free_gold:
            total += share
            free_calls.remove(-i)
            free_gold.remove(-j)
    most = max(len(calls), len(gold))
    return Comparison(
        names=f1([call.name for call in calls], [gold_name(one) for one in gold]),
        arguments=total / most if most else 1.0,
        exact=len(exact) == len(calls) == len(gold),
        first_fit=len(calls) == len(gold) and _first_fit(fits),
    )


def _first_fit(fits: Sequence[Sequence[bool]]) -> bool:
    free = list(range(len(fits)))
    for j in range(len(fits)):
        found = next((i for i in free if fits[i][j]), None)
        if found is None:
            return False
        free.remove(found)
    return True


def f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    """2·|common| / (|given| + |wanted|), with multiplicities; 1 for nothing given and nothing wanted. In [0, 1]."""
    if not given and not wanted:
        return 1.0
    common = (Counter(given) & Counter(wanted)).total()
    return 2 * common / (len(given) + len(wanted))


def _matching(fits: Sequence[Sequence[bool]], num_gold: int) -> dict[int, int]:
    """A largest matching, call → gold call (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(i: int, seen: set[int]) -> bool:
        for j in range(num_gold):
            if fits[i][j] and j not in seen:
                seen.add(j)
                if j not in owner or place(owner[j], seen):
                    owner[j] = i
                    return True
        return False

    for i in range(len(fits)):
        place(i, set())
    return {i: j for j, i in owner.items()}


def call_key(call: Call) -> str:
    """What is the same for calls that say the same: name and standardised arguments, as a text."""
    return json.dumps(
        [call.name, _canonical(list(call.positional)), _canonical(dict(call.arguments))], sort_keys=True, default=repr
    )


def _canonical(value: Any) -> Any:
    if isinstance(value, str):
        return standard(value)
    if isinstance(value, Mapping):
        return {str(key): _canonical(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


# ---- gold calls as text ----


def gold_call(gold: Gold, schema: Schema) -> Call:
    """A call that fits the gold: the first allowed value of every argument that must be given."""
    name = gold_name(gold)
    required = schema["parameters"].get("required") or ()
    arguments: dict[str, Any] = {}
    for parameter, allowed in gold[name].items():
        if "" in allowed and parameter not in required:
            continue
        given = [one for one in allowed if one != ""] or [""]
        arguments[parameter] = _first(given[0], str(schema["parameters"]["properties"].get(parameter, {}).get("type")))
    return Call(name, arguments)


def check_gold(gold: Gold, schema: Schema) -> None:
    """Nothing, if the gold call can be made: `gold_call` fits it.

    Raises:
        ValueError: naming the function and the argument that is unknown, missing, or refused by the function's description.
    """
    name = gold_name(gold)
    parameters, allowed = schema["parameters"], gold[name]
    properties = parameters["properties"]
    missing = [one for one in parameters.get("required") or () if one not in allowed]
    if missing:
        raise ValueError(f"the gold call of {name} has no {missing[0]!r}, which the function requires")
    for parameter, value in gold_call(gold, schema).arguments.items():
        if parameter not in properties:
            raise ValueError(f"the gold call of {name} has {parameter!r}; the function's parameters are {', '.join(properties)}")
        if not value_fits(value, allowed[parameter], properties[parameter]):
            kind = properties[parameter]["type"]
            raise ValueError(f"the gold call of {name} has no value for {parameter!r} that is of its type {kind}: {value!r:.200}")


def check_arguments(call: Call, schema: Schema, *, typed: bool) -> None:
    """Nothing, if a function's description allows the call.

    Args:
        call: whose values without a name belong to the first parameters.
        schema: the description.
        typed: whether values must be of the types that it gives.

    Raises:
        ValueError: naming the argument that is unknown, missing or of another type.
    """
    properties = schema["parameters"]["properties"]
    if len(call.positional) > len(properties):
        raise ValueError(f"the gold call {call} has more values than parameters: {', '.join(properties)}")
    given = {**dict(zip(properties, call.positional, strict=False)), **call.arguments}
    for parameter, value in given.items():
        if parameter not in properties:
            raise ValueError(f"the gold call {call} has {parameter!r}; the function's parameters are {', '.join(properties)}")
        kind = str(properties[parameter]["type"])
        if typed and type(value) is not TYPES[kind] and not (TYPES[kind] is float and type(value) is int):
            raise ValueError(f"the gold call {call}: {parameter!r} must be of the type {kind}, got {value!r}")
    missing = [one for one in schema["parameters"].get("required") or () if one not in given]
    if missing:
        raise ValueError(f"the gold call {call} has no {missing[0]!r}, which the function requires")


def _first(value: Any, kind: str) -> Any:
    """The first choice: dictionaries hold a list of allowed values for each key."""
    if isinstance(value, Mapping):
        return {key: next((one for one in items if one != ""), "") for key, items in value.items() if "" not in items}
    if kind in ("array", "tuple") and isinstance(value, list):
        return [_first(one, "dict") if isinstance(one, Mapping) else one for one in value]
    return value
