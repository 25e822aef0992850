"""Completions as tensors and as numbers to log."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from llm_envs.types import Completion


def sampled_logprobs(completions: Sequence[Completion], width: int, device: torch.device | str) -> Tensor:
    """[B, T] float32 log-probabilities taken when the completions were sampled, nats, right-padded with 0.

    Args:
        completions: B.
        width: T, at least the longest.
        device: where to put them.
    """
    rows = [list(completion.logprobs) + [0.0] * (width - len(completion.logprobs)) for completion in completions]
    return torch.tensor(rows, dtype=torch.float32, device=device).reshape(len(completions), width)


def completion_metrics(completions: Sequence[Completion]) -> dict[str, float]:
    """Length, share cut at the limit, and entropy of completions.

    `completion_length` and its `_min` and `_max` count tokens, the end token included. `entropy` is −log-probability averaged over
    the sampled tokens, nats: its expectation is the entropy of the distribution sampled from.
    """
    lengths = [len(completion.token_ids) for completion in completions]
    tokens = sum(lengths)
    return {
        "completion_length": tokens / len(completions),
        "completion_length_min": float(min(lengths)),
        "completion_length_max": float(max(lengths)),
        "cut_share": sum(completion.finish_reason == "length" for completion in completions) / len(completions),
        "entropy": -sum(sum(completion.logprobs) for completion in completions) / tokens if tokens else 0.0,
    }
