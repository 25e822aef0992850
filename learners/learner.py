"""What the trainer asks of a learner. There is no base class: any object with these members is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from llm_envs.types import AgentID, EnvStep, Metrics, Policy, RolloutSpec


@runtime_checkable
class Learner(Protocol):
    """Turns env steps into better policies. `learners/reinforce.py` is the one to copy."""

    policies: Mapping[AgentID, Policy]
    """One for each agent of the env, in order. The collector acts with them."""

    rollout: RolloutSpec
    """Samples a state, joint mode and early termination: what the collector does for this learner."""

    @property
    def states_until_update(self) -> int:
        """States that can still be collected before the policies change; 1 for a learner that updates on every episode.

        The trainer collects as many items together as surely fit, so results equal collecting them one by one.
        """
        ...

    def update(self, steps: Sequence[EnvStep]) -> list[Metrics]:
        """Take in the steps of whole episodes, in order; update whenever enough have come. Returns what to log."""
        ...

    def flush(self) -> list[Metrics]:
        """Update on whatever is left: the end of an epoch."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact resume needs, as a tree of tensors and plain values."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Raises ValueError, with nothing changed, if it does not fit."""
        ...
