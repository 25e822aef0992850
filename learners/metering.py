"""What writing costs: calls, tokens and seconds of policies, for comparing ways to use them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llm_envs.seeding import Path
from llm_envs.types import AgentID, Completion, Policy


@dataclass
class Usage:
    """What was spent.

    Attributes:
        calls: of `generate`.
        completions: texts written, drafts included.
        prompt_tokens: read, one prompt for each text.
        completion_tokens: written.
        seconds: wall time inside `generate`.
    """

    calls: int = 0
    completions: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.completions + other.completions,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.seconds + other.seconds,
        )


class MeteredPolicy:
    """A policy that writes as another does and counts what it spends.

    Args:
        policy: the other.

    Attributes:
        usage: so far.
    """

    def __init__(self, policy: Policy) -> None:
        self.usage = Usage()
        self._policy = policy

    def generate(self, prompts: Sequence[str], n: int, keys: Sequence[Path]) -> list[list[Completion]]:
        """The other policy's completions."""
        start = time.perf_counter()
        groups = self._policy.generate(prompts, n, keys)
        seconds = time.perf_counter() - start
        texts = [completion for group in groups for completion in group]
        self.usage += Usage(
            calls=1,
            completions=len(texts),
            prompt_tokens=sum(len(completion.prompt_ids) for completion in texts),
            completion_tokens=sum(len(completion.token_ids) for completion in texts),
            seconds=seconds,
        )
        return groups


def metered(policies: Mapping[AgentID, Policy]) -> dict[AgentID, MeteredPolicy]:
    """The policies, metered; agents that share one go on sharing it."""
    meters: dict[int, MeteredPolicy] = {}
    return {agent: meters.setdefault(id(policy), MeteredPolicy(policy)) for agent, policy in policies.items()}


def total_usage(policies: Mapping[AgentID, MeteredPolicy]) -> Usage:
    """What all policies spent, each counted once."""
    total = Usage()
    for policy in {id(policy): policy for policy in policies.values()}.values():
        total += policy.usage
    return total
