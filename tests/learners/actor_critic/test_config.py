"""Guards the options of IAC and MAAC: defaults, what is refused and how it is said, and options that cannot apply."""

from __future__ import annotations

import pytest

from learners.actor_critic.iac import IACConfig
from learners.actor_critic.maac import MAACConfig
from llm_envs.types import RolloutSpec

CONFIGS = [IACConfig, MAACConfig]


@pytest.mark.parametrize("config_class", CONFIGS)
def test_defaults_are_those_users_know(config_class):
    config = config_class()
    assert (config.agent_learning_rate, config.critic_learning_rate) == (5e-6, 5e-6)
    assert (config.rollout_buffer_size, config.train_batch_size, config.value_loss_coef) == (8, None, 0.6)
    assert (config.temperature, config.top_p, config.top_k, config.max_new_tokens) == (0.6, 0.6, None, 256)
    assert (config.num_train_epochs, config.num_generations, config.logging_steps) == (40, 1, 1)
    assert (config.critic_type, config.discount, config.advantage_normalization) == ("v", 1.0, True)
    assert (config.reference_kl_enabled, config.reference_kl_coef) == (False, 0.1)
    # Beyond what users know: off.
    assert (config.gae_lambda, config.critic_warmup_updates, config.value_head_learning_rate) == (0.0, 0, None)
    assert config.early_termination_threshold is None
    assert config.rollout == RolloutSpec(1, "aligned", None)


def test_defaults_of_their_own():
    iac = IACConfig()
    assert (iac.use_separate_critic, iac.value_clip_range) == (True, 0.2)
    assert (iac.value_head_hidden_dim, iac.critic_value_head_hidden_dim) == (None, None)
    assert MAACConfig().counterfactual_baseline is False


@pytest.mark.parametrize("config_class", CONFIGS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_generations": 0}, "num_generations must be a whole number of at least 1, got 0"),
        ({"num_generations": 2, "num_turns": 2}, "num_generations must be 1 with several turns, got 2 for num_turns=2"),
        ({"critic_type": "V"}, "critic_type must be one of 'v', 'q', got 'V'"),
        ({"critic_learning_rate": 0}, "critic_learning_rate must be a number above 0 or None, got 0"),
        ({"value_head_learning_rate": -1.0}, "value_head_learning_rate must be a number above 0 or None, got -1.0"),
        ({"value_loss_coef": 0}, "value_loss_coef must be a number above 0, got 0"),
        ({"gae_lambda": 1.1}, "gae_lambda must be a number at least 0 and at most 1, got 1.1"),
        ({"critic_warmup_updates": -1}, "critic_warmup_updates must be a whole number of at least 0, got -1"),
        ({"critic_value_head_hidden_dim": 0}, "critic_value_head_hidden_dim must be a whole number of at least 1 or None, got 0"),
        ({"rollout_buffer_size": 0}, "rollout_buffer_size must be a whole number of at least 1, got 0"),
        ({"train_batch_size": 0}, "train_batch_size must be a whole number of at least 1 or None, got 0"),
        ({"advantage_normalization": "scale"}, "advantage_normalization must be one of True, False, got 'scale'"),
        ({"early_termination_threshold": float("nan")}, "early_termination_threshold must be a finite number or None, got nan"),
        ({"reference_kl_coef": -0.1}, "reference_kl_coef must be a number at least 0, got -0.1"),
        ({"discount": 1.5}, "discount must be a number at least 0 and at most 1, got 1.5"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_and_value(config_class, options, message):
    with pytest.raises(ValueError, match=message):
        config_class(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value_clip_range": 0}, "value_clip_range must be a number above 0 or None, got 0"),
        ({"value_head_hidden_dim": 0, "use_separate_critic": False}, "value_head_hidden_dim must be a whole number of at least 1"),
        ({"use_separate_critic": None}, "use_separate_critic must be one of True, False, got None"),
        ({"value_head_hidden_dim": 8}, "value_head_hidden_dim cannot apply with use_separate_critic=True, got 8"),
        (
            {"critic_value_head_hidden_dim": 8, "use_separate_critic": False},
            "critic_value_head_hidden_dim cannot apply with use_separate_critic=False, got 8",
        ),
        (
            {"critic_devices": "cpu", "use_separate_critic": False},
            "critic_devices cannot apply with use_separate_critic=False, got 'cpu'",
        ),
    ],
)
def test_a_wrong_option_of_iac(options, message):
    with pytest.raises(ValueError, match=message):
        IACConfig(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "counterfactual_baseline needs critic_type='q', which knows actions, got 'v'"),
        ({"critic_type": "q"}, "counterfactual_baseline needs num_generations of at least 2, got 1"),
        ({"counterfactual_baseline": "yes"}, "counterfactual_baseline must be one of True, False, got 'yes'"),
    ],
)
def test_a_wrong_option_of_maac(options, message):
    with pytest.raises(ValueError, match=message):
        MAACConfig(**{"counterfactual_baseline": True, **options})


@pytest.mark.parametrize("config_class", CONFIGS)
def test_several_generations_are_for_one_turn(config_class):
    config = config_class(num_generations=4)
    config.check_num_turns(1)
    with pytest.raises(ValueError, match="got 4 for num_turns=3: an actor-critic learner follows chains"):
        config.check_num_turns(3)
    config_class(num_generations=1).check_num_turns(3)
    assert config_class(num_generations=4, early_termination_threshold=0.5).rollout == RolloutSpec(4, "aligned", 0.5)
