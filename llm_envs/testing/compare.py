"""Comparing whatever environments return: where two values differ first."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def difference(one: Any, two: Any, where: str = "") -> str | None:
    """Where and how two values differ; None if they are equal.

    Mappings must have the same keys in the same order. NaN equals NaN. Numbers of different types differ.
    """
    if dataclasses.is_dataclass(one) and not isinstance(one, type) and type(one) is type(two):
        pairs = [(f"{where}.{field.name}", getattr(one, field.name), getattr(two, field.name)) for field in dataclasses.fields(one)]
        return _first(pairs)
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        if list(one) != list(two):
            return f"{where or 'the keys'}: {list(one)} and {list(two)}"
        return _first([(f"{where}[{key!r}]", one[key], two[key]) for key in one])
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        same = (
            one.dtype == two.dtype and one.shape == two.shape and bool(np.array_equal(one, two, equal_nan=one.dtype.kind in "fc"))
        )
        return None if same else f"{where}: {one!r} and {two!r}"
    if isinstance(one, Sequence) and isinstance(two, Sequence) and not isinstance(one, (str, bytes)):
        if type(one) is not type(two) or len(one) != len(two):
            return f"{where}: {one!r} and {two!r}"
        return _first([(f"{where}[{index}]", a, b) for index, (a, b) in enumerate(zip(one, two, strict=True))])
    if isinstance(one, float) and isinstance(two, float) and math.isnan(one) and math.isnan(two):
        return None
    same = type(one) is type(two) and bool(one == two)
    return None if same else f"{where}: {one!r} and {two!r}"


def _first(pairs: list[tuple[str, Any, Any]]) -> str | None:
    for where, one, two in pairs:
        found = difference(one, two, where)
        if found is not None:
            return found
    return None
