"""The reward formulas of the reference system (LLM_Collab_BFCL-v4) for parallel calls and for flattened multi-turn rows.

Stated here from its description, to compare with published runs. They differ from the benchmark: an argument that may be left out
must be given, half of the terms are paid for wrong answers too, and an even split is paid whatever it splits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from llm_envs.tasks.tool_use.calls import Call
from llm_envs.tasks.tool_use.matching import Gold, Schema, f1, gold_name

Kind: TypeAlias = Literal["native", "flat"]
"""Of rows: those of the parallel categories, or flattened turns."""

NATIVE: Mapping[str, float] = {
    "parse": 0.05,
    "names": 0.25,
    "arguments": 0.35,
    "count": 0.10,
    "balance": 0.15,
    "exact": 0.20,
    "overlap": -0.20,
    "lazy": -0.15,
    "extra": -0.05,
    "duplicate": -0.05,
}
"""What each term counts for rows of the parallel categories."""

FLAT: Mapping[str, float] = {
    "parse": 0.05,
    "names": 0.15,
    "arguments": 0.20,
    "order": 0.25,
    "prefix": 0.10,
    "count": 0.10,
    "balance": 0.15,
    "exact": 0.20,
    "overlap": -0.15,
    "lazy": -0.25,
    "extra": -0.15,
    "duplicate": -0.05,
}
"""What each term counts for flattened turns, whose calls have an order."""

LIMITS = (-0.4, 1.2)
"""What rewards are cut to."""

WITHOUT_ARGUMENTS = 0.7
"""Similarity with a gold call without arguments, for a call that gives some."""

TOLERANCE = 1e-6


def native_terms(team: Sequence[Sequence[Call]], gold: Sequence[Gold]) -> dict[str, float]:
    """The terms for a row of the parallel categories; calls that stand twice count once.

    Args:
        team: each agent's calls.
        gold: the row's.
    """
    own = [_without_doubles(calls) for calls in team]
    every = [call for calls in team for call in calls]
    together = _without_doubles([call for calls in own for call in calls])
    return _terms(own, together, every, gold, _unordered_exact)


def flat_terms(team: Sequence[Sequence[Call]], gold: Sequence[Gold]) -> dict[str, float]:
    """The terms for a flattened turn: the agents' calls, one agent after the other, in the gold's order.

    Args:
        team: each agent's calls.
        gold: the row's.
    """
    together = [call for calls in team for call in calls]
    terms = _terms(team, together, together, gold, _ordered_exact)
    return {**terms, "order": _alignment(together, gold), "prefix": _prefix(together, gold)}


@dataclass(frozen=True)
class Formula:
    """How one kind of rows is scored.

    Attributes:
        terms: of each agent's calls and the gold.
        factors: what each of them counts.
    """

    terms: Callable[[Sequence[Sequence[Call]], Sequence[Gold]], dict[str, float]]
    factors: Mapping[str, float]

    @property
    def reward_range(self) -> tuple[float, float]:
        """The lower limit, and what a right answer earns."""
        return LIMITS[0], math.fsum(factor for factor in self.factors.values() if factor > 0)


FORMULAS: Mapping[Kind, Formula] = {"native": Formula(native_terms, NATIVE), "flat": Formula(flat_terms, FLAT)}
"""The formula of each kind: at most 1.10 for parallel rows, 1.20 for flattened turns."""


def total(terms: Mapping[str, float], factors: Mapping[str, float]) -> float:
    """The reward: the weighed sum, cut to `LIMITS`."""
    low, high = LIMITS
    return min(max(math.fsum(factors[name] * value for name, value in terms.items()), low), high)


def every_value(gold: Gold, schema: Schema) -> Call:
    """The call that earns the most here: every argument is given, also those that may be left out."""
    name = gold_name(gold)
    return Call(name, {parameter: next((one for one in allowed if one != ""), "") for parameter, allowed in gold[name].items()})


def _terms(
    own: Sequence[Sequence[Call]],
    together: Sequence[Call],
    every: Sequence[Call],
    gold: Sequence[Gold],
    exact: Callable[[Sequence[Call], Sequence[Gold]], bool],
) -> dict[str, float]:
    wanted = max(1, len(gold))
    counts = [len(calls) for calls in own]
    ideal = [len(gold) // len(own) + (agent < len(gold) % len(own)) for agent in range(len(own))]
    off = sum(abs(count - share) for count, share in zip(counts, ideal, strict=True))
    shared = Counter(key for calls in own for key in {_key(call) for call in calls})
    return {
        "parse": float(bool(together)),
        "names": f1([call.name for call in together], [gold_name(one) for one in gold]) if together and gold else 0.0,
        "arguments": _greedy(together, gold) / wanted,
        "count": max(0.0, 1 - abs(len(together) - len(gold)) / wanted),
        "balance": max(0.0, 1 - off / wanted) if gold else 0.0,
        "exact": float(bool(gold) and len(together) == len(gold) and exact(together, gold)),
        "overlap": min(1.0, sum(count - 1 for count in shared.values()) / wanted),
        "lazy": counts.count(0) / len(counts),
        "extra": min(1.0, max(0, len(together) - len(gold)) / wanted),
        "duplicate": min(1.0, (len(every) - len({_key(call) for call in every})) / wanted),
    }


def similarity(call: Call, gold: Gold) -> float:
    """Share of the gold's arguments that are right, less what further ones dilute it; 0 for another function. In [0, 1]."""
    name = gold_name(gold)
    if call.name != name:
        return 0.0
    wanted = gold[name]
    if not wanted:
        return WITHOUT_ARGUMENTS if call.arguments else 1.0
    right = sum(key in call.arguments and _equal(call.arguments[key], allowed) for key, allowed in wanted.items())
    return right / len(wanted) * len(wanted) / (len(wanted) + len(set(call.arguments) - set(wanted)))


def _greedy(calls: Sequence[Call], gold: Sequence[Gold]) -> float:
    """Similarities of matched calls, summed: the most similar pair first."""
    pairs = sorted(((-similarity(call, one), i, j) for i, call in enumerate(calls) for j, one in enumerate(gold)))
    used_calls: set[int] = set()
    used_gold: set[int] = set()
    found = 0.0
    for negative, i, j in pairs:
        if i not in used_calls and j not in used_gold:
            used_calls.add(i)
            used_gold.add(j)
            found -= negative
    return found


def _unordered_exact(calls: Sequence[Call], gold: Sequence[Gold]) -> bool:
    return _greedy(calls, gold) == len(gold)


def _ordered_exact(calls: Sequence[Call], gold: Sequence[Gold]) -> bool:
    return all(similarity(call, one) == 1.0 for call, one in zip(calls, gold, strict=True))


def _alignment(calls: Sequence[Call], gold: Sequence[Gold]) -> float:
    """The greatest sum of similarities of calls and gold calls that are matched in order, as a share of the gold's number."""
    best = [0.0] * (len(gold) + 1)
    for call in calls:
        row = [0.0]
        for j, one in enumerate(gold, start=1):
            row.append(max(best[j], row[j - 1], best[j - 1] + similarity(call, one)))
        best = row
    return best[-1] / max(1, len(gold))


def _prefix(calls: Sequence[Call], gold: Sequence[Gold]) -> float:
    """Similarities from the first call on, place by place, until one is 0, as a share of the gold's number."""
    found = 0.0
    for call, one in zip(calls, gold, strict=False):
        alike = similarity(call, one)
        if alike == 0:
            break
        found += alike
    return found / max(1, len(gold))


def _equal(value: Any, allowed: Sequence[Any]) -> bool:
    given = _plain(value)
    for one in allowed:
        other = _plain(one)
        both = [given, other]
        if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in both) and abs(given - other) < TOLERANCE:
            return True
        if given == other or (isinstance(one, Mapping) and isinstance(value, Mapping) and _mapping_equal(value, one)):
            return True
    return False


def _mapping_equal(value: Mapping[str, Any], allowed: Mapping[str, Any]) -> bool:
    """A dictionary with an allowed value for each of the gold's keys (the gold lists them)."""
    return set(value) == set(allowed) and all(
        _equal(value[key], items if isinstance(items, list) else [items]) for key, items in allowed.items()
    )


def _plain(value: Any) -> Any:
    """The value in lower case, with single blanks, lists as tuples and dictionaries as sorted pairs."""
    if isinstance(value, str):
        return " ".join(value.strip().strip("\"'").split()).lower()
    if isinstance(value, (list, tuple)):
        return tuple(_plain(one) for one in value)
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), repr(_plain(one))) for key, one in value.items()))
    return value


def _key(call: Call) -> str:
    return repr((call.name, sorted((key, repr(_plain(value))) for key, value in call.arguments.items())))


def _without_doubles(calls: Sequence[Call]) -> list[Call]:
    first: dict[str, Call] = {}
    for call in calls:
        first.setdefault(_key(call), call)
    return list(first.values())
