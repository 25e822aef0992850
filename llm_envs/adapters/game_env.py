"""A foreign game as a `BranchingEnv`: its states are values, reached by restoring, copying or replaying."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pickle import PickleError
from typing import Any, Literal, TypeAlias, get_args

from pettingzoo import ParallelEnv

from llm_envs.adapters.games import Game, Live, Outcome
from llm_envs.env import BranchingEnv
from llm_envs.seeding import ENVIRONMENT, Path, stream
from llm_envs.types import AgentID, Item, JointAction, State, Transition, Turn

BranchBy: TypeAlias = Literal["restore", "copy", "replay"]

_CHECKED_TURNS = 3
# What foreign objects that cannot be copied or restored raise.
_NOT_COPIED = (TypeError, ValueError, AttributeError, RuntimeError, AssertionError, LookupError, OSError, copy.Error, PickleError)
_KEPT = 256
"""Games under way that are kept, so that going on from a recent state needs no replay."""


class GameEnv(BranchingEnv, ParallelEnv):  # type: ignore[misc]  # `state` is text
    """A foreign game as an environment whose state is a value: its start, and the actions since.

    Whatever the way of branching, a state can always be reached by replaying its actions from its start, so states can be copied,
    pickled and restored elsewhere. Games under way are kept for a while to save replays.

    A row's `seed` decides the game's chance; without one it comes from the state's key. The game's own end is a termination or
    truncation as it says; reaching `num_turns` before is a truncation.

    Args:
        make_game: gives a game that nobody has played.
        agents: the team.
        num_turns: most turns.
        items: rows; `seed` and `options` are read by PettingZoo adapters.
        eval_items: rows for evaluation.
        name: for messages and `metadata`.
        branch_by: how to get to a second game at the same place: its own `restore`, a deep copy, or replay. None takes the first of
            these that is right.
        render_mode: None or "ansi".
        max_prompt_length: in characters.
        max_completion_length: in characters.

    Raises:
        ValueError: if the game does not repeat: with the chosen way of branching, or with any.

    Attributes:
        branch_by: the way of branching.
    """

    def __init__(
        self,
        make_game: Callable[[], Game],
        agents: Sequence[AgentID],
        *,
        num_turns: int,
        items: Sequence[Item] | Iterable[Item],
        eval_items: Sequence[Item] | Iterable[Item] | None = None,
        name: str = "game",
        branch_by: BranchBy | None = None,
        render_mode: str | None = None,
        max_prompt_length: int = 2**20,
        max_completion_length: int = 2**20,
    ) -> None:
        super().__init__(
            agents,
            num_turns=num_turns,
            items=items,
            eval_items=eval_items,
            name=name,
            render_mode=render_mode,
            max_prompt_length=max_prompt_length,
            max_completion_length=max_completion_length,
        )
        if not isinstance(num_turns, int) or isinstance(num_turns, bool) or num_turns < 1:
            raise ValueError(f"num_turns must be a whole number of at least 1, got {num_turns!r}")
        self._make_game = make_game
        self._kept: OrderedDict[Any, Live] = OrderedDict()
        self.branch_by: BranchBy = chosen_branching(make_game, next(iter(items)), name, branch_by)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": OrderedDict()}

    def initial(self, item: Item, key: Path, item_index: int = -1) -> State:
        """The state an episode on this row starts from.

        Raises:
            ValueError: for a row whose `seed` is none.
        """
        if not isinstance(item, Mapping):
            raise ValueError(f"item {item_index} must be a mapping, got {type(item).__name__}: {item!r}")
        live, prompts = Live.started(self._make_game, item, _seed(item, key))
        state = State(item=item, observations=self._prompts(prompts), key=key, item_index=item_index)
        self._keep(state, live)
        return state

    def branch(self, state: State, joint_actions: Sequence[JointAction]) -> list[Transition]:
        """What each of several joint actions leads to: each is played in a game of its own."""
        return [self._transition(state, index, action) for index, action in enumerate(self.playable(state, joint_actions))]

    def _transition(self, state: State, index: int, action: JointAction) -> Transition:
        live = self._second(state)
        outcome = live.play(action)
        rewards = {agent: _finite(outcome.rewards[agent], agent, state) for agent in self.possible_agents}
        over = outcome.terminated or outcome.truncated
        reached = State(
            item=state.item,
            observations=self._prompts(outcome.prompts),
            history=(*state.history, Turn(state.observations, action, rewards)),
            key=(*state.key, index),
            item_index=state.item_index,
            terminated=outcome.terminated,
            truncated=outcome.truncated or (not over and state.turn + 1 >= self.num_turns),
        )
        if not reached.done:
            self._keep(reached, live)
        infos = {
            agent: {
                "turn": state.turn + 1,
                "item_index": state.item_index,
                "raw_reward": rewards[agent],
                "acted": agent in outcome.acted,
                **{f"env/{name}": value for name, value in outcome.infos.get(agent, {}).items()},
            }
            for agent in self.possible_agents
        }
        return Transition(reached, rewards, infos)

    def _second(self, state: State) -> Live:
        """A game at the state that may be played on, with another one kept there if that costs no replay."""
        place = _place(state)
        live = self._kept.pop(place, None)
        if live is None:
            live, _ = Live.started(self._make_game, state.item, _start_seed(state))
            for turn in state.history:
                live.play(turn.actions)
        if self.branch_by != "replay":
            self._keep(state, second(live, self._make_game, self.branch_by))
        return live

    def _keep(self, state: State, live: Live) -> None:
        self._kept[_place(state)] = live
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _prompts(self, prompts: Mapping[AgentID, str]) -> dict[AgentID, str]:
        # Foreign texts may be longer than the space; the newest part is what an agent acts on.
        return {agent: prompts[agent][-self.max_prompt_length :] for agent in self.possible_agents}


def second(live: Live, make_game: Callable[[], Game], branch_by: BranchBy) -> Live:
    """Another game at the place of this one, by its own snapshot or by deep copy."""
    return live.restored_in(make_game) if branch_by == "restore" else live.copied()


def chosen_branching(make_game: Callable[[], Game], item: Item, name: str, wanted: BranchBy | None) -> BranchBy:
    """The wanted way of branching, or the first one that is right: it gives what straight play gives.

    Raises:
        ValueError: saying why the wanted one, or every one, is not right.
    """
    ways: Sequence[BranchBy] = ("restore", "copy", "replay") if wanted is None else (wanted,)
    for way in ways:
        if way not in get_args(BranchBy):
            raise ValueError(f"branch_by must be None or one of {', '.join(map(repr, get_args(BranchBy)))}, got {wanted!r}")
    fault = _replay_fault(make_game, item)
    if fault is not None:
        raise ValueError(f"{name} does not repeat: {fault}. An environment must be the same after reset(seed) with the same seed")
    for way in ways:
        fault = None if way == "replay" else _branching_fault(make_game, item, way)
        if fault is None:
            return way
    raise ValueError(f"{name} cannot branch by {wanted}: {fault}")


def _straight(make_game: Callable[[], Game], item: Item) -> list[Outcome | Mapping[AgentID, str]]:
    """What the first turns of probes lead to."""
    live, prompts = Live.started(make_game, item, _seed(item, (0,)))
    found: list[Outcome | Mapping[AgentID, str]] = [dict(prompts)]
    for turn in range(_CHECKED_TURNS):
        outcome = live.play(live.game.probe(turn))
        found.append(outcome)
        if outcome.terminated or outcome.truncated:
            break
    return found


def _replay_fault(make_game: Callable[[], Game], item: Item) -> str | None:
    first, again = _straight(make_game, item), _straight(make_game, item)
    for turn, (one, other) in enumerate(zip(first, again, strict=False)):
        if one != other:
            return f"turn {turn} gave {one!r:.300} and then {other!r:.300}"
    return None if len(first) == len(again) else f"{len(first) - 1} turns, then {len(again) - 1}"


def _branching_fault(make_game: Callable[[], Game], item: Item, way: BranchBy) -> str | None:
    """Why games that were branched from do not go on as if they had not been; None if they do."""
    expected = _straight(make_game, item)[1:]
    live, _ = Live.started(make_game, item, _seed(item, (0,)))
    for turn, outcome in enumerate(expected):
        try:
            other, live = second(live, make_game, way), second(live, make_game, way)
        except _NOT_COPIED as error:
            return f"{type(error).__name__}: {error}"
        other.play(other.game.probe(turn + 1))  # must not be felt in the other game
        found = live.play(live.game.probe(turn))
        if found != outcome:
            return f"turn {turn + 1} gave {found!r:.300} and not {outcome!r:.300}"
    return None


def _seed(item: Item, key: Path) -> int:
    """The row's seed, or one that belongs to the key of a start."""
    seed = item.get("seed")
    if seed is None:
        return int(stream(ENVIRONMENT, key).integers(2**31))
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"a row's seed must be a whole number of at least 0 or None, got {seed!r}")
    return seed


def _start_seed(state: State) -> int:
    """The seed that the state's episode started with: a key grows by one number a turn."""
    return _seed(state.item, state.key[: len(state.key) - state.turn])


def _place(state: State) -> Any:
    """What a game's state is determined by."""
    return (
        _start_seed(state),
        repr(sorted(state.item.items(), key=lambda entry: str(entry[0]))),
        tuple(tuple(turn.actions.items()) for turn in state.history),
    )


def _finite(reward: Any, agent: AgentID, state: State) -> float:
    value = float(reward)
    if not math.isfinite(value):
        raise ValueError(f"the reward of {agent} at {state.place} is {reward!r}")
    return value
