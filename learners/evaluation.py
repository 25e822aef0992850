"""How good a team is: one completion for each agent and turn, on streams of its own, no weights changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from learners import credit
from llm_envs.env import BranchingEnv
from llm_envs.rollouts import EVALUATION, Numbering, collect
from llm_envs.types import AgentID, EnvStep, Item, Policy, RolloutSpec


def evaluation_episodes(
    env: BranchingEnv, policies: Mapping[AgentID, Policy], items: Iterable[Item], *, num_samples: int, batch_size: int, seed: int
) -> tuple[list[Item], list[EnvStep]]:
    """The first `num_samples` items, and the env steps of one episode on each.

    The draws of an item depend on `seed` and its position alone, so that two evaluations of one run face the same chance.

    Args:
        env: the environment.
        policies: one for each agent.
        items: evaluation rows.
        num_samples: how many of them.
        batch_size: how many are generated together.
        seed: of the run.
    """
    rows = list(islice(iter(items), num_samples))
    numbering = Numbering()
    steps: list[EnvStep] = []
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        indices = list(range(start, start + len(batch)))
        steps += collect(
            env, policies, batch, RolloutSpec(1), seed=seed, numbering=numbering, item_indices=indices, purpose=EVALUATION
        )
    return rows, steps


def evaluation_metrics(steps: Sequence[EnvStep]) -> dict[str, float]:
    """`turn_k/reward_mean`, `turn_k/expected_return` (undiscounted, from turn k on) and named terms, over the episodes that reach turn k."""
    rewards = credit.step_means(steps, credit.rewards_of(steps))
    returns = credit.step_means(steps, credit.tree_returns(steps))
    values: dict[str, float] = {}
    for turn in rewards:
        values[f"turn_{turn}/reward_mean"] = rewards[turn]
        values[f"turn_{turn}/expected_return"] = returns[turn]
        terms = credit.term_means([step for step in steps if step.turn == turn])
        values.update({f"turn_{turn}/{term}": value for term, value in terms.items()})
    return values


def completions_by_turn(steps: Sequence[EnvStep], agents: Sequence[AgentID]) -> list[list[list[str]]]:
    """Texts as `[agent][item][turn]`: what an `eval_logger` is given."""
    episodes: dict[int, list[EnvStep]] = {}
    for step in steps:
        episodes.setdefault(step.episode, []).append(step)
    return [[[step.completions[agent].text for step in episode] for episode in episodes.values()] for agent in agents]


def rollout_rows(steps: Sequence[EnvStep], agents: Sequence[AgentID]) -> list[dict[str, Any]]:
    """What a `metrics_callback` is given: a mapping for each agent of each env step.

    Keys: `agent_idx`, `prompt`, `completion`, `reward`, `turn`, and `metadata` (the agent's name, `env_step`, `episode`, and the infos).
    """
    return [
        {
            "agent_idx": index,
            "prompt": step.prompts[agent],
            "completion": step.completions[agent].text,
            "reward": step.rewards[agent],
            "turn": step.turn,
            "metadata": {"agent": agent, "env_step": step.env_step, "episode": step.episode, **step.infos[agent]},
        }
        for step in steps
        for index, agent in enumerate(agents)
    ]
