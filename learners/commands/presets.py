"""Presets: values for a learner's options that learn where the config's own defaults, made for real models, would not."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

TINY_MODELS = ("tiny", "tiny-random")

PresetName: TypeAlias = Literal["auto", "tiny", "none"]
Values: TypeAlias = dict[str, Any]

_STATES = 400


@dataclass(frozen=True)
class Job:
    """What a run is about, as far as it decides what learns.

    Attributes:
        num_items: length of the training items; None if they have none.
        num_turns: most turns of an episode.
        options: of the learner as they are without a preset, the user's among them.
        given: names of the user's.
        backend: names of the options of the learner that `rl_algorithm` names, for those that have such an option.
    """

    num_items: int | None
    num_turns: int
    options: Mapping[str, Any]
    given: Collection[str]
    backend: Callable[[], Collection[str]] = frozenset

    @property
    def critic_type(self) -> str:
        """Of an actor-critic learner: "v" unless "q" was asked for."""
        return self.options.get("critic_type") or "v"

    def epochs(self, generations: int) -> int:
        """Passes that use the states the preset wants. Items without a length are used once, in their order."""
        if self.num_items is None:
            return 1
        states_an_item = sum(generations**turn for turn in range(self.num_turns))
        return max(1, math.ceil(_STATES / states_an_item / self.num_items))


def choose(preset: PresetName, models: Sequence[str]) -> Literal["tiny", "none"]:
    """The preset to apply: `auto` is `tiny` for a team of tiny models, `none` else."""
    if preset != "auto":
        return preset
    return "tiny" if all(model in TINY_MODELS for model in models) else "none"


def values(preset: Literal["tiny", "none"], job: Job) -> Values:
    """The preset's values for options of the learner: what all learners share, and what those of its family do.

    `tiny` is made for the built-in model: it learns a built-in task on a CPU within a minute or two.
    """
    if preset == "none":
        return {}
    # Learners of other packages have a family too, by the options they share with it.
    table = next(table for marks, table in _FAMILIES if marks <= job.options.keys())
    return {**_shared(job), **table(job)}


def sampling(preset: Literal["tiny", "none"]) -> Values:
    """The preset's values for how texts are drawn."""
    return {} if preset == "none" else {"temperature": 0.7, "top_p": 1.0, "top_k": None, "max_new_tokens": 48}


def _shared(job: Job) -> Values:
    return {
        **sampling("tiny"),
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "eval_interval": 32,
        "eval_num_samples": 48,
        "eval_batch_size": 48,
        "logging_steps": 32,
        "shuffle": job.num_items is not None,
    }


def _reinforce(job: Job) -> Values:
    """With several turns, whose trees hold many states, fewer generations and fewer items."""
    generations = 8 if job.num_turns == 1 else 4
    return {
        "agent_learning_rate": 5e-4,
        "num_generations": generations,
        "rollout_buffer_size": 4,  # states
        "num_train_epochs": job.epochs(generations),
    }


def _actor_critic(job: Job) -> Values:
    """A Q critic is its own baseline: it must learn more slowly than the actors, and small advantages must stay small."""
    generations = 8 if job.num_turns == 1 else 1
    critic_rate = _critic_rate(job)
    return {
        "agent_learning_rate": 5e-4,
        "num_generations": generations,
        "rollout_buffer_size": 32,  # samples of an agent
        "num_train_epochs": job.epochs(generations),
        "critic_learning_rate": critic_rate,
        "value_head_learning_rate": 10 * critic_rate,
        **({"advantage_normalization": False} if job.critic_type == "q" else {}),
    }


def _critic_rate(job: Job) -> float:
    return 1e-5 if job.critic_type == "q" else 1e-3


def _madpo(job: Job) -> Values:
    """One pass: from the second on the joint margin grows on, and texts get worse."""
    return {
        "agent_learning_rate": 1e-4,
        "preference_num_candidates": 16,
        "preference_pairs_per_sample": 4,
        "num_train_epochs": 1,
        "train_batch_size": 16,
        "dpo_beta": 0.1,
        "eval_interval": 64,  # pairs
    }


def _madpo_iter(job: Job) -> Values:
    return {**_madpo(job), "num_iterations": 4, "preference_num_candidates": 8, **_replay(job)}


def _marlhf(job: Job) -> Values:
    """The KL keeps the team near the texts that the reward model has seen."""
    return {
        "agent_learning_rate": 5e-4,
        "preference_num_candidates": 16,
        "reward_learning_rate": 1e-3,
        "reward_train_batch_size": 16,
        "reward_num_train_epochs": 1,
        "num_train_epochs": 4,
        **_backend(job),
    }


def _marlhf_iter(job: Job) -> Values:
    return {
        **_marlhf(job),
        "num_iterations": 3,
        "preference_num_candidates": 8,
        "preference_pairs_per_sample": 4,
        "pair_selection": "reward_gap",
        "reward_num_train_epochs": 2,
        "num_train_epochs": 1,
        **_replay(job, sample_size=1024),
    }


def _backend(job: Job) -> Values:
    """Of the policy-gradient learner in MARLHF, which may be another package's: only what it has."""
    known = job.backend()
    own = _actor_critic(job) if "gae_lambda" in known else _reinforce(job)
    penalty = {"reference_kl_enabled": True, "reference_kl_coef": 0.03}
    direct = _among(("num_generations", "rollout_buffer_size", "critic_learning_rate"), own, known)
    further = _among(("value_head_learning_rate", "advantage_normalization"), own, known)
    return {**direct, "rl_options": {**_among(penalty, penalty, known), **further}}


def _among(names: Iterable[str], values: Values, known: Collection[str]) -> Values:
    return {name: values[name] for name in names if name in values and name in known}


def _replay(job: Job, sample_size: int | None = None) -> Values:
    """All rounds so far; a mode that is asked for has options of its own."""
    if "preference_replay_mode" in job.given:
        return {}
    return {"preference_replay_mode": "all_history", "preference_replay_sample_size": sample_size}


# The more specific ones first. Their marks are options that no other family has.
_FAMILIES: tuple[tuple[frozenset[str], Callable[[Job], Values]], ...] = (
    (frozenset({"rl_algorithm", "num_iterations"}), _marlhf_iter),
    (frozenset({"rl_algorithm"}), _marlhf),
    (frozenset({"dpo_beta", "num_iterations"}), _madpo_iter),
    (frozenset({"dpo_beta"}), _madpo),
    (frozenset({"gae_lambda"}), _actor_critic),
    (frozenset(), _reinforce),
)
