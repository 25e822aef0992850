"""The stream read as chains: each env step followed to the next, and what a critic is trained towards along them.

Plain Python in double precision. `learners.credit` reads the same stream as trees; this file follows and never groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llm_envs.types import EnvStep


@dataclass(frozen=True)
class Targets:
    """What a chain's values are compared with, turn by turn.

    Attributes:
        targets: [H] λ-returns, reward units.
        advantages: [H] targets minus values.
    """

    targets: tuple[float, ...]
    advantages: tuple[float, ...]


def chains(steps: Sequence[EnvStep]) -> list[list[EnvStep]]:
    """The episodes as lists of steps in order of turns, by env step; the samples of a single turn are chains of one step.

    Args:
        steps: whole episodes, in any order.

    Raises:
        ValueError: two steps lead to, or several start from, a state in mid-episode: that is a tree, and no chain runs through it;
            or a step is missing.
    """
    ordered = sorted(steps, key=lambda step: step.env_step)
    by_state: dict[int, list[EnvStep]] = {}
    for step in ordered:
        by_state.setdefault(step.state_id, []).append(step)
    reached = [step.next_state_id for step in ordered if step.next_state_id is not None]
    if len(set(reached)) < len(reached):
        raise ValueError("two env steps lead to one state: these are no chains")
    starts = by_state.keys() - set(reached)
    return [_followed(step, by_state) for step in ordered if step.state_id in starts]


def _followed(first: EnvStep, by_state: Mapping[int, Sequence[EnvStep]]) -> list[EnvStep]:
    if first.turn != 1:
        raise ValueError(f"nothing leads to env step {first.env_step} of turn {first.turn}: episodes must be whole")
    chain = [first]
    while (state := chain[-1].next_state_id) is not None:
        following = by_state.get(state, ())
        if len(following) != 1:
            raise ValueError(f"env step {chain[-1].env_step} leads to state {state} with {len(following)} steps: a chain has one")
        chain.append(following[0])
    return chain


def lambda_targets(
    rewards: Sequence[float], values: Sequence[float], bootstrap: float, discount: float = 1.0, gae_lambda: float = 0.0
) -> Targets:
    """λ-returns of a chain and their advantages: y_t = r_t + γ [(1 − λ) v_{t+1} + λ y_{t+1}], A_t = y_t − v_t.

    The last turn has y = r + γ · bootstrap. λ = 0 is TD(0), δ_t = r_t + γ v_{t+1} − v_t; λ = 1 with γ = 1 and no bootstrap is the
    Monte-Carlo return. A_t is then the generalised advantage Σ_l (γλ)^l δ_{t+l}.

    Args:
        rewards: [H] reward units.
        values: [H] of the critic when the chain was collected.
        bootstrap: value beyond the last turn: 0 where the task ended, the critic's value of the next state where a limit cut it.
        discount: γ.
        gae_lambda: λ in [0, 1].

    Raises:
        ValueError: other numbers of rewards than of values, or none.
        FloatingPointError: a reward or value is NaN or infinite.

    Source: TD(λ), Sutton and Barto (2018), eq. 12.18; GAE, arXiv:1506.02438, eq. 16.
    """
    if len(rewards) != len(values) or not rewards:
        raise ValueError(f"a chain needs a value for each of its rewards, got {len(rewards)} rewards and {len(values)} values")
    if not all(math.isfinite(number) for number in (*rewards, *values, bootstrap)):
        raise FloatingPointError(f"rewards {list(rewards)}, values {list(values)} and bootstrap {bootstrap} should be finite")
    targets: list[float] = []
    following = bootstrap
    for reward, next_value in zip(reversed(rewards), reversed([*values[1:], bootstrap]), strict=True):
        following = reward + discount * ((1.0 - gae_lambda) * next_value + gae_lambda * following)
        targets.append(following)
    targets.reverse()
    return Targets(tuple(targets), tuple(y - v for y, v in zip(targets, values, strict=True)))


def suffix_sums(rewards: Sequence[float]) -> list[float]:
    """[H] undiscounted sum of the rewards from each turn on: what is logged as expected return."""
    return [math.fsum(rewards[turn:]) for turn in range(len(rewards))]


def explained_variance(values: Sequence[float], targets: Sequence[float]) -> float:
    """1 − Var(target − value) / Var(target): 1 for a perfect critic, 0 for a constant one, NaN where all targets are equal."""
    spread = _variance(targets)
    errors = [target - value for target, value in zip(targets, values, strict=True)]
    return 1.0 - _variance(errors) / spread if spread > 0 else math.nan


def _variance(numbers: Sequence[float]) -> float:
    mean = math.fsum(numbers) / len(numbers)
    return math.fsum((number - mean) ** 2 for number in numbers) / len(numbers)
