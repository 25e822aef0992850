"""From chains of env steps to samples: what IAC and MAAC do alike before they train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.critic import Critic
from learners.actor_critic.samples import Sample
from learners.chains import lambda_targets, suffix_sums
from learners.references import References
from llm_envs.types import AgentID, EnvStep

Ids = tuple[int, ...]


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


def chain_samples(
    agent: AgentID,
    chains: Sequence[Sequence[EnvStep]],
    reads: Sequence[Ids],
    values: Sequence[float],
    bootstraps: Sequence[float],
    references: References | None,
    config: ActorCriticConfig,
) -> list[list[Sample]]:
    """One agent's samples, chain by chain.

    The reward less the KL penalty enters targets and returns. A chain that a limit cut goes on with its bootstrap; one that ended,
    or that the early-termination threshold stopped, has none: its last turn is worth its reward.

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
    completions = [step.completions[agent] for step in steps]
    kl: list[float | None] = [None] * len(steps) if references is None else list(references.kl(agent, completions))
    shaped = [step.rewards[agent] - config.reference_kl_coef * (k or 0.0) for step, k in zip(steps, kl, strict=True)]
    rows = iter(zip(steps, reads, values, kl, strict=True))
    offset, samples = 0, []
    for chain, bootstrap in zip(chains, bootstraps, strict=True):
        part = slice(offset, offset + len(chain))
        offset += len(chain)
        found = lambda_targets(shaped[part], values[part], bootstrap, config.discount, config.gae_lambda)
        returns = suffix_sums(shaped[part])
        samples.append(
            [
                Sample(
                    turn=step.turn,
                    env_step=step.env_step,
                    completion=step.completions[agent],
                    read=read,
                    value=value,
                    target=target,
                    advantage=advantage,
                    reward=step.rewards[agent],
                    expected_return=expected,
                    kl=k,
                )
                for (step, read, value, k), target, advantage, expected in zip(
                    _take(rows, len(chain)), found.targets, found.advantages, returns, strict=True
                )
            ]
        )
    return samples


def _take(rows: Iterator, count: int) -> list:
    return [next(rows) for _ in range(count)]


def truncated_ends(chains: Sequence[Sequence[EnvStep]]) -> list[EnvStep | None]:
    """The last step of each chain that a limit from outside cut and whose value therefore goes on; None for the others."""
    return [chain[-1] if chain[-1].truncated and not chain[-1].terminated else None for chain in chains]
