"""Each agent's samples until an update: filled by whole episodes, drained all at once, cut into mini-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.samples import Sample, normalized, sample_tree, tree_sample
from llm_envs.seeding import UPDATE, stream
from llm_envs.types import AgentID, EnvStep


class Buffers:
    """One buffer for each agent; all are equally full, since every env step gives each agent a sample.

    Args:
        agents: in the env's order.
        config: of the learner.
    """

    def __init__(self, agents: Sequence[AgentID], config: ActorCriticConfig) -> None:
        self._config = config
        self._samples: dict[AgentID, list[Sample]] = {agent: [] for agent in agents}

    def __len__(self) -> int:
        """Samples of each agent."""
        return len(next(iter(self._samples.values())))

    @property
    def states_until_full(self) -> int:
        """States that can still be collected before the buffers are full, at least 1."""
        missing = self._config.rollout_buffer_size - len(self)
        return max(1, -(-missing // self._config.num_generations))

    def fill(self, chains: Sequence[Sequence[EnvStep]], samples: Mapping[AgentID, Sequence[Sequence[Sample]]]) -> Iterator[None]:
        """Take in chain after chain; stops after each episode that leaves the buffers full, for the learner to drain them."""
        for index, chain in enumerate(chains):
            for agent, own in self._samples.items():
                own.extend(samples[agent][index])
            last = index + 1 == len(chains) or chains[index + 1][0].episode != chain[0].episode
            if last and len(self) >= self._config.rollout_buffer_size:
                yield

    def drain(self) -> dict[AgentID, list[Sample]]:
        """Everything, and empty buffers behind it."""
        drained, self._samples = self._samples, {agent: [] for agent in self._samples}
        return drained

    def mini_batches(self, drained: Mapping[AgentID, Sequence[Sample]], update: int) -> list[dict[AgentID, list[Sample]]]:
        """The drained samples, advantages normalised if wanted, in mini-batches of `train_batch_size` samples an agent.

        Args:
            drained: of every agent.
            update: number of the update; several mini-batches are shuffled, the same way for every agent.
        """
        ready = {a: normalized(own) if self._config.advantage_normalization else list(own) for a, own in drained.items()}
        count = len(next(iter(ready.values())))
        size = self._config.train_batch_size or count
        order = stream(UPDATE, (self._config.seed, update)).permutation(count) if size < count else range(count)
        return [
            {agent: [own[i] for i in order[start : start + size]] for agent, own in ready.items()}
            for start in range(0, count, size)
        ]

    def state_dict(self) -> dict[str, Any]:
        """The samples as plain values."""
        return {agent: [sample_tree(sample) for sample in own] for agent, own in self._samples.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the samples of a state."""
        self._samples = {agent: [tree_sample(tree) for tree in state[agent]] for agent in self._samples}
