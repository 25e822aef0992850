"""Guards turn-based play: PettingZoo's tests, the same episodes as in parallel, and where PettingZoo's conversion differs."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
from pettingzoo.test import api_test, seed_test
from pettingzoo.utils.conversions import parallel_to_aec
from view_teams import TEAM, VIEWS, text_env

from llm_envs import make
from llm_envs.testing.compare import difference
from llm_envs.wrappers import AECView, ChoiceView, TurnLimit

ENVS = {"text": lambda env: env, **VIEWS}
every_env = pytest.mark.parametrize("build", ENVS.values(), ids=ENVS)


@every_env
@pytest.mark.parametrize("agents, turns", [(1, 1), (3, 1), (2, 3)])
def test_pettingzoos_tests_pass(build, agents, turns, capsys):
    with warnings.catch_warnings():
        # PettingZoo raises these for whatever is no plain array.
        warnings.filterwarnings("ignore", "Observation is not a NumPy array")
        warnings.filterwarnings("ignore", "(Observation|Action) space for each agent probably should be")
        api_test(AECView(build(text_env(agents, turns))), num_cycles=20)
        seed_test(lambda: AECView(build(text_env(agents, turns))), num_cycles=5)


@every_env
@pytest.mark.parametrize("infos", [True, False])
def test_episodes_are_the_parallel_ones(build, infos):
    """Each agent is told, when it is its turn again, what it would be told in parallel; the state is that of turns played."""
    plain, view = build(text_env(3, 2)), AECView(build(text_env(3, 2)), infos=infos)
    seen, said = plain.reset(seed=2)
    rewards = dict.fromkeys(TEAM, 0.0)
    ends = dict.fromkeys(TEAM, False)
    view.reset(seed=2)
    while plain.agents:
        actions = {agent: plain.action_space(agent).sample() for agent in TEAM}
        for agent in TEAM:
            assert view.agent_selection == agent
            expected = (seen[agent], rewards[agent], ends[agent], False, said[agent] if infos else {})
            assert difference(view.last(), expected) is None
            assert difference(view.state(), plain.state()) is None
            view.step(actions[agent])
        seen, rewards, ends, _, said = plain.step(actions)
        assert view.rewards == rewards, "right after the last agent"
    for agent in TEAM:
        assert view.agent_selection == agent
        assert difference(view.last(), (seen[agent], rewards[agent], True, False, said[agent] if infos else {})) is None
        view.step(None)
    assert view.agents == []


def test_a_cut_episode_is_truncated():
    view = AECView(TurnLimit(text_env(2, 3), 1))
    view.reset(seed=0)
    for _ in range(2):
        view.step("x")
    assert view.truncations == dict.fromkeys(TEAM[:2], True)
    assert not any(view.terminations.values())


def test_rewards_are_told_once():
    """A tenth of each length, after the turn; nothing is left for the next."""
    view = AECView(text_env(2, 3))
    view.reset(seed=0)
    told = []
    for text in ("a", "bb", "", "", "c", ""):
        told.append(view.last()[1])
        view.step(text)
    assert told == [0.0, 0.0, 0.1, 0.2, 0.0, 0.0]


def test_where_pettingzoos_conversion_is_otherwise():
    """Should this fail with a later version, `AECView` may no longer be needed."""
    env = make("matching-v0")
    converted, view = parallel_to_aec(make("matching-v0")), AECView(env)
    assert view.unwrapped is view
    assert converted.unwrapped is not converted
    assert not hasattr(converted.unwrapped, "agent_selection")
    for one in (converted, view):
        one.reset(seed=0)
    assert converted.observe("agent_0") is converted.observe("agent_0")
    assert view.observe("agent_0") is not view.observe("agent_0")
    assert view.observation_spaces == env.observation_spaces
    assert view.action_space("agent_0") is view.action_space("agent_0")
    with pytest.warns(UserWarning, match="deprecated"):
        assert converted.env.observation_spaces == env.observation_spaces
    assert env.agents == [], "a copy is played"


def test_state_is_text_or_ids():
    view = AECView(make("matching-v0", render_mode="ansi"))
    view.reset(seed=0)
    assert "pick one word" in view.state() == view.render()
    assert not hasattr(view, "state_space")
    numbers = AECView(ChoiceView(make("matching-v0"), ["red"]))
    numbers.reset(seed=0)
    assert numbers.state_space.contains(numbers.state())


@every_env
def test_copies_between_two_agents_go_on_alike(build):
    view = AECView(build(text_env(2, 2)))
    view.reset(seed=1)
    view.step(view.action_space("solver_0").sample())
    twins = [copy.deepcopy(view), pickle.loads(pickle.dumps(view))]
    action = view.action_space("critic_0").sample()
    for one in (view, *twins):
        one.step(action)
    for twin in twins:
        assert twin.agent_selection == view.agent_selection == "solver_0"
        assert difference(twin.last(), view.last()) is None
        assert twin.rewards == view.rewards


def test_steps_that_cannot_be():
    view = AECView(text_env(2))
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        view.step("x")
    view.reset(seed=0)
    view.step("x")
    with pytest.raises(TypeError, match="the action of critic_0 must be a text, got int: 3"):
        view.step(3)
    assert view.agent_selection == "solver_0", "the turn starts anew"
    for text in ("x", "y"):
        view.step(text)
    with pytest.raises(ValueError, match="the only valid action is None"):
        view.step("x")
    for _ in TEAM[:2]:
        view.step(None)
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        view.step(None)
    view.reset()
    assert view.agents == list(TEAM[:2])
    with pytest.raises(TypeError, match="AECView needs a BranchingEnv or a view of one"):
        AECView(parallel_to_aec(text_env(2)))
