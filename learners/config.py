"""Options that every learner shares: team, sampling, optimiser, evaluation, placement. A learner's own options stand beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a team is trained, whichever learner does it.

    Attributes:
        num_agents: size of the team; None takes it from the env, the agents or the trainer's argument (2 without any).
        num_turns: H; None takes it from the env, or 2 with an `external_transition` and 1 without.
        num_train_epochs: passes over the training items.
        agent_learning_rate: of every agent's AdamW.
        weight_decay: of AdamW, decoupled.
        max_grad_norm: clip each agent's gradient to this 2-norm; None leaves it.
        lr_scheduler_type: "constant", "linear" or "cosine", after `warmup_steps` optimiser steps of linear warm-up.
        warmup_steps: optimiser steps.
        lr_decay_steps: optimiser steps at which linear and cosine reach 0; required by them.
        gradient_accumulation_steps: mini-batches an optimiser step.
        max_new_tokens: T, longest completion.
        temperature: of the sampling distribution.
        top_p: nucleus mass; 1 keeps all.
        top_k: tokens kept; None or 0 keeps all.
        external_prompt_passthrough: see `llm_envs.Task`.
        discount: γ between turns.
        logging_steps: smallest gap in env steps between two logged entries of one metric group.
        eval_interval: items between evaluations, item 0 of every epoch included; 0 evaluates only by hand.
        eval_num_samples: first items of the evaluation set that are used.
        eval_batch_size: items generated together at evaluation.
        eval_temperature: at evaluation; None as in training, 0 is greedy.
        shuffle: a fresh permutation of the items each epoch, drawn from `seed`.
        seed: of everything drawn in the run.
        parallel_training: "none" for one device, "mp" for an explicit device for each agent; agents then generate and update at
            once.
        agent_devices: one device, or one for each agent; None chooses.
        collaboration_mode: "decentralized" is a policy for each agent; "centralized" is one that writes every role's text, the env
            wrapped in `llm_envs.wrappers.JointAgent`. `num_agents` counts the roles.
        dtype: of models loaded by name ("float32", "bfloat16", …, "auto" as stored); None is what `model_config` says, or float32.
        prompt_overflow: "error" or "truncate_left" for prompts that leave no room for `max_new_tokens`.
        micro_batch_tokens: most tokens, padding included, scored together in training: bounds memory; None derives it from the
            model.

    Raises:
        ValueError: naming option, value and what is expected.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset(
        {
            "num_train_epochs",
            "agent_learning_rate",
            "logging_steps",
            "eval_interval",
            "eval_num_samples",
            "eval_batch_size",
            "eval_temperature",
            "parallel_training",
            "agent_devices",
            "micro_batch_tokens",
        }
    )
    """Options of this class that a resumed run may have otherwise: rate, evaluation, logging, devices, memory and length."""

    num_agents: int | None = None
    num_turns: int | None = None
    num_train_epochs: int = 20
    agent_learning_rate: float = 5e-6
    weight_decay: float = 0.01
    max_grad_norm: float | None = None
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    lr_decay_steps: int | None = None
    gradient_accumulation_steps: int = 1
    max_new_tokens: int = 256
    temperature: float = 0.6
    top_p: float = 0.6
    top_k: int | None = 50
    external_prompt_passthrough: bool = False
    discount: float = 1.0
    logging_steps: int = 50
    eval_interval: int = 16
    eval_num_samples: int = 4
    eval_batch_size: int = 1
    eval_temperature: float | None = None
    shuffle: bool = False
    seed: int = 0
    parallel_training: Literal["none", "mp"] = "none"
    agent_devices: str | Sequence[str] | None = None
    collaboration_mode: Literal["decentralized", "centralized"] = "decentralized"
    dtype: str | None = None
    prompt_overflow: Literal["error", "truncate_left"] = "error"
    micro_batch_tokens: int | None = None

    def __post_init__(self) -> None:
        for option in ("num_agents", "num_turns", "lr_decay_steps", "micro_batch_tokens"):
            require_int(option, getattr(self, option), 1, optional=True)
        for option in (
            "num_train_epochs",
            "gradient_accumulation_steps",
            "max_new_tokens",
            "logging_steps",
            "eval_batch_size",
        ):
            require_int(option, getattr(self, option), 1)
        for option in ("warmup_steps", "eval_interval", "eval_num_samples", "seed"):
            require_int(option, getattr(self, option), 0)
        require_int("top_k", self.top_k, 0, optional=True)
        require_number("agent_learning_rate", self.agent_learning_rate, above=0)
        require_number("weight_decay", self.weight_decay, at_least=0)
        require_number("max_grad_norm", self.max_grad_norm, above=0, optional=True)
        # Greedy play has no policy gradient: log-probabilities are 0 whatever the weights.
        require_number("temperature", self.temperature, above=0)
        require_number("eval_temperature", self.eval_temperature, at_least=0, optional=True)
        require_number("top_p", self.top_p, above=0, at_most=1)
        require_number("discount", self.discount, at_least=0, at_most=1)
        self._check_choices()

    def _check_choices(self) -> None:
        require_choice("lr_scheduler_type", self.lr_scheduler_type, ("constant", "linear", "cosine"))
        require_choice("collaboration_mode", self.collaboration_mode, ("decentralized", "centralized"))
        require_choice("parallel_training", self.parallel_training, ("none", "mp"))
        require_choice("prompt_overflow", self.prompt_overflow, ("error", "truncate_left"))
        require_choice("external_prompt_passthrough", self.external_prompt_passthrough, (True, False))
        require_choice("shuffle", self.shuffle, (True, False))
        require_dtype("dtype", self.dtype)
        require_devices("agent_devices", self.agent_devices, 1, self.team_size)
        if self.lr_scheduler_type != "constant" and self.lr_decay_steps is None:
            raise ValueError(f"lr_scheduler_type={self.lr_scheduler_type!r} needs lr_decay_steps: the optimiser steps until 0")
        if self.lr_decay_steps is not None and self.lr_decay_steps <= self.warmup_steps:
            raise ValueError(f"lr_decay_steps={self.lr_decay_steps} must be more than warmup_steps={self.warmup_steps}")
        if self.parallel_training == "mp" and (self.agent_devices is None or isinstance(self.agent_devices, str)):
            raise ValueError(f"parallel_training='mp' needs agent_devices with a device for each agent, got {self.agent_devices!r}")

    @property
    def team_size(self) -> int | None:
        """How many policies act, as far as the config says: one in a centralised team, else one for each of `num_agents`."""
        return 1 if self.collaboration_mode == "centralized" else self.num_agents

    @classmethod
    def may_change(cls) -> frozenset[str]:
        """What a resumed run may have otherwise: the `MAY_CHANGE` of this class and of all it is made of."""
        return frozenset[str]().union(*(vars(base).get("MAY_CHANGE", ()) for base in cls.__mro__))

    def check_num_turns(self, num_turns: int) -> None:
        """Refuse an env with another number of turns than the config says.

        Raises:
            ValueError: naming both.
        """
        if self.num_turns not in (None, num_turns):
            raise ValueError(f"args.num_turns={self.num_turns}, but the env has num_turns={num_turns}")


def require_int(option: str, value: object, at_least: int, *, optional: bool = False) -> None:
    """Refuse anything but a whole number of at least `at_least` (or None if optional).

    Raises:
        ValueError: naming option, value and what is expected.
    """
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"{option} must be a whole number of at least {at_least}{' or None' * optional}, got {value!r}")


def require_number(
    option: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    optional: bool = False,
) -> None:
    """Refuse anything but a finite number within the bounds (or None if optional).

    Raises:
        ValueError: naming option, value and what is expected.
    """
    if value is None and optional:
        return
    bounds = [f"above {above}"] * (above is not None)
    bounds += [f"at least {at_least}"] * (at_least is not None)
    bounds += [f"at most {at_most}"] * (at_most is not None)
    fits = (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value - value == 0  # neither infinite nor NaN
        and (above is None or value > above)
        and (at_least is None or value >= at_least)
        and (at_most is None or value <= at_most)
    )
    if not fits:
        wanted = f"a number {' and '.join(bounds)}" if bounds else "a finite number"
        raise ValueError(f"{option} must be {wanted}{' or None' * optional}, got {value!r}")


def require_text(option: str, value: object, *, optional: bool = False) -> None:
    """Refuse anything but a text that is not empty (or None if optional).

    Raises:
        ValueError: naming option, value and what is expected.
    """
    if not (value is None and optional) and not _is_text(value):
        raise ValueError(f"{option} must be a text{' or None' * optional}, got {value!r}")


def require_texts(option: str, value: object, *counts: int | None) -> None:
    """Refuse anything but a list of texts or None.

    Args:
        option: the value is one of.
        value: is looked at.
        counts: how many there may be; None, or none of them, leaves it open.

    Raises:
        ValueError: naming option, value and what is expected.
    """
    if value is None:
        return
    if not isinstance(value, Sequence) or isinstance(value, str) or not value or not all(map(_is_text, value)):
        raise ValueError(f"{option} must be a list of texts, got {value!r}")
    _require_count(option, value, counts)


def canonical_path(option: str, value: object) -> str | None:
    """The path as a text, which a checkpoint can hold; None stays.

    Raises:
        ValueError: for anything else, naming option, value and what is expected.
    """
    if value is not None and not _is_text(value) and not isinstance(value, Path):
        raise ValueError(f"{option} must be a path or None, got {value!r}")
    return None if value is None else str(value)


def require_devices(option: str, value: object, *counts: int | None) -> None:
    """Refuse anything but a device, a list of devices, or None. Whether there is such a device here is found out where it is used.

    Args:
        option: the value is one of.
        value: is looked at.
        counts: how many a list may have; None, or none of them, leaves it open.

    Raises:
        ValueError: naming option, value and what is expected.
    """
    if value is None:
        return
    listed = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not listed or not all(map(_is_device, listed)):
        raise ValueError(f"{option} must be a device such as 'cpu' or 'cuda:0', a list of them, or None, got {value!r}")
    if not isinstance(value, str):
        _require_count(option, listed, counts)


def require_device(option: str, value: object) -> None:
    """Refuse anything but a device or None.

    Raises:
        ValueError: naming option, value and what is expected.
    """
    if value is not None and not _is_device(value):
        raise ValueError(f"{option} must be a device such as 'cpu' or 'cuda:0', or None, got {value!r}")


def require_dtype(option: str, value: object) -> None:
    """Refuse anything but "auto", the name of a floating-point dtype of torch, or None.

    Raises:
        ValueError: naming option, value and what is expected.
    """
    import torch

    found = getattr(torch, value.removeprefix("torch."), None) if isinstance(value, str) else None
    if value not in (None, "auto") and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise ValueError(f"{option} must be 'auto', the name of a floating-point dtype such as 'bfloat16', or None, got {value!r}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_device(value: object) -> bool:
    import torch

    if not _is_text(value):
        return False
    try:
        torch.device(value)  # type: ignore[arg-type]
    except RuntimeError:
        return False
    return True


def _require_count(option: str, values: Sequence[object], counts: Sequence[int | None]) -> None:
    known = sorted({count for count in counts if count is not None})
    if counts and None not in counts and len(values) not in known:
        wanted = " or ".join(map(str, known))
        raise ValueError(f"{option} must have {wanted} {'entry' if known == [1] else 'entries'}, got {list(values)!r}")


def canonical_choice(option: str, name: object, names: Mapping[str, Sequence[str]]) -> str:
    """The choice that a name stands for, in any case.

    Args:
        option: the name is a value of.
        name: of a choice, or another name of it.
        names: the other names of each choice.

    Raises:
        ValueError: naming option, value and choices.
    """
    for choice, aliases in names.items():
        if isinstance(name, str) and name.lower() in (choice, *aliases):
            return choice
    raise ValueError(f"{option} must be one of {', '.join(map(repr, names))}, got {name!r}")


def require_choice(option: str, value: object, choices: Collection[object]) -> None:
    """Refuse anything but one of the choices.

    Raises:
        ValueError: naming option, value and choices.
    """
    # 1 == True, but as an option it is another one.
    if not any(isinstance(value, type(choice)) and value == choice for choice in choices):
        raise ValueError(f"{option} must be one of {', '.join(map(repr, choices))}, got {value!r}")
