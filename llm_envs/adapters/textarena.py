"""`textarena:<game>`: games of the package textarena, with their own prompts, rules and rewards for each player.

The package: https://github.com/LeonGuertler/TextArena.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from llm_envs.adapters.game_env import BranchBy, GameEnv
from llm_envs.adapters.games import Outcome
from llm_envs.types import AgentID, Item, JointAction

_MOST_PLAYERS = 15
_PROBES = ("[0]", "[4]", "yes", "[1]", "[Cooperate]", "[8]")
# What games raise for numbers of players that they are not made for.
_REFUSED = (AssertionError, ValueError, KeyError, IndexError, TypeError)
# What games raise that this machine lacks something for: a newer Python, word lists, files, packages.
_LACKING = (SyntaxError, LookupError, OSError, ImportError)


def env(
    game: str,
    /,
    *,
    num_players: int | None = None,
    num_turns: int = 4,
    size: int = 64,
    eval_size: int = 16,
    options: Mapping[str, Any] | None = None,
    branch_by: BranchBy | None = None,
    render_mode: str | None = None,
) -> GameEnv:
    """A TextArena game: `player_0`, `player_1`, … read the game's own prompts and earn its rewards, each their own.

    In each turn every player is asked. The one whose turn it is plays; then the next one, with the text it wrote already, as long
    as it would read now what it read when it wrote it. So decisions that are hidden from each other are played together, and moves
    that are seen one a turn: the others' texts are not used then. `infos[agent]["acted"]` says whose were.

    Games pay at their end, 0 before; a game that `num_turns` cuts off pays nothing. An invalid move is an action too: a second one
    in a row loses most games.

    Args:
        game: its id in the package, `TicTacToe-v0`. What `-v0-train` and `-v0-raw` change are the prompts.
        num_players: 2 by default, or the least number that the game takes.
        num_turns: turns after which a game is cut off. A tree of K samples has Kᵗ branches after t of them; learners on chains can
            play long games.
        size: seeds to train on, 0 to `size` − 1.
        eval_size: seeds after these, for evaluation.
        options: of the game, `{"num_rounds": 2}`; its class documents them.
        branch_by: as for `llm_envs.adapters.from_parallel_env`; by default a deep copy of the game if that is right, else replay.
        render_mode: None or "ansi".

    Raises:
        ValueError: for an unknown game, numbers of players or options that it does not take, one that lacks something here (some
            need a newer Python, or word lists from the network), or that is not the same again with the same seed.
        ImportError: without the package.
    """
    _check_name(game)
    for option, value, least in (("size", size, 1), ("eval_size", eval_size, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{option} must be a whole number of at least {least}, got {value!r}")
    players = _players(game, num_players, dict(options or {}))
    return GameEnv(
        partial(TextArenaGame, game, players, dict(options or {})),
        [f"player_{number}" for number in range(players)],
        num_turns=num_turns,
        items=[{"seed": seed} for seed in range(size)],
        eval_items=[{"seed": seed} for seed in range(size, size + eval_size)] or None,
        name=f"textarena:{game}",
        branch_by=branch_by,
        render_mode=render_mode,
    )


def _package(game: str) -> Any:
    try:
        return importlib.import_module("textarena")
    except ModuleNotFoundError as error:
        raise ImportError(f"textarena:{game} needs the package textarena: pip install 'llm-envs[textarena]'") from error


def _check_name(game: str) -> None:
    known = _package(game).envs.registration.ENV_REGISTRY
    if game not in known:
        close = difflib.get_close_matches(game, list(known))
        hint = f"did you mean {', '.join(close)}?" if close else "textarena.envs.registration.ENV_REGISTRY has them all"
        raise ValueError(f"textarena has no game {game!r} ({hint})")


def _players(game: str, wanted: int | None, options: Mapping[str, Any]) -> int:
    """The number of players, tried out.

    Raises:
        ValueError: if the game takes no such number.
    """
    refusals: list[str] = []
    for count in [2, 1, *range(3, _MOST_PLAYERS + 1)] if wanted is None else [wanted]:
        refusal = _refusal(game, count, options)
        if refusal is None:
            return count
        refusals.append(f"{count}: {refusal}")
    raise ValueError(f"textarena:{game} with {dict(options)} does not start with these numbers of players: {'; '.join(refusals)}")


def _refusal(game: str, players: int, options: Mapping[str, Any]) -> str | None:
    """Why the game does not start with so many players; None if it does.

    Raises:
        ValueError: if it does not start with any number.
    """
    try:
        TextArenaGame(game, players, options).start({}, 0)
    except _REFUSED as error:
        return f"{type(error).__name__}: {error}"
    except _LACKING as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip("* ")]
        reason = f"{type(error).__name__}: {lines[0] if lines else ''}"
        raise ValueError(f"textarena:{game} cannot be played here: {reason}") from error
    return None


class TextArenaGame:
    """A TextArena game in which all write at once.

    Args:
        game: its id.
        players: their number.
        options: of the game.
    """

    def __init__(self, game: str, players: int, options: Mapping[str, Any]) -> None:
        self._env: Any = _package(game).make(game, **options)
        self._players = players
        self._heard: dict[int, str] = {}  # what raw games said so far, by player
        self._prompts: dict[AgentID, str] = {}

    def start(self, item: Item, seed: int) -> Mapping[AgentID, str]:
        """Reset with the seed."""
        self._env.reset(num_players=self._players, seed=seed)
        self._heard = dict.fromkeys(range(self._players), "")
        return self._read()

    def play(self, actions: JointAction) -> Outcome:
        """Play the texts of all players who may act on what they read."""
        acted: list[AgentID] = []
        done = False
        while not done:
            player = self._env.state.current_player_id
            agent = f"player_{player}"
            if agent in acted or (acted and self._prompt(player) != self._prompts[agent]):
                break
            done, _ = self._env.step(action=actions[agent])
            acted.append(agent)
        rewards = dict.fromkeys(self._prompts, 0.0)
        infos: dict[AgentID, dict[str, Any]] = {}
        if done:
            earned, about = self._env.close()
            rewards |= {f"player_{player}": float(reward) for player, reward in (earned or {}).items()}
            infos = {f"player_{player}": _told(info) for player, info in about.items()}
        return Outcome(self._read(), rewards, acted, terminated=bool(done), infos=infos)

    def _read(self) -> Mapping[AgentID, str]:
        self._prompts = {f"player_{player}": self._prompt(player) for player in range(self._players)}
        return dict(self._prompts)

    def _prompt(self, player: int) -> str:
        """What a player would read if it were its turn."""
        state = self._env.state
        current = state.current_player_id
        state.current_player_id = player
        try:
            _, seen = self._env.get_observation()
        except (LookupError, AssertionError):
            # Some prompts are made of what a player is only told in its turn.
            if player == current:
                raise
            return self._heard[player]
        finally:
            state.current_player_id = current
        if not isinstance(seen, str):  # a game without wrappers gives what is new, as messages
            seen = self._heard[player] + "".join(f"\n[{_sender(sender)}] {message}" for sender, message, *_ in seen)
        self._heard[player] = seen
        return seen

    def probe(self, turn: int) -> JointAction:
        """Texts that some games take for moves."""
        return {agent: _PROBES[(turn + number) % len(_PROBES)] for number, agent in enumerate(self._prompts)}


def _sender(player: int) -> str:
    return "GAME" if player < 0 else f"Player {player}"


def _told(info: Mapping[str, Any]) -> dict[str, Any]:
    """Why the game ended, for a player."""
    return {key: info[key] for key in ("reason", "invalid_move") if isinstance(info.get(key), (str, bool))}
