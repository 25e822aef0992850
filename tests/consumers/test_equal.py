"""Guards that other libraries get what the environment gives, and that what docs/reuse.md calls a trap is one."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from llm_envs import Task, TaskEnv
from llm_envs.testing import ScriptedPolicy
from llm_envs.wrappers import AECView, AutoregressiveTokenView, ChoiceView, FixedPartners, SingleAgentEnv, TokenView

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TEAM = ("solver_0", "critic_0", "critic_1")
WORDS = ["a", "bb", "ccc"]
EACH = {"solver_0": WORDS, "critic_0": WORDS[:1], "critic_1": WORDS[:2]}


def lengths(*lists):
    return [[len(text) / 10 for text in joint] for joint in zip(*lists, strict=True)]


def echo(agent_completions, turn):
    return [f"turn {turn}: {text}" for text in agent_completions]


def team_env(turns=2):
    """Three agents of two roles, rewards of their own, two turns."""
    rows = [{"prompt": "naïve ☃ 猫"}, {"prompt": ""}, {"prompt": "long " * 100}]
    transition = echo if turns > 1 else None
    return TaskEnv(Task(items=rows, agents=TEAM, reward=lengths, num_turns=turns, transition=transition, name="lengths"))


VIEWS = {
    "tokens": lambda env: TokenView(env, max_prompt_tokens=16, max_completion_tokens=4, max_state_tokens=32),
    "token by token": lambda env: AutoregressiveTokenView(env, max_prompt_tokens=16, max_completion_tokens=3, max_state_tokens=32),
    "choice": lambda env: ChoiceView(env, WORDS, max_prompt_tokens=16, max_state_tokens=32),
    "choice, masked": lambda env: ChoiceView(env, EACH, action_mask=True, max_prompt_tokens=16, max_state_tokens=32),
}
every_view = pytest.mark.parametrize("build", VIEWS.values(), ids=VIEWS)


def ids(seen):
    return seen["observation"] if isinstance(seen, dict) else seen


# ---- SuperSuit and Stable-Baselines3 ----


def vector_of(view, copies=1):
    supersuit = pytest.importorskip("supersuit")
    vector = supersuit.pettingzoo_env_to_vec_env_v1(view)
    return supersuit.concat_vec_envs_v1(vector, copies, num_cpus=1, base_class="stable_baselines3")


@every_view
def test_supersuit_gives_the_same_episodes(build):
    """Steps over several ends, beside the view itself. Each agent's info has its own last observation."""
    pytest.importorskip("stable_baselines3")
    plain = build(team_env())
    plain.reset(seed=3)  # libraries reset without a seed: that goes on with this one's episodes
    vector = vector_of(copy.deepcopy(plain))
    vector.reset()
    plain.reset()
    for _ in range(12):
        actions = [plain.action_space(agent).sample() for agent in TEAM]
        _, rewards, dones, infos = vector.step(np.stack(actions))
        observations, expected, terminations, *_, said = plain.step(dict(zip(TEAM, actions, strict=True)))
        assert rewards.tolist() == pytest.approx(list(expected.values()))
        assert dones.astype(bool).tolist() == list(terminations.values())
        assert [info.get("completion") for info in infos] == [said[agent].get("completion") for agent in TEAM]
        if not plain.agents:
            for agent, info in zip(TEAM, infos, strict=True):
                assert ids(info["terminal_observation"]).tolist() == ids(observations[agent]).tolist()
            plain.reset()


@every_view
def test_stable_baselines_trains(build):
    """A2C and PPO change every weight that is used and none becomes NaN."""
    sb3 = pytest.importorskip("stable_baselines3")
    policy = "MultiInputPolicy" if build is VIEWS["choice, masked"] else "MlpPolicy"
    for algorithm, options in ((sb3.PPO, {"n_steps": 8, "batch_size": 12, "n_epochs": 1}), (sb3.A2C, {"n_steps": 8})):
        learner = algorithm(policy, vector_of(build(team_env()), 2), **options)
        before = {name: weights.clone() for name, weights in learner.policy.named_parameters()}
        learner.learn(96)
        after = dict(learner.policy.named_parameters())
        assert all(weights.isfinite().all() for weights in after.values())
        assert any(not before[name].equal(after[name]) for name in before)


def test_stable_baselines_takes_the_single_agent_view():
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    partners = FixedPartners(team_env(), {agent: ScriptedPolicy(["x"]) for agent in TEAM[1:]})
    for build in VIEWS.values():
        if build is not VIEWS["choice, masked"]:
            checker.check_env(SingleAgentEnv(build(partners)))


def test_trap_supersuit_takes_no_text():
    with pytest.raises(Exception, match="iterate"):
        vector_of(team_env()).reset()


def test_trap_ppo_with_a_seed_on_supersuit():
    sb3 = pytest.importorskip("stable_baselines3")
    with pytest.raises(AttributeError, match="seed"):
        sb3.PPO("MlpPolicy", vector_of(VIEWS["choice"](team_env())), seed=0)


# ---- TorchRL ----


def torchrl_of(env, **options):
    envs = pytest.importorskip("torchrl.envs")
    return envs.PettingZooWrapper(env, return_state=not isinstance(env, TaskEnv), **options)


@every_view
@pytest.mark.parametrize("turns", [1, 2])
def test_torchrl_rollouts_are_the_episodes(build, turns):
    """Specs hold; observations, rewards, ends and states of a rollout over several ends are those of the view played by hand."""
    pytest.importorskip("torchrl")
    from torchrl.envs import check_env_specs

    view = build(team_env(turns))
    wrapped = torchrl_of(copy.deepcopy(view), seed=3)
    check_env_specs(wrapped)
    wrapped = torchrl_of(copy.deepcopy(view), seed=3)
    rollout = wrapped.rollout(9, break_when_any_done=False)
    key = ("observation", "observation") if build is VIEWS["choice, masked"] else ("observation",)
    view.reset(seed=3)  # as the wrapper did when it was built
    observations, _ = view.reset()
    for step in rollout:
        groups = wrapped.group_map
        for group, agents in groups.items():
            for place, agent in enumerate(agents):
                assert step[(group, *key)][place].tolist() == ids(observations[agent]).tolist()
        assert step["state"].tolist() == view.state().tolist()
        actions = {a: step[group, "action"][i].numpy() for group, agents in groups.items() for i, a in enumerate(agents)}
        observations, rewards, terminations, *_ = view.step(actions)
        for group, agents in groups.items():
            expected = [rewards[agent] for agent in agents]
            assert step["next", group, "reward"].flatten().tolist() == pytest.approx(expected)
            assert step["next", group, "terminated"].flatten().tolist() == [terminations[agent] for agent in agents]
        if not view.agents:
            observations, _ = view.reset()


def test_torchrl_groups_roles():
    wrapped = torchrl_of(VIEWS["choice"](team_env()))
    assert wrapped.group_map == {"solver": ["solver_0"], "critic": ["critic_0", "critic_1"]}


def test_torchrl_obeys_masks():
    """Only legal actions are drawn: `critic_0` has one candidate, `critic_1` two."""
    rollout = torchrl_of(VIEWS["choice, masked"](team_env()), seed=0).rollout(40, break_when_any_done=False)
    critics = rollout["critic", "action"]
    assert critics[:, 0].max() == 0
    assert critics[:, 1].max() == 1
    assert rollout["solver", "action"].max() == 2


def test_torchrl_plays_turn_based_as_well():
    pytest.importorskip("torchrl")
    from torchrl.envs import check_env_specs

    wrapped = torchrl_of(AECView(VIEWS["choice"](team_env())), use_mask=True)
    check_env_specs(wrapped)
    assert wrapped.rollout(20).shape[0] > 1


def test_trap_torchrl_takes_no_text_actions_but_text_observations():
    wrapped = torchrl_of(team_env())
    seen = wrapped.reset()
    assert seen["solver", "observation", "prompt"] is not None
    with pytest.raises(Exception, match="Invalid type of data"):
        wrapped.rollout(2)


# ---- Tianshou ----


def buffer_of(view, episodes, **options):
    """What a collector with random policies stores: agents, rewards and ends, row by row."""
    pytest.importorskip("tianshou")
    from tianshou.algorithm import MultiAgentOffPolicyAlgorithm
    from tianshou.algorithm.random import MARLRandomDiscreteMaskedOffPolicyAlgorithm
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv, PettingZooEnv

    env = PettingZooEnv(AECView(view, **options))
    algorithms = [MARLRandomDiscreteMaskedOffPolicyAlgorithm(action_space=env.action_space) for _ in env.agents]
    team = MultiAgentOffPolicyAlgorithm(algorithms=algorithms, env=env)
    collector = Collector(team, DummyVectorEnv([lambda: env]), VectorReplayBuffer(500, 1))
    collector.reset()
    collector.collect(n_episode=episodes)
    return collector.buffer


def test_trap_tianshou_has_rewards_in_the_last_agents_rows_alone():
    """What n-step returns are for: the other rows are zero, and the last agent's have everybody's reward."""
    buffer = buffer_of(VIEWS["choice"](team_env()), episodes=20)
    rows = buffer.sample_indices(0)
    agents, rewards = buffer.obs.agent_id[rows], buffer.rew[rows]
    assert (rewards[agents != "critic_1"] == 0).all()
    assert (rewards[agents == "critic_1"] > 0).all()
    assert len(rows) == 20 * 2 * 3
    assert np.flatnonzero(buffer.done[rows]).tolist() == list(range(5, 120, 6))


def test_tianshou_obeys_masks():
    buffer = buffer_of(VIEWS["choice, masked"](team_env()), episodes=20, infos=False)
    rows = buffer.sample_indices(0)
    agents, actions = buffer.obs.agent_id[rows], buffer.act[rows]
    assert actions[agents == "critic_0"].max() == 0
    assert actions[agents == "critic_1"].max() == 1
    assert actions[agents == "solver_0"].max() == 2


def test_trap_tianshou_finds_nan_where_infos_come_and_go():
    assert buffer_of(VIEWS["choice"](team_env()), episodes=4).hasnull()
    assert not buffer_of(VIEWS["choice"](team_env()), episodes=4, infos=False).hasnull()


# ---- skrl ----


@every_view
def test_skrl_plays_the_episodes(build):
    wrappers = pytest.importorskip("skrl.envs.wrappers.torch")
    import torch

    view = build(team_env())
    view.reset(seed=3)
    wrapped = wrappers.wrap_env(copy.deepcopy(view))
    wrapped.reset()
    view.reset()
    for _ in range(2):
        actions = {agent: np.atleast_1d(view.action_space(agent).sample()) for agent in TEAM}
        _, rewards, terminated, *_ = wrapped.step({agent: torch.tensor(ids)[None] for agent, ids in actions.items()})
        _, expected, terminations, *_ = view.step(actions)
        assert {agent: reward.item() for agent, reward in rewards.items()} == pytest.approx(expected)
        assert {agent: end.item() for agent, end in terminated.items()} == terminations
        if not view.agents:
            return


def test_trap_skrl_takes_no_text():
    wrappers = pytest.importorskip("skrl.envs.wrappers.torch")
    with pytest.raises(ValueError, match="Unsupported space"):
        wrappers.wrap_env(team_env()).reset()
