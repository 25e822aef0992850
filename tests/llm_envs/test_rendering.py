"""Guards render modes: a task's renderers draw its states, through wrappers and views too; without one `ansi` is text."""

from __future__ import annotations

import numpy as np
import pytest

from llm_envs import Task, TaskEnv
from llm_envs.testing import ScriptedPolicy, check_env
from llm_envs.wrappers import AECView, FixedPartners, JointAgent, ScoreWith, SingleAgentEnv, TokenView, TransformReward, TurnLimit


def again(agent_completions, num_agents):
    return ["again"] * num_agents


def length(*lists):
    return [float(sum(map(len, joint))) for joint in zip(*lists, strict=True)]


def grey(state):
    """As many grey rows as turns were played."""
    return np.full((state.turn + 1, 4, 3), 128, dtype=np.uint8)


def turns(state):
    return f"turn {state.turn}"


def task(**options):
    return Task(**{"items": [{"prompt": "p"}], "reward": length, "num_turns": 2, "transition": again, **options})


def drawn(env):
    env.reset(seed=0)
    env.step(dict.fromkeys(env.possible_agents, "x"))
    return env.render()


def test_without_renderers_there_is_text():
    assert TaskEnv(task()).metadata["render_modes"] == ["ansi"]
    assert drawn(TaskEnv(task())) is None
    text = drawn(TaskEnv(task(), render_mode="ansi"))
    assert text.startswith("[turn 1, agent_0 reads]\np\n") and text.endswith("[agent_1 reads]\nagain")
    with pytest.raises(ValueError, match="render_mode must be None or 'ansi', got 'rgb_array'"):
        TaskEnv(task(), render_mode="rgb_array")


def test_a_renderer_adds_a_mode():
    made = task(renderers={"rgb_array": grey})
    assert TaskEnv(made).metadata["render_modes"] == ["ansi", "rgb_array"]
    assert drawn(TaskEnv(made, render_mode="rgb_array")).shape == (2, 4, 3)
    assert "again" in drawn(TaskEnv(made, render_mode="ansi"))
    assert drawn(TaskEnv(made)) is None
    with pytest.raises(ValueError, match="render_mode must be None or 'ansi' or 'rgb_array', got 'human'"):
        TaskEnv(made, render_mode="human")
    check_env(TaskEnv(made, render_mode="rgb_array"), episodes=1)


def test_a_renderer_of_ansi_takes_the_place_of_the_text():
    made = task(renderers={"ansi": turns})
    assert TaskEnv(made).metadata["render_modes"] == ["ansi"]
    env = TaskEnv(made, render_mode="ansi")
    assert drawn(env) == "turn 1" and env.state().endswith("again")


WRAPPERS = {
    "JointAgent": JointAgent,
    "TransformReward": lambda env: TransformReward(env, lambda reward: 2 * reward),
    "ScoreWith": lambda env: ScoreWith(env, lambda prompts, completions: [0.0] * len(completions)),
    "TurnLimit": lambda env: TurnLimit(env, 1),
    "two": lambda env: TurnLimit(JointAgent(env), 1),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrappers_draw_what_they_wrap(wrap):
    made = task(renderers={"rgb_array": grey, "ansi": turns})
    image, text = (wrap(TaskEnv(made, render_mode=mode)) for mode in ("rgb_array", "ansi"))
    assert image.metadata["render_modes"] == ["ansi", "rgb_array"]
    assert drawn(image).shape == (2, 4, 3) and drawn(text) == "turn 1"


def test_views_draw_what_they_view():
    made = task(renderers={"rgb_array": grey})
    env = TaskEnv(made, render_mode="rgb_array")
    for view in (AECView(env), TokenView(env, max_prompt_tokens=8, max_completion_tokens=8)):
        view.reset(seed=0)
        assert view.render_mode == "rgb_array" and view.render().shape == (1, 4, 3)
    single = SingleAgentEnv(FixedPartners(env, {"agent_1": ScriptedPolicy(["y"])}))
    single.reset(seed=0)
    assert single.render().shape == (1, 4, 3)


@pytest.mark.parametrize("renderers", [[grey], {"ansi": lambda: ""}, {1: grey}])
def test_renderers_are_checked(renderers):
    with pytest.raises(TypeError, match=r"renderers(\['ansi'\])?( must be a mapping| .*the state)"):
        task(renderers=renderers)
