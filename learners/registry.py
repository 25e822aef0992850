"""Names of learners: `--learner NAME`. A new one is a line here, or an entry point of another distribution."""

from __future__ import annotations

import difflib
import importlib
from importlib import metadata
from typing import Any

GROUP = "llm_marl.learners"
"""Entry-point group: a distribution offers `my-learner = "my_module:MyTrainer"`."""

# Imported when asked for, so that listing them loads no torch.
_BUILT_IN: dict[str, str] = {
    "magrpo": "learners.trainers:MAGRPOTrainer",
    "mareinforce": "learners.trainers:MAREINFORCETrainer",
    "marloo": "learners.trainers:MARLOOTrainer",
    "maremax": "learners.trainers:MAReMaxTrainer",
    "maac": "learners.actor_critic.trainers:MAACTrainer",
    "iac": "learners.actor_critic.trainers:IACTrainer",
    "madpo": "learners.preference.trainers:MADPOTrainer",
    "marlhf": "learners.preference.trainers:MARLHFTrainer",
    "madpo-iter": "learners.preference.trainers:MADPOIterTrainer",
    "marlhf-iter": "learners.preference.trainers:MARLHFIterTrainer",
}


def list_learners() -> list[str]:
    """Every name that `trainer_class` knows, built-in ones first. Nothing is imported for it."""
    return list(dict.fromkeys([*_BUILT_IN, *sorted(point.name for point in metadata.entry_points(group=GROUP))]))


def trainer_class(name: str) -> Any:
    """The trainer class of a learner.

    It is a `learners.trainer.Trainer`, built with those keywords of `learners.trainers.ReinforceTrainer` that the command line
    uses: `env`, `agent_model`, `agents`, `tokenizer`, `model_config`, `args`, `output_dir`, `record`, `wandb_config`, `sinks`,
    `progress`, `reward_workers`. Its `learner_class` has a `config_class`: the dataclass that `args` is one of.

    Raises:
        ValueError: for an unknown name, with those like it, or one that several distributions claim.
        ImportError: if it cannot be imported, or names no learner class.
    """
    targets = {
        f"the distribution {point.dist.name}" if point.dist is not None else "an entry point": point.value
        for point in metadata.entry_points(group=GROUP, name=name)
    }
    if name in _BUILT_IN:
        targets["learners"] = _BUILT_IN[name]
    if not targets:
        close = difflib.get_close_matches(name, list_learners())
        hint = f" (did you mean {', '.join(close)}?)" if close else ""
        raise ValueError(f"there is no learner {name!r}{hint}; known: {', '.join(list_learners())}")
    if len(set(targets.values())) > 1:
        raise ValueError(f"the learner {name} is claimed by {' and by '.join(targets)}: remove or rename one")
    source, target = next(iter(targets.items()))
    module, _, attribute = target.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ImportError(f"the learner {name} ({source}) cannot be loaded from {target!r}: {error}") from error
    if not hasattr(found, "learner_class"):
        raise ImportError(f"the learner {name} ({source}): {target!r} has no learner_class")
    return found
