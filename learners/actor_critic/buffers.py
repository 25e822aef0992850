"""Each agent's samples until an update: filled by whole episodes, taken out again by whole episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.samples import Sample, normalized, sample_tree, tree_sample
from llm_envs.types import AgentID, EnvStep

Row: TypeAlias = "dict[AgentID, Sample]"
"""An env step: the sample that it gives each agent."""


class Buffers:
    """The rows that wait, episode by episode.

    Args:
        config: of the learner.
    """

    def __init__(self, config: ActorCriticConfig) -> None:
        self._config = config
        self._episodes: list[list[Row]] = []

    def __len__(self) -> int:
        """Samples of each agent."""
        return sum(map(len, self._episodes))

    @property
    def states_until_full(self) -> int:
        """States that can still be collected before the buffers are full."""
        missing = self._config.rollout_buffer_size - len(self)
        return max(0, -(-missing // self._config.num_generations))

    def add(self, chains: Sequence[Sequence[EnvStep]], samples: Mapping[AgentID, Sequence[Sequence[Sample]]]) -> None:
        """Take in whole episodes.

        Args:
            chains: in order of the episodes.
            samples: of each agent, chain by chain.
        """
        episodes: dict[int, list[Row]] = {}
        for index, chain in enumerate(chains):
            rows = [{agent: own[index][place] for agent, own in samples.items()} for place in range(len(chain))]
            episodes.setdefault(chain[0].episode, []).extend(rows)
        self._episodes += episodes.values()

    def taken(self, at_least: int) -> list[Row] | None:
        """The rows of the next update, removed: of as many episodes as fill the buffers, or of all; None if there are too few."""
        if len(self) < at_least:
            return None
        rows: list[Row] = []
        count = 0
        while count < len(self._episodes) and len(rows) < self._config.rollout_buffer_size:
            rows += self._episodes[count]
            count += 1
        self._episodes = self._episodes[count:]
        return rows

    def state_dict(self) -> list[Any]:
        """The samples as plain values."""
        return [[row_tree(row) for row in episode] for episode in self._episodes]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Go on with the samples of a state."""
        self._episodes = [[tree_row(tree) for tree in episode] for episode in state]


def by_agent(rows: Sequence[Row]) -> dict[AgentID, list[Sample]]:
    """Each agent's samples, in the order of the rows."""
    return {agent: [row[agent] for row in rows] for agent in rows[0]}


def samples_of(rows: Sequence[Row], chosen: Sequence[int], config: ActorCriticConfig) -> dict[AgentID, list[Sample]]:
    """Each agent's samples of a mini-batch, the advantages normalised if the config says so.

    Args:
        rows: of the whole update, over which is normalised.
        chosen: positions of the mini-batch's.
        config: of the learner.
    """
    samples = by_agent(rows)
    if config.advantage_normalization:
        samples = {agent: normalized(own) for agent, own in samples.items()}
    return {agent: [own[index] for index in chosen] for agent, own in samples.items()}


def row_tree(row: Row) -> dict[str, Any]:
    """The row as plain values, for a checkpoint."""
    return {agent: sample_tree(sample) for agent, sample in row.items()}


def tree_row(tree: Mapping[str, Any]) -> Row:
    """The row that `row_tree` was made of."""
    return {agent: tree_sample(sample) for agent, sample in tree.items()}
