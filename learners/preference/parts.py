"""Several parts as the one thing that a run trains and a checkpoint stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Restorable(Protocol):
    """What a checkpoint stores, and restores wholly or not at all."""

    def state_dict(self) -> Mapping[str, Any]:
        """Everything an exact resume needs."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Raises ValueError, with nothing changed, if it does not fit."""
        ...


class Part(Restorable, Protocol):
    """One of several that are restored together: it can say beforehand whether a state fits."""

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse a state that does not fit, with a ValueError; changes nothing."""
        ...


class Parts:
    """A learner and what a run keeps beside it.

    Args:
        learner: is restored first; what it refuses has changed nothing yet.
        parts: by name.
    """

    def __init__(self, learner: Restorable, parts: Mapping[str, Part]) -> None:
        self._learner = learner
        self._parts = dict(parts)

    def state_dict(self) -> dict[str, Any]:
        """The states of all."""
        return {"learner": self._learner.state_dict(), **{name: part.state_dict() for name, part in self._parts.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all.

        Raises:
            ValueError: one of them does not fit; nothing is changed then.
        """
        if set(state) != {"learner", *self._parts}:
            raise ValueError(f"the checkpoint holds {', '.join(state) or 'nothing'}, this run has {', '.join(self._parts)}")
        for name, part in self._parts.items():
            part.check_state_dict(state[name])
        self._learner.load_state_dict(state["learner"])
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
