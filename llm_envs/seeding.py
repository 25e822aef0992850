"""Randomness from paths: a stream of random numbers is named by a tuple of integers, never by a global state."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

Path: TypeAlias = tuple[int, ...]

# Domains keep streams apart that would otherwise have the same path.
ENVIRONMENT, SAMPLING, ORDER, UPDATE, PREFERENCE, REPLAY, ROWS = range(7)

# Last part of the key of what a comparator draws, where a policy's ends with an agent: no agent's number is as large.
COMPARATOR = 2**31

# Where a key would have an agent, in the later rounds of a turn (`llm_envs.protocols`): no agent's or sibling's number is as large.
ROUND = 2**30

# Second part of a state's key, `(seed, purpose, episode)`. Evaluation draws from streams of its own, where the third part is the
# item's position, so that every evaluation of an item draws the same numbers; so does play through `reset` and `step`.
TRAINING, EVALUATION, PLAY = range(3)


def episode_key(seed: int, purpose: int, episode: int, item_index: int) -> Path:
    """The key of the state that a collected episode starts from.

    Args:
        seed: of the run.
        purpose: `TRAINING` or `EVALUATION`.
        episode: its number.
        item_index: position of its item, which stands in its place in an evaluation.

    Raises:
        TypeError, ValueError: for a seed or a purpose that is none.
    """
    if not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    if seed < 0 or purpose not in (TRAINING, EVALUATION):
        raise ValueError(f"seed must not be negative and purpose TRAINING or EVALUATION, got seed={seed}, purpose={purpose}")
    return (int(seed), purpose, item_index if purpose == EVALUATION else episode)


def stream(domain: int, path: Path) -> np.random.Generator:
    """The random stream of a path: the same path always gives the same numbers, different ones are independent.

    Args:
        domain: what the numbers are for (`ENVIRONMENT`, `SAMPLING`, …).
        path: non-negative integers.
    """
    if any(part < 0 for part in path):
        raise ValueError(f"a random path has only non-negative integers, got {path}")
    # SeedSequence pads short entropy with zeros, so (1,) and (1, 0) would coincide without the length in front.
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((domain, len(path), *path))))
