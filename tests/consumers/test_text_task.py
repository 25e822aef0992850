"""Guards that libraries which learn games elsewhere on the page also play a writing task: two turns of `length-ratio-v0`."""

from __future__ import annotations

import numpy as np
import pytest

import llm_envs
from llm_envs.wrappers import ChoiceView, TokenView

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TEXTS = ["fog.", "fog lifts.", "fog lifts over the sea."]
PLAYED = [(1, 1), (0, 1)]  # indices of the two agents' texts, turn by turn


def plain():
    return llm_envs.make("length-ratio-v0", num_turns=2)


def view(**options):
    return ChoiceView(plain(), TEXTS, max_prompt_tokens=64, **options)


def expected():
    """Rewards of each turn as `TaskEnv` gives them."""
    env = plain()
    env.reset(seed=0)
    joints = [dict(zip(env.possible_agents, (TEXTS[i] for i in indices), strict=True)) for indices in PLAYED]
    rewards = [env.step(joint)[1] for joint in joints]
    assert rewards[0] != rewards[1]
    assert env.agents == []
    return rewards


def actions_of(agents, turn):
    return dict(zip(agents, PLAYED[turn], strict=True))


def test_rllib_plays_texts():
    wrappers = pytest.importorskip("ray.rllib.env.wrappers.pettingzoo_env")
    env = wrappers.ParallelPettingZooEnv(view())
    observations, _ = env.reset(seed=0)
    for turn, rewards in enumerate(expected()):
        _, returned, terminated, truncated, _ = env.step(actions_of(observations, turn))
        assert returned == rewards
        assert terminated["__all__"] == (turn == 1)
        assert not truncated["__all__"]


def test_rllib_takes_tokens():
    wrappers = pytest.importorskip("ray.rllib.env.wrappers.pettingzoo_env")
    env = wrappers.ParallelPettingZooEnv(TokenView(plain(), max_prompt_tokens=64, max_completion_tokens=32))
    observations, _ = env.reset(seed=0)
    for turn, rewards in enumerate(expected()):
        texts = [TEXTS[i] for i in PLAYED[turn]]
        ids = {agent: np.array([*text.encode(), *[256] * 32][:32]) for agent, text in zip(observations, texts, strict=True)}
        assert env.step(ids)[1] == rewards


def test_benchmarl_plays_texts():
    """Through the TorchRL that it is pinned to."""
    pytest.importorskip("benchmarl")
    torch = pytest.importorskip("torch")
    envs = pytest.importorskip("torchrl.envs")
    env = envs.PettingZooWrapper(view(), return_state=True, seed=0)
    state = env.reset()
    for turn, rewards in enumerate(expected()):
        state["agent", "action"] = torch.tensor(PLAYED[turn])
        state = env.step(state)["next"]
        assert state["agent", "reward"].flatten().tolist() == pytest.approx(list(rewards.values()))
        assert state["agent", "terminated"].flatten().tolist() == [turn == 1] * 2


def test_agilerl_plays_texts():
    """Two copies at once."""
    vec = pytest.importorskip("agilerl.vector.pz_async_vec_env")
    env = vec.AsyncPettingZooVecEnv([view] * 2)
    observations, _ = env.reset(seed=0)
    for turn, rewards in enumerate(expected()):
        actions = {agent: np.array([index] * 2) for agent, index in actions_of(observations, turn).items()}
        _, returned, terminated, _, _ = env.step(actions)
        for agent, reward in rewards.items():
            assert returned[agent].tolist() == pytest.approx([reward] * 2)
            assert terminated[agent].tolist() == [turn == 1] * 2
    env.close()


def test_momaland_counts_texts():
    wrappers = pytest.importorskip("momaland.utils.parallel_wrappers")
    env = wrappers.RecordEpisodeStatistics(plain())
    observations, _ = env.reset(seed=0)
    for turn, rewards in enumerate(expected()):
        texts = {agent: TEXTS[index] for agent, index in actions_of(observations, turn).items()}
        _, returned, _, _, infos = env.step(texts)
        assert returned == rewards
    total = [sum(turn[agent] for turn in expected()) for agent in observations]
    assert list(infos["episode"]["r"].values()) == pytest.approx(total)
