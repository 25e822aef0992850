"""A foreign environment under way: what an adapter makes of it, and how it is kept from the global random streams."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.random import RandomState

from llm_envs.types import AgentID, Item, JointAction

# The global streams belong to one foreign environment at a time, whatever the threads.
_STREAMS = threading.RLock()


@dataclass(frozen=True)
class Outcome:
    """What one joint action led to.

    Attributes:
        prompts: what each agent reads next.
        rewards: one for each agent.
        acted: the agents whose texts were played; in a turn-based game the others' were not.
        terminated: the game is over.
        truncated: it was cut off.
        infos: further numbers and texts, for each agent.
    """

    prompts: Mapping[AgentID, str]
    rewards: Mapping[AgentID, float]
    acted: Sequence[AgentID]
    terminated: bool = False
    truncated: bool = False
    infos: Mapping[AgentID, Mapping[str, Any]] = field(default_factory=dict)


class Game(Protocol):
    """A foreign environment with a state of its own that changes while it is played."""

    def start(self, item: Item, seed: int) -> Mapping[AgentID, str]:
        """Start anew: what each agent reads first. The same item and seed start the same."""
        ...

    def play(self, actions: JointAction) -> Outcome:
        """Play what every agent wrote on what it read last."""
        ...

    def probe(self, turn: int) -> JointAction:
        """Texts to try it with, always the same for a turn."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """A game whose state can be taken out and put back."""

    def snapshot(self) -> Any:
        """The state as a value."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Go on from a snapshot."""
        ...


class Live:
    """A game under way, with global random streams of its own.

    Foreign environments often draw from Python's or numpy's global stream. While one is played, both are its own, as it left them;
    everybody else's are as they were.

    Args:
        game: is played.
        streams: states of the two global streams, as it is to find them.
    """

    def __init__(self, game: Game, streams: tuple[Any, Any]) -> None:
        self.game = game
        self._streams = streams

    @classmethod
    def started(cls, make_game: Callable[[], Game], item: Item, seed: int) -> tuple[Live, Mapping[AgentID, str]]:
        """A fresh game at its start, and what each agent reads."""
        streams = Random(seed).getstate(), RandomState(seed % 2**32).get_state()
        with _installed(streams) as left:
            game = make_game()
            prompts = game.start(item, seed)
        return cls(game, left()), prompts

    def play(self, actions: JointAction) -> Outcome:
        """Play a joint action."""
        with _installed(self._streams) as left:
            outcome = self.game.play(actions)
        self._streams = left()
        return outcome

    def copied(self) -> Live:
        """Another one at the same place, by deep copy."""
        with _installed(self._streams):
            return Live(copy.deepcopy(self.game), self._streams)

    def restored_in(self, make_game: Callable[[], Game]) -> Live:
        """Another one at the same place: a fresh game with this one's snapshot.

        Raises:
            TypeError: if the game has none.
        """
        if not isinstance(self.game, Restorable):
            raise TypeError(f"{type(self.game).__name__} has no snapshot and restore")
        with _installed(self._streams):
            game: Any = make_game()
            game.restore(self.game.snapshot())
        return Live(game, self._streams)


@contextmanager
def _installed(streams: tuple[Any, Any]) -> Iterator[Callable[[], tuple[Any, Any]]]:
    """Python's and numpy's global streams in these states for a while; the function given says, afterwards, how they were left."""
    left: list[tuple[Any, Any]] = []
    with _STREAMS:
        outside = random.getstate(), np.random.get_state()
        random.setstate(streams[0])
        np.random.set_state(streams[1])
        try:
            yield lambda: left[0]
        finally:
            left.append((random.getstate(), np.random.get_state()))
            random.setstate(outside[0])
            np.random.set_state(outside[1])
