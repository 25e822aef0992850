"""A world of blocks that the agents' commands change: pure Python and numpy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llm_envs.tasks.building.commands import Cell, Command, Kill, Place, Rejected, read_commands
from llm_envs.tasks.building.materials import NUMBER, Grid

NOBODY = -1


@dataclass(frozen=True)
class Rules:
    """What the agents of one row may do.

    Attributes:
        size: cells along x, y and z.
        verbs: the commands there are.
        palettes: the blocks of each agent; air is always allowed.
        max_commands: of each agent, in a turn.
        stocks: for each agent, how many blocks of each kind it may have in the world; None without limits.
    """

    size: Cell
    verbs: tuple[str, ...]
    palettes: tuple[tuple[str, ...], ...]
    max_commands: tuple[int, ...]
    stocks: tuple[Mapping[str, int], ...] | None = None


@dataclass(frozen=True)
class Report:
    """What became of one agent's text in one turn."""

    accepted: tuple[Command, ...]
    rejected: tuple[Rejected, ...]


@dataclass
class World:
    """Blocks, who placed them, and whether the spiders are dead.

    Attributes:
        blocks: [x, y, z] numbers of blocks, 0 for air.
        owners: [x, y, z] number of the agent that placed the block, -1 for air.
        killed: whether somebody killed the spiders.
    """

    blocks: Grid
    owners: NDArray[np.int16]
    killed: bool = False

    def copy(self) -> World:
        """The same world, to change."""
        return World(self.blocks.copy(), self.owners.copy(), self.killed)

    def standing(self, agent: int, block: str) -> int:
        """Blocks of a kind that the agent placed and that still stand."""
        return int(np.count_nonzero((self.blocks == NUMBER[block]) & (self.owners == agent)))

    def play(self, rules: Rules, texts: Sequence[str]) -> list[Report]:
        """Run the commands of one turn, those of the first agent first; says what became of each agent's text."""
        return [self._run(rules, agent, text) for agent, text in enumerate(texts)]

    def _run(self, rules: Rules, agent: int, text: str) -> Report:
        accepted: list[Command] = []
        rejected: list[Rejected] = []
        for command in read_commands(text, rules.verbs):
            if isinstance(command, Rejected):
                rejected.append(command)
                continue
            reason = "too many commands" if len(accepted) == rules.max_commands[agent] else self._obey(rules, agent, command)
            if reason is None:
                accepted.append(command)
            else:
                rejected.append(Rejected(command.line, command.text, reason))
        return Report(tuple(accepted), tuple(rejected))

    def _obey(self, rules: Rules, agent: int, command: Command) -> str | None:
        """Change the world; or say why not, and leave it as it is."""
        if isinstance(command, Kill):
            self.killed = True
            return None
        if min(command.low) < 0 or any(high >= size for high, size in zip(command.high, rules.size, strict=True)):
            return "outside of the box"
        if command.block not in NUMBER:
            return f"there is no block {command.block[:20]}"
        number = NUMBER[command.block]
        if number and command.block not in rules.palettes[agent]:
            return f"{command.block} is not one of your blocks"
        box = _slices(command)
        changed = self.blocks[box] != number  # a block that is there already stays its owner's
        if number and rules.stocks is not None:
            left = rules.stocks[agent][command.block] - self.standing(agent, command.block)
            needed = int(np.count_nonzero(changed))
            if needed > left:
                return f"needs {needed} {command.block}, you have {left} left"
        self.owners[box][changed] = agent if number else NOBODY
        self.blocks[box][changed] = number
        return None


def _slices(command: Place) -> tuple[slice, slice, slice]:
    x, y, z = (slice(low, high + 1) for low, high in zip(command.low, command.high, strict=True))
    return x, y, z


def empty_world(size: Cell) -> World:
    """A world of air."""
    return World(np.zeros(size, dtype=np.int8), np.full(size, NOBODY, dtype=np.int16))


def built(rules: Rules, turns: Iterable[Sequence[str]]) -> World:
    """The world after some turns; each is one text for each agent, in order."""
    world = empty_world(rules.size)
    for texts in turns:
        world.play(rules, texts)
    return world


def dealt(total: int, shares: int) -> tuple[int, ...]:
    """A total divided into shares as equal as they can be; the first ones get what is over."""
    each, over = divmod(total, shares)
    return tuple(each + (number < over) for number in range(shares))
