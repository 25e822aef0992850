"""What the trainer asks of a learner, and a learner of a policy. No base classes: any object with these members will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from typing_extensions import Self

from learners.policy import TokenLogprobs
from llm_envs.types import AgentID, Completion, EnvStep, Metrics, Policy, RolloutSpec


class Trainee(Protocol):
    """What a run trains and a checkpoint stores, however it is trained."""

    @property
    def policies(self) -> Mapping[AgentID, Policy]:
        """One for each agent of the env, in order. The collector acts with them."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact resume needs, as a tree of tensors and plain values."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Raises ValueError, with nothing changed, if it does not fit."""
        ...


@runtime_checkable
class Learner(Trainee, Protocol):
    """Turns env steps into better policies. `learners/reinforce.py` is the one to copy."""

    @property
    def rollout(self) -> RolloutSpec:
        """Samples a state, joint mode and early termination: what the collector does for this learner."""
        ...

    @property
    def states_until_update(self) -> int:
        """States that can still be collected before the policies change; 1 for a learner that updates on every episode.

        The trainer collects as many items together as surely fit, so results equal collecting them one by one. 0 says that an
        update was stopped in its middle: the next call of `update`, without steps too, goes on with it.
        """
        ...

    def update(self, steps: Sequence[EnvStep]) -> list[Metrics]:
        """Take in the steps of whole episodes, in order; update whenever enough have come. Returns what to log.

        A learner that can be stopped anywhere and lose nothing takes in all steps, or raises before it has any. What stops it after
        that leaves `states_until_update` at 0.
        """
        ...

    def flush(self) -> list[Metrics]:
        """Update on whatever is left: the end of an epoch."""
        ...


class TrainablePolicy(Policy, Protocol):
    """A policy whose weights can be trained. `HFPolicy` is the one for Hugging Face models; another backend needs these members."""

    def logprobs(self, completions: Sequence[Completion]) -> TokenLogprobs:
        """Log-probabilities [B, T] under the current weights and the distribution sampled from, with gradient where enabled."""
        ...

    def micro_batches(self, completions: Sequence[Completion]) -> list[list[int]]:
        """Positions of the completions in batches that are small enough to be scored with gradients."""
        ...

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, each once."""
        ...

    def reference(self, device: torch.device | str | None = None) -> Self:
        """A frozen copy as of now: what a KL penalty compares with."""
        ...

    def state_dict(self) -> Mapping[str, Tensor]:
        """Weights by name."""
        ...

    def check_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Refuse weights that do not fit, with a ValueError; changes nothing."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over weights in place."""
        ...
