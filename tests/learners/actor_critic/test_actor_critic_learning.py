"""Guards that IAC and MAAC learn: two tables of words and small critics agree on a word in seconds, not on shuffled rewards."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import pytest
import torch
from tabular import TabularPolicy

import llm_envs
from learners.actor_critic.critic import Critic, ValueHead
from learners.actor_critic.iac import IAC, IACConfig
from learners.actor_critic.maac import MAAC, MAACConfig
from learners.evaluation import evaluation_episodes, evaluation_metrics
from learners.sampling import SamplingConfig
from llm_envs.env import TaskEnv
from llm_envs.rollouts import Numbering, collect
from llm_envs.task import Task
from llm_envs.types import EnvStep
from llm_envs.wrappers import JointAgent, TurnLimit

WORDS = ["a", "b", "c", "d"]
UPDATES = 30
OPTIONS = {"agent_learning_rate": 0.2, "critic_learning_rate": 3e-3, "weight_decay": 0.0}
VARIANTS = {
    "iac-v": (IAC, {}),
    "iac-q": (IAC, {"critic_type": "q"}),
    "maac-v": (MAAC, {}),
    "maac-q": (MAAC, {"critic_type": "q"}),
}


@pytest.fixture
def played(tiny_model, byte_tokenizer):
    """`played(variant, num_turns=1, shuffled=False, seed=0, updates=30, **options)`: mean return on `matching-v0`.

    Chance is 0.25 a turn.
    """

    def critic(seed: int = 0) -> Critic:
        return Critic(tiny_model(seed=seed, hidden=16, layers=1, context=512), ValueHead(16, seed=seed), byte_tokenizer)

    def play(
        variant: str, *, num_turns: int = 1, shuffled: bool = False, seed: int = 0, updates: int = UPDATES, **options: object
    ) -> float:
        env = llm_envs.make("matching-v0", num_turns=num_turns, words=WORDS)
        policies = {agent: TabularPolicy(WORDS) for agent in env.possible_agents}
        learner_class, kind = VARIANTS[variant]
        generations = 6 if num_turns == 1 else 1
        options = {**OPTIONS, **kind, "num_generations": generations, "rollout_buffer_size": 24, **options}
        if learner_class is IAC:
            learner = IAC(policies, {agent: critic(i) for i, agent in enumerate(policies)}, IACConfig(**options))
        else:
            learner = MAAC(policies, critic(), MAACConfig(**options))
        numbering, chance, done = Numbering(), random.Random(seed), 0
        while done < updates:
            rows = env.items[: learner.states_until_update]
            steps = collect(env, policies, rows, learner.rollout, seed=seed, numbering=numbering)
            done += bool(learner.update(shuffled_rewards(steps, chance) if shuffled else steps))
        _, steps = evaluation_episodes(env, policies, env.items, num_samples=64, batch_size=64, seed=seed)
        return evaluation_metrics(steps)["turn_1/expected_return"]

    return play


def shuffled_rewards(steps: list[EnvStep], chance: random.Random) -> list[EnvStep]:
    """The same rewards, dealt out at random: nothing can be learned from them."""
    rewards = [step.rewards for step in steps]
    chance.shuffle(rewards)
    return [dataclasses.replace(step, rewards=reward) for step, reward in zip(steps, rewards, strict=True)]


@pytest.mark.parametrize(
    "variant", ["iac-v", "maac-q", *(pytest.param(other, marks=pytest.mark.slow) for other in ("iac-q", "maac-v"))]
)
def test_two_tables_learn_to_match(played, variant):
    assert played(variant) > 0.9


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        ("maac-v", {}),
        pytest.param("iac-v", {}, marks=pytest.mark.slow),
        # Values of actions need more of them.
        pytest.param("iac-q", {"rollout_buffer_size": 48}, marks=pytest.mark.slow),
        pytest.param("maac-q", {"rollout_buffer_size": 48, "updates": 40}, marks=pytest.mark.slow),
    ],
)
def test_two_tables_learn_to_match_over_two_turns(played, variant, options):
    assert played(variant, num_turns=2, **options) > 0.9


@pytest.mark.slow
def test_two_tables_learn_to_match_from_lambda_returns(played):
    assert played("iac-v", num_turns=2, gae_lambda=0.5) > 0.9


@pytest.mark.slow
def test_two_tables_learn_to_match_with_the_counterfactual_baseline(played):
    assert played("maac-q", counterfactual_baseline=True) > 0.9


@pytest.mark.parametrize("variant", ["maac-q", pytest.param("iac-v", marks=pytest.mark.slow)])
def test_nothing_is_learned_from_shuffled_rewards(played, variant):
    """Tables drift on noise, so single runs may match by luck: the mean over seeds must stay near chance."""
    seeds = range(2)
    assert sum(played(variant, shuffled=True, seed=seed) for seed in seeds) / len(seeds) < 0.6


ENVS = {
    "two turns": lambda: llm_envs.make("matching-v0", num_turns=2),
    "joint": lambda: JointAgent(llm_envs.make("matching-v0", num_turns=2)),
    "cut": lambda: TurnLimit(llm_envs.make("length-ratio-v0", num_turns=3), 2),
}
KINDS = [(MAAC, {}), (IAC, {}), (IAC, {"use_separate_critic": False})]


@pytest.mark.parametrize(("learner_class", "options"), KINDS)
@pytest.mark.parametrize(
    ("name", "critic_type"),
    [
        ("two turns", "v"),
        ("two turns", "q"),
        ("joint", "v"),
        ("cut", "q"),
        pytest.param("joint", "q", marks=pytest.mark.slow),
        pytest.param("cut", "v", marks=pytest.mark.slow),
    ],
)
def test_every_kind_trains_over_turns_in_wrappers(
    name, learner_class, options, critic_type, tiny_policy, tiny_model, byte_tokenizer
):
    env = ENVS[name]()
    config = learner_class.config_class(agent_learning_rate=1e-2, rollout_buffer_size=4, critic_type=critic_type, **options)
    four = SamplingConfig(max_new_tokens=4)
    policies = {agent: tiny_policy(seed=i, sampling=four, layers=1, context=1024) for i, agent in enumerate(env.possible_agents)}
    if options:
        critics = {a: Critic(p.model, ValueHead(32), p.tokenizer, owns_model=False) for a, p in policies.items()}
    else:
        models = {a: tiny_model(seed=5 + i, layers=1, context=1024) for i, a in enumerate(policies)}
        critics = {a: Critic(model, ValueHead(32), byte_tokenizer) for a, model in models.items()}
    learner = learner_class(policies, next(iter(critics.values())) if learner_class is MAAC else critics, config)
    trained = [p for policy in policies.values() for p in policy.parameters()]
    before = [p.detach().clone() for p in trained]
    steps = collect(env, policies, env.items[:2], learner.rollout)
    assert max(step.turn for step in steps) == 2
    metrics = learner.update(steps)
    assert [entry.group for entry in metrics] == ["turn_1", "turn_2", "update"]
    # AdamW decays every weight in an update, rewarded or not: a weight that stayed was not trained.
    assert all(not torch.equal(a, b) for a, b in zip(before, trained, strict=True) if a.dim() > 1)


def letters(*texts: Sequence[str]) -> list[float]:
    """Share of the team that wrote a letter."""
    return [sum(text.isalpha() for text in joint) / len(joint) for joint in zip(*texts, strict=True)]


def test_actors_with_value_heads_learn_what_to_write(tiny_policy):
    """Random models that write one byte learn to write letters, a quarter of the time at first; the values follow the rewards."""
    agents = ("writer_0", "editor_0")
    env = TaskEnv(Task(reward=letters, items=[{"prompt": "write"}] * 8, agents=agents))
    one_byte = SamplingConfig(max_new_tokens=1)
    policies = {agent: tiny_policy(seed=i, scale=2.0, layers=1, sampling=one_byte) for i, agent in enumerate(agents)}
    critics = {a: Critic(p.model, ValueHead(32, seed=1), p.tokenizer, owns_model=False) for a, p in policies.items()}
    rates = {"agent_learning_rate": 1e-2, "value_head_learning_rate": 3e-2}
    learner = IAC(policies, critics, IACConfig(use_separate_critic=False, num_generations=8, rollout_buffer_size=64, **rates))
    numbering, found = Numbering(), []
    for _ in range(UPDATES):
        entries = learner.update(collect(env, policies, env.items, learner.rollout, numbering=numbering))
        found.append({name: value for entry in entries for name, value in entry.values.items()})
    assert found[0]["turn_1/reward_mean"] < 0.4
    assert found[-1]["turn_1/reward_mean"] > 0.9
    assert found[0]["turn_1/writer_0/critic_loss"] > found[-1]["turn_1/writer_0/critic_loss"]
    assert found[-1]["turn_1/writer_0/value_mean"] == pytest.approx(found[-1]["turn_1/reward_mean"], abs=0.15)
