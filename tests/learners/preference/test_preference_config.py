"""Guards the options of the preference learners: defaults, names that mean the same, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from rounds import TRAINERS, config, make_trainer

from learners.actor_critic.iac import IACConfig
from learners.actor_critic.maac import MAACConfig
from learners.preference.iterative import MADPOIterConfig, MARLHFIterConfig
from learners.preference.madpo import MADPOConfig
from learners.preference.marlhf import MARLHFConfig
from learners.reinforce import MAGRPOConfig
from llm_envs.wrappers import TaggedSections

CONFIGS: dict[str, type] = {
    "madpo": MADPOConfig,
    "marlhf": MARLHFConfig,
    "madpo-iter": MADPOIterConfig,
    "marlhf-iter": MARLHFIterConfig,
}
ITERATIVE = ["madpo-iter", "marlhf-iter"]

SHARED = {
    "agent_learning_rate": 5e-6,
    "logging_steps": 50,
    "max_new_tokens": 256,
    "temperature": 0.6,
    "top_p": 0.6,
    "top_k": 50,
    "discount": 1.0,
    "eval_interval": 16,
    "eval_num_samples": 4,
    "collaboration_mode": "decentralized",
}
ONCE = {"num_train_epochs": 20, "preference_num_candidates": 80, "preference_pairs_per_sample": 16, "pair_selection": "reward_gap"}
ROUNDS = {
    "num_iterations": 6,
    "preference_num_candidates": 20,
    "preference_pairs_per_sample": 4,
    "pair_selection": "comparator_reward",
    "preference_replay_mode": "current",
    "preference_replay_k": None,
    "preference_replay_lambda": None,
    "preference_replay_sample_size": None,
    "preference_replay_dir": None,
    "log_reward_distribution": False,
    "policy_checkpoint_dir": None,
    "comparator_policy": "current",
    "comparator_generation_mode": "decentralized",
    "comparator_centralized_agent_index": 0,
    "comparator_model_name": None,
    "comparator_agents": None,
    "comparator_devices": None,
    "comparator_num_candidates": None,
    "comparator_history_k": None,
    "comparator_api_url": None,
    "comparator_api_format": "generic",
    "comparator_api_model": None,
    "comparator_api_max_n_per_request": None,
    "comparator_api_timeout": 120.0,
    "comparator_api_headers": None,
    "comparator_api_key": None,
    "comparator_api_key_env": None,
    "comparator_api_key_header": "Authorization",
}
REWARD_MODEL = {
    "rl_algorithm": "magrpo",
    "num_generations": 4,
    "reward_model_name": None,
    "reward_model_device": None,
    "reward_learning_rate": 1e-5,
    "reward_num_train_epochs": 1,
    "reward_train_batch_size": 1,
    "reward_max_length": None,
    "reward_freeze_backbone": False,
    "critic_model_name": None,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "madpo": {**SHARED, **ONCE, "dpo_beta": 0.1, "train_batch_size": 2},
    "marlhf": {**SHARED, **ONCE, **REWARD_MODEL},
    "madpo-iter": {**SHARED, **ROUNDS, "dpo_beta": 0.1, "num_train_epochs": 1},
    "marlhf-iter": {
        **SHARED,
        **ROUNDS,
        **REWARD_MODEL,
        "num_train_epochs": 2,
        "reward_num_train_epochs": 2,
        "preference_scoring_reward": "task",
    },
}
API = {"comparator_policy": "api", "comparator_api_url": "http://localhost/v1"}


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_defaults(kind):
    args = CONFIGS[kind]()
    assert {option: getattr(args, option) for option in DEFAULTS[kind]} == DEFAULTS[kind]
    assert TRAINERS[kind].learner_class.config_class is CONFIGS[kind]


@pytest.mark.parametrize("kind", ITERATIVE)
@pytest.mark.parametrize(
    ("option", "names", "meant", "more"),
    [
        ("comparator_policy", ["current", "self", "Online"], "current", {}),
        ("comparator_policy", ["copy", "online_copy", "current-offload", "current_offload"], "current_copy", {}),
        ("comparator_policy", ["external", "comparator", "reference", "REF"], "model", {"comparator_model_name": "tiny"}),
        ("comparator_policy", ["checkpoint", "previous", "previous_iteration"], "history", {}),
        ("comparator_policy", ["http", "endpoint"], "api", {"comparator_api_url": "http://localhost/v1"}),
        ("comparator_generation_mode", ["decentralised", "multi_agent", "multi-agent"], "decentralized", {}),
        ("comparator_generation_mode", ["centralised", "single_agent", "single-agent"], "centralized", {}),
        ("preference_replay_mode", ["latest", "new", "current"], "current", {}),
        ("preference_replay_mode", ["recent_k", "last_k", "k"], "nearest_k", {"preference_replay_k": 2}),
        ("preference_replay_mode", ["lambda", "td_lambda", "td-lambda"], "lambda_decay", {"preference_replay_lambda": 0.5}),
    ],
)
def test_other_names_become_the_canonical_one(kind, option, names, meant, more):
    for name in names:
        args = CONFIGS[kind](**{option: name}, **more)
        assert getattr(args, option) == meant
        assert args == CONFIGS[kind](**{option: meant}, **more)


def test_other_names_of_rewards_and_learners():
    scoring = {
        name: MARLHFIterConfig(preference_scoring_reward=name).preference_scoring_reward for name in ("oracle", "env", "learned")
    }
    assert scoring == {"oracle": "task", "env": "task", "learned": "reward_model"}
    assert MARLHFConfig(rl_algorithm="mareforce").rl_algorithm == "mareinforce"


@pytest.mark.parametrize("kind", list(CONFIGS))
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preference_num_candidates": 1}, "preference_num_candidates must be a whole number of at least 2, got 1"),
        ({"preference_pairs_per_sample": 0}, "preference_pairs_per_sample must be a whole number of at least 1 or None, got 0"),
        ({"pair_selection": "best"}, "pair_selection must be one of .*'reward_gap'.*, got 'best'"),
        ({"pair_selection": "all", "preference_pairs_per_sample": 4}, "must be None with pair_selection='all'.*, got 4"),
        ({"collection_batch_size": 0}, "collection_batch_size must be a whole number of at least 1, got 0"),
        ({"collaboration_mode": "joint"}, "collaboration_mode must be one of 'decentralized', 'centralized', got 'joint'"),
    ],
)
def test_pairs(kind, options, message):
    with pytest.raises(ValueError, match=message):
        CONFIGS[kind](**options)


def test_what_a_comparator_earned_needs_one():
    for kind in ("madpo", "marlhf"):
        with pytest.raises(
            ValueError, match="pair_selection must be one of 'reward_gap', 'all', 'random', got 'comparator_reward'"
        ):
            CONFIGS[kind](pair_selection="comparator_reward")


@pytest.mark.parametrize("kind", ITERATIVE)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_iterations": 0}, "num_iterations must be a whole number of at least 1, got 0"),
        ({"comparator_policy": "best"}, "comparator_policy must be one of 'current', .*'api', got 'best'"),
        ({"comparator_generation_mode": "apart"}, "comparator_generation_mode must be one of .*, got 'apart'"),
        ({"comparator_num_candidates": 0}, "comparator_num_candidates must be a whole number of at least 1 or None, got 0"),
        ({"comparator_policy": "history", "comparator_history_k": 0}, "comparator_history_k must be .*, got 0"),
        ({"comparator_policy": "model"}, "needs comparator_model_name or comparator_agents, got neither"),
        ({"comparator_policy": "model", "comparator_model_name": "a", "comparator_agents": ["a", "b"]}, "needs .* or .*, got"),
        *(
            ({"comparator_policy": policy, option: value}, f"{option} cannot apply with comparator_policy='{policy}'")
            for policy in ("current", "current_copy", "history")
            for option, value in (("comparator_model_name", "tiny"), ("comparator_agents", ["tiny", "tiny"]))
        ),
        *(
            ({"comparator_policy": policy, "comparator_history_k": 1}, "comparator_history_k cannot apply with comparator_policy")
            for policy in ("current", "current_copy")
        ),
        ({**API, "comparator_history_k": 1}, "comparator_history_k cannot apply with comparator_policy='api'"),
        ({**API, "comparator_model_name": "tiny"}, "comparator_model_name cannot apply with comparator_policy='api'"),
        ({**API, "comparator_devices": "cpu"}, "comparator_devices cannot apply with comparator_policy='api'"),
        ({"comparator_devices": "cpu"}, "comparator_devices cannot apply with comparator_policy='current'"),
        *(
            ({option: value}, f"{option} cannot apply with comparator_policy='current'")
            for option, value in (
                ("comparator_api_url", "http://localhost"),
                ("comparator_api_format", "openai"),
                ("comparator_api_model", "m"),
                ("comparator_api_timeout", 1.0),
                ("comparator_api_headers", {"x": "y"}),
                ("comparator_api_key_env", "KEY"),
                ("comparator_api_max_n_per_request", 1),
                ("comparator_api_extra_body", {"seed": 1}),
                ("comparator_api_max_attempts", 2),
            )
        ),
        ({**API, "comparator_api_format": "opnai"}, "comparator_api_format must be one of .*, got 'opnai'"),
        ({**API, "comparator_api_key": "k"}, "comparator_api_key must not be given"),
        (
            {"comparator_generation_mode": "centralized", "comparator_centralized_agent_index": -1},
            "comparator_centralized_agent_index must be .*, got -1",
        ),
        (
            {"comparator_centralized_agent_index": 1},
            "comparator_centralized_agent_index=1 needs comparator_generation_mode='centralized'",
        ),
        ({"preference_replay_mode": "newest"}, "preference_replay_mode must be one of .*, got 'newest'"),
        ({"preference_replay_k": 2}, "preference_replay_k goes with preference_replay_mode='nearest_k', got 2 with 'current'"),
        ({"preference_replay_mode": "nearest_k"}, "preference_replay_k must be .*, got None"),
        ({"preference_replay_mode": "all_history", "preference_replay_k": 1}, "preference_replay_k goes with"),
        ({"preference_replay_mode": "lambda_decay"}, "preference_replay_lambda must be .*, got None"),
        (
            {"preference_replay_mode": "lambda_decay", "preference_replay_lambda": 1.5},
            "preference_replay_lambda must be .*, got 1.5",
        ),
        ({"preference_replay_lambda": 0.5}, "preference_replay_lambda goes with .*, got 0.5 with 'current'"),
        ({"preference_replay_sample_size": 4}, "preference_replay_sample_size must be None with .*, got 4"),
        ({"log_reward_distribution": "yes"}, "log_reward_distribution must be one of True, False, got 'yes'"),
        ({"comparator_policy": "model", "comparator_agents": "tiny"}, "comparator_agents must be a list of texts, got 'tiny'"),
        ({"comparator_policy": "model", "comparator_agents": ["tiny", 3]}, "comparator_agents must be a list of texts, got"),
        ({"comparator_policy": "model", "comparator_model_name": 3}, "comparator_model_name must be a text or None, got 3"),
        ({"policy_checkpoint_dir": 3}, "policy_checkpoint_dir must be a path or None, got 3"),
        ({"comparator_policy": "api"}, "comparator_api_url must be given for comparator_policy='api'"),
        ({"comparator_policy": "history", "comparator_devices": 3}, "comparator_devices must be a device such as .*, got 3"),
        ({"comparator_policy": "history", "comparator_devices": ["cpu", 3]}, r"comparator_devices must be .*, got \['cpu', 3\]"),
        ({"comparator_policy": "history", "comparator_devices": "gpu"}, "comparator_devices must be .*, got 'gpu'"),
        (
            {"comparator_policy": "history", "comparator_devices": ["cpu"], "num_agents": 2},
            r"comparator_devices must have 2 entries, got \['cpu'\]",
        ),
        (
            {"comparator_policy": "model", "comparator_agents": ["tiny"], "num_agents": 2},
            r"comparator_agents must have 2 entries, got \['tiny'\]",
        ),
        (
            {"comparator_generation_mode": "centralized", "comparator_centralized_agent_index": 2, "num_agents": 2},
            "comparator_centralized_agent_index must be below the number of agents, 2, got 2",
        ),
    ],
)
def test_rounds(kind, options, message):
    with pytest.raises(ValueError, match=message):
        CONFIGS[kind](**options)


def test_one_setting_of_a_replay_says_nothing_new():
    assert MADPOIterConfig(preference_replay_k=1) == MADPOIterConfig(preference_replay_k=1, preference_replay_mode="current")
    assert MADPOIterConfig(comparator_policy="history", comparator_devices="cpu").comparator_history_k is None


@pytest.mark.parametrize("kind", ["marlhf", "marlhf-iter"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward_learning_rate": 0}, "reward_learning_rate must be a number above 0, got 0"),
        ({"reward_num_train_epochs": 0}, "reward_num_train_epochs must be .*, got 0"),
        ({"reward_train_batch_size": 0}, "reward_train_batch_size must be .*, got 0"),
        ({"num_generations": 0}, "num_generations must be .*, got 0"),
        ({"rl_options": {"seed": 3}}, "rl_options must not hold seed: the config has options of these names"),
        ({"rl_options": {"num_generations": 3}}, "rl_options must not hold num_generations"),
        ({"rl_options": None}, "rl_options must map names to values, got None"),
        ({"rl_options": ["gae_lambda"]}, "rl_options must map names to values, got"),
        ({"rl_algorithm": None}, "rl_algorithm must be a text, got None"),
        ({"rl_algorithm": ["maac"]}, "rl_algorithm must be a text, got"),
    ],
)
def test_reward_models_and_learners(kind, options, message):
    with pytest.raises(ValueError, match=message):
        CONFIGS[kind](**options)


def test_the_distribution_of_a_models_scores_has_no_range():
    """Its bins are those of the task's reward; scores have a scale of their own."""
    with pytest.raises(ValueError, match="log_reward_distribution=True cannot apply with preference_scoring_reward='reward_model'"):
        MARLHFIterConfig(log_reward_distribution=True, preference_scoring_reward="model")


def test_scoring_reward():
    with pytest.raises(ValueError, match=r"preference_scoring_reward must be one of .*, got \['task'\]"):
        MARLHFIterConfig(preference_scoring_reward=["task"])
    with pytest.raises(ValueError, match="preference_scoring_reward must be one of 'task', 'reward_model', got 'judge'"):
        MARLHFIterConfig(preference_scoring_reward="judge")


class TestTheLearnerOfMARLHF:
    """Its options go to it, and only to it."""

    def test_its_config_has_what_is_shared_and_its_own(self):
        args = config("marlhf", agent_learning_rate=3e-3, seed=5, discount=0.5, rl_options={"advantage_mode": "rloo"})
        args = args.backend_config(MAGRPOConfig)
        assert (args.agent_learning_rate, args.seed, args.discount, args.max_new_tokens) == (3e-3, 5, 0.5, 4)
        assert (args.num_generations, args.advantage_mode, args.rollout_buffer_size) == (2, "rloo", 2)

    def test_options_that_are_not_set_leave_its_own_defaults(self):
        assert MARLHFConfig(num_generations=None).backend_config(IACConfig).num_generations == 1
        assert MARLHFConfig(num_generations=None).backend_config(MAACConfig).rollout_buffer_size == 8
        args = MARLHFConfig(rl_algorithm="iac", critic_learning_rate=1e-3, value_clip_range=0.3, train_batch_size=6)
        args = args.backend_config(IACConfig)
        assert (args.critic_learning_rate, args.value_clip_range, args.train_batch_size) == (1e-3, 0.3, 6)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"critic_learning_rate": 1e-3}, "critic_learning_rate cannot apply: rl_algorithm='magrpo' has no such option"),
            ({"value_clip_range": 0.2, "critic_type": "q"}, "critic_type, value_clip_range cannot apply"),
            ({"rl_algorithm": "maac", "use_separate_critic": False}, "use_separate_critic cannot apply: rl_algorithm='maac'"),
            ({"rl_options": {"advantage_mood": "rloo"}}, "rl_options.advantage_mood cannot apply: rl_algorithm='magrpo' has no"),
            ({"rl_options": {"advantage_mode": "best"}}, "rl_algorithm='magrpo': advantage_mode must be one of .*, got 'best'"),
            ({"rl_options": {3: "rloo"}}, "rl_options must map names to values, got {3: 'rloo'}"),
            ({"critic_model_name": "tiny"}, "critic_model_name cannot apply: rl_algorithm='magrpo' has no critic"),
            (
                {"rl_algorithm": "iac", "use_separate_critic": False, "critic_model_name": "tiny"},
                "critic_model_name cannot apply with use_separate_critic=False, whose critics are heads on the actors, got 'tiny'",
            ),
            ({"rl_algorithm": "maac", "critic_type": "w"}, "rl_algorithm='maac': critic_type must be one of 'v', 'q', got 'w'"),
            ({"rl_algorithm": "maac", "critic_devices": ["cpu", "cpu"]}, "critic_devices must have 1 entry, got"),
            ({"rl_algorithm": "iac", "num_turns": 2}, "num_generations must be 1 with several turns, got 2"),
            (
                {"rl_algorithm": "iac", "value_head_hidden_dim": 8},
                "value_head_hidden_dim cannot apply with .*=True",
            ),
            ({"num_generations": 1}, "num_generations.*1"),
            ({"rl_algorithm": "magrop"}, "rl_algorithm: there is no learner 'magrop'.*did you mean magrpo"),
            ({"rl_algorithm": "madpo"}, "rl_algorithm='madpo' learns from preferences"),
            ({"rl_algorithm": "marlhf-iter", "num_generations": None}, "rl_algorithm='marlhf-iter' learns from preferences"),
        ],
    )
    @pytest.mark.parametrize("kind", ["marlhf", "marlhf-iter"])
    def test_what_it_has_not_is_refused_by_the_config(self, kind, options, message):
        with pytest.raises(ValueError, match=message):
            config(kind, **options)

    def test_critics_need_a_model(self, tmp_path):
        with pytest.raises(ValueError, match="which models are the critics"):
            make_trainer("marlhf", tmp_path, rl_algorithm="maac")

    def test_a_task_that_passes_prompts_through_is_none_of_its_affairs(self, tmp_path):
        parts = {
            "env": None,
            "reward_func": lambda first, second: [0.0] * len(first),
            "train_dataset": [{"prompt": "a"}],
            "agent_model": "tiny-random",
        }
        trainer = make_trainer("marlhf", tmp_path, parts=parts, external_prompt_passthrough=True, dtype="auto")
        assert trainer.learner.backend.config.external_prompt_passthrough is False


class TestPartsOfTrainers:
    """They are refused as the trainer is built."""

    def test_an_adapter_without_use(self, tmp_path):
        adapter = {"centralized_comparator_adapter": TaggedSections(("a", "b"))}
        with pytest.raises(ValueError, match="only the iterative forms have a comparator"):
            make_trainer("madpo", tmp_path, parts=adapter)
        with pytest.raises(ValueError, match="needs comparator_generation_mode='centralized'"):
            make_trainer("madpo-iter", tmp_path, parts=adapter)
        central = {"collaboration_mode": "centralized", "comparator_generation_mode": "centralized"}
        with pytest.raises(ValueError, match=r"cannot apply with collaboration_mode='centralized'.*see team_adapter"):
            make_trainer("madpo-iter", tmp_path, parts={**adapter, "policies": None, "agent_model": "tiny-random"}, **central)

    def test_the_index_of_an_agent_that_there_is_not(self, tmp_path):
        options = {"comparator_generation_mode": "centralized", "comparator_centralized_agent_index": 2}
        with pytest.raises(ValueError, match="comparator_centralized_agent_index must be below the number of agents, 2, got 2"):
            make_trainer("madpo-iter", tmp_path, **options)

    @pytest.mark.parametrize("policy", ["current_copy", "history"])
    def test_devices_for_another_number_of_agents(self, tmp_path, policy):
        with pytest.raises(ValueError, match=r"comparator_devices must be one device or one for each of 2 agents, got \['cpu'\]"):
            make_trainer("madpo-iter", tmp_path, comparator_policy=policy, comparator_devices=["cpu"])

    def test_distributions_of_rewards_without_a_range(self, tmp_path):
        with pytest.raises(ValueError, match=r"log_reward_distribution=True needs the range of the rewards.*set_reward_range"):
            make_trainer("madpo-iter", tmp_path, log_reward_distribution=True)

    def test_configs_of_other_learners(self, tmp_path):
        with pytest.raises(TypeError, match="args of MADPOIterTrainer must be a MADPOIterConfig, got MADPOConfig"):
            make_trainer("madpo-iter", tmp_path, parts={"args": config("madpo")})
