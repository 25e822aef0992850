"""Guards the actor-critic trainers: critics from every source, value heads saved and restored, resume, early errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import llm_envs
from learners import HFPolicy, IACTrainer, MAACTrainer
from learners.actor_critic.critic import Critic, ValueHead

OPTIONS = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 4, "num_train_epochs": 2, "rollout_buffer_size": 4}
RATES = {"agent_learning_rate": 1e-2, "critic_learning_rate": 1e-2}
KINDS = [
    pytest.param(MAACTrainer, {"critic_type": "v"}, marks=pytest.mark.slow),
    (MAACTrainer, {"critic_type": "q"}),
    (IACTrainer, {}),
    (IACTrainer, {"use_separate_critic": False}),
]


@pytest.fixture
def make(tiny_model, byte_tokenizer, tmp_path):
    """`make(trainer_class, folder, critics=, num_turns=, **options)`: equal trainers on `matching-v0` in folders of their own."""

    def make(trainer_class, folder: str = "run", num_turns: int = 2, agents=None, critics=None, **options):
        env = llm_envs.make("matching-v0", num_turns=num_turns)
        env.items = list(env.items)[:4]
        config = trainer_class.learner_class.config_class(**{**OPTIONS, **RATES, "eval_interval": 0, **options})
        separate = options.get("use_separate_critic", True)
        count = {MAACTrainer: 1, IACTrainer: 2}[trainer_class]
        given = [tiny_model(seed=7 + i, layers=1, context=1024) for i in range(count)] if critics is None and separate else critics
        return trainer_class(
            env=env,
            agents=agents or [tiny_model(seed=i, layers=1, context=1024) for i in range(2)],
            tokenizer=byte_tokenizer,
            critics=given,
            critic_tokenizer=byte_tokenizer if separate else None,
            args=config,
            output_dir=tmp_path / folder,
            progress=False,
        )

    return make


def everything(trainer) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def walk(node: object) -> None:
        if isinstance(node, torch.Tensor):
            found.append(node.detach().clone())
        elif isinstance(node, dict):
            for value in node.values():
                walk(value)

    walk(trainer.learner.state_dict())
    return found


@pytest.mark.parametrize(("trainer_class", "options"), KINDS)
def test_resume_from_any_checkpoint_equals_the_whole_run(make, trainer_class, options):
    options = {**options, "num_train_epochs": 1, "reference_kl_enabled": True, "value_head_learning_rate": 3e-2, "gae_lambda": 0.5}
    whole = make(trainer_class, "whole", **options)
    whole.train(checkpoint_dir=whole.output_dir / "c", checkpoint_interval=1)
    for number, checkpoint in enumerate(sorted((whole.output_dir / "c").glob("checkpoint-*"))[:2]):
        resumed = make(trainer_class, f"resumed{number}", **options)
        resumed.train(checkpoint)
        assert all(torch.equal(a, b) for a, b in zip(everything(whole), everything(resumed), strict=True))


@pytest.mark.parametrize(("trainer_class", "options"), KINDS)
def test_saved_agents_and_value_heads_come_back_by_constructor(make, trainer_class, options):
    trained = make(trainer_class, "trained", **options)
    trained.train()
    saved = trained.output_dir / "agents"
    trained.save_model(saved)
    agents = [str(saved / f"agent_{i}") for i in range(2)]
    if options.get("use_separate_critic", True):
        critics = [str(saved / "critic")] if trainer_class is MAACTrainer else [f"{agent}/critic" for agent in agents]
    else:
        critics = None
    again = make(trainer_class, "again", agents=agents, critics=critics, **options)
    for one, other in zip(_critics(trained), _critics(again), strict=True):
        ids = [(1, 2, 3), (4, 5)]
        with torch.no_grad():
            torch.testing.assert_close(one.values(ids), other.values(ids))


def _critics(trainer) -> list[Critic]:
    learner = trainer.learner
    return [learner.critic] if isinstance(trainer, MAACTrainer) else list(learner.critics.values())


def test_one_critic_model_is_copied_for_every_agent(make, tiny_model):
    trainer = make(IACTrainer, critics=[tiny_model(seed=9, context=1024), tiny_model(seed=9, context=1024)])
    first, second = _critics(trainer)
    assert first.model is not second.model


def test_an_agent_model_that_is_a_name_names_the_critics_too(tmp_path, tiny_cache):
    for trainer_class in (MAACTrainer, IACTrainer):
        env = llm_envs.make("matching-v0")
        config = trainer_class.learner_class.config_class(max_new_tokens=4)
        trainer = trainer_class(env=env, agent_model="tiny-random", args=config, output_dir=tmp_path, progress=False)
        models = {id(policy.model) for policy in trainer.learner.policies.values()} | {id(c.model) for c in _critics(trainer)}
        assert len(models) == 2 + len(_critics(trainer))


# They take turns: both read the same stream, and an env that one of them trains on the other does too.
PAIRS = [
    pytest.param(trainer_class, env_id, marks=[] if (i + j) % 2 == 0 else pytest.mark.slow)
    for i, env_id in enumerate(llm_envs.list_envs())
    for j, trainer_class in enumerate([MAACTrainer, IACTrainer])
]


@pytest.mark.parametrize(("trainer_class", "env_id"), PAIRS)
@pytest.mark.filterwarnings("ignore:a prompt of")
def test_trains_on_every_env(trainer_class, env_id, tiny_policy, tiny_model, byte_tokenizer, tmp_path):
    env = llm_envs.make(env_id)
    env.items = list(env.items)[: 3 if env.num_turns < 4 else 1]
    short = {"layers": 1, "context": 256, "policy": {"prompt_overflow": "truncate_left"}}  # some tasks' prompts are long in bytes
    policies: dict[str, HFPolicy] = {agent: tiny_policy(seed=i, **short) for i, agent in enumerate(env.possible_agents)}
    critics = [
        Critic(model, ValueHead(32, seed=i), byte_tokenizer)
        for i in range(1 if trainer_class is MAACTrainer else len(policies))
        for model in [tiny_model(seed=5 + i, layers=1, context=512)]
    ]
    draws = 1 if env.num_turns > 1 else 2
    options = {"num_generations": draws, "num_train_epochs": 1, "rollout_buffer_size": 3, "eval_interval": 0}
    config = trainer_class.learner_class.config_class(**RATES, **options)
    trainer = trainer_class(env=env, policies=policies, critics=critics, args=config, output_dir=tmp_path, progress=False)
    before = everything(trainer)[0]
    trainer.train()
    assert not torch.equal(before, everything(trainer)[0])


@pytest.mark.parametrize(
    ("trainer_class", "options", "message"),
    [
        (IACTrainer, {"use_separate_critic": False, "critics": ["x", "y"]}, "critic_model and critics cannot apply"),
        (MAACTrainer, {"critics": ["x", "y"]}, r"critics must be 1 \(critic\), got 2"),
        (IACTrainer, {"critics": []}, "critics must be 2"),
        (MAACTrainer, {"num_generations": 2}, "num_generations must be 1 with several turns"),
    ],
)
def test_parts_that_do_not_fit_are_refused(make, trainer_class, options, message):
    with pytest.raises(ValueError, match=message):
        make(trainer_class, **options)


def test_no_model_for_the_critics_is_an_error(tiny_model, byte_tokenizer):
    with pytest.raises(ValueError, match="which models are the critics"):
        MAACTrainer(env=llm_envs.make("matching-v0"), agents=[tiny_model(context=1024)] * 2, tokenizer=byte_tokenizer)


def test_critic_model_and_critics_are_two_forms_of_one_thing(tmp_path: Path):
    with pytest.raises(ValueError, match="give one or the other"):
        MAACTrainer(critic_model="tiny", critics=["tiny"])
