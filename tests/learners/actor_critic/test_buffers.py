"""Guards the buffers: whole episodes, mini-batches that agree between agents, plain values in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from team import bare_step as step

from learners.actor_critic.buffers import Buffers
from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.samples import Sample
from llm_envs.types import Completion, EnvStep

AGENTS = ("a_0", "b_0")


def sample(number: int, advantage: float = 0.0, turn: int = 1) -> Sample:
    completion = Completion("text", (1, 2), (-0.5, -0.25), (3,), "length")
    return Sample(turn, number, completion, (3, 1), 0.1, 0.2, advantage, 1.0, 1.5, 0.25, {"reward/x": 1.0}, False)


def filled(buffers: Buffers, chains: Sequence[Sequence[EnvStep]]) -> list[list[int]]:
    """Drained each time the buffers ask for it: the env steps of each drain, which all agents must have alike."""
    samples = {agent: [[sample(s.env_step) for s in chain] for chain in chains] for agent in AGENTS}
    drains = []
    for _ in buffers.fill(chains, samples):
        drained = buffers.drain()
        by_agent = [[s.env_step for s in own] for own in drained.values()]
        assert by_agent[0] == by_agent[1]
        drains.append(by_agent[0])
    return drains


def test_buffers_are_drained_by_whole_episodes():
    """Episodes of 2, 1, 3 and 1 samples into buffers of 3: after the second (3) and the fourth (4)."""
    sizes, number, chains = [2, 1, 3, 1], 0, []
    for episode, size in enumerate(sizes):
        chains.append([step(number + i + 1, number + i, turn=i + 1, episode=episode) for i in range(size)])
        number += size
    buffers = Buffers(AGENTS, ActorCriticConfig(rollout_buffer_size=3))
    assert filled(buffers, chains) == [[1, 2, 3], [4, 5, 6]]
    assert len(buffers) == 1
    assert buffers.states_until_full == 2


def test_samples_of_one_episode_stay_together():
    """K = 3 single steps an episode into buffers of 4: after the second episode."""
    chains = [[step(i + 1, i // 3, episode=i // 3)] for i in range(9)]
    buffers = Buffers(AGENTS, ActorCriticConfig(rollout_buffer_size=4, num_generations=3))
    assert buffers.states_until_full == 2
    assert filled(buffers, chains) == [[1, 2, 3, 4, 5, 6]]
    assert len(buffers) == 3
    assert buffers.states_until_full == 1


def test_mini_batches_are_a_seeded_permutation_that_all_agents_share():
    drained = {agent: [sample(i) for i in range(10)] for agent in AGENTS}

    def numbers(seed: int, update: int) -> list[list[int]]:
        config = ActorCriticConfig(train_batch_size=4, seed=seed, advantage_normalization=False)
        batches = Buffers(AGENTS, config).mini_batches(drained, update)
        for batch in batches:
            assert [s.env_step for s in batch["a_0"]] == [s.env_step for s in batch["b_0"]]
        return [[s.env_step for s in batch["a_0"]] for batch in batches]

    found = numbers(0, 0)
    assert [len(batch) for batch in found] == [4, 4, 2]
    flat = [number for batch in found for number in batch]
    assert sorted(flat) == list(range(10)) != flat
    assert numbers(0, 0) == found
    assert numbers(0, 1) != found and numbers(1, 0) != found


@pytest.mark.parametrize("size", [None, 10, 50])
def test_one_mini_batch_keeps_the_order(size):
    drained = {agent: [sample(i) for i in range(10)] for agent in AGENTS}
    (batch,) = Buffers(AGENTS, ActorCriticConfig(train_batch_size=size)).mini_batches(drained, 0)
    assert [s.env_step for s in batch["a_0"]] == list(range(10))


def test_advantages_are_normalised_over_the_buffer_by_agent_and_turn_or_left():
    """a_0: 1, 3 in turn 1 → ∓1; 5 alone in turn 2 stays. b_0: 10, 30 → ∓1; −4 stays. Mini-batches of 1 see the same numbers."""
    drained = {
        "a_0": [sample(1, 1.0), sample(2, 3.0), sample(3, 5.0, turn=2)],
        "b_0": [sample(1, 10.0), sample(2, 30.0), sample(3, -4.0, turn=2)],
    }
    for normalize, expected in [(True, {-1.0, 1.0, 5.0, -4.0}), (False, {1.0, 3.0, 5.0, 10.0, 30.0, -4.0})]:
        buffers = Buffers(AGENTS, ActorCriticConfig(train_batch_size=1, advantage_normalization=normalize))
        batches = buffers.mini_batches(drained, 0)
        assert {s.advantage for batch in batches for own in batch.values() for s in own} == expected


def test_a_checkpoint_holds_plain_values_and_gives_the_samples_back():
    chains = [[step(1, 0), step(2, 1, turn=2)]]
    config = ActorCriticConfig(rollout_buffer_size=5)
    buffers, other = Buffers(AGENTS, config), Buffers(AGENTS, config)
    assert filled(buffers, chains) == []
    # JSON has no tuples; a checkpoint keeps them.
    other.load_state_dict(json.loads(json.dumps(buffers.state_dict())))
    back, kept = other.drain(), buffers.drain()
    assert [s.read for s in back["a_0"]] == [(3, 1), (3, 1)]
    assert [(s.env_step, s.advantage, s.terms, s.kl) for s in back["b_0"]] == [
        (s.env_step, 0.0, s.terms, s.kl) for s in kept["b_0"]
    ]
    exact = Buffers(AGENTS, config)
    filled(buffers, chains)
    exact.load_state_dict(buffers.state_dict())
    assert exact.drain() == buffers.drain()
