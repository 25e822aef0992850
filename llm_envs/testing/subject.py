"""The environment under check: fresh copies of it, and actions to play."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gymnasium import spaces
from pettingzoo import ParallelEnv

from llm_envs.env import BranchingEnv
from llm_envs.testing.episodes import reference_of, reference_scripts
from llm_envs.types import AgentID

PROBES = ("", " ", "yes", "naïve ☃ 猫 👩‍🚀\n\ttwo lines", "\x00", "word " * 400)
"""Texts that a policy might write: nothing, white space, other scripts, control characters, a long one."""

MOST_STEPS = 1000
"""After so many steps an episode without `num_turns` must have ended."""


class ViolationError(AssertionError):
    """A rule does not hold; the message says what was found instead."""


def demand(condition: bool, found: str) -> None:
    """Raise a `ViolationError` saying what was found unless the condition holds."""
    if not condition:
        raise ViolationError(found)


class Subject:
    """What the rules are checked on.

    Args:
        env: an environment, or a function without arguments that makes a fresh one each time.
        episodes: that longer checks play.
    """

    def __init__(self, env: ParallelEnv | Callable[[], ParallelEnv], episodes: int) -> None:
        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes}")
        self.episodes = episodes
        self._env = env

    def fresh(self) -> ParallelEnv:
        """An environment that nobody has used."""
        if not callable(self._env) and not isinstance(self._env, ParallelEnv):
            raise ViolationError(f"it is neither an environment nor a function that makes one: {self._env!r}")
        made = copy.deepcopy(self._env) if isinstance(self._env, ParallelEnv) else self._env()
        if not isinstance(made, ParallelEnv):
            raise ViolationError(f"it is no pettingzoo.ParallelEnv: {made!r}")
        return made

    def branching(self) -> BranchingEnv:
        """A fresh environment whose states are values."""
        env = self.fresh()
        assert isinstance(env, BranchingEnv)
        return env


def most_steps(env: ParallelEnv) -> int:
    """Steps after which an episode must be over."""
    return env.num_turns if isinstance(env, BranchingEnv) else MOST_STEPS


def actions(env: ParallelEnv, observations: Mapping[AgentID, Any], episode: int, turn: int) -> dict[AgentID, Any]:
    """A joint action, the same for the same numbers: random ones, odd texts, and the reference solution in every third episode."""
    reference = reference_of(env) if isinstance(env, BranchingEnv) else None
    if reference is not None and isinstance(env, BranchingEnv) and episode % 3 == 2:
        scripts = reference_scripts(env, reference, env.snapshot().item)
        return {agent: texts[min(turn, len(texts) - 1)] for agent, texts in scripts.items()}
    joint: dict[AgentID, Any] = {}
    for number, agent in enumerate(env.possible_agents):
        space = env.action_space(agent)
        if isinstance(space, spaces.Text) and episode % 3 == 1:
            joint[agent] = PROBES[(turn + number) % len(PROBES)]
            continue
        space.seed(1000 * episode + 10 * turn + number)
        seen = observations.get(agent)
        mask = seen["action_mask"] if isinstance(seen, Mapping) and "action_mask" in seen else None
        joint[agent] = space.sample(mask) if mask is not None else space.sample()
    return joint


def play(env: ParallelEnv, episodes: int, seed: int | None) -> Iterator[tuple[str, Any]]:
    """What resets and steps return over several episodes, with where: the first reset with the seed, the others without one."""
    for episode in range(episodes):
        observations, infos = env.reset(seed=seed if episode == 0 else None)
        yield f"reset of episode {episode}", (observations, infos)
        for turn in range(most_steps(env)):
            if not env.agents:
                break
            returned = env.step(actions(env, observations, episode, turn))
            observations = returned[0]
            yield f"turn {turn + 1} of episode {episode}", returned
