"""Guards PettingZoo environments as ours: the same game as outside, branching that is checked, conformance, turn-based ones."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
from gymnasium import spaces
from text_games import (
    CutOff,
    ForgetfulSaving,
    Global,
    Higher,
    Locked,
    OneLeaves,
    Saving,
    SharesOnCopy,
    Stones,
    Unseeded,
)

from llm_envs import RolloutSpec, collect
from llm_envs.adapters import from_aec_env, from_parallel_env
from llm_envs.testing import ConformanceError, ScriptedPolicy, check_env

DIGITS = [{"player_0": "4", "player_1": "7"}, {"player_0": "1", "player_1": "1"}, {"player_0": "9", "player_1": "0"}]


def adapted(env=Higher, **options):
    return from_parallel_env(env, **{"num_turns": 3, **options})


def played(env, actions, seed=None):
    """Prompts, rewards and ends of an episode that begins with row 0."""
    state = env.initial(env.items[0], (0, 0, 0), 0)
    found = []
    for action in actions:
        (transition,) = env.branch(state, [action])
        state = transition.state
        found.append((dict(state.observations), dict(transition.rewards), state.terminated, state.truncated))
    return found


def test_the_game_is_the_foreign_one():
    """Step by step, what the environment itself says after reset(seed=0)."""
    foreign = Higher()
    observations, _ = foreign.reset(seed=0)
    env = adapted()
    state = env.initial({"seed": 0}, (0, 0, 0), 0)
    assert state.observations == {agent: seen["hint"] for agent, seen in observations.items()}
    for action, (prompts, rewards, terminated, truncated) in zip(DIGITS, played(env, DIGITS), strict=True):
        observations, theirs, terminations, _, _ = foreign.step(action)
        assert prompts == {agent: seen["hint"] for agent, seen in observations.items()}
        assert rewards == theirs and terminated is all(terminations.values()) and not truncated


@pytest.mark.parametrize(
    "env, way",
    [
        (Saving, "restore"),
        (Higher, "copy"),
        (Locked, "replay"),
        (SharesOnCopy, "replay"),
        (ForgetfulSaving, "copy"),
        (Global, "copy"),
    ],
)
def test_the_first_way_of_branching_that_is_right_is_taken(env, way):
    assert adapted(env).branch_by == way
    assert played(adapted(env), DIGITS) == played(adapted(env, branch_by="replay"), DIGITS)


@pytest.mark.parametrize(
    "env, way, why",
    [
        (Higher, "restore", "cannot branch by restore: AttributeError"),
        (Locked, "copy", "cannot branch by copy: TypeError: cannot pickle"),
        (SharesOnCopy, "copy", "cannot branch by copy: turn 1 gave"),
        (ForgetfulSaving, "restore", "cannot branch by restore: turn"),
        (Higher, "magic", "branch_by must be None or one of 'restore', 'copy', 'replay', got 'magic'"),
    ],
)
def test_a_way_that_is_not_right_is_refused(env, way, why):
    with pytest.raises(ValueError, match=why):
        adapted(env, branch_by=way)


def test_an_environment_without_a_seed_is_refused():
    with pytest.raises(ValueError, match="higher_v0 does not repeat: turn 1 gave"):
        adapted(Unseeded)


@pytest.mark.parametrize("way", ["restore", pytest.param("copy", marks=pytest.mark.slow), "replay"])
def test_it_conforms(way):
    """PettingZoo's own tests and ours, whatever the way of branching."""
    check_env(adapted(Saving, branch_by=way), episodes=2)


@pytest.mark.parametrize("env", [Global, OneLeaves, CutOff])
def test_odd_environments_conform(env):
    check_env(adapted(env), episodes=2)


def test_an_instance_is_copied_and_left_alone():
    foreign = Higher()
    env = from_parallel_env(foreign, num_turns=3)
    played(env, DIGITS)
    assert foreign.agents == [] and not hasattr(foreign, "rng")


def test_the_global_streams_are_left_alone_and_not_needed():
    """The game draws from Python's global stream; ours do not see it, and what we do there does not change it."""
    before = random.getstate(), np.random.get_state()[1].tolist()
    env = adapted(Global)
    first = played(env, DIGITS)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    state = env.initial(env.items[0], (0, 0, 0), 0)
    for action, expected in zip(DIGITS, first, strict=True):
        random.random()
        (transition,) = env.branch(state, [action])
        state = transition.state
        assert dict(state.observations) == expected[0]


def test_states_travel_without_the_game():
    """A state that was pickled goes on in another process's env, which has nothing but its actions."""
    env = adapted()
    state = env.initial(env.items[3], (0, 0, 0), 3)
    (first,) = env.branch(state, DIGITS[:1])
    other = pickle.loads(pickle.dumps(adapted()))
    assert other.branch(pickle.loads(pickle.dumps(first.state)), DIGITS[1:]) == env.branch(first.state, DIGITS[1:])


def test_rows_choose_seed_and_options():
    env = adapted(items=[{"seed": 4, "options": {"greeting": "hello"}}, {}])
    assert env.initial(env.items[0], (0, 0, 0)).observations["player_0"] == "player_0: hello"

    def draws(item, episode):
        (transition,) = env.branch(env.initial(item, (0, 0, episode)), DIGITS[:1])
        return transition.state.observations["player_0"]

    assert draws(env.items[0], 0) == draws(env.items[0], 1)
    assert len({draws(env.items[1], episode) for episode in range(8)}) > 1  # from the run's own chance
    assert adapted(items=[{}]).eval_items is None
    assert not {row["seed"] for row in adapted().items} & {row["seed"] for row in adapted().eval_items}
    with pytest.raises(ValueError, match="a row's seed must be"):
        env.initial({"seed": "one"}, (0, 0, 0))


def test_the_limit_cuts_off_and_the_game_ends_itself():
    assert [(end, cut) for *_, end, cut in played(adapted(num_turns=2), DIGITS[:2])] == [(False, False), (False, True)]
    assert played(adapted(num_turns=9), DIGITS)[-1][2:] == (True, False)
    assert played(adapted(CutOff, num_turns=9), DIGITS)[-1][2:] == (False, True)


def test_who_leaves_earns_nothing_and_reads_on():
    first, second, third = played(adapted(OneLeaves), DIGITS)
    assert second[0]["player_1"] == third[0]["player_1"] == first[0]["player_1"]
    assert second[1]["player_1"] == third[1]["player_1"] == 0.0
    env = adapted(OneLeaves)
    state = env.initial(env.items[0], (0, 0, 0), 0)
    (transition,) = env.branch(state, DIGITS[:1])
    (later,) = env.branch(transition.state, DIGITS[1:2])
    assert [transition.infos["player_1"]["acted"], later.infos["player_1"]["acted"]] == [True, False]
    assert transition.infos["player_0"]["env/drawn"] in range(10) and "env/rng" not in transition.infos["player_0"]


def test_texts_are_fitted_to_the_action_space():
    """Characters that the space lacks are dropped, and what is longer is cut."""
    env = adapted()
    actions = {"player_0": " the answer: 12345!", "player_1": "none"}
    assert played(env, [actions]) == played(env, [{"player_0": "123", "player_1": ""}])


class Numbers(Higher):
    """Observations and actions are numbers."""

    def __init__(self):
        super().__init__()
        self.observation_spaces = {agent: spaces.Box(0, 9, (1,)) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(10) for agent in self.possible_agents}

    def step(self, actions):
        self.action_spaces = {agent: spaces.Text(3, charset="0123456789") for agent in self.possible_agents}
        return super().step({agent: str(action) for agent, action in actions.items()})


def test_spaces_without_text_need_functions():
    with pytest.raises(ValueError, match=r"the observation space of player_0 has 0 texts.*Give to_prompt"):
        adapted(Numbers)
    with pytest.raises(ValueError, match=r"the actions of player_0 are no texts: Discrete\(10\)\. Give to_action"):
        adapted(Numbers, to_prompt=lambda agent, seen: seen["hint"])
    env = adapted(
        Numbers, to_prompt=lambda agent, seen: seen["hint"], to_action=lambda agent, text: int(text) if text.isdigit() else 0
    )
    assert [rewards for _, rewards, _, _ in played(env, DIGITS)] == [rewards for _, rewards, _, _ in played(adapted(), DIGITS)]


def test_other_things_are_refused():
    with pytest.raises(TypeError, match=r"takes a pettingzoo\.ParallelEnv"):
        from_parallel_env(dict, num_turns=1)
    with pytest.raises(TypeError, match=r"takes a pettingzoo\.AECEnv"):
        from_aec_env(Higher, num_turns=1)
    with pytest.raises(ValueError, match="num_turns must be a whole number of at least 1, got 0"):
        adapted(num_turns=0)


def test_trees_are_collected():
    """Every branch is its own game: the sum of both players' points differs from a shared one."""
    env = adapted()
    policies = {agent: ScriptedPolicy(["3", "8"]) for agent in env.possible_agents}
    steps = collect(env, policies, env.items[:2], RolloutSpec(num_generations=2))
    assert len(steps) == 2 * (2 + 4 + 8)
    replayed = adapted(branch_by="replay")
    assert steps == collect(replayed, policies, replayed.items[:2], RolloutSpec(num_generations=2))


# ---- turn-based ----


def stones(hidden=False, **options):
    return from_aec_env(lambda: Stones(hidden), **{"num_turns": 8, **options})


MOVES = [{"agent_0": "1", "agent_1": "2"}] * 5


def test_names_of_another_form_are_replaced_in_order():
    assert stones().possible_agents == ["agent_0", "agent_1"]


def test_moves_that_are_seen_are_played_one_a_turn():
    """Row 0's seed lets white (agent_1) begin: 2, 1, 2 make five, and white wins."""
    env = stones()
    state = env.initial(env.items[0], (0, 0, 0), 0)
    acted, rewards = [], []
    for action in MOVES[:3]:
        (transition,) = env.branch(state, [action])
        state = transition.state
        acted.append([agent for agent, info in transition.infos.items() if info["acted"]])
        rewards.append(dict(transition.rewards))
    assert acted == [["agent_1"], ["agent_0"], ["agent_1"]]
    assert rewards == [{"agent_0": 0, "agent_1": 0}] * 2 + [{"agent_0": -1, "agent_1": 1}]
    assert state.terminated and state.observations["agent_0"] == "black: white 2 black 1 white 2"


def test_hidden_moves_are_played_a_round_a_turn():
    """The same game; black cannot see white's move before its own, so both texts count."""
    env = stones(hidden=True)
    state = env.initial(env.items[0], (0, 0, 0), 0)
    (first,) = env.branch(state, MOVES[:1])
    assert [info["acted"] for info in first.infos.values()] == [True, True]
    assert first.state.observations["agent_1"] == "white: white 2 black 1"
    (second,) = env.branch(first.state, MOVES[:1])
    assert second.state.terminated and dict(second.rewards) == {"agent_0": -1, "agent_1": 1}


@pytest.mark.parametrize("hidden", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_turn_based_environment_conforms(hidden):
    check_env(stones(hidden), episodes=2)


def test_the_check_sees_a_game_that_does_not_branch():
    """What the adapter is checked against: an environment that shares its game between branches."""
    env = adapted(SharesOnCopy)
    env.branch_by = "copy"
    with pytest.raises(ConformanceError):
        check_env(lambda: env)
