"""A small team on a small task, and hand-written actor-critic steps to compare with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch

from learners.actor_critic.critic import Critic
from learners.policy import HFPolicy
from llm_envs.env import BranchingEnv, TaskEnv
from llm_envs.rollouts import Numbering, collect
from llm_envs.task import Task
from llm_envs.types import EnvStep, Metrics, RolloutSpec
from llm_envs.wrappers import TurnLimit

AGENTS = ("writer_0", "editor_0")
TEMPERATURE = 0.8
KINDS = [(True, "v"), (True, "q"), (False, "v"), (False, "q")]
"""Separate critics and heads on actors, without and with the action."""
TWO_KINDS = [(True, "v"), (False, "q"), *(pytest.param(*kind, marks=pytest.mark.slow) for kind in [(True, "q"), (False, "v")])]
"""For tests that would take twice their time for a combination of what two others show."""
WINDOW = 99
"""Mini-batches an optimiser step where gradients are to stay on the parameters."""


def team_reward(first: Sequence[str], second: Sequence[str]) -> list[float]:
    """Differs between almost any two texts: weighted byte sums."""
    return [sum(a.encode()) % 17 / 7 - sum(b.encode()) % 11 / 5 for a, b in zip(first, second, strict=True)]


def own_rewards(first: Sequence[str], second: Sequence[str]) -> list[list[float]]:
    """Each agent's own, a different number for each."""
    return [[sum(a.encode()) % 17 / 7, -sum(b.encode()) % 11 / 5] for a, b in zip(first, second, strict=True)]


def answer(agent_completions: Sequence[str], turn: int) -> list[str]:
    return [f"turn {turn}: {text[:3]}" for text in reversed(agent_completions)]


def make_env(num_turns: int = 1, *, limit: int | None = None, reward: Callable | Mapping = team_reward) -> BranchingEnv:
    """Four items with prompts of two lengths; `limit` cuts episodes after so many turns."""
    items = [{"prompt": f"item {i}" * (1 + i % 2)} for i in range(4)]
    env = TaskEnv(
        Task(reward=reward, items=items, agents=AGENTS, num_turns=num_turns, transition=answer if num_turns > 1 else None)
    )
    return env if limit is None else TurnLimit(env, limit)


def collected(env: BranchingEnv, policies: Mapping, generations: int = 1, items: int = 2, **options: object) -> list[EnvStep]:
    return collect(env, policies, env.items[:items], RolloutSpec(generations), seed=5, **options)


def one_by_one(env: BranchingEnv, policies: Mapping, generations: int = 1) -> list[list[EnvStep]]:
    """The env steps of each item, numbered as in one run."""
    numbering = Numbering()
    return [collect(env, policies, [item], RolloutSpec(generations), seed=5, numbering=numbering) for item in env.items]


def bare_step(number: int, state: int, *, turn: int = 1, episode: int = 0) -> EnvStep:
    """A step of which only the place in its episode matters."""
    texts = dict.fromkeys(AGENTS, "")
    return EnvStep(number, episode, state, None, turn, texts, {}, {}, dict.fromkeys(AGENTS, 0.0), True, False, None, "")


def with_rewards(steps: Sequence[EnvStep], value: float) -> list[EnvStep]:
    return [dataclasses.replace(step, rewards=dict.fromkeys(step.rewards, value)) for step in steps]


def values_fixed_at(critic: Critic, value: float) -> Critic:
    """The critic, saying the same of everything."""
    with torch.no_grad():
        for parameter in critic.head_parameters():
            parameter.zero_()
        critic.head.layers[-1].bias.fill_(value)
    return critic


def values_of(metrics: Sequence[Metrics]) -> dict[str, float]:
    return {name: value for entry in metrics for name, value in entry.values.items()}


# ---- weights and gradients ----


def parameters_of(*parts: Mapping) -> list[torch.nn.Parameter]:
    """Of policies and critics, each once: the policies' first."""
    found: list[torch.nn.Parameter] = []
    for part in parts:
        for trained in part.values():
            critic = isinstance(trained, Critic)
            found += [*trained.body_parameters(), *trained.head_parameters()] if critic else trained.parameters()
    return list(dict.fromkeys(found))


def weights_of(*parts: Mapping) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in parameters_of(*parts)]


def spoil(*parts: Mapping) -> None:
    """Give them other weights, so that nothing agrees by chance with what is to be restored."""
    with torch.no_grad():
        for parameter in parameters_of(*parts):
            parameter.mul_(0.5)


def gradients_of(*parts: Mapping) -> list[torch.Tensor]:
    """Taken off the parameters."""
    taken = []
    for parameter in parameters_of(*parts):
        taken.append(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone())
        parameter.grad = None
    return taken


def same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def assert_close(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], rtol: float, atol: float) -> None:
    """With something to compare."""
    assert max(gradient.abs().max() for gradient in expected) > 1e-3
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


# ---- by hand ----


def naive_value(critic: Critic, ids: Sequence[int]) -> torch.Tensor:
    """From one plain forward of the bare sequence."""
    hidden = critic.model(input_ids=torch.tensor([list(ids)]), output_hidden_states=True).hidden_states[-1]
    return critic.head(hidden[0, -1:])[0]


def naive_logprob(policy: HFPolicy, step: EnvStep, agent: str) -> torch.Tensor:
    """Sum over the completion's tokens, from one plain forward and a loop."""
    completion = step.completions[agent]
    logits = policy.model(torch.tensor([completion.prompt_ids + completion.token_ids])).logits[0]
    start = len(completion.prompt_ids)
    total = torch.zeros((), dtype=logits.dtype)
    for position, token in enumerate(completion.token_ids):
        total = total + torch.log_softmax(logits[start + position - 1] / TEMPERATURE, dim=-1)[token]
    return total


def naive_targets(steps: Sequence[EnvStep], values: Mapping[int, float], agent: str, discount: float) -> dict[int, float]:
    """r + γ v of the next step, by env step: temporal differences of chains that end by themselves."""
    following = {step.state_id: values[step.env_step] for step in steps}
    return {step.env_step: step.rewards[agent] + discount * following.get(step.next_state_id, 0.0) for step in steps}
