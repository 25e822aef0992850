"""Presets: values for a learner's options that learn where the config's own defaults, made for real models, would not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

TINY_MODELS = ("tiny", "tiny-random")

PresetName: TypeAlias = Literal["auto", "tiny", "none"]

_ITEMS = 400


def choose(preset: PresetName, models: Sequence[str]) -> Literal["tiny", "none"]:
    """The preset to apply: `auto` is `tiny` for a team of tiny models, `none` else."""
    if preset != "auto":
        return preset
    return "tiny" if all(model in TINY_MODELS for model in models) else "none"


def values(preset: Literal["tiny", "none"], num_items: int | None) -> Mapping[str, Any]:
    """The preset's values for options of the learner.

    `tiny` is made for the built-in model: it learns a built-in task on a CPU within half a minute. Its number of epochs is what
    uses about 400 items; items without a length are used once.

    Args:
        preset: its name.
        num_items: length of the training items; None if they have none.
    """
    if preset == "none":
        return {}
    return {
        "agent_learning_rate": 5e-4,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "num_generations": 8,
        "rollout_buffer_size": 4,
        "num_train_epochs": 1 if num_items is None else max(1, math.ceil(_ITEMS / num_items)),
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": None,
        "max_new_tokens": 48,
        "eval_interval": 32,
        "eval_num_samples": 16,
        "eval_batch_size": 16,
        "logging_steps": 32,
        "shuffle": True,
    }
