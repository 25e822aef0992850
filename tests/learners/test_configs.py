"""Guards that every option of every config refuses what cannot be meant, at once, in one line that names the option."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from learners.actor_critic.iac import IACConfig
from learners.actor_critic.maac import MAACConfig
from learners.config import TrainingConfig
from learners.models import ModelConfig
from learners.preference.iterative import MADPOIterConfig, MARLHFIterConfig
from learners.preference.madpo import MADPOConfig
from learners.preference.marlhf import MARLHFConfig
from learners.reinforce import MAGRPOConfig, MAREINFORCEConfig, MAReMaxConfig, MARLOOConfig
from learners.sampling import SamplingConfig

CONFIGS: list[type] = [
    TrainingConfig,
    MAGRPOConfig,
    MAREINFORCEConfig,
    MARLOOConfig,
    MAReMaxConfig,
    IACConfig,
    MAACConfig,
    MADPOConfig,
    MARLHFConfig,
    MADPOIterConfig,
    MARLHFIterConfig,
    ModelConfig,
    SamplingConfig,
]
API = {"comparator_policy": "api", "comparator_api_url": "http://localhost/v1"}
HISTORY = {"comparator_policy": "history"}

OF_CRITICS = ("critic_learning_rate", "critic_type", "value_loss_coef", "critic_value_head_hidden_dim", "critic_model_name")

# Where an option can apply: a wrong value must not be refused for another reason alone.
PLACES: dict[str, dict[str, Any]] = {
    "reference_devices": {"reference_kl_enabled": True, "reference_free": False},
    "critic_devices": {"rl_algorithm": "maac"},
    "comparator_devices": HISTORY,
    "comparator_history_k": HISTORY,
    "comparator_model_name": {"comparator_policy": "model"},
    "comparator_agents": {"comparator_policy": "model"},
    "comparator_centralized_agent_index": {"comparator_generation_mode": "centralized"},
    "preference_replay_k": {"preference_replay_mode": "nearest_k"},
    "preference_replay_lambda": {"preference_replay_mode": "lambda_decay"},
    "preference_replay_sample_size": {"preference_replay_mode": "all_history"},
    "lr_decay_steps": {"lr_scheduler_type": "linear"},
    "counterfactual_baseline": {"critic_type": "q", "num_generations": 2},
    "agent_devices": {"parallel_training": "mp"},
    **{option: {"use_separate_critic": False, "rl_algorithm": "iac"} for option in ("value_clip_range", "value_head_hidden_dim")},
    **{option: {"rl_algorithm": "maac"} for option in OF_CRITICS},
    "use_separate_critic": {"rl_algorithm": "iac"},
}
WRONG: dict[str, Any] = {"object": object(), "nan": math.nan, "negative": -1, "infinite": math.inf, "empty": "", "list": [object()]}

# What only looks wrong.
FINE = {
    ("early_termination_threshold", "negative"),  # rewards may be
    ("comparator_api_key_prefix", "empty"),  # the key alone
}


def cases() -> list[Any]:
    return [
        pytest.param(config, entry.name, id=f"{config.__name__}-{entry.name}")
        for config in CONFIGS
        for entry in dataclasses.fields(config)
    ]


def place(config: type, option: str) -> dict[str, Any]:
    """Other options of the config with which this one can apply."""
    wanted = API if option.startswith("comparator_api") else PLACES.get(option, {})
    names = {entry.name for entry in dataclasses.fields(config)}
    return {name: value for name, value in wanted.items() if name in names and name != option}


@pytest.mark.parametrize(("config", "option"), cases())
def test_a_wrong_value_is_refused_in_a_line_that_names_the_option(config, option):
    for kind, value in WRONG.items():
        if (option, kind) not in FINE:
            with pytest.raises(ValueError, match=option) as caught:
                config(**{**place(config, option), option: value})
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", sorted({*PLACES, "comparator_api_model"}))
def test_the_places_are_places(option):
    """Without the wrong value each of these configs can be made, unless it is the option itself that is required there."""
    required = {"comparator_model_name": "tiny", "comparator_agents": ["tiny", "tiny"], "agent_devices": ["cpu", "cpu"]}
    required |= {"preference_replay_k": 2, "preference_replay_lambda": 0.5, "lr_decay_steps": 9}
    found = 0
    for config in CONFIGS:
        if option in {entry.name for entry in dataclasses.fields(config)}:
            config(**place(config, option), **({option: required[option]} if option in required else {}))
            found += 1
    assert found


@pytest.mark.parametrize("value", ["cpu", "cuda:3", "mps", ["cpu"], ("cpu", "cuda:0"), None])
def test_devices_are_taken_whether_or_not_they_are_here(value):
    assert MAGRPOConfig(agent_devices=value).agent_devices == value


@pytest.mark.parametrize("num_agents", [2, None])
@pytest.mark.parametrize(
    ("config", "options"),
    [
        (IACConfig, {"critic_devices": ["cpu", "cpu"]}),
        (IACConfig, {"critic_devices": ["cpu"]}),
        (MAACConfig, {"critic_devices": ["cpu"]}),
        (MAGRPOConfig, {"reference_devices": ["cpu", "cpu"], "reference_kl_enabled": True}),
        (MADPOConfig, {"reference_devices": ["cpu", "cpu"], "reference_free": False}),
        (MADPOIterConfig, {"comparator_devices": ["cpu", "cpu"], **HISTORY}),
        (MADPOIterConfig, {"comparator_agents": ["tiny", "tiny"], "comparator_policy": "model"}),
    ],
)
def test_one_for_each_is_taken(config, options, num_agents):
    made = config(num_agents=num_agents, **options)
    assert {option: getattr(made, option) for option in options} == options


@pytest.mark.parametrize("option", ["policy_checkpoint_dir", "preference_replay_dir", "reward_model_name"])
def test_paths_become_texts_which_checkpoints_hold(option):
    assert getattr(MARLHFIterConfig(**{option: Path("some") / "folder"}), option) == "some/folder"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agent_devices": 3}, "agent_devices must be a device such as 'cpu' or 'cuda:0', a list of them, or None, got 3"),
        ({"agent_devices": "gpu"}, "agent_devices must be .*, got 'gpu'"),
        ({"agent_devices": []}, r"agent_devices must be .*, got \[\]"),
        ({"agent_devices": ["cpu", "cpu", "cpu"], "num_agents": 2}, "agent_devices must have 1 or 2 entries, got"),
        (
            {"agent_devices": ["cpu", "cpu"], "num_agents": 2, "collaboration_mode": "centralized"},
            "agent_devices must have 1 entry, got",
        ),
        (
            {"reference_devices": ["cpu"], "reference_kl_enabled": True, "num_agents": 2},
            "reference_devices must have 2 entries, got",
        ),
        ({"dtype": "int8"}, "dtype must be 'auto', the name of a floating-point dtype such as 'bfloat16', or None, got 'int8'"),
    ],
)
def test_devices_and_dtypes(options, message):
    with pytest.raises(ValueError, match=message):
        MAGRPOConfig(**options)


@pytest.mark.parametrize("config", [MAGRPOConfig, MAACConfig, IACConfig, MADPOConfig])
def test_devices_of_references_need_references(config):
    with pytest.raises(ValueError, match="reference_devices='cpu' needs reference_"):
        config(reference_devices="cpu")


@pytest.mark.parametrize("config", CONFIGS)
def test_flags_are_true_or_false_and_not_numbers(config):
    """1 == True: a number would go through a comparison, and be another option in a checkpoint."""
    flags = [entry.name for entry in dataclasses.fields(config) if entry.type in ("bool", "bool | None")]
    for option in flags:
        for value in (0, 1, 1.0, "true"):
            with pytest.raises(ValueError, match=option):
                config(**place(config, option), **{option: value})
