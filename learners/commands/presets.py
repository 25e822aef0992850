"""Presets: values for a learner's options that learn where the config's own defaults, made for real models, would not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

TINY_MODELS = ("tiny", "tiny-random")

PresetName: TypeAlias = Literal["auto", "tiny", "none"]

_STATES = 400


def choose(preset: PresetName, models: Sequence[str]) -> Literal["tiny", "none"]:
    """The preset to apply: `auto` is `tiny` for a team of tiny models, `none` else."""
    if preset != "auto":
        return preset
    return "tiny" if all(model in TINY_MODELS for model in models) else "none"


def values(
    preset: Literal["tiny", "none"], num_items: int | None, num_turns: int, *, chains: bool = False, critic_type: str = "v"
) -> Mapping[str, Any]:
    """The preset's values for options of the learner.

    `tiny` is made for the built-in model: it learns a built-in task on a CPU within half a minute. With several turns, whose trees
    hold many states, it takes fewer generations and fewer items. Its number of epochs is what uses the items it wants; items
    without a length are used once, in their order.

    Args:
        preset: its name.
        num_items: length of the training items; None if they have none.
        num_turns: most turns of an episode.
        chains: whether the learner follows chains, as the actor-critic family does: one generation with several turns.
        critic_type: of such a learner. A Q critic is its own baseline: it must learn more slowly than the actors, and small
            advantages must stay small.
    """
    if preset == "none":
        return {}
    generations = 8 if num_turns == 1 else 1 if chains else 4
    states_an_item = sum(generations**turn for turn in range(num_turns))
    critic_rate = 1e-5 if critic_type == "q" else 1e-3
    return {
        "agent_learning_rate": 5e-4,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "num_generations": generations,
        # States of a tree, or samples of an agent.
        "rollout_buffer_size": 32 if chains else 4,
        "num_train_epochs": 1 if num_items is None else max(1, math.ceil(_STATES / states_an_item / num_items)),
        "critic_learning_rate": critic_rate,
        "value_head_learning_rate": 10 * critic_rate,
        **({"advantage_normalization": False} if critic_type == "q" else {}),
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": None,
        "max_new_tokens": 48,
        "eval_interval": 32,
        "eval_num_samples": 48,
        "eval_batch_size": 48,
        "logging_steps": 32,
        "shuffle": num_items is not None,
    }
