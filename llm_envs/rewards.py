"""What a joint response earns: the calling contract of reward functions, and processors of single rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from llm_envs.calling import FAILURES, SettledCall, function_name, owned
from llm_envs.types import AgentID, JointAction, State

RewardFunction: TypeAlias = Callable[..., Any]
"""`f(list_1, …, list_n, *, batch_items=, prompts=, states=)`: one list of K completions an agent; returns K rewards."""

RewardProcessor: TypeAlias = Callable[[float], float]

KEYWORDS = ("batch_items", "prompts", "states")

SHOWN = 400
"""Characters of the completions that an error shows."""


class RewardError(RuntimeError):
    """A reward function failed or returned something that is no reward. A failed reward is never 0."""


@dataclass(frozen=True)
class Score:
    """What one joint response earned.

    Attributes:
        total: each agent's raw reward: the sum of the terms.
        terms: each named term, for each agent; empty for a single function.
    """

    total: Mapping[AgentID, float]
    terms: Mapping[str, Mapping[AgentID, float]]


class Rewards:
    """One reward function, or named terms that are summed, settled for a team.

    A function gets one list of K completions for each agent, by position, and those of these keywords that it names: `batch_items`
    (a list of the one item), `prompts` (what each agent read), `states` (the state acted from, K times). It returns what
    `reward_rows` reads.

    Args:
        reward: a function, a mapping from a term's name to its function, each possibly `scaled`, or all `terms` of one function.
        agents: the team.

    Raises:
        TypeError: if a function cannot be called so.
    """

    def __init__(self, reward: Reward, agents: Sequence[AgentID]) -> None:
        self.agents = tuple(agents)
        self.named = isinstance(reward, (Mapping, Terms))
        self._calls: dict[tuple[str, ...], SettledCall] = {}  # by the terms that each gives
        self._together = isinstance(reward, Terms)
        if isinstance(reward, Terms):
            self._factors = dict(reward.factors)
            self._calls[tuple(reward.factors)] = self._settled("reward function", reward.function)
            return
        functions: dict[str, RewardFunction] = dict(reward) if isinstance(reward, Mapping) else {"": reward}
        if not functions or (self.named and not all(isinstance(term, str) and term for term in functions)):
            raise ValueError(f"reward must be a function or at least one named term, got {reward!r}")
        self._factors = {term: one.factor if isinstance(one, Scaled) else 1.0 for term, one in functions.items()}
        for term, one in functions.items():
            role = f"reward term {term!r}" if self.named else "reward function"
            self._calls[(term,)] = self._settled(role, one.function if isinstance(one, Scaled) else one)

    def __call__(self, state: State, joint_actions: Sequence[JointAction]) -> list[Score]:
        """The score of each joint action taken at one state; each function is called once, with lists of their number.

        Raises:
            RewardError: naming function, item, turn and completions; the cause is kept.
        """
        lists = [[action[agent] for action in joint_actions] for agent in self.agents]
        rows: dict[str, list[dict[AgentID, float]]] = {}
        for names, call in self._calls.items():
            rows.update(self._rows(call, names, state, lists, len(joint_actions)))
        scores = []
        for index in range(len(joint_actions)):
            values = {term: row[index] for term, row in rows.items()}
            scores.append(Score(self._total(values, state, joint_actions), values if self.named else {}))
        return scores

    def _total(self, values: Mapping[str, Mapping[AgentID, float]], state: State, shown: object) -> dict[AgentID, float]:
        factors = self._factors
        try:
            return {agent: _number(math.fsum(factors[term] * values[term][agent] for term in values)) for agent in self.agents}
        except (ValueError, OverflowError) as error:
            weighed = ", ".join(f"{term} · {factors[term]:g}: {dict(row)}" for term, row in values.items())
            raise reward_error(f"the sum of the reward's terms ({weighed})", state, shown, error) from error

    def _settled(self, role: str, function: RewardFunction) -> SettledCall:
        arguments = [f"the list of {agent}'s completions" for agent in self.agents]
        return SettledCall(function, role=role, arguments=arguments, keywords=KEYWORDS)

    def _rows(
        self, call: SettledCall, names: tuple[str, ...], state: State, lists: list[list[str]], count: int
    ) -> dict[str, list[dict[AgentID, float]]]:
        """Each term's rewards for each joint response."""
        keywords: dict[str, Any] = {
            "batch_items": [owned(state.item)],
            "prompts": [state.observations[agent] for agent in self.agents],
            "states": [state] * count,
        }
        # Lists and row are the function's to keep or change: each gets its own.
        arguments = [list(completions) for completions in lists]
        try:
            returned = call(arguments, keywords)
            if self._together:
                return _term_rows(returned, names, count, self.agents)
            return {names[0]: reward_rows(returned, count, self.agents)}
        except FAILURES as error:
            raise reward_error(call.name, state, lists, error) from error


def reward_error(name: str, state: State, completions: object, cause: BaseException) -> RewardError:
    """The error to raise from `cause`, saying whose fault it is and where."""
    text = repr(completions)
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
    return RewardError(f"{name} on {state.place}, completions {shown}: {type(cause).__name__}: {cause}")


def reward_rows(returned: Any, count: int, agents: Sequence[AgentID]) -> list[dict[AgentID, float]]:
    """Each agent's reward for each of `count` joint responses, from what a reward function returned.

    `count` numbers are shared by the team; `count` sequences of one number an agent, or mappings from agent to number, are per
    agent. With one joint response, one number for each of several agents is per agent too. Lists, tuples, arrays and tensors are
    all fine.

    Raises:
        TypeError: for another type, an entry that is no number included.
        ValueError: for another length or a number that is not finite.
    """
    values = _as_list(returned)
    if values is None:
        raise TypeError(f"expected {count} rewards as a list, tuple, array or tensor, got {type(returned).__name__}: {returned!r}")
    if count == 1 and len(values) == len(agents) > 1:
        return [_per_agent(values, agents)]
    if len(values) != count:
        raise ValueError(f"expected {count} rewards, one for each joint response, got {len(values)}: {values!r}")
    return [_row(value, agents) for value in values]


def _term_rows(returned: Any, names: Sequence[str], count: int, agents: Sequence[AgentID]) -> dict[str, list[dict[AgentID, float]]]:
    """Each term's rewards for each of `count` joint responses, from as many mappings that have every term."""
    values = _as_list(returned)
    if values is None or len(values) != count or not all(isinstance(value, Mapping) for value in values):
        raise TypeError(f"expected {count} mappings from each of {', '.join(names)} to a reward, got {returned!r}")
    wrong = next((value for value in values if set(value) != set(names)), None)
    if wrong is not None:
        raise ValueError(f"expected exactly the terms {', '.join(names)}, got {wrong!r}")
    return {name: [_row(value[name], agents) for value in values] for name in names}


def _row(value: Any, agents: Sequence[AgentID]) -> dict[AgentID, float]:
    if isinstance(value, Mapping):
        if set(value) != set(agents):
            raise ValueError(f"expected a reward for each of {', '.join(agents)}, got {value!r}")
        return {agent: _number(value[agent]) for agent in agents}
    several = _as_list(value)
    if several is None:
        return dict.fromkeys(agents, _number(value))
    return _per_agent(several, agents)


def _per_agent(values: Sequence[Any], agents: Sequence[AgentID]) -> dict[AgentID, float]:
    if len(values) != len(agents):
        raise ValueError(f"expected {len(agents)} rewards, one for each agent, got {len(values)}: {values!r}")
    return {agent: _number(value) for agent, value in zip(agents, values, strict=True)}


def _as_list(value: Any) -> list[Any] | None:
    """The value as a list, None if it is no list, tuple, array or tensor of at least one dimension."""
    if hasattr(value, "tolist"):  # an array, or a tensor wherever it lies; torch is not imported for it
        value = value.tolist()
    return list(value) if isinstance(value, (list, tuple)) else None


def _number(value: Any, what: str = "a reward") -> float:
    if hasattr(value, "item") and not isinstance(value, (int, float)):
        value = value.item()
    if not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be a number, got {type(value).__name__}: {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{what} must be finite, got {number}")
    return number


@dataclass(frozen=True)
class Scaled:
    """A reward function whose values count `factor` times; they are logged as they are."""

    function: RewardFunction
    factor: float


def scaled(factor: float, function: RewardFunction) -> Scaled:
    """A reward term that counts `factor` times, and is logged as it is: with a factor of 0 it is only logged.

    Example: `Task(reward={"solved": solved, "length": scaled(0.1, length)}, …)`.
    """
    return Scaled(function, _number(factor, "factor"))


@dataclass(frozen=True)
class Terms:
    """Named terms that one function gives together.

    Attributes:
        function: called as any reward function; returns for each of the K joint responses a mapping from every term to a number
            for the team, or to numbers for each agent.
        factors: what each term counts in the sum; terms are logged as they are.
    """

    function: RewardFunction
    factors: Mapping[str, float]


def terms(function: RewardFunction, /, **factors: float) -> Terms:
    """All named terms of a reward from one function, for terms that share costly work, such as running a program.

    Example: `Task(reward=terms(judge, tests=1, style=0.1, solved=0), …)`; a term with a factor of 0 is only logged.

    Raises:
        TypeError, ValueError: for no terms, or a factor that is no finite number.
    """
    if not factors:
        raise ValueError("terms needs the name and the factor of at least one term: terms(judge, tests=1.0)")
    return Terms(function, {name: _number(factor, f"the factor of {name!r}") for name, factor in factors.items()})


def set_reward_range(function: RewardFunction, low: float, high: float) -> RewardFunction:
    """The function itself, which from now on says that its rewards, before any processor, lie in [low, high].

    Nothing is cut to the range: it is where distributions of rewards are drawn.

    Example: `reward_func = set_reward_range(solved, 0.0, 1.0)`.

    Raises:
        TypeError: a limit that is no number, or a function that takes no attributes (a bound method, a builtin).
        ValueError: a limit that is not finite, or low is not below high.
    """
    declared: Any = function
    try:
        declared.reward_range = _checked_range((low, high))
    except AttributeError as error:
        name = function_name(function)
        raise TypeError(f"reward function {name} cannot be given a range: wrap it in a def") from error
    return function


def declared_range(reward: Reward) -> tuple[float, float] | None:
    """The lowest and highest reward as declared, None if it is not.

    A scaled function has the scaled range, named terms the sum of theirs if each has one; of a function that gives several terms it
    is the range of their sum. An own attribute `reward_range` of the
    function (or of a callable object) counts as declared.

    Raises:
        TypeError, ValueError: an attribute `reward_range` that is no range.
    """
    if isinstance(reward, Mapping):
        ranges = [declared_range(function) for function in reward.values()]
        known = [limits for limits in ranges if limits is not None]
        if not known or len(known) < len(ranges):
            return None
        return math.fsum(low for low, _ in known), math.fsum(high for _, high in known)
    if isinstance(reward, Terms):
        return declared_range(reward.function)
    if isinstance(reward, Scaled):
        limits = declared_range(reward.function)
        if limits is None:
            return None
        low, high = sorted(reward.factor * limit for limit in limits)
        return low, high
    declared = getattr(reward, "reward_range", None)
    return None if declared is None else _checked_range(declared)


def _checked_range(limits: Any) -> tuple[float, float]:
    values = _as_list(limits)
    if values is None or len(values) != 2:
        raise TypeError(f"a reward range must be two numbers, the lowest and the highest reward, got {limits!r}")
    low, high = (_number(value, "a limit of a reward range") for value in values)
    if not low < high or not math.isfinite(high - low):
        raise ValueError(f"a reward range needs its low limit below its high one and a finite width, got [{low}, {high}]")
    return low, high


Reward: TypeAlias = RewardFunction | Mapping[str, RewardFunction] | Terms
"""What a task's reward may be: a function, named terms, or all `terms` of one function."""


class RewardProcessors:
    """Processors of single rewards: `RewardProcessors.scale(0.1)`, `.shift(-4.0)`, `.compose(first, then)`."""

    @staticmethod
    def scale(factor: float) -> RewardProcessor:
        """A processor: factor · reward."""
        return _Scale(_number(factor, "factor"))

    @staticmethod
    def shift(value: float) -> RewardProcessor:
        """A processor: reward + value."""
        return _Shift(_number(value, "value"))

    @staticmethod
    def compose(*processors: RewardProcessor) -> RewardProcessor:
        """The processors one after the other, the first first; the identity without any."""
        wrong = [processor for processor in processors if not callable(processor)]
        if wrong:
            raise TypeError(f"a reward processor must be callable, got {wrong[0]!r}")
        return _Compose(processors)


# Classes, not closures: an env that holds one must survive pickling.
@dataclass(frozen=True)
class _Scale:
    factor: float

    def __call__(self, reward: float) -> float:
        return self.factor * reward


@dataclass(frozen=True)
class _Shift:
    value: float

    def __call__(self, reward: float) -> float:
        return reward + self.value


@dataclass(frozen=True)
class _Compose:
    processors: tuple[RewardProcessor, ...]

    def __call__(self, reward: float) -> float:
        for processor in self.processors:
            reward = processor(reward)
        return reward


def processed(processor: RewardProcessor | None, rewards: Mapping[AgentID, float], state: State) -> dict[AgentID, float]:
    """Each agent's reward after the processor.

    Args:
        processor: None for the identity.
        rewards: earned at `state`.
        state: the one acted from, for messages.

    Raises:
        RewardError: if the processor fails or returns anything but a finite number.
    """
    if processor is None:
        return dict(rewards)
    try:
        return {agent: _number(processor(reward)) for agent, reward in rewards.items()}
    except FAILURES as error:
        name = f"reward processor {function_name(processor)}"
        raise RewardError(f"{name} on the rewards {dict(rewards)}, {state.place}: {type(error).__name__}: {error}") from error
