"""Guards the buffers: whole episodes, rows that agents have alike, normalised advantages, plain values in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence

from team import bare_step as step

from learners.actor_critic.buffers import Buffers, by_agent, samples_of
from learners.actor_critic.config import ActorCriticConfig
from learners.actor_critic.samples import Sample
from llm_envs.types import Completion, EnvStep

AGENTS = ("a_0", "b_0")


def sample(number: int, advantage: float = 0.0, turn: int = 1) -> Sample:
    completion = Completion("text", (1, 2), (-0.5, -0.25), (3,), "length")
    return Sample(turn, number, completion, (3, 1), 0.1, 0.2, advantage, 1.0, 1.5, 0.25, {"reward/x": 1.0}, False)


def filled(buffers: Buffers, chains: Sequence[Sequence[EnvStep]]) -> list[list[int]]:
    """Taken out each time the buffers are full: the env steps of each lot, which all agents must have alike."""
    buffers.add(chains, {agent: [[sample(s.env_step) for s in chain] for chain in chains] for agent in AGENTS})
    lots = []
    while (rows := buffers.taken(at_least=buffers._config.rollout_buffer_size)) is not None:
        assert all(len({s.env_step for s in row.values()}) == 1 and tuple(row) == AGENTS for row in rows)
        lots.append([row["a_0"].env_step for row in rows])
    return lots


def test_buffers_are_emptied_by_whole_episodes():
    """Episodes of 2, 1, 3 and 1 samples into buffers of 3: after the second (3) and the fourth (4)."""
    sizes, number, chains = [2, 1, 3, 1], 0, []
    for episode, size in enumerate(sizes):
        chains.append([step(number + i + 1, number + i, turn=i + 1, episode=episode) for i in range(size)])
        number += size
    buffers = Buffers(ActorCriticConfig(rollout_buffer_size=3))
    assert filled(buffers, chains) == [[1, 2, 3], [4, 5, 6]]
    assert len(buffers) == 1
    assert buffers.states_until_full == 2
    assert [row["b_0"].env_step for row in buffers.taken(at_least=1)] == [7]
    assert buffers.taken(at_least=1) is None


def test_samples_of_one_episode_stay_together():
    """K = 3 single steps an episode into buffers of 4: after the second episode."""
    chains = [[step(i + 1, i // 3, episode=i // 3)] for i in range(9)]
    buffers = Buffers(ActorCriticConfig(rollout_buffer_size=4, num_generations=3))
    assert buffers.states_until_full == 2
    assert filled(buffers, chains) == [[1, 2, 3, 4, 5, 6]]
    assert len(buffers) == 3
    assert buffers.states_until_full == 1


def test_advantages_are_normalised_over_the_update_by_agent_and_turn_or_left():
    """a_0: 1, 3 in turn 1 → ∓1; 5 alone in turn 2 stays. b_0: 10, 30 → ∓1; −4 stays. Mini-batches of 1 see the same numbers."""
    samples = {
        "a_0": [sample(1, 1.0), sample(2, 3.0), sample(3, 5.0, turn=2)],
        "b_0": [sample(1, 10.0), sample(2, 30.0), sample(3, -4.0, turn=2)],
    }
    rows = [dict(zip(samples, row, strict=True)) for row in zip(*samples.values(), strict=True)]
    for normalize, expected in [(True, {-1.0, 1.0, 5.0, -4.0}), (False, {1.0, 3.0, 5.0, 10.0, 30.0, -4.0})]:
        config = ActorCriticConfig(advantage_normalization=normalize)
        batches = [samples_of(rows, [index], config) for index in range(3)]
        assert [[s.env_step for s in batch["b_0"]] for batch in batches] == [[1], [2], [3]]
        assert {s.advantage for batch in batches for own in batch.values() for s in own} == expected
    assert by_agent(rows) == samples


def test_a_checkpoint_holds_plain_values_and_gives_the_samples_back():
    chains = [[step(1, 0), step(2, 1, turn=2)], [step(3, 2, episode=1)]]
    config = ActorCriticConfig(rollout_buffer_size=5)
    buffers, other, exact = (Buffers(config) for _ in range(3))
    assert filled(buffers, chains) == []
    # JSON has no tuples; a checkpoint keeps them.
    other.load_state_dict(json.loads(json.dumps(buffers.state_dict())))
    exact.load_state_dict(buffers.state_dict())
    rows = buffers.taken(at_least=1)
    back = other.taken(at_least=1)
    assert [row["a_0"].read for row in back] == [(3, 1)] * 3
    assert [(row["b_0"].env_step, row["b_0"].terms, row["b_0"].kl) for row in back] == [
        (row["b_0"].env_step, row["b_0"].terms, row["b_0"].kl) for row in rows
    ]
    assert exact.taken(at_least=1) == rows
