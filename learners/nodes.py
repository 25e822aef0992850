"""What a learner of the REINFORCE family keeps of a state until it trains on it, what it logs of it, and how it is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from learners.batching import completion_metrics
from learners.credit import mean
from llm_envs.types import AgentID, Completion, Metrics


@dataclass(frozen=True)
class Sample:
    """What one agent did at one node: its K completions, what each is worth, and how far each left the reference."""

    completions: tuple[Completion, ...]
    advantages: tuple[float, ...]
    kl: tuple[float, ...]
    zero_spread: bool


@dataclass(frozen=True)
class Node:
    """One state's samples of all agents, and what is logged of it."""

    turn: int
    env_step: int
    reward_mean: float
    return_mean: float
    terms: Mapping[str, float]
    not_expanded: bool
    samples: Mapping[AgentID, Sample]


def turn_metrics(nodes: Sequence[Node], kl_coefficient: float) -> list[Metrics]:
    """Rewards and returns of each turn among the nodes of an update, averaged over the nodes."""
    metrics = []
    for turn in sorted({node.turn for node in nodes}):
        chosen = [node for node in nodes if node.turn == turn]
        values = {
            "reward_mean": mean([node.reward_mean for node in chosen]),
            "expected_return": mean([node.return_mean for node in chosen]),
            **{term: mean([node.terms[term] for node in chosen]) for term in chosen[0].terms},
        }
        kl = [value for node in chosen for sample in node.samples.values() for value in sample.kl]
        if kl:
            values["reference_kl_mean"] = mean(kl)
            values["reference_kl_penalty_mean"] = kl_coefficient * mean(kl)
        named = {f"turn_{turn}/{name}": value for name, value in values.items()}
        metrics.append(Metrics(max(node.env_step for node in chosen), named, group=f"turn_{turn}"))
    return metrics


def update_metrics(nodes: Sequence[Node], agents: Sequence[AgentID], trained: Mapping[str, float]) -> Metrics:
    """What an update did: losses and gradient norms of the teams, lengths and entropies of the agents, shares of the nodes."""
    values = dict(trained)
    for agent in agents:
        completions = [completion for node in nodes for completion in node.samples[agent].completions]
        values.update({f"{agent}/{name}": value for name, value in completion_metrics(completions).items()})
    values["zero_spread_share"] = mean([float(sample.zero_spread) for node in nodes for sample in node.samples.values()])
    values["not_expanded_share"] = mean([float(node.not_expanded) for node in nodes])
    return Metrics(max(node.env_step for node in nodes), values, group="update")


def node_tree(node: Node) -> dict[str, Any]:
    """The node as plain values, for a checkpoint."""
    return asdict(node)


def tree_node(tree: Mapping[str, Any]) -> Node:
    """The node that `node_tree` was made of."""
    samples = {
        agent: Sample(**{**sample, "completions": tuple(Completion(**completion) for completion in sample["completions"])})
        for agent, sample in tree["samples"].items()
    }
    return Node(**{**tree, "samples": samples})
