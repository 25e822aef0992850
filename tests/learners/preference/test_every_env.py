"""Guards that every preference learner does an update on every registered environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from rounds import TRAINERS, config, same, tiny, weights

import llm_envs
from llm_envs.env import BranchingEnv
from llm_envs.wrappers import ScoreWith

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:a prompt of"),
    pytest.mark.filterwarnings("ignore:a joint text of"),
]


def letters(prompts: Sequence[Mapping[str, str]], completions: Sequence[Mapping[str, str]]) -> list[float]:
    """Random weights earn nothing on most tasks, and equal rewards make no pairs: here any two texts differ."""
    return [sum(map(sum, (text.encode() for text in joint.values()))) % 97 / 97 for joint in completions]


@pytest.mark.parametrize("kind", TRAINERS)
@pytest.mark.parametrize("name", llm_envs.list_envs())
def test_trains_on_every_env(kind, name, tmp_path):
    env = llm_envs.make(name)
    assert isinstance(env, BranchingEnv)
    env.items = list(env.items)[:2]
    # The task is played inside all the same: its own reward is each step's `reward/task`.
    scored = ScoreWith(env, letters)
    policies = {agent: tiny(seed, policy={"prompt_overflow": "truncate_left"}) for seed, agent in enumerate(env.possible_agents)}
    trainer = TRAINERS[kind](env=scored, policies=policies, args=config(kind), output_dir=tmp_path, progress=False)
    before = weights(trainer)
    trainer.train()
    assert not same(before, weights(trainer))
