"""The learner under check: fresh ones on fresh policies, and runs of them on a toy task as the trainer makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from learners.learner import Learner, TrainablePolicy
from llm_envs.env import TaskEnv
from llm_envs.rollouts import Numbering, collect
from llm_envs.task import Task
from llm_envs.testing.subject import demand
from llm_envs.types import AgentID, EnvStep, Metrics

TEAM = ("writer_0", "editor_0")
STRANGERS = ("solver_0", "checker_0")
"""Another team, whose state must be refused."""

ITEMS = 4
SEED = 5

MakeLearner = Callable[[Mapping[AgentID, TrainablePolicy]], Learner]
MakePolicies = Callable[[Sequence[AgentID]], Mapping[AgentID, TrainablePolicy]]


@runtime_checkable
class HasWeights(Protocol):
    """A policy whose weights can be looked at."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """Weights by name."""
        ...


class Subject:
    """What the rules are checked on.

    Args:
        make_learner: policies → a fresh learner on them.
        make_policies: agents → a fresh policy for each, the same at each call.
        num_turns: of the toy task.
    """

    def __init__(self, make_learner: MakeLearner, make_policies: MakePolicies, num_turns: int) -> None:
        self._make_learner = make_learner
        self._make_policies = make_policies
        self.num_turns = num_turns

    def learner(self, agents: Sequence[AgentID] = TEAM, *, spoiled: bool = False) -> Learner:
        """A learner that nobody has used.

        Args:
            agents: its team.
            spoiled: give its policies other weights first, so that nothing agrees by chance with what is to be restored.
        """
        policies = self._make_policies(agents)
        if spoiled:
            with torch.no_grad():
                for policy in policies.values():
                    for parameter in policy.parameters():
                        parameter.copy_(0.5 * parameter + torch.linspace(0, 1, parameter.numel()).view_as(parameter))
        return self._make_learner(policies)

    def run(self, learner: Learner | None = None, numbering: Numbering | None = None) -> Run:
        """A run of the learner, of a fresh one by default, from its start or from where it was."""
        return Run(self.learner() if learner is None else learner, toy(TEAM, self.num_turns), numbering)


class Run:
    """A learner trained on the toy task, one episode at a time.

    Args:
        learner: is trained.
        env: is played.
        numbering: goes on from it; None starts at 0.
    """

    def __init__(self, learner: Learner, env: TaskEnv, numbering: Numbering | None = None) -> None:
        self.learner = learner
        self.numbering = Numbering() if numbering is None else numbering
        self._env = env

    def episode(self) -> list[EnvStep]:
        """The steps of the next episode, drawn from the learner's policies as its `rollout` says."""
        index = self.numbering.episode % ITEMS
        return collect(
            self._env,
            self.learner.policies,
            [self._env.items[index]],  # type: ignore[index]  # a list
            self.learner.rollout,
            seed=SEED,
            numbering=self.numbering,
            item_indices=[index],
        )

    def train(self, episodes: int) -> tuple[list[EnvStep], list[Metrics]]:
        """Collect and update so many times; the steps and what was logged."""
        steps: list[EnvStep] = []
        metrics: list[Metrics] = []
        for _ in range(episodes):
            episode = self.episode()
            steps += episode
            metrics += self.learner.update(episode)
        return steps, metrics


def toy(agents: Sequence[AgentID], num_turns: int) -> TaskEnv:
    """A task that pays almost any two joint answers differently, and each agent differently."""
    return TaskEnv(
        Task(
            name="toy",
            items=[{"prompt": f"item {number}"} for number in range(ITEMS)],
            agents=agents,
            reward=_reward,
            num_turns=num_turns,
            transition=_answer if num_turns > 1 else None,
        )
    )


def _reward(*responses: Sequence[str]) -> list[list[float]]:
    return [
        [(sum(text.encode()) + 3 * number * sum(map(len, joint))) % 17 / 7 for number, text in enumerate(joint)]
        for joint in zip(*responses, strict=True)
    ]


def _answer(agent_completions: Sequence[str], turn: int) -> list[str]:
    return [f"turn {turn}: {text[:8]}" for text in reversed(agent_completions)]


def enough(learner: Learner) -> int:
    """Episodes after which a fresh learner has updated twice and, if it waits at all, is waiting again."""
    return 2 * learner.states_until_update + 1


def weights(learner: Learner) -> dict[AgentID, Any]:
    """What each policy acts with, as it is now."""
    found: dict[AgentID, Any] = {}
    for agent, policy in learner.policies.items():
        demand(isinstance(policy, HasWeights), f"the policy of {agent} has no state_dict: {policy!r}")
        assert isinstance(policy, HasWeights)
        found[agent] = frozen(policy.state_dict())
    return found


def frozen(tree: Any) -> Any:
    """A copy of a tree of tensors and plain values that can be compared: each tensor as dtype, shape and bytes."""
    if isinstance(tree, Tensor):
        flat = tree.detach().cpu().contiguous().reshape(-1)
        return {"dtype": str(tree.dtype), "shape": tuple(tree.shape), "bytes": flat.view(torch.uint8).numpy().copy()}
    if isinstance(tree, np.ndarray):
        return tree.copy()
    if isinstance(tree, Mapping):
        return {key: frozen(part) for key, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(frozen(part) for part in tree)
    return tree
