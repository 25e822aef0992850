"""Rewards shaped before learners see them."""

from __future__ import annotations

from collections.abc import Sequence

from pettingzoo import ParallelEnv

from llm_envs.calling import check_arguments
from llm_envs.env import BranchingEnv
from llm_envs.rewards import RewardProcessor, processed
from llm_envs.types import JointAction, State, Transition
from llm_envs.wrappers.base import Wrapper, rewarded


class TransformReward(Wrapper, ParallelEnv):  # type: ignore[misc]  # `state` is text
    """An environment with f(reward) in place of every agent's reward.

    The task's own transition still sees the rewards inside, and infos keep the raw one.

    Args:
        env: what is wrapped.
        f: float → float; `RewardProcessors` has some.
    """

    def __init__(self, env: BranchingEnv, f: RewardProcessor) -> None:
        super().__init__(env)
        check_arguments(f, "f", "a reward")
        self.f = f

    def branch(self, state: State, joint_actions: Sequence[JointAction]) -> list[Transition]:
        """What each of several joint actions leads to, with transformed rewards.

        Raises:
            RewardError: if f fails or returns anything but a finite number.
        """
        nothing = [{}] * len(self.possible_agents)
        return [rewarded(t, processed(self.f, t.rewards, state), nothing) for t in super().branch(state, joint_actions)]
