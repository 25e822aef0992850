"""Pairs of joint responses by hand and drawn, tables of words, and what a step left on the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from tabular import TabularPolicy

from learners.preference.pairs import JointResponse, Pair
from llm_envs.types import Completion

AGENTS = ("writer_0", "editor_0")


def response(turns: Sequence[Mapping[str, Completion]]) -> JointResponse:
    return JointResponse(tuple(dict.fromkeys(turn, "") for turn in turns), tuple(turns), 0.0, 0.0)


def pair_of(winner: Sequence[Mapping[str, Completion]], loser: Sequence[Mapping[str, Completion]]) -> Pair:
    return Pair(response(winner), response(loser), 0.0)


def drawn_pairs(policies: Mapping, count: int = 3, turns: int = 1) -> list[Pair]:
    """A pair of each of so many items, prompts of two lengths; the completions differ in length."""
    pairs = []
    for item in range(count):
        sides = []
        for side in range(2):
            played = []
            for turn in range(turns):
                prompt = f"item {item}" * (1 + item % 2) + f", turn {turn}" * turn
                keys = [(item, turn, side, position) for position in range(len(policies))]
                drawn = [policy.generate([prompt], 1, [key])[0][0] for policy, key in zip(policies.values(), keys, strict=True)]
                played.append(dict(zip(policies, drawn, strict=True)))
            sides.append(played)
        pairs.append(pair_of(*sides))
    return pairs


def table(*logits: float) -> TabularPolicy:
    """A policy of words with these logits, in double precision."""
    policy = TabularPolicy([str(index) for index in range(len(logits))])
    policy.logits.data = torch.tensor(logits, dtype=torch.float64)
    return policy


def word(index: int, prompt: int = 0) -> Completion:
    return Completion(str(index), (index,), (0.0,), (prompt,))


def word_pair(winner: Sequence[int], loser: Sequence[int], prompt: int = 0) -> Pair:
    """What each agent wrote in the two responses, one word each."""
    sides = ({agent: word(index, prompt) for agent, index in zip(AGENTS, words, strict=True)} for words in (winner, loser))
    return pair_of(*([side] for side in sides))


class Counting(TabularPolicy):
    """Notes what it scored, with gradient or without, in micro-batches of at most so many completions."""

    def __init__(self, words: Sequence[str], most: int = 1000) -> None:
        super().__init__(words)
        self.most = most
        self.scored: list[tuple[bool, list[int]]] = []

    def logprobs(self, completions):
        self.scored.append((torch.is_grad_enabled(), [completion.token_ids[0] for completion in completions]))
        return super().logprobs(completions)

    def micro_batches(self, completions):
        rows = list(range(len(completions)))
        return [rows[start : start + self.most] for start in range(0, len(rows), self.most)]


def distinct_parameters(policies: Mapping) -> list[torch.nn.Parameter]:
    return list(dict.fromkeys(parameter for policy in policies.values() for parameter in policy.parameters()))


def weights_of(policies: Mapping) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in distinct_parameters(policies)]


def gradients_of(policies: Mapping) -> list[torch.Tensor]:
    """Taken off the parameters."""
    taken = []
    for parameter in distinct_parameters(policies):
        taken.append(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone())
        parameter.grad = None
    return taken


def scaled(policies: dict, factor: float) -> dict:
    """The policies with other weights."""
    with torch.no_grad():
        for parameter in distinct_parameters(policies):
            parameter.mul_(factor)
    return policies


def same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def assert_close(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], rtol: float, atol: float) -> None:
    """With something to compare."""
    assert max(gradient.abs().max() for gradient in expected) > 1e-3
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)
