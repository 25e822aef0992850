"""Who earned what: returns over the tree of env steps, what each completion is credited with, advantages.

Plain Python in double precision: this file reads `EnvStep`s and gives lists of floats. It owns no tensors, no models, no losses.
Chain targets of the actor-critic family and preference pairs are other readings of the same stream and live elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from llm_envs.types import AgentID, Completion, EnvStep

AdvantageMode: TypeAlias = Literal["mean", "raw", "rloo", "max"]
AdvantageNormalization: TypeAlias = bool | Literal["scale"]
StepValues: TypeAlias = Mapping[int, Mapping[AgentID, float]]
"""A number for each agent of each env step, by the step's `env_step` number."""

ADVANTAGE_MODES: tuple[AdvantageMode, ...] = ("mean", "raw", "rloo", "max")

SPREAD_FLOOR = 1e-6
"""Smallest standard deviation to divide by, reward units. Below it the values of a group count as equal."""


@dataclass(frozen=True)
class Group:
    """The env steps taken from one state.

    Attributes:
        state_id: the state acted from.
        episode: the episode it belongs to.
        turn: 1 for the first.
        steps: the siblings, in the order in which they came.
    """

    state_id: int
    episode: int
    turn: int
    steps: tuple[EnvStep, ...]

    @property
    def env_step(self) -> int:
        """Largest number among the siblings: where the group stands on the x axis."""
        return max(step.env_step for step in self.steps)


def groups(steps: Iterable[EnvStep]) -> list[Group]:
    """Siblings put together, in the order in which their states first appear.

    Args:
        steps: env steps in any order; siblings need not be neighbours.

    Raises:
        ValueError: steps of one state disagree about its episode or turn.
    """
    siblings: dict[int, list[EnvStep]] = {}
    for step in steps:
        siblings.setdefault(step.state_id, []).append(step)
    for state_id, members in siblings.items():
        places = {(step.episode, step.turn) for step in members}
        if len(places) > 1:
            raise ValueError(f"state {state_id} appears at several (episode, turn) places: {sorted(places)}")
    return [Group(state_id, members[0].episode, members[0].turn, tuple(members)) for state_id, members in siblings.items()]


def tree_returns(steps: Sequence[EnvStep], discount: float = 1.0) -> dict[int, dict[AgentID, float]]:
    """Return of every agent at every step, by `env_step`: G = r + discount · mean of G over the steps of the state reached.

    A step with no next state ends its branch: G = r. With one child a node this is the discounted sum of a chain. Steps of
    different parents never mix, whatever the order of the stream.

    Args:
        steps: whole trees, in any order.
        discount: weight of what follows, from one turn to the next.

    Raises:
        ValueError: two steps share a number, or a state that was reached is missing or does not lie at a later turn.
        FloatingPointError: a reward is NaN or infinite.
    """
    by_state = {group.state_id: group for group in groups(steps)}
    returns: dict[int, dict[AgentID, float]] = {}
    # Children lie at later turns, so going from the last turn to the first meets them before their parents: no recursion.
    for step in sorted(steps, key=lambda step: step.turn, reverse=True):
        if step.env_step in returns:
            raise ValueError(f"two steps have the number {step.env_step}")
        child = _child(step, by_state)
        own = returns[step.env_step] = {}
        for agent, reward in step.rewards.items():
            if not math.isfinite(reward):
                raise FloatingPointError(f"reward of {agent!r} at env step {step.env_step} is {reward}")
            own[agent] = float(reward)
            if child is not None:
                own[agent] += discount * mean([returns[sibling.env_step][agent] for sibling in child.steps])
    return returns


def _child(step: EnvStep, by_state: Mapping[int, Group]) -> Group | None:
    if step.next_state_id is None:
        return None
    child = by_state.get(step.next_state_id)
    if child is None:
        raise ValueError(f"env step {step.env_step} leads to state {step.next_state_id}, of which there are no steps")
    if child.turn <= step.turn:
        raise ValueError(f"env step {step.env_step} of turn {step.turn} leads to state {child.state_id} of turn {child.turn}")
    return child


def completions_of(group: Group, agent: AgentID) -> list[Completion]:
    """[K] what the agent wrote at this state, in the order of its samples, each once however many joint actions used it.

    Raises:
        ValueError: one sample index stands for two completions, or an index is missing.
    """
    chosen: dict[int, Completion] = {}
    for step in group.steps:
        completion = chosen.setdefault(step.choice[agent], step.completions[agent])
        if completion != step.completions[agent]:
            raise ValueError(f"state {group.state_id}: sample {step.choice[agent]} of {agent!r} stands for two completions")
    return [chosen[k] for k in _indices(group, agent)]


def joint_action_counts(group: Group, agent: AgentID) -> list[int]:
    """[K] how many joint actions used each of the agent's completions: 1 when aligned, Kⁿ⁻¹ when crossed.

    Raises:
        ValueError: a sample index is missing.
    """
    used = Counter(step.choice[agent] for step in group.steps)
    return [used[k] for k in _indices(group, agent)]


def completion_returns(group: Group, returns: StepValues, agent: AgentID) -> list[float]:
    """[K] what each of the agent's completions is credited with: the sum of the returns of the joint actions that used it.

    Aligned, every completion takes part in one joint action, so these are the K returns themselves. Cross, it is a sum of Kⁿ⁻¹.

    Args:
        group: siblings.
        returns: of `tree_returns`.
        agent: whose completions.

    Raises:
        ValueError: a sample index is missing.
    """
    parts: dict[int, list[float]] = {k: [] for k in _indices(group, agent)}
    for step in group.steps:
        parts[step.choice[agent]].append(returns[step.env_step][agent])
    # fsum rounds once, so the credit does not depend on the order of the siblings.
    return [math.fsum(values) for values in parts.values()]


def _indices(group: Group, agent: AgentID) -> range:
    used = {step.choice[agent] for step in group.steps}
    if used != set(range(len(used))):
        raise ValueError(f"state {group.state_id}: samples of {agent!r} should be numbered 0..{len(used) - 1}, got {sorted(used)}")
    return range(len(used))


def subtract_reference_kl(returns: Sequence[float], kl: Sequence[float], counts: Sequence[int], coefficient: float) -> list[float]:
    """[K] returns minus the penalty for leaving the reference: R_k − coefficient · counts_k · KL_k.

    R_k sums `counts_k` returns, so the factor keeps the penalty per joint action, and with it the balance of reward and penalty,
    the same for any K. Aligned, every count is 1.

    Args:
        returns: [K] of `completion_returns`.
        kl: [K] estimated KL of each completion from the reference, nats, summed over its tokens.
        counts: [K] of `joint_action_counts`.
        coefficient: reward units per nat.

    Raises:
        ValueError: the three have different lengths.
        FloatingPointError: a KL is NaN or infinite.
    """
    if not len(returns) == len(kl) == len(counts):
        raise ValueError(f"expected as many KL values and counts as returns, got {len(kl)} and {len(counts)} for {len(returns)}")
    if not all(math.isfinite(value) for value in kl):
        raise FloatingPointError(f"reference KL values should be finite, got {list(kl)}")
    return [value - coefficient * count * k for value, k, count in zip(returns, kl, counts, strict=True)]


def advantages(returns: Sequence[float], mode: AdvantageMode = "mean", normalization: AdvantageNormalization = True) -> list[float]:
    """[K] returns of one node minus a baseline of that node, with or without normalisation.

    raw: R_k    mean: R_k − mean R    rloo: R_k − mean of the other K−1    max: R_k − max R

    Normalisation `True` centres and divides by max(σ, 1e-6), σ the population standard deviation of the K. Every mode is the
    returns shifted (rloo: and scaled by K/(K−1)), so all four then coincide. `False` keeps them apart. `"scale"` divides the
    advantages by their own σ without centring; where σ is below 1e-6 there is nothing to scale by and they stay as they are.

    One completion (K = 1) is its own mean and maximum: raw gives R, mean and max 0, whatever the normalisation.

    Args:
        returns: [K] credit of each completion, reward units, the KL penalty already taken off.
        mode: the baseline.
        normalization: see above.

    Raises:
        ValueError: no returns, an unknown mode or normalisation, or rloo with one completion.
        FloatingPointError: a return, or an advantage made of it, is NaN or infinite.

    Source: mean MAGRPO (arXiv:2508.04652) after GRPO (arXiv:2402.03300, §4.1); raw REINFORCE (Williams 1992); rloo Ahmadian et al.
    (arXiv:2402.14740, eq. 8); max after ReMax (arXiv:2310.10505), with the best of the group in place of the greedy completion.
    """
    if not len(returns):
        raise ValueError("advantages need at least one return")
    if mode not in ADVANTAGE_MODES:
        raise ValueError(f"advantage_mode must be one of {', '.join(ADVANTAGE_MODES)}, got {mode!r}")
    if not isinstance(normalization, bool) and normalization != "scale":
        raise ValueError(f"advantage_normalization must be True, False or 'scale', got {normalization!r}")
    values = [float(value) for value in returns]
    if not all(math.isfinite(value) for value in values):
        raise FloatingPointError(f"returns of a node should be finite, got {values}")
    result = _baselined(values, mode)
    if len(values) > 1 and normalization == "scale":
        sigma = spread(result)
        result = result if sigma < SPREAD_FLOOR else [value / sigma for value in result]
    elif len(values) > 1 and normalization:
        # From the returns, not from `result`: the modes then agree to the last bit, below the floor too.
        sigma = max(spread(values), SPREAD_FLOOR)
        result = [value / sigma for value in _centred(values)]
    if not all(math.isfinite(value) for value in result):
        raise FloatingPointError(f"advantages of the returns {values} are not finite: {result}")
    return result


def _baselined(values: list[float], mode: AdvantageMode) -> list[float]:
    if mode == "raw":
        return values
    if mode == "max":
        best = max(values)
        return [value - best for value in values]
    if mode == "mean":
        return _centred(values)
    if len(values) < 2:
        raise ValueError("advantage_mode 'rloo' leaves one completion out, so it needs num_generations of at least 2, got 1")
    # R_k − (ΣR − R_k)/(K−1) = (R_k − mean R) · K/(K−1)
    factor = len(values) / (len(values) - 1)
    return [value * factor for value in _centred(values)]


def spread(values: Sequence[float]) -> float:
    """Population standard deviation (divisor K), exactly 0 for equal values."""
    return math.sqrt(math.fsum(value * value for value in _centred(values)) / len(values))


def zero_spread(returns: Sequence[float]) -> bool:
    """Whether a node's returns are equal (σ below 1e-6), so that its completions cannot be told apart."""
    return spread(returns) < SPREAD_FLOOR


def step_means(steps: Iterable[EnvStep], values: StepValues) -> dict[int, float]:
    """Mean over the steps and agents of each turn, by turn, in ascending order: what `turn_k/…` metrics show.

    Args:
        steps: of any number of trees.
        values: `tree_returns` of them, or `rewards_of`.
    """
    by_turn: dict[int, list[float]] = {}
    for step in steps:
        by_turn.setdefault(step.turn, []).extend(values[step.env_step].values())
    return {turn: mean(by_turn[turn]) for turn in sorted(by_turn)}


def rewards_of(steps: Iterable[EnvStep]) -> dict[int, Mapping[AgentID, float]]:
    """Rewards in the form of `tree_returns`, by `env_step`."""
    return {step.env_step: step.rewards for step in steps}


def term_means(steps: Sequence[EnvStep]) -> dict[str, float]:
    """Mean over steps and agents of each named reward term, by its name in the infos (`reward/<term>`)."""
    terms = [name for name in next(iter(steps[0].infos.values()), {}) if name.startswith("reward/")] if steps else []
    return {name: mean([info[name] for step in steps for info in step.infos.values()]) for name in terms}


def _centred(values: Sequence[float]) -> list[float]:
    centre = mean(values)
    return [value - centre for value in values]


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; of equal values that value to the last bit."""
    # Taken from the first value, so that the mean of equal values is that value to the last bit.
    return values[0] + math.fsum(value - values[0] for value in values) / len(values)


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each name over the rows that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: mean([row[name] for row in rows if name in row]) for name in names}
