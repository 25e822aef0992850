"""Completions of pairs laid out for one scoring: each distinct one once, and where its log-probability counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from learners import losses
from learners.learner import TrainablePolicy
from learners.preference.pairs import JointResponse, Pair
from llm_envs.types import AgentID, Completion


@dataclass(frozen=True)
class Answers:
    """What agents wrote in both responses of pairs: N agents, B pairs, 2 sides (winner, loser), H turns at most.

    Attributes:
        completions: [D] distinct ones. Pairs of one item often have a response in common, which is then scored once.
        places: [N, B, 2, H] which completion was written in each turn.
        played: [N, B, 2, H] bool: whether there was that turn.
        lengths: [N, B, 2] tokens over the whole episode, end tokens included.
    """

    completions: list[Completion]
    places: Tensor
    played: Tensor
    lengths: Tensor

    def summed(self, logprobs: Tensor) -> Tensor:
        """[N, B, 2] log-probability of an agent's whole side of a response, over all turns.

        Args:
            logprobs: [D] of the distinct completions.
        """
        device = logprobs.device
        return logprobs[self.places.to(device)].masked_fill(~self.played.to(device), 0.0).sum(dim=-1)


def answers_of(agents: Sequence[AgentID], pairs: Sequence[Pair]) -> Answers:
    """The completions that agents with one policy wrote in pairs, in this order of agents and pairs."""
    sides = [[(_turns(pair.winner, agent), _turns(pair.loser, agent)) for pair in pairs] for agent in agents]
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    completions: list[Completion] = []

    def place(completion: Completion) -> int:
        position = known.setdefault((completion.prompt_ids, completion.token_ids), len(completions))
        if position == len(completions):
            completions.append(completion)
        return position

    flat = [turns for rows in sides for row in rows for turns in row]
    width = max(len(turns) for turns in flat)
    places = [[place(completion) for completion in turns] + [0] * (width - len(turns)) for turns in flat]
    played = [[True] * len(turns) + [False] * (width - len(turns)) for turns in flat]
    lengths = [sum(len(completion.token_ids) for completion in turns) for turns in flat]
    shape = (len(agents), len(pairs), 2)
    return Answers(
        completions,
        torch.tensor(places).reshape(*shape, width),
        torch.tensor(played).reshape(*shape, width),
        torch.tensor(lengths).reshape(shape),
    )


def completion_logprobs(policy: TrainablePolicy, completions: Sequence[Completion]) -> Tensor:
    """[D] log-probabilities of whole completions, nats, the graphs of all of them kept where gradients are enabled."""
    batches = policy.micro_batches(completions)
    sums = []
    for rows in batches:
        scored = policy.logprobs([completions[row] for row in rows])
        sums.append(losses.masked_sum(scored.logprobs, scored.mask))
    order = torch.tensor([row for rows in batches for row in rows]).argsort()
    return torch.cat(sums)[order.to(sums[0].device)]


def _turns(response: JointResponse, agent: AgentID) -> list[Completion]:
    return [turn[agent] for turn in response.completions]
