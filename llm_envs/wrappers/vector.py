"""Gymnasium vector environments of one-agent environments, in this process or in several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from llm_envs.env import BranchingEnv
from llm_envs.wrappers.single_agent import SingleAgentEnv
from llm_envs.wrappers.tokens import checked_length
from llm_envs.wrappers.view import View

Make = Callable[[], "SingleAgentEnv | BranchingEnv | View"]
"""Gives a one-agent environment. For processes it must be picklable with cloudpickle, as lambdas are."""


def sync_vector_env(make: Make, num_envs: int, *, autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP) -> SyncVectorEnv:
    """A vector of environments that are stepped one after the other.

    `reset(seed=s)` seeds them s, s + 1, …. By default an episode that ends starts anew in the same step, and its last observation
    is in `infos["final_obs"]`. Gymnasium's own default spends a further step on it, whose action is ignored and whose reward is
    0.0: with one turn an episode, half of all that a careless learner trains on.

    Args:
        make: gives a `SingleAgentEnv`, or a one-agent environment that becomes one.
        num_envs: of the vector.
        autoreset_mode: of gymnasium.
    """
    return SyncVectorEnv([_Factory(make)] * checked_length("num_envs", num_envs), autoreset_mode=autoreset_mode)


def async_vector_env(make: Make, num_envs: int, *, autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP) -> AsyncVectorEnv:
    """A vector of environments that each have a process, for rewards that take long; otherwise as `sync_vector_env`.

    Arrays are passed through shared memory, texts are not: gymnasium would read them once, when it is built.
    """
    factory = _Factory(make)
    shared = not _has_text(factory().observation_space)
    factories = [factory] * checked_length("num_envs", num_envs)
    return AsyncVectorEnv(factories, shared_memory=shared, autoreset_mode=autoreset_mode)


class _Factory:
    """Makes a `SingleAgentEnv` of whatever one-agent environment a function gives."""

    def __init__(self, make: Make) -> None:
        self._make = make

    def __call__(self) -> SingleAgentEnv:
        env = self._make()
        return env if isinstance(env, SingleAgentEnv) else SingleAgentEnv(env)


def _has_text(space: spaces.Space[Any]) -> bool:
    inner = space.spaces.values() if isinstance(space, spaces.Dict) else ()
    return isinstance(space, spaces.Text) or any(_has_text(one) for one in inner)
