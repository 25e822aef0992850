"""Guards that IAC and MAAC learn: two tables of words and small critics agree on a word in seconds, not on shuffled rewards."""

from __future__ import annotations

import dataclasses
import random

import pytest
from tabular import TabularPolicy

import llm_envs
from learners.actor_critic.critic import Critic, ValueHead
from learners.actor_critic.iac import IAC, IACConfig
from learners.actor_critic.maac import MAAC, MAACConfig
from learners.evaluation import evaluation_episodes, evaluation_metrics
from llm_envs.rollouts import Numbering, collect
from llm_envs.types import EnvStep

WORDS = ["a", "b", "c", "d"]
UPDATES = 40
OPTIONS = {"agent_learning_rate": 0.2, "critic_learning_rate": 3e-3, "weight_decay": 0.0}
VARIANTS = {
    "iac-v": (IAC, {}),
    "iac-q": (IAC, {"critic_type": "q"}),
    "maac-v": (MAAC, {}),
    "maac-q": (MAAC, {"critic_type": "q"}),
}


@pytest.fixture
def played(tiny_model, byte_tokenizer):
    """`played(variant, num_turns=1, shuffled=False, seed=0, **options)`: mean return on `matching-v0`; chance is 0.25 a turn."""

    def critic(seed: int = 0) -> Critic:
        return Critic(tiny_model(seed=seed, hidden=16, layers=1, context=512), ValueHead(16, seed=seed), byte_tokenizer)

    def play(variant: str, *, num_turns: int = 1, shuffled: bool = False, seed: int = 0, **options: object) -> float:
        env = llm_envs.make("matching-v0", num_turns=num_turns, words=WORDS)
        policies = {agent: TabularPolicy(WORDS) for agent in env.possible_agents}
        learner_class, kind = VARIANTS[variant]
        generations = 6 if num_turns == 1 else 1
        options = {**OPTIONS, **kind, "num_generations": generations, "rollout_buffer_size": 48, **options}
        if learner_class is IAC:
            learner = IAC(policies, {agent: critic(i) for i, agent in enumerate(policies)}, IACConfig(**options))
        else:
            learner = MAAC(policies, critic(), MAACConfig(**options))
        numbering, chance, updates = Numbering(), random.Random(seed), 0
        while updates < UPDATES:
            steps = collect(
                env, policies, env.items[: learner.states_until_update], learner.rollout, seed=seed, numbering=numbering
            )
            updates += bool(learner.update(shuffled_rewards(steps, chance) if shuffled else steps))
        _, steps = evaluation_episodes(env, policies, env.items, num_samples=64, batch_size=64, seed=seed)
        return evaluation_metrics(steps)["turn_1/expected_return"]

    return play


def shuffled_rewards(steps: list[EnvStep], chance: random.Random) -> list[EnvStep]:
    """The same rewards, dealt out at random: nothing can be learned from them."""
    rewards = [step.rewards for step in steps]
    chance.shuffle(rewards)
    return [dataclasses.replace(step, rewards=reward) for step, reward in zip(steps, rewards, strict=True)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_tables_learn_to_match(played, variant):
    assert played(variant) > 0.9


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5])
@pytest.mark.parametrize("variant", VARIANTS)
def test_two_tables_learn_to_match_over_two_turns(played, variant, gae_lambda):
    assert played(variant, num_turns=2, gae_lambda=gae_lambda) > 0.9


def test_two_tables_learn_to_match_with_the_counterfactual_baseline(played):
    assert played("maac-q", counterfactual_baseline=True) > 0.9


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_is_learned_from_shuffled_rewards(played, variant):
    """Tables drift on noise, so single runs may match by luck: the mean over seeds must stay near chance."""
    seeds = range(4)
    assert sum(played(variant, shuffled=True, seed=seed) for seed in seeds) / len(seeds) < 0.6
