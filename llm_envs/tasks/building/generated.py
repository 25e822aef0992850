"""Rows by seed: random texts for strbuild and random houses for housebuild, all different, training and evaluation apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llm_envs.seeding import ROWS, stream
from llm_envs.tasks.building.commands import Cell
from llm_envs.tasks.building.font import LONGEST
from llm_envs.tasks.building.houses import draw_house
from llm_envs.tasks.building.materials import SYMBOLS, Grid
from llm_envs.tasks.options import checked_count

TEXTS, HOUSES, SPIDERS = range(3)
"""Streams of their own for each, so that spiders do not change the houses."""

TRIES = 200
"""Houses drawn for each one that is wanted, before the size counts as too small for so many."""


def text_rows(
    *, seed: int, train_rows: int, eval_rows: int, min_length: int, max_length: int, alphabet: str
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Training and evaluation rows `{"text": …}`: different random texts, as many of each length as there can be.

    Raises:
        ValueError: naming the option, if one is none or there are not so many texts.
    """
    counts = [checked_count(*row) for row in (("seed", seed, 0), ("train_rows", train_rows, 1), ("eval_rows", eval_rows, 1))]
    checked_count("min_length", min_length, 1)
    if checked_count("max_length", max_length, 1) > LONGEST or min_length > max_length:
        raise ValueError(f"lengths must be min_length ≤ max_length ≤ {LONGEST}, got {min_length} and {max_length}")
    rng = stream(ROWS, (counts[0], TEXTS))
    wanted = counts[1] + counts[2]
    texts: list[str] = []
    lengths = range(min_length, max_length + 1)
    for number, length in enumerate(lengths):
        # What short lengths cannot give, the longer ones do.
        share = -(-(wanted - len(texts)) // (len(lengths) - number))
        texts += _texts(rng, length, min(share, len(alphabet) ** length), alphabet)
    if len(texts) < wanted:
        raise ValueError(
            f"train_rows={train_rows} and eval_rows={eval_rows} need {wanted} different texts, but there are only {len(texts)} of "
            f"{min_length} to {max_length} letters out of {alphabet!r}"
        )
    rows = [{"text": texts[i]} for i in rng.permutation(len(texts))[:wanted]]
    return rows[:train_rows], rows[train_rows:]


def _texts(rng: np.random.Generator, length: int, count: int, alphabet: str) -> list[str]:
    numbers = rng.choice(len(alphabet) ** length, size=count, replace=False)
    return ["".join(alphabet[int(n) // len(alphabet) ** place % len(alphabet)] for place in range(length)) for n in numbers]


def house_rows(
    *,
    seed: int,
    train_rows: int,
    eval_rows: int,
    min_size: Cell,
    max_size: Cell,
    max_overlap: float,
    spiders: int,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Training and evaluation rows `{"layers": …, "attacks": […]}`: houses all different, and each spider's attack, 1 to 3.

    Raises:
        ValueError: naming the option, if one is none or so many different houses were not found.
    """
    checked_count("seed", seed, 0)
    counts = checked_count("train_rows", train_rows, 1), checked_count("eval_rows", eval_rows, 1)
    if isinstance(max_overlap, bool) or not isinstance(max_overlap, (int, float)) or not 0 < max_overlap <= 1:
        raise ValueError(f"max_overlap must be above 0 and at most 1, got {max_overlap!r}")
    rng = stream(ROWS, (seed, SPIDERS))
    rows = [
        {"layers": [list(layer) for layer in house], "attacks": rng.integers(1, 4, size=spiders).tolist()}
        for house in _houses(seed, counts, min_size, max_size, max_overlap)
    ]
    return rows[:train_rows], rows[train_rows:]


@lru_cache(maxsize=8)  # an environment is often made again
def _houses(seed: int, counts: tuple[int, int], low: Cell, high: Cell, max_overlap: float) -> list[tuple[tuple[str, ...], ...]]:
    """The layers of the training houses, then of those for evaluation."""
    rng = stream(ROWS, (seed, HOUSES))
    seen: set[bytes] = set()

    def drawn(wanted: int, fits: Callable[[Grid], bool]) -> list[Grid]:
        houses: list[Grid] = []
        for _ in range(TRIES * wanted):
            size = [int(rng.integers(least, most + 1)) for least, most in zip(low, high, strict=True)]
            house = draw_house(rng, (size[0], size[1], size[2]))
            name = bytes(house.shape) + house.tobytes()
            if name not in seen and fits(house):
                seen.add(name)
                houses.append(house)
            if len(houses) == wanted:
                break
        return houses

    train = drawn(counts[0], lambda house: True)
    of_size = {shape: np.stack([house for house in train if house.shape == shape]) for shape in {house.shape for house in train}}
    kept = drawn(
        counts[1],
        lambda house: house.shape not in of_size or float(overlap(of_size[house.shape], house).max()) <= max_overlap,
    )
    if (len(train), len(kept)) != counts:
        raise ValueError(
            f"found {len(train)} of train_rows={counts[0]} different houses and {len(kept)} of eval_rows={counts[1]} that overlap "
            f"with none of them by more than max_overlap={max_overlap}: ask for fewer, larger ones or more overlap"
        )
    return [layers_of(house) for house in (*train, *kept)]


def overlap(some: NDArray[np.int8], one: Grid) -> NDArray[np.float64]:
    """[...] cells with the same block in both, divided by the cells with a block in either; one of them must have any. In [0, 1].

    Args:
        some: [..., x, y, z] grids.
        one: [x, y, z] the grid that each is compared with.
    """
    alike = ((some == one) & (one > 0)).sum(axis=(-3, -2, -1))
    return alike / ((some > 0) | (one > 0)).sum(axis=(-3, -2, -1))


def layers_of(grid: Grid) -> tuple[tuple[str, ...], ...]:
    """The grid as pictures: for each height from the ground, a row of symbols for each z."""
    return tuple(tuple("".join(SYMBOLS[number] for number in row) for row in layer) for layer in grid.transpose(1, 2, 0).tolist())
