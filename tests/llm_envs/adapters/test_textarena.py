"""Guards TextArena's games as ours: the package's prompts and rewards, hidden moves together and seen ones in turn, refusals."""

from __future__ import annotations

import random
import sys

import pytest

import llm_envs
from llm_envs.testing import check_env


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(ImportError, match=r"pip install 'llm-envs\[textarena\]'"):
        llm_envs.make("textarena:TicTacToe-v0")


@pytest.fixture
def arena():
    return pytest.importorskip("textarena")


def made(game="TicTacToe-v0", **options):
    return llm_envs.make(f"textarena:{game}", **{"size": 4, "eval_size": 2, **options})


def played(env, actions, row=0):
    """Transitions of a game with the same texts for all players in each turn."""
    state = env.initial(env.items[row], (0, 0, 0), row)
    found = []
    for text in actions:
        (transition,) = env.branch(state, [dict.fromkeys(env.possible_agents, text)])
        state = transition.state
        found.append(transition)
    return found


def acted(transition):
    return [agent for agent, info in transition.infos.items() if info["acted"]]


def test_a_game_is_the_packages_own(arena):
    """Prompts and the outcome, move by move, beside the package played as its pages say."""
    theirs = arena.make("TicTacToe-v0")
    theirs.reset(num_players=2, seed=0)
    env = made(num_turns=9)
    state = env.initial(env.items[0], (0, 0, 0), 0)
    for move in ("[0]", "[1]", "[4]", "[2]", "[8]"):
        player, prompt = theirs.get_observation()
        assert state.observations[f"player_{player}"] == prompt
        done, _ = theirs.step(action=move)
        (transition,) = env.branch(state, [dict.fromkeys(env.possible_agents, move)])
        assert acted(transition) == [f"player_{player}"]
        state = transition.state
        assert state.terminated is done
    rewards, info = theirs.close()
    assert (
        transition.rewards == {f"player_{player}": reward for player, reward in rewards.items()} == {"player_0": 1, "player_1": -1}
    )
    assert transition.infos["player_1"]["env/reason"] == info[1]["reason"]


def test_hidden_decisions_are_played_together(arena):
    """Two turns of talk, one after the other; then both decide at once, and what each earns is the package's."""
    env = made("IteratedPrisonersDilemma-v0", options={"num_rounds": 1, "communication_turns": 1})
    state = env.initial(env.items[0], (0, 0, 0), 0)
    turns = [
        {"player_0": "let us cooperate", "player_1": "x"},
        {"player_0": "x", "player_1": "yes"},
        {"player_0": "[Cooperate]", "player_1": "[Defect]"},
    ]
    who = []
    for actions in turns:
        (transition,) = env.branch(state, [actions])
        state = transition.state
        who.append(acted(transition))
    assert who == [["player_0"], ["player_1"], ["player_0", "player_1"]]
    assert state.terminated and transition.rewards == {"player_0": -1.0, "player_1": 1.0}


def test_raw_games_read_like_transcripts(arena):
    env = made("TicTacToe-v0-raw", num_turns=9)
    first, second = played(env, ["[0]", "[1]"])
    assert first.state.observations["player_1"].startswith("\n[GAME] You are Player 1")
    assert second.state.observations["player_0"].startswith(first.state.observations["player_0"])


def test_seeds_are_rows(arena):
    """Kuhn poker deals by the seed; the same one deals the same, whatever the program draws meanwhile."""
    env = made("KuhnPoker-v0", size=8)
    deals = []
    for row in (*range(8), *range(8)):
        random.random()
        deals.append(tuple(env.initial(env.items[row], (row, 1, 2), row).observations.values()))
    assert deals[:8] == deals[8:] and len(set(deals)) > 1
    assert [row["seed"] for row in env.eval_items] == [8, 9]


def test_a_second_invalid_move_loses(arena):
    *_, last = played(made(), ["nonsense", "nonsense"])
    assert last.state.terminated and last.rewards == {"player_0": -1.0, "player_1": 1.0}
    assert last.infos["player_0"]["env/invalid_move"] is True


def test_a_game_that_is_cut_off_pays_nothing(arena):
    *_, last = played(made(num_turns=2), ["[0]", "[1]"])
    assert last.state.truncated and set(last.rewards.values()) == {0.0}


def test_numbers_of_players(arena):
    assert made("ThreePlayerIPD-v0").possible_agents == ["player_0", "player_1", "player_2"]
    assert made("Poker-v0", num_players=4).possible_agents[-1] == "player_3"
    with pytest.raises(ValueError, match="does not start with these numbers of players: 5: AssertionError"):
        made(num_players=5)


@pytest.mark.parametrize(
    "game",
    [
        "TicTacToe-v0",
        "IteratedPrisonersDilemma-v0-train",
        *(pytest.param(other, marks=pytest.mark.slow) for other in ("KuhnPoker-v0", "ThreePlayerTicTacToe-v0")),
    ],
)
def test_it_conforms(arena, game):
    check_env(made(game), episodes=2)


@pytest.mark.parametrize(
    "game, options, message",
    [
        ("TicTacTo-v0", {}, r"no game 'TicTacTo-v0' \(did you mean TicTacToe-v0"),
        ("TicTacToe-v0", {"size": 0}, "size must be a whole number of at least 1, got 0"),
        ("TicTacToe-v0", {"options": {"boards": 3}}, "unexpected keyword argument 'boards'"),
        ("TicTacToe-v0", {"branch_by": "restore"}, "cannot branch by restore: TypeError: TextArenaGame has no snapshot"),
        ("UsedCarNegotiation-v0", {}, "cannot be played here: FileNotFoundError"),
    ],
)
def test_what_cannot_be_is_refused(arena, game, options, message):
    with pytest.raises(ValueError, match=message):
        made(game, **options)
