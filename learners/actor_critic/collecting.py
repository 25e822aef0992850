"""From chains of env steps to samples: what IAC and MAAC do alike before they train."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.critic import Critic
from learners.actor_critic.samples import Sample
from learners.chains import lambda_targets, suffix_sums
from learners.decoding import Ids
from learners.references import References
from llm_envs.types import AgentID, EnvStep


@torch.no_grad()
def values_of(critic: Critic, reads: Sequence[Ids]) -> list[float]:
    """[B] values of sequences as the critic is now.

    Raises:
        FloatingPointError: a value is NaN or infinite.
    """
    if not reads:
        return []
    values = critic.values(reads)
    if not bool(torch.isfinite(values).all()):
        raise FloatingPointError(f"the critic's values are not finite: {values.tolist()}")
    return values.double().tolist()


def bootstraps(chains: Sequence[Sequence[EnvStep]], values_behind: Callable[[list[EnvStep]], list[float]]) -> list[float]:
    """Value beyond each chain's last turn: that of the state reached where a limit from outside cut it, else 0.

    Where the task ended nothing follows; where the early-termination threshold stopped, the last turn is worth its reward.

    Args:
        chains: the episodes.
        values_behind: of the states reached by some steps.
    """
    cut = [chain[-1].truncated and not chain[-1].terminated for chain in chains]
    beyond = iter(values_behind([chain[-1] for chain, was_cut in zip(chains, cut, strict=True) if was_cut]))
    return [next(beyond) if was_cut else 0.0 for was_cut in cut]


def chain_samples(
    agent: AgentID,
    chains: Sequence[Sequence[EnvStep]],
    reads: Sequence[Ids],
    values: Sequence[float],
    bootstraps: Sequence[float],
    references: References | None,
    config: ActorCriticConfig,
) -> list[list[Sample]]:
    """One agent's samples, chain by chain. The reward less the KL penalty enters targets and returns.

    Args:
        agent: whose.
        chains: the episodes.
        reads: what the critic reads, for every step of every chain in order.
        values: of the critic for them.
        bootstraps: value beyond each chain's last turn.
        references: of the KL penalty; None without one.
        config: of the learner.
    """
    steps = [step for chain in chains for step in chain]
    kl = [None] * len(steps) if references is None else references.kl(agent, [step.completions[agent] for step in steps])
    shaped = [step.rewards[agent] - config.reference_kl_coef * (k or 0.0) for step, k in zip(steps, kl, strict=True)]
    samples: list[list[Sample]] = []
    end = 0
    for chain, bootstrap in zip(chains, bootstraps, strict=True):
        part = slice(end, end := end + len(chain))
        found = lambda_targets(shaped[part], values[part], bootstrap, config.discount, config.gae_lambda)
        columns = (reads[part], values[part], found.targets, found.advantages, suffix_sums(shaped[part]), kl[part])
        samples.append([_sample(agent, step, *row) for step, *row in zip(chain, *columns, strict=True)])
    return samples


def _sample(
    agent: AgentID, step: EnvStep, read: Ids, value: float, target: float, advantage: float, expected: float, kl: float | None
) -> Sample:
    return Sample(
        turn=step.turn,
        env_step=step.env_step,
        completion=step.completions[agent],
        read=tuple(read),
        value=value,
        target=target,
        advantage=advantage,
        reward=step.rewards[agent],
        expected_return=expected,
        kl=kl,
        terms={name: info for name, info in step.infos.get(agent, {}).items() if name.startswith("reward/")},
        not_expanded=step.next_state_id is None and not (step.terminated or step.truncated),
    )
