"""Guards one role among partners, its Gymnasium environment, and vectors of them."""

from __future__ import annotations

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_gymnasium_env
from gymnasium.vector import AutoresetMode
from view_teams import PROPOSER, TEAM, VIEWS, by_path, text_env

from llm_envs import RolloutSpec, Task, TaskEnv, collect
from llm_envs.testing import ScriptedPolicy, check_env
from llm_envs.testing.compare import difference
from llm_envs.wrappers import FixedPartners, JointAgent, SingleAgentEnv, TokenView, async_vector_env, sync_vector_env


def partners(turns=2, learner="critic_0", agents=3):
    """One role among partners whose words depend on the path."""
    others = {agent: PROPOSER for agent in TEAM[:agents] if agent != learner}
    return FixedPartners(text_env(agents, turns), others)


# ---- partners ----


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("agents", [2, 3])
def test_every_check_holds_among_partners(agents, turns):
    """As an environment of texts, with trees and snapshots, and through a view."""
    env = partners(turns, agents=agents)
    assert len(check_env(env, episodes=2)) == 32
    check_env(TokenView(env, max_completion_tokens=4), episodes=1)


def test_partners_write_what_they_would_in_a_team():
    """An episode among partners is the one that the whole team plays with the same words."""
    env, whole = partners(), text_env(3, 2)
    env.reset(seed=4)
    whole.reset(seed=4)
    while whole.agents:
        state = whole.snapshot()
        words = {a: by_path("", 0, (*state.key, number)) for number, a in enumerate(TEAM)} | {"critic_0": "mine"}
        expected, returned = whole.step(words), env.step({"critic_0": "mine"})
        for part, mine in zip(expected[:4], returned[:4], strict=True):
            assert mine == {"critic_0": part["critic_0"]}
        said = {f"partner_completion/{agent}": words[agent] for agent in ("solver_0", "critic_1")}
        assert returned[-1] == {"critic_0": {**expected[-1]["critic_0"], **said}}
        assert env.state() == whole.state()
        assert env.snapshot().history[-1].actions == {"critic_0": "mine"}
    assert env.agents == []


def test_siblings_meet_the_same_partners():
    env = partners()
    env.reset(seed=0)
    one, two = env.branch(env.snapshot(), [{"critic_0": "a"}, {"critic_0": "b"}])
    assert one.infos["critic_0"]["partner_completion/solver_0"] == two.infos["critic_0"]["partner_completion/solver_0"]
    assert env.branch(env.snapshot(), []) == []


def test_several_agents_may_be_left():
    env = FixedPartners(text_env(3, 2), {"critic_0": PROPOSER})
    assert env.possible_agents == ["solver_0", "critic_1"]
    assert env.action_space("solver_0") == text_env().action_space("solver_0")
    lengths = (text_env().max_prompt_length, text_env().max_completion_length)
    assert (env.max_prompt_length, env.max_completion_length) == lengths, "each text is one agent's"
    policies = {agent: ScriptedPolicy(["x"]) for agent in env.possible_agents}
    steps = collect(env, policies, env.items[:1], RolloutSpec())
    assert [step.turn for step in steps] == [1, 2]
    assert "[turn 1, critic_0 writes]" in steps[1].global_state


def test_partners_that_cannot_be():
    env = text_env(2)
    with pytest.raises(ValueError, match="there is no agent 'critic_9': the agents are solver_0, critic_0"):
        FixedPartners(env, {"critic_9": PROPOSER})
    with pytest.raises(ValueError, match="nobody is left to learn"):
        FixedPartners(env, dict.fromkeys(TEAM[:2], PROPOSER))
    with pytest.raises(TypeError, match=r"the policy of critic_0 must have generate\(prompts, n, keys\), got 'x'"):
        FixedPartners(env, {"critic_0": "x"})
    with pytest.raises(TypeError, match="wraps a BranchingEnv"):
        FixedPartners(None, {})


# ---- Gymnasium ----

SINGLE = {
    "text among partners": partners,
    "text of a joint agent": lambda turns=2: JointAgent(text_env(3, turns)),
    "text of one": lambda turns=2: text_env(1, turns),
    **{name: lambda turns=2, build=build: build(partners(turns)) for name, build in VIEWS.items() if "of each" not in name},
}
every_single = pytest.mark.parametrize("make", SINGLE.values(), ids=SINGLE)


@every_single
@pytest.mark.parametrize("turns", [1, 3])
def test_gymnasiums_check_passes(make, turns):
    check_gymnasium_env(SingleAgentEnv(make(turns)), skip_render_check=True)


@every_single
def test_episodes_are_those_of_the_environment(make):
    env, plain = SingleAgentEnv(make()), copy.deepcopy(make())
    (agent,) = plain.possible_agents
    for seed in (3, None):
        observation, info = env.reset(seed=seed, options={"item": 3})
        expected = plain.reset(seed=seed, options={"item": 3})
        assert difference((observation, info), (expected[0][agent], expected[1][agent])) is None
        while plain.agents:
            action = plain.action_space(agent).sample()
            assert difference(env.step(action), tuple(part[agent] for part in plain.step({agent: action}))) is None
            assert difference(env.state(), plain.state()) is None
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(action)


@every_single
def test_copies_in_mid_episode_go_on_alike(make):
    env = SingleAgentEnv(make(3))
    env.reset(seed=0)
    env.step(env.action_space.sample())
    twins = [copy.deepcopy(env)] if "joint" in str(make) else [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    action = env.action_space.sample()
    expected = env.step(action)
    assert all(difference(twin.step(action), expected) is None for twin in twins)


def test_environments_of_several_agents_are_refused():
    with pytest.raises(ValueError, match=r"needs one agent, got solver_0, critic_0: FixedPartners or JointAgent leaves one"):
        SingleAgentEnv(text_env(2))
    with pytest.raises(TypeError, match="needs a BranchingEnv or a view of one, got None"):
        SingleAgentEnv(None)


def test_the_given_environment_is_left_alone():
    env = partners()
    single = SingleAgentEnv(env)
    single.reset(seed=0)
    assert env.agents == []
    assert single.unwrapped is single
    assert single.render() is None


def test_rendering():
    task = Task(items=[{"prompt": "ask"}], agents=["solver_0"], reward=lambda one: [0.0] * len(one), name="one")
    env = SingleAgentEnv(TaskEnv(task, render_mode="ansi"))
    env.reset(seed=0)
    assert env.render() == "[solver_0 reads]\nask"


# ---- vectors ----


@pytest.mark.parametrize("vector_env", [sync_vector_env, async_vector_env])
@pytest.mark.parametrize("name", ["text among partners", "tokens", "choice of proposals, masked"])
def test_vectors_play_the_episodes(vector_env, name):
    """Two environments seeded 5 and 6, over their ends: what single ones give that start anew at once."""
    vector = vector_env(SINGLE[name], 2)
    if vector_env is async_vector_env:
        assert vector.shared_memory == ("text" not in name), "arrays alone"
    singles = [SingleAgentEnv(SINGLE[name]()) for _ in range(2)]
    try:
        observations, _ = vector.reset(seed=5)
        expected = [single.reset(seed=5 + number)[0] for number, single in enumerate(singles)]
        for _ in range(5):
            assert_batch(vector, observations, expected)
            actions = [single.action_space.sample() for single in singles]
            observations, rewards, terminations, _, infos = vector.step(as_batch(actions))
            returned = [single.step(action) for single, action in zip(singles, actions, strict=True)]
            assert rewards.tolist() == [one[1] for one in returned]
            assert terminations.tolist() == [one[2] for one in returned]
            ended = returned[0][2]
            if ended:
                assert [difference(a, one[0]) for a, one in zip(infos["final_obs"], returned, strict=True)] == [None, None]
            expected = [single.reset()[0] if ended else one[0] for single, one in zip(singles, returned, strict=True)]
    finally:
        vector.close()


def as_batch(actions):
    return tuple(actions) if isinstance(actions[0], str) else np.array(actions)


def assert_batch(vector, observations, expected):
    parts = gymnasium.vector.utils.iterate(vector.observation_space, observations)
    for seen, single in zip(parts, expected, strict=True):
        if isinstance(single, dict):
            assert all(np.array_equal(seen[key], single[key]) for key in single)
        else:
            assert np.array_equal(seen, single)


def test_texts_in_processes_change():
    """Shared memory of gymnasium's own texts would stay as it was when the vector was built."""
    vector = async_vector_env(partners, 2)
    try:
        first = vector.reset(seed=0)[0]["prompt"]
        second = vector.step(("one", "two"))[0]["prompt"]
        assert second == ("turn 1: one", "turn 1: two") != first
    finally:
        vector.close()


def test_another_way_to_start_anew():
    vector = sync_vector_env(lambda: partners(1), 1, autoreset_mode=AutoresetMode.NEXT_STEP)
    vector.reset(seed=0)
    rewards = [vector.step(("four",))[1].tolist() for _ in range(3)]
    assert rewards == [[0.4], [0.0], [0.4]]
    assert sync_vector_env(lambda: partners(1), 1).metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


@pytest.mark.parametrize("vector_env", [sync_vector_env, async_vector_env])
def test_a_vector_has_environments(vector_env):
    with pytest.raises(ValueError, match="num_envs must be a whole number of at least 1, got 0"):
        vector_env(partners, 0)
