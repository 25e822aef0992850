"""Guards completions as choices: where candidates come from, what an index stands for, masks, and what learners see of them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from view_teams import PROPOSER, TEAM, WORDS, text_env

from llm_envs import TRAINING, RolloutSpec, collect
from llm_envs.seeding import episode_key
from llm_envs.testing import ScriptedPolicy
from llm_envs.wrappers import ChoiceView, TurnLimit

PAD = 257


def chosen(view, actions):
    *_, infos = view.step(actions)
    return [infos[agent]["completion"] for agent in view.possible_agents]


def start(env, *arguments, **options):
    view = ChoiceView(env, *arguments, **{"max_prompt_tokens": 6, **options})
    return view, view.reset(seed=0, options={"item": 0})[0]


def test_one_list_for_all():
    view, observations = start(text_env(3), ["yes", "", "猫"])
    assert view.action_space("critic_1") == spaces.Discrete(3)
    assert view.observation_space("critic_1") == spaces.Box(0, PAD, (6,), np.float32)
    assert observations["critic_1"].tolist() == [PAD, *b"short"]
    assert chosen(view, {"solver_0": 2, "critic_0": 1, "critic_1": 0}) == ["猫", "", "yes"]


def test_a_list_for_each_agent():
    """Three, one and two candidates: indices go round, so that every action is one."""
    view, _ = start(text_env(3), WORDS)
    assert view.candidates == {"solver_0": ("yes", "no", ""), "critic_0": ("猫",), "critic_1": ("a", "b")}
    assert chosen(view, dict.fromkeys(TEAM, 1)) == ["no", "猫", "b"]
    view.reset()
    assert chosen(view, dict.fromkeys(TEAM, 2)) == ["", "猫", "a"]


def test_candidates_of_the_item():
    calls = []

    def of_item(item, agent):
        calls.append((item["prompt"], agent))
        item["words"].append("changed")  # a copy: the row stays as it is
        return [agent, *item["words"][:-1]]

    env = text_env(2)
    view, _ = start(env, of_item, num_candidates=4)
    assert calls == [("short", "solver_0"), ("short", "critic_0")]
    assert view.candidates["critic_0"] == ("critic_0", "yes", "no", "maybe")
    assert "changed" not in env.items[0]["words"]
    assert chosen(view, {"solver_0": 0, "critic_0": 3}) == ["solver_0", "maybe"]


def test_infos_say_what_there_was_to_choose_from():
    """Of the turn that was played, as text; nothing at a reset."""
    view, _ = start(text_env(2, 2), PROPOSER, num_candidates=2)
    before = dict(view.candidates)
    *_, infos = view.step(dict.fromkeys(view.agents, 0))
    assert {agent: info["candidates"] for agent, info in infos.items()} == before
    assert before != view.candidates
    assert infos["solver_0"]["completion"] == before["solver_0"][0]


def test_a_policy_proposes_what_it_would_write_in_a_rollout():
    """The same prompts and paths as a collector's, so the same texts; anew for each turn, not after the end."""
    calls = []

    def script(prompt, k, key):
        calls.append((prompt, k, key))
        return f"{key} {k}"

    view, _ = start(text_env(2, 2), ScriptedPolicy(script), num_candidates=3)
    state = view.env.snapshot()
    assert calls == [(state.observations[a], k, (*state.key, n)) for n, a in enumerate(view.agents) for k in range(3)]
    view.step(dict.fromkeys(view.agents, 1))
    assert len(calls) == 12
    assert view.candidates["critic_0"][0] == f"{(*state.key, 0, 1)} 0"
    last = view.candidates
    view.step(dict.fromkeys(view.agents, 1))
    assert len(calls) == 12, "the episode is over"
    assert view.candidates == last

    calls.clear()
    env = text_env(2)
    collect(env, dict.fromkeys(env.possible_agents, ScriptedPolicy(script)), [env.items[0]], RolloutSpec(num_generations=3), seed=7)
    key = episode_key(7, TRAINING, 0, 0)
    assert sorted(calls) == [("short", k, (*key, number)) for k in range(3) for number in range(2)]


def test_a_cut_episode_has_new_proposals_to_bootstrap_from():
    view, _ = start(TurnLimit(text_env(2, 3), 1), PROPOSER, num_candidates=2)
    before = view.candidates
    _, _, _, truncations, _ = view.step(dict.fromkeys(view.agents, 0))
    assert all(truncations.values())
    assert view.candidates != before


def test_equal_proposals_count_once():
    view, observations = start(text_env(1), ScriptedPolicy(["a", "b", "a", "a"]), num_candidates=4, action_mask=True)
    assert view.candidates == {"solver_0": ("a", "b")}
    assert observations["solver_0"]["action_mask"].tolist() == [1, 1, 0, 0]


def test_masks():
    view, observations = start(text_env(3), WORDS, action_mask=True, num_candidates=4)
    assert view.observation_space("critic_0") == spaces.Dict(
        {"observation": spaces.Box(0, PAD, (6,), np.float32), "action_mask": spaces.Box(0, 1, (4,), np.int8)}
    )
    masks = [observations[agent]["action_mask"].tolist() for agent in TEAM]
    assert masks == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]]


def test_candidates_in_observations():
    """L = 6 ids of the prompt, then 3 places for each of 3 candidates."""
    view, observations = start(text_env(3), WORDS, max_candidate_tokens=3)
    assert observations["solver_0"].tolist() == [PAD, *b"short", *b"yes", *b"no", PAD, PAD, PAD, PAD]
    assert observations["critic_0"].tolist() == [PAD, *b"short", *"猫".encode(), *[PAD] * 6]
    assert view.observation_space("critic_1").contains(observations["critic_1"])


def test_surrogates_of_a_policy_are_replaced():
    view, _ = start(text_env(1), ScriptedPolicy(["\ud800x"]), num_candidates=1)
    assert view.candidates == {"solver_0": ("\ufffdx",)}


class Short:
    """Gives fewer completions than it is asked for."""

    def generate(self, prompts, n, keys):
        return PROPOSER.generate(prompts, n - 1, keys)


@pytest.mark.parametrize(
    "candidates, options, error",
    [
        ("yes", {}, "TypeError: candidates must be a list of texts, got 'yes'"),
        (3, {}, "TypeError: candidates must be a list of texts, got 3"),
        ([], {}, r"ValueError: candidates must have at least one text, got \[\]"),
        (["a", 1], {}, "TypeError: candidates: number 1 must be a text, got int: 1"),
        ({"solver_0": ["a"]}, {}, "ValueError: candidates must have a list for each of solver_0, critic_0, got solver_0"),
        ({"solver_0": ["a"], "critic_0": []}, {}, "ValueError: candidates of critic_0 must have at least one text"),
        (["a", "b"], {"num_candidates": 1}, "ValueError: num_candidates=1 is less than the 2 candidates of an agent"),
        (["a"], {"num_candidates": 0}, "ValueError: num_candidates must be a whole number of at least 1, got 0"),
        (PROPOSER, {}, "ValueError: candidates of a function or a policy need num_candidates"),
        (PROPOSER, {"num_candidates": True}, "ValueError: num_candidates must be a whole number of at least 1, got True"),
        (lambda item, agent: [], {"num_candidates": 2}, "ValueError: candidates of solver_0 must have at least one text"),
        (lambda item, agent: "ab", {"num_candidates": 2}, "TypeError: candidates of solver_0 must be a list of texts, got 'ab'"),
        (lambda item, agent: ["a", "b"], {"num_candidates": 1}, "ValueError: candidates of solver_0: 2 texts, more than num_cand"),
        (Short(), {"num_candidates": 2}, "ValueError: the policy must propose 2 candidates for solver_0, got 1"),
        (["a"], {"max_candidate_tokens": -1}, "ValueError: max_candidate_tokens must be a whole number of at least 0, got -1"),
    ],
)
def test_candidates_that_cannot_be(candidates, options, error):
    name, _, message = error.partition(": ")
    with pytest.raises({"TypeError": TypeError, "ValueError": ValueError}[name], match=message):
        start(text_env(2), candidates, **options)
