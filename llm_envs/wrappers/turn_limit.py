"""A limit on turns that is not the task's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from pettingzoo import ParallelEnv

from llm_envs.env import BranchingEnv
from llm_envs.types import JointAction, State, Transition
from llm_envs.wrappers.base import Wrapper


class TurnLimit(Wrapper, ParallelEnv):  # type: ignore[misc]  # `state` is text
    """An environment that is cut off after n turns: a truncation, after which the next observation is there to bootstrap from.

    An episode that the task itself ends on that turn is terminated, not truncated. `num_turns` is the smaller of both limits.

    Args:
        env: what is wrapped.
        num_turns: n.
    """

    def __init__(self, env: BranchingEnv, num_turns: int) -> None:
        super().__init__(env)
        if not isinstance(num_turns, int) or isinstance(num_turns, bool) or num_turns < 1:
            raise ValueError(f"num_turns must be a whole number of at least 1, got {num_turns!r}")
        self.limit = num_turns
        self.num_turns = min(num_turns, env.num_turns)

    def branch(self, state: State, joint_actions: Sequence[JointAction]) -> list[Transition]:
        """What each of several joint actions leads to; the n-th turn's states are truncated unless the task is over."""
        transitions = super().branch(state, joint_actions)
        if state.turn + 1 < self.limit:
            return transitions
        return [
            t if t.state.done else dataclasses.replace(t, state=dataclasses.replace(t.state, truncated=True)) for t in transitions
        ]
