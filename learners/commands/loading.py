"""How a command's models are loaded: the options `--model_config.<name>`, alike for every command that loads any."""

from __future__ import annotations

from typing import Any

from learners.commands.options import Option, dataclass_options
from learners.commands.parsing import Parsed

SECTION = "model_config"

OF_TRAINING = ("lora", "gradient_checkpointing")
"""Options that make a loaded model ready to be trained."""


def model_options() -> list[Option]:
    """Every option of `ModelConfig`."""
    from learners.models import ModelConfig

    return dataclass_options(ModelConfig, f"{SECTION}.")


def options_of_loading() -> list[Option]:
    """Those that matter where nothing is trained."""
    return [option for option in model_options() if option.name.removeprefix(f"{SECTION}.") not in OF_TRAINING]


def model_config(parsed: Parsed) -> dict[str, Any] | None:
    """What `load_policies` and trainers take as `model_config`; None if nothing of it was given."""
    return {name: value for name, value in parsed.section(SECTION).items() if value not in (None, {}, False)} or None
