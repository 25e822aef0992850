"""Rewards from a model instead of the task: a learned reward, a judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pettingzoo import ParallelEnv

from llm_envs.calling import FAILURES, SettledCall
from llm_envs.env import BranchingEnv
from llm_envs.rewards import declared_range, reward_error, reward_rows
from llm_envs.types import AgentID, JointAction, State, Transition
from llm_envs.wrappers.base import Wrapper, rewarded

Scorer: TypeAlias = Callable[[Sequence[Mapping[AgentID, str]], Sequence[Mapping[AgentID, str]]], Any]
"""`score(prompts, completions, *, states=)`: for each of K joint responses what every agent read and what it wrote, in the agents'
order, and if the function names it the state acted from, whose `history` has the turns before. Returns K scores for the team, or
per-agent ones, in any form that a reward function may return."""


class ScoreWith(Wrapper, ParallelEnv):  # type: ignore[misc]  # `state` is text
    """An environment whose rewards are a model's scores. All joint actions of a state are scored in one call.

    The task is still played and scored inside: its raw reward is each agent's term `reward/task`, which learners log, and
    `raw_reward` is the score.

    Args:
        env: what is wrapped.
        score: see `Scorer`.

    Raises:
        TypeError: `score` cannot be called so.
    """

    def __init__(self, env: BranchingEnv, score: Scorer) -> None:
        super().__init__(env)
        self.score = score
        self._call = SettledCall(score, role="score", arguments=["the prompts", "the completions"], keywords=["states"])

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """Lowest and highest score, where the model declares them."""
        return declared_range(self.score)

    def branch(self, state: State, joint_actions: Sequence[JointAction]) -> list[Transition]:
        """What each of several joint actions leads to, with the model's scores for rewards.

        Raises:
            RewardError: if `score` fails or returns anything but finite scores, one for each joint action.
        """
        transitions = super().branch(state, joint_actions)
        if not transitions:
            return []
        completions = [dict(transition.state.history[-1].actions) for transition in transitions]
        prompts = [dict(state.observations) for _ in transitions]
        try:
            returned = self._call([prompts, completions], {"states": [state] * len(transitions)})
            scores = reward_rows(returned, len(transitions), self.possible_agents)
        except FAILURES as error:
            raise reward_error(self._call.name, state, completions, error) from error
        return [
            rewarded(transition, row, [self._infos(transition, agent, row[agent]) for agent in self.possible_agents])
            for transition, row in zip(transitions, scores, strict=True)
        ]

    def _infos(self, transition: Transition, agent: AgentID, score: float) -> dict[str, float]:
        inside = transition.infos[agent]
        return {"raw_reward": score, "reward/task": inside.get("reward/task", inside["raw_reward"])}
