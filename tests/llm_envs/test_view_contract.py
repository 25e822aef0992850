"""Guards what other libraries rely on, rule by rule, for every view; and that an episode is the same through each of them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from view_teams import TEAM, VIEWS, text_env

from llm_envs import make
from llm_envs.testing import check_env, face
from llm_envs.testing.subject import Subject, play
from llm_envs.wrappers import AutoregressiveTokenView, ChoiceView, FixedPartners, TokenView, TurnLimit

LIMITED = TurnLimit(text_env(3, 3), 2)


def every_view(agents=3, turns=2):
    return [build(text_env(agents, turns)) for build in VIEWS.values()] + [build(LIMITED) for build in VIEWS.values()]


# ---- everything there is a check for ----


@pytest.mark.parametrize(
    "agents, turns", [(1, 1), (3, 3), *(pytest.param(*other, marks=pytest.mark.slow) for other in [(1, 3), (2, 1)])]
)
@pytest.mark.parametrize("build", VIEWS.values(), ids=VIEWS)
def test_every_check_holds(build, agents, turns):
    """PettingZoo's tests, directly and turn-based, and every rule of `llm_envs.testing`: odd rows, several roles."""
    assert len(check_env(build(text_env(agents, turns)), episodes=1)) == 24


OF_THE_PACKAGE = {  # candidates, and a best joint answer
    "matching-v0": (["red", "blue"], ["red", "red"]),
    "split-v0": (["a b", "c d"], ["a b", "c d"]),
    "length-ratio-v0": (["short", "longer by far"], ["short", "longer by far"]),
}


def views_of(name, turns):
    candidates = OF_THE_PACKAGE[name][0]
    return [
        TokenView(make(name, num_turns=turns), max_prompt_tokens=32, max_completion_tokens=14),
        AutoregressiveTokenView(make(name, num_turns=turns), max_prompt_tokens=32, max_completion_tokens=14),
        ChoiceView(make(name, num_turns=turns), candidates, max_prompt_tokens=32),
        ChoiceView(make(name, num_turns=turns), candidates, action_mask=True, max_prompt_tokens=32),
    ]


@pytest.mark.parametrize(
    "name", [name if name == "split-v0" else pytest.param(name, marks=pytest.mark.slow) for name in OF_THE_PACKAGE]
)
def test_every_check_holds_for_the_tasks_of_the_package(name):
    for view in views_of(name, 2):
        check_env(view, episodes=1)


# ---- the rules of other libraries, by name ----

RULES = {
    "possible_agents is a list, set when built; agents equals it after a reset": [face.names, face.agents_at_start],
    "agents is empty after the last step and never shrinks before": [face.agents_at_end, face.ends_in_time],
    "all agents are terminated or all truncated at the end": [face.agents_at_end],
    "the last step returns everything for every agent that acted": [face.all_in_order],
    "returned dicts have no other keys and the order of agents": [face.all_in_order],
    "each call returns new dicts and arrays, one info for each agent": [face.new_objects],
    "flags are bool, rewards finite floats": [face.agents_at_end, face.finite_rewards],
    "reset infos are numbers only or empty, and step infos then add none": [face.infos_of_resets],
    "spaces are the same objects, also in the dicts": [face.stable_spaces],
    "ParallelEnv is a direct base": [face.direct_base],
    "metadata has name and render_modes; there is a render_mode": [face.metadata],
    "the own stream goes on without a seed, global ones are left alone": [face.whole_episodes_repeat, face.global_streams],
    "state() belongs to state_space, also after the end": [face.state_of_env],
    "it can be pickled and copied in mid-episode": [face.copies],
    "attributes can be set from outside": [face.attributes],
    "there is no attribute num_envs, device or seed": [face.attributes],
    "agents are named role_number": [face.names],
    "all agents have equal spaces": [face.equal_spaces],
    "observations belong to their spaces": [face.observations_belong],
    "a reset with a seed starts the same again": [face.reset_again],
}


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule):
    for view in every_view():
        for check in RULES[rule]:
            check(Subject(view, episodes=2))


def last_returned(view):
    """What the last step of an episode returns."""
    *_, (_, returned) = play(view, 1, seed=0)
    return returned


@pytest.mark.parametrize("build", VIEWS.values(), ids=VIEWS)
def test_rule_the_natural_end_is_a_termination_also_after_one_turn(build):
    for turns in (1, 3):
        _, _, terminations, truncations, _ = last_returned(build(text_env(3, turns)))
        assert all(terminations.values()) and not any(truncations.values())
    _, _, terminations, truncations, _ = last_returned(build(LIMITED))
    assert all(truncations.values()) and not any(terminations.values())


@pytest.mark.parametrize("build", VIEWS.values(), ids=VIEWS)
def test_rule_texts_stand_in_step_infos_and_reset_infos_are_empty(build):
    view = build(text_env(3, 2))
    assert view.reset(seed=0)[1] == {agent: {} for agent in TEAM}
    infos = last_returned(view)[-1]
    assert all(isinstance(info["completion"], str) for info in infos.values())


def test_rule_a_view_is_itself_unwrapped():
    for view in every_view():
        assert view.unwrapped is view
        assert ParallelEnv in type(view).__bases__
        assert view.render_mode is None


def test_rule_reset_ignores_unknown_options():
    for view in every_view():
        view.reset(seed=1, options={"options": 1, "item": 2})
        assert view.env.snapshot().item_index == 2


def test_rule_state_is_a_float32_box_of_fixed_shape_after_the_end_too():
    for view in every_view():
        assert isinstance(view.state_space, spaces.Box)
        for _ in play(view, 1, seed=0):
            assert view.state().dtype == view.state_space.dtype == np.float32
            assert view.state().shape == view.state_space.shape
        assert view.agents == []


def test_rule_agents_of_a_role_have_equal_spaces():
    for view in every_view():
        assert view.observation_space("critic_0") == view.observation_space("critic_1")
        assert view.action_space("critic_0") == view.action_space("critic_1")


def test_rule_observations_are_float32():
    """Long integers stop the default networks of RLlib and BenchMARL."""
    for view in every_view():
        for seen in view.reset(seed=0)[0].values():
            ids = seen["observation"] if isinstance(seen, dict) else seen
            assert ids.dtype == np.float32


def forms(action):
    """The same action as other libraries hand it over."""
    plain = np.asarray(action)
    for kind in (np.int8, np.uint8, np.int16, np.int32, np.int64):
        if plain.max() <= np.iinfo(kind).max:
            yield plain.astype(kind)
    yield plain.tolist()
    yield np.array(plain).squeeze()
    yield plain.reshape(1, -1)


@pytest.mark.parametrize("build", VIEWS.values(), ids=VIEWS)
def test_rule_actions_of_any_integer_type_and_shape(build):
    """Lists, 0-d arrays, arrays with a dimension too many."""
    view = build(text_env(2, 1))
    for action in (np.ones_like(view.action_space("solver_0").sample()), view.action_space("solver_0").sample()):
        view.reset(seed=0)
        expected = view.step(dict.fromkeys(TEAM[:2], action))
        for form in forms(action):
            view.reset(seed=0)
            returned = view.step(dict.fromkeys(TEAM[:2], form))
            assert returned[1:] == expected[1:]


def test_rule_masks_are_int8_of_length_n_and_never_all_zero():
    """Not even at the last observation; beside `observation`, and not in infos as well."""
    masked = [view for view in every_view(turns=3) if isinstance(view, ChoiceView) and view.action_mask]
    assert len(masked) == 4
    for view in masked:
        for _, (observations, *_, infos) in play(view, 2, seed=0):
            for agent, seen in observations.items():
                assert list(seen) == ["observation", "action_mask"] or sorted(seen) == ["action_mask", "observation"]
                assert seen["action_mask"].dtype == np.int8
                assert seen["action_mask"].shape == (view.action_space(agent).n,)
                assert 1 <= seen["action_mask"].sum() == len(view.candidates[agent])
                assert "action_mask" not in infos[agent]


def test_rule_masked_out_actions_are_played():
    view = VIEWS["choice of each, masked"](text_env(3, 1))
    observations, _ = view.reset(seed=0)
    assert observations["critic_0"]["action_mask"].tolist() == [1, 0, 0]
    *_, infos = view.step(dict.fromkeys(TEAM, 2))
    assert [infos[agent]["completion"] for agent in TEAM] == ["", "猫", "a"]  # 2 of 3, 2 modulo 1, 2 modulo 2


# ---- an episode is the same through each view ----


def ids_of(view, text):
    """The completion as an action, ended and padded."""
    ids = [*text.encode(), view.vocabulary.end]
    return ids + [view.vocabulary.pad] * (view.max_completion_tokens - len(ids))


def played_by(view, texts):
    """What a turn of texts returns through the view."""
    if isinstance(view, ChoiceView):
        return view.step({agent: view.candidates[agent].index(text) for agent, text in texts.items()})
    actions = {agent: ids_of(view, text) for agent, text in texts.items()}
    if isinstance(view, TokenView):
        return view.step(actions)
    longest = max(len(text.encode()) + 1 for text in texts.values())
    for place in range(longest - 1):
        _, rewards, terminations, truncations, _ = view.step({agent: ids[place] for agent, ids in actions.items()})
        assert {*rewards.values(), *terminations.values(), *truncations.values()} == {0.0}
    return view.step({agent: ids[longest - 1] for agent, ids in actions.items()})


def seen_as(view, text):
    """The prompt's place in an observation."""
    return view.vocabulary.newest(text, view.max_prompt_tokens).tolist()


def ids_seen(observation):
    return observation["observation"] if isinstance(observation, dict) else observation


SCRIPT = [{"solver_0": "no", "critic_0": "", "critic_1": "猫é"}, {"solver_0": "", "critic_0": "yes", "critic_1": "no"}]


@pytest.mark.parametrize("item", range(4))
@pytest.mark.parametrize(
    "build",
    [
        lambda env: TokenView(env, max_prompt_tokens=20, max_completion_tokens=8),
        lambda env: AutoregressiveTokenView(env, max_prompt_tokens=20, max_completion_tokens=8),
        lambda env: ChoiceView(env, ["no", "", "猫é", "yes"], max_prompt_tokens=20),
    ],
)
def test_two_turns_are_the_same_through_every_view(build, item):
    """Observations, rewards, ends and infos of `TaskEnv` itself."""
    plain, view = text_env(3, 2), build(text_env(3, 2))
    assert plain.reset(seed=5, options={"item": item})[0].keys() == view.reset(seed=5, options={"item": item})[0].keys()
    for texts in SCRIPT:
        expected, returned = plain.step(texts), played_by(view, texts)
        for agent in TEAM:
            assert returned[0][agent][:20].tolist() == seen_as(view, expected[0][agent]["prompt"])
            extra = {key for key in returned[-1][agent] if key not in expected[-1][agent]}
            assert extra <= {"completion", "candidates", "wrote"}
            assert {key: returned[-1][agent][key] for key in expected[-1][agent]} == expected[-1][agent]
            assert returned[-1][agent]["completion"] == texts[agent]
        assert returned[1:4] == expected[1:4]
        assert view.agents == plain.agents
        assert view.state()[: view.max_state_tokens].tolist() == view.vocabulary.newest(plain.state(), 1024).tolist()


@pytest.mark.parametrize("name", OF_THE_PACKAGE)
def test_two_turns_of_the_packages_tasks_are_the_same_through_every_view(name):
    """A first turn that leaves something to do, and a second one that ends the episode."""
    candidates, best = OF_THE_PACKAGE[name]
    for view in views_of(name, 2):
        plain = make(name, num_turns=2)
        plain.reset(seed=5)
        view.reset(seed=5)
        for texts in ([candidates[0], candidates[-1]] if name == "matching-v0" else [candidates[0]] * 2, best):
            joint = dict(zip(plain.possible_agents, texts, strict=True))
            expected, returned = plain.step(joint), played_by(view, joint)
            for agent in plain.possible_agents:
                assert ids_seen(returned[0][agent])[:32].tolist() == seen_as(view, expected[0][agent]["prompt"])
            assert returned[1:4] == expected[1:4]
        assert view.agents == plain.agents == []


# ---- what a view is made of ----


def test_only_environments_of_texts_have_views():
    for other in (None, "env", text_env().task, TokenView(text_env())):
        for build in VIEWS.values():
            with pytest.raises((TypeError, AttributeError), match=r"view of a BranchingEnv|possible_agents"):
                build(other)


def test_views_of_one_environment_do_not_meet():
    env = text_env(2, 3)
    env.reset(seed=0)
    before = env.snapshot()
    one, two = TokenView(env), TokenView(env)
    one.reset(seed=1)
    two.reset(seed=2)
    two.step({agent: two.action_space(agent).sample() for agent in two.agents})
    assert (env.snapshot(), one.env.snapshot().turn, two.env.snapshot().turn) == (before, 0, 1)


def test_a_shallow_copy_plays_on_its_own():
    for view in every_view():
        view.reset(seed=0)
        twin = copy.copy(view)
        for _ in play(twin, 1, seed=None):
            pass
        assert view.agents == list(TEAM)
        assert twin.agents == []
        assert view.env.snapshot().turn == 0


@pytest.mark.parametrize("build", VIEWS.values(), ids=VIEWS)
def test_steps_that_cannot_be(build):
    view = build(text_env(2, 1))
    action = view.action_space("solver_0").sample()
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        view.step(dict.fromkeys(TEAM[:2], action))
    view.reset(seed=0)
    with pytest.raises(ValueError, match="actions must name solver_0, critic_0, got solver_0"):
        view.step({"solver_0": action})
    with pytest.raises(TypeError, match="the action of critic_0 must be whole numbers, got float64"):
        view.step({"solver_0": action, "critic_0": np.asarray(action) / 2})
    with pytest.raises(ValueError, match="the action of critic_0 must be from 0 to"):
        view.step({"solver_0": action, "critic_0": np.full_like(np.asarray(action), -1)})
    with pytest.raises(ValueError, match=r"the action of critic_0 must have \d+ entries"):
        view.step({"solver_0": action, "critic_0": [0] * 99})
    assert view.env.snapshot().turn == 0
    last_returned(view)
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        view.step(dict.fromkeys(TEAM[:2], action))


def test_rendering_is_that_of_the_text():
    env = make("matching-v0", render_mode="ansi")
    for view in (TokenView(env), ChoiceView(FixedPartners(env, {}), ["red"])):
        view.reset(seed=0)
        assert view.render_mode == "ansi"
        assert "pick one word" in view.render()
        view.close()
