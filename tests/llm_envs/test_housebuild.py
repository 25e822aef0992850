"""Guards `housebuild-v0`: what builders read, what houses earn (by hand), stocks, spiders, feedback, options, careless teams."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.env import TaskEnv
from llm_envs.tasks.building import housebuild
from llm_envs.tasks.building.boxes import cells_of
from llm_envs.tasks.building.materials import NAMES
from llm_envs.testing import audit_rewards, check_task
from llm_envs.wrappers import JointAgent, ScoreWith

HUT = {"layers": [["PPP", "PPP"], ["S.S", "SGS"]], "attacks": [2, 1]}
"""3 × 2 × 2 cells: a floor of 6 planks, 4 stone, 1 glass; (1, 1, 0) is air. Two spiders."""


def task(**options):
    return housebuild.task(**{"items": [HUT], **options})


def play(task, *joints, item=0):
    """Rewards, the last infos and the last state of joint answers given in the agents' order."""
    env = TaskEnv(task)
    state, rewards, infos = env.initial(task.items[item], (0, 0), item), [], {}
    for texts in joints:
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True))])
        state, infos = transition.state, transition.infos
        rewards.append(transition.rewards[env.possible_agents[0]])
    return rewards, infos, state


def terms(infos, agent="agent_0"):
    return {name.removeprefix("reward/"): value for name, value in infos[agent].items() if name.startswith("reward/")}


# Stocks of two agents: planks ⌈6/2⌉ + ⌊6/4⌋ = 4, stone 2 + 1 = 3, glass 1 + 0 = 1.
LEFT = "/fill 0 0 0 1 0 1 oak_planks\n/fill 0 1 0 0 1 1 stone"  # 4 planks, 2 stone
RIGHT = "/fill 2 0 0 2 0 1 oak_planks\n/fill 2 1 0 2 1 1 stone\n/setblock 1 1 1 glass"
KILL = "\n/kill spider"


# ---- what they read ----


def test_first_prompts():
    env = TaskEnv(task(agents=["mason_0", "smith_0"]))
    prompts = env.initial(HUT, (0,)).observations
    assert prompts["smith_0"] == (
        "You are smith_0. You build with mason_0. "
        "Your team builds a house: x from 0 to 2, y from 0 (ground) to 1, z from 0 to 1.\n"
        "The blueprint, all else is air:\n"
        "oak_planks: x=0..2 y=0 z=0..1\n"
        "stone: x=0 y=1 z=0..1; x=2 y=1 z=0..1\n"
        "glass: x=1 y=1 z=1\n"
        "Your blocks: oak_planks (4), stone (3), glass (1).\n"
        "Write one command a line, at most 300: /fill X1 Y1 Z1 X2 Y2 Z2 BLOCK or /setblock X Y Z BLOCK. "
        "Corners are part of the box. "
        "The block air takes blocks away. The commands of mason_0, then smith_0 run in this order.\n"
        "Spiders attack, for 2 and 1 of 5 health, unless one of the team writes /kill spider"
    )


def test_the_blueprint_as_layers():
    prompt = TaskEnv(task(blueprint="layers")).initial({"layers": HUT["layers"]}, (0,)).observations["agent_0"]
    assert (
        "The blueprint, rows from z=0, in each row x from 0; P is oak_planks, S is stone, G is glass, . is air:\n"
        "y=0\nPPP\nPPP\ny=1\nS.S\nSGS\nYour blocks"
    ) in prompt
    assert "Spiders" not in prompt


def test_who_sees_the_blueprint():
    def seen(**options):
        prompts = TaskEnv(task(**options)).initial(HUT, (0,)).observations.values()
        return [("oak_planks:" in prompt or "PPP" in prompt, "glass:" in prompt or "SGS" in prompt) for prompt in prompts]

    for form in ("boxes", "layers"):
        assert seen(blueprint=form) == [(True, True), (True, True)]
        assert seen(blueprint=form, target_shown="first") == [(True, True), (False, False)]
        assert seen(blueprint=form, target_shown="none") == [(False, False)] * 2
        assert seen(blueprint=form, target_shown="split") == [(True, False), (False, True)]
        assert sorted(seen(blueprint=form, target_shown="split", agents=3)) == [(False, False), (False, True), (True, False)]


def test_a_team_of_one():
    made = task(agents=1)
    prompt = TaskEnv(made).initial(HUT, (0,)).observations["agent_0"]
    assert "at most 600" in prompt and "oak_planks (9)" in prompt and "You build with" not in prompt
    assert play(made, made.reference(HUT))[0] == [1.0]


# ---- what they earn ----


@pytest.mark.parametrize(
    ("texts", "match", "hurt"),
    [
        ([LEFT + KILL, RIGHT], 1.0, 0.0),
        ([LEFT, RIGHT + KILL], 1.0, 0.0),
        ([LEFT, RIGHT], 1.0, 3 / 5),
        (["", ""], 0.0, 3 / 5),
        ([KILL, ""], 0.0, 0.0),
        ([LEFT, ""], 6 / 11, 3 / 5),
        ([LEFT + KILL, ""], 6 / 11, 0.0),
        (["/setblock 0 0 0 stone" + KILL, ""], 0.0, 0.0),  # the wrong block
        (["/setblock 1 1 0 stone\n/setblock 0 1 0 stone" + KILL, ""], 1 / 12, 0.0),  # one right, one where air should be
        ([LEFT + KILL, RIGHT + "\n/setblock 0 0 0 stone"], 10 / 11, 0.0),  # a later agent overwrites
        ([LEFT + KILL, RIGHT + "\n/setblock 0 0 0 air"], 10 / 11, 0.0),
        (["/fill 0 0 0 2 0 1 oak_planks" + KILL, ""], 0.0, 0.0),  # 6 planks, 4 in stock
    ],
)
def test_houses_by_hand(texts, match, hurt):
    """match − 0.1 · hurt · match; hurt is min(1, damage 3 / health 5) unless somebody kills. 11 cells should have a block."""
    rewards, infos, _ = play(task(), texts)
    found = terms(infos)
    assert rewards == [pytest.approx(match * (1 - hurt / 10), abs=1e-12)]
    assert (found["match"], found["spider"]) == (pytest.approx(match), pytest.approx(-hurt * match))
    assert found["iou"] == pytest.approx(match) and found["solved"] == float(match == 1 and hurt == 0)


@pytest.mark.parametrize(("options", "attacks", "reward"), [({}, [9], 0.9), ({"health": 10}, [3, 1], 1 - 0.04), ({}, [], 1.0)])
def test_damage_and_health(options, attacks, reward):
    made = task(items=[{**HUT, "attacks": attacks}], **options)
    assert play(made, [LEFT, RIGHT])[0] == [pytest.approx(reward)]


def test_commands_that_are_rejected():
    """Without spiders there is nothing to kill."""
    made = task(items=[{"layers": HUT["layers"]}])
    _, infos, _ = play(made, [KILL + "\n/fill 0 0 0 2 0 1 oak_planks\nhello\n/setblock 0 0 0 obsidian", ""])
    assert [terms(infos, agent)["rejected"] for agent in ("agent_0", "agent_1")] == [4.0, 0.0]


def test_stocks_can_be_switched_off():
    made = task(stocks=False)
    assert "oak_planks (any number)" in TaskEnv(made).initial(HUT, (0,)).observations["agent_0"]
    assert play(made, ["/fill 0 0 0 2 0 1 oak_planks" + KILL, ""])[0] == [pytest.approx(6 / 11)]
    assert play(made, made.reference(HUT))[0] == [1.0]


@pytest.mark.parametrize("agents", [1, 2, 3, 4, 7])
def test_stocks_suffice_together_but_not_alone(agents):
    """⌈c/n⌉ + ⌊c/2n⌋ of c blocks."""
    made = housebuild.task(agents=agents, train_rows=3, eval_rows=1)
    for row in made.items:
        rules = made.reference.project.rules(row)
        counts = {name: int((made.reference.project.target(row) == number).sum()) for number, name in enumerate(NAMES)}
        for block, limit in rules.stocks[0].items():
            assert limit == -(-counts[block] // agents) + counts[block] // (2 * agents)
            assert limit * agents >= counts[block]
        assert agents == 1 or any(limit < counts[block] for block, limit in rules.stocks[0].items())


def test_careless_houses_earn_little():
    """Full boxes, the commonest block everywhere, another row's house: far from 1. One agent alone: about its stock, ¾."""
    made = housebuild.task()
    env = TaskEnv(made)
    earned = {"commonest": [], "alone": [], "another": []}
    for row, other in zip(made.items[:12], made.items[1:13], strict=True):
        target = made.reference.project.target(row)
        most = NAMES[int(np.bincount(target[target > 0]).argmax())]
        everywhere = [f"/setblock {x} {y} {z} {most}" for x, y, z in cells_of(np.ones_like(target))]
        texts = {
            "commonest": ["\n".join(everywhere[agent::2]) for agent in (0, 1)],
            "alone": ["\n".join(f"/setblock {x} {y} {z} {NAMES[target[x, y, z]]}" for x, y, z in cells_of(target)), ""],
            "another": made.reference(other),
        }
        actions = [dict(zip(env.possible_agents, joint, strict=True)) for joint in texts.values()]
        for name, transition in zip(texts, env.branch(env.initial(row, (0,)), actions), strict=True):
            earned[name].append(transition.rewards["agent_0"])
    assert np.mean(earned["commonest"]) < 0.2 and np.mean(earned["another"]) < 0.4
    assert max(earned["alone"]) < 0.78


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), min_size=1, max_size=2))
def test_any_text_is_an_action(texts):
    rewards, infos, _ = play(task(num_turns=2), *texts)
    assert rewards == [0.0] * len(rewards) and terms(infos)["match"] == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_random_commands_earn_between_0_and_1(seed):
    rng = np.random.default_rng(seed)
    env = TaskEnv(task(num_turns=3, keep_world=bool(seed % 2)))
    state, total = env.initial(HUT, (0, seed), 0), 0.0

    def command():
        corners = rng.integers(0, (3, 2, 2, 3, 2, 2))
        return f"/fill {' '.join(map(str, corners))} {rng.choice(['oak_planks', 'stone', 'glass', 'air'])}"

    while not state.done:
        texts = {agent: "\n".join(command() for _ in range(4)) for agent in env.possible_agents}
        (transition,) = env.branch(state, [texts])
        state = transition.state
        total += transition.rewards["agent_0"]
        assert 0.0 <= transition.rewards["agent_0"] <= 1.0
    assert 0.0 <= total <= 1.0 and env.reward_range == (0.0, 1.0)


# ---- several turns ----


def test_the_world_is_kept_with_its_dead_spiders():
    """H = 3: 6/11 counts a third, then the rest alone finishes and is paid for two of three turns."""
    rewards, _, state = play(task(num_turns=3), [LEFT + KILL, ""], ["", RIGHT])
    assert rewards == [pytest.approx(6 / 33), pytest.approx(2 / 3)] and state.terminated and state.turn == 2


def test_a_world_that_is_not_kept():
    """Of the second turn there are 5 blocks, and the spiders are back."""
    rewards, _, state = play(task(num_turns=3, keep_world=False), [LEFT + KILL, ""], ["", RIGHT])
    assert rewards[1] == pytest.approx(5 / 11 * (1 - 0.06) / 3) and not state.done
    assert "Nobody has killed the spiders." in state.observations["agent_0"]


def test_killing_spiders_can_be_what_is_left():
    rewards, _, state = play(task(num_turns=2, original_prompt=False), [LEFT, RIGHT])
    assert rewards == [pytest.approx(0.94 / 2)] and not state.done
    assert state.observations["agent_1"].split("\n\n")[1:] == [
        "The score of what you built is 0.9400 of 1.",
        "Nobody has killed the spiders.",
    ]
    assert play(task(num_turns=2), [LEFT, RIGHT], ["", KILL])[0][1] == 0.5


def test_stock_comes_back_between_turns():
    """A stone in the wrong place is taken away, then placed right."""
    wrong = "/fill 0 1 0 2 1 0 stone"  # all three stone, one of them where air should be
    rewards, infos, _ = play(task(num_turns=2), [wrong + KILL, ""], ["/setblock 1 1 0 air\n/setblock 0 1 1 stone", ""])
    assert rewards[1] == pytest.approx(3 / 11 / 2) and terms(infos)["rejected"] == 0.0


# ---- feedback ----


def feedback(mode, texts, **options):
    made = task(num_turns=2, feedback=mode, original_prompt=False, **options)
    return [prompt.split("\n\n")[1] for prompt in play(made, texts)[2].observations.values()]


MISTAKES = [LEFT + "\n/setblock 1 1 0 glass" + KILL, "/fill 2 0 0 2 0 1 stone\nhello"]
"""Missing: (2,1,0), (1,1,1), (2,1,1). Another block: (2,0,0), (2,0,1). Too much: (1,1,0)."""


def test_score_feedback():
    assert feedback("score_feedback", MISTAKES) == ["The score of what you built is 0.5000 of 1."] * 2  # 6 right of 12


def test_perfect_feedback():
    """Cells with an even sum of coordinates go to agent 0; what is too much is told as well."""
    assert feedback("perfect_feedback", MISTAKES) == [
        "Missing: (2,1,1) stone.\nAnother block should be at: (2,0,0) oak_planks.\nThere should be none at: (1,1,0).",
        "Missing: (2,1,0) stone (1,1,1) glass.\nAnother block should be at: (2,0,1) oak_planks.",
    ]
    assert feedback("perfect_feedback", [LEFT + KILL, RIGHT + "\n/setblock 0 0 0 air"])[1] == "Nothing is wrong in your share."


def test_position_feedback():
    boxes = "oak_planks: x=0..2 y=0 z=0..1\nstone: x=0 y=1 z=0..1; x=2 y=1 z=0..1\nglass: x=1 y=1 z=1"
    assert feedback("position_feedback", MISTAKES) == [f"The house is made of: Take about 1/2 of them.\n{boxes}"] * 2


def test_position_modification():
    """All wrong cells from the ground, along x and then z; twenty at most."""
    assert (
        feedback("position_modification", MISTAKES)
        == ["Change these cells: (2,0,0) oak_planks (2,0,1) oak_planks (1,1,0) air (2,1,0) stone (1,1,1) glass (2,1,1) stone."] * 2
    )
    assert feedback("position_modification", [LEFT, RIGHT]) == ["All cells are right."] * 2
    large = housebuild.task(num_turns=2, feedback="position_modification", original_prompt=False)
    prompt = play(large, ["", ""])[2].observations["agent_0"]
    count = int((large.reference.project.target(large.items[0]) > 0).sum())
    assert prompt.count("(") == 20 and prompt.endswith(f". {count - 20} more are wrong.")


def test_rect_modification():
    """What was obeyed, and the boxes that are wrong in the agent's layers: agent 0 has the ground, agent 1 the layer above."""
    assert feedback("rect_modification", MISTAKES) == [
        "These commands of yours were obeyed:\n"
        "/fill 0 0 0 1 0 1 oak_planks\n/fill 0 1 0 0 1 1 stone\n/setblock 1 1 0 glass\n/kill spider\n"
        "Your part is y=0 to y=0. These boxes should be:\noak_planks: x=2 y=0 z=0..1",
        "These commands of yours were obeyed:\n/fill 2 0 0 2 0 1 stone\n"
        "Your part is y=1 to y=1. These boxes should be:\nair: x=1 y=1 z=0\nstone: x=2 y=1 z=0..1\nglass: x=1 y=1 z=1",
    ]
    assert feedback("rect_modification", ["hm", RIGHT + "\n" + LEFT.split("\n")[1]])[0] == (
        "No command of yours was obeyed.\nYour part is y=0 to y=0. These boxes should be:\noak_planks: x=0..1 y=0 z=0..1"
    )


def test_resource_schedule():
    """Agent 0 has no planks and glass left and one stone, agent 1 has all four planks, its glass and one stone."""
    assert feedback("resource_schedule", MISTAKES) == [
        "Place next:\nstone: x=2 y=1 z=0\nair: x=1 y=1 z=0",
        "Place next:\noak_planks: x=2 y=0 z=0..1\nglass: x=1 y=1 z=1\nstone: x=2 y=1 z=1",
    ]
    assert feedback("resource_schedule", [LEFT + KILL, RIGHT + "\n/setblock 0 0 0 air"])[0] == "You have nothing to place."


def test_a_schedule_without_blocks():
    """All six stone lie in the floor."""
    _, second = feedback("resource_schedule", ["/fill 0 0 0 2 0 0 stone", "/fill 0 0 1 2 0 1 stone"])
    assert second == (
        "Place next:\noak_planks: x=1..2 y=0 z=1\nglass: x=1 y=1 z=1\n"
        "Nobody has blocks left for these until wrong ones are replaced:\nstone: x=0 y=1 z=0..1; x=2 y=1 z=0..1"
    )


def test_following_the_schedule_finishes_the_house():
    """For every row and whatever was built before, as long as nobody's stock lies in the wrong place."""
    made = housebuild.task(num_turns=2, feedback="resource_schedule", train_rows=6, eval_rows=1, agents=3)
    env = TaskEnv(made)
    for position, row in enumerate(made.items):
        half = ["\n".join(text.split("\n")[::2]) for text in made.reference(row)]
        (transition,) = env.branch(env.initial(row, (0,), position), [dict(zip(env.possible_agents, half, strict=True))])
        follow = {agent: commands(prompt) for agent, prompt in transition.state.observations.items()}
        (last,) = env.branch(transition.state, [follow])
        assert last.infos["agent_0"]["reward/solved"] == 1.0


def commands(prompt):
    """A schedule's lines as commands."""
    lines = []
    for line in prompt.split("\n\n")[1].split("\n"):
        block, _, boxes = line.partition(": ")
        for box in boxes.split("; ") if boxes else ():
            pairs = [part[2:].split("..") for part in box.split(" ")]
            lines.append(f"/fill {' '.join(pair[0] for pair in pairs)} {' '.join(pair[-1] for pair in pairs)} {block}")
    return "\n".join(lines)


def test_schedules_of_a_world_that_is_not_kept_start_from_nothing():
    made = task(num_turns=2, feedback="resource_schedule", keep_world=False, original_prompt=False, stocks=False)
    _, _, state = play(made, [LEFT, ""])
    texts = [commands(prompt) for prompt in state.observations.values()]
    assert play(task(stocks=False), [texts[0] + KILL, texts[1]])[0] == [1.0]


def test_what_later_prompts_repeat():
    first = TaskEnv(task()).initial(HUT, (0,)).observations["agent_0"]
    for original in (True, False):
        for previous in (True, False):
            made = task(num_turns=2, original_prompt=original, previous_response=previous)
            prompt = play(made, [LEFT, ""])[2].observations["agent_0"]
            assert (first in prompt, f"\n\nYou wrote:\n{LEFT}" in prompt) == (original, previous)


# ---- rows, reference, options ----


@pytest.mark.parametrize("seeds", [range(15), pytest.param(range(15, 200), marks=pytest.mark.slow)], ids=["15", "200"])
def test_the_reference_reaches_the_maximum(seeds):
    for seed in seeds:
        sizes = {"size": (5 + seed % 4, 5 + seed % 3, 5 + seed % 5), "min_size": (5, 5, 5)}
        made = housebuild.task(seed=seed, train_rows=1, eval_rows=1, agents=1 + seed % 6, spiders=seed % 4, **sizes)
        for row in (*made.items, *made.eval_items):
            env = TaskEnv(made)
            (transition,) = env.branch(env.initial(row, (0,)), [dict(zip(env.possible_agents, made.reference(row), strict=True))])
            assert set(transition.rewards.values()) == {1.0} and transition.state.terminated
            assert {info["reward/rejected"] for info in transition.infos.values()} == {0.0}


def test_rows():
    made = housebuild.task(spiders=3)
    houses = [str(row["layers"]) for row in (*made.items, *made.eval_items)]
    assert (len(made.items), len(made.eval_items), len(set(houses))) == (64, 16, 80)
    assert all(len(row["attacks"]) == 3 for row in made.items)
    assert housebuild.task(spiders=3).items == made.items
    # Spiders do not change the houses.
    assert [row["layers"] for row in housebuild.task().items] == [row["layers"] for row in made.items]
    assert housebuild.task(seed=1).items != housebuild.task().items
    assert task().eval_items is None
    with pytest.raises(ValueError, match="item 0 has no field 'layers'"):
        play(task(items=[{"house": 1}]), ["", ""])
    with pytest.raises(ValueError, match=r"a row's 'attacks' must be whole numbers, one for each spider, got \['x'\]"):
        play(task(items=[{**HUT, "attacks": ["x"]}]), ["", ""])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feedback": "perfect"}, "feedback must be one of score_feedback, .*, resource_schedule, got 'perfect'"),
        ({"target_shown": "some"}, "target_shown must be one of all, split, first, none, got 'some'"),
        ({"blueprint": "plan"}, "blueprint must be one of boxes, layers, got 'plan'"),
        ({"stocks": None}, "stocks must be True or False, got None"),
        ({"health": 0}, "health must be a whole number of at least 1, got 0"),
        ({"spiders": 2}, "spiders=2 is about rows that are made here; leave it out with items of your own"),
        ({"seed": 1}, "seed=1 is about rows"),
        ({"train_rows": 2}, "train_rows=2 is about rows"),
        ({"eval_rows": 2}, "eval_rows=2 is about rows"),
        ({"size": (5, 5, 5)}, r"size=\(5, 5, 5\) is about rows"),
        ({"min_size": (5, 5, 5)}, r"min_size=\(5, 5, 5\) is about rows"),
        ({"max_overlap": 1.0}, "max_overlap=1.0 is about rows"),
        ({"spiders": -1}, "spiders must be a whole number of at least 0, got -1"),
        ({"max_commands": 1}, "max_commands must be a whole number of at least 2, got 1"),
        ({"max_commands": 8, "items": None}, r"max_commands=8 gives agent_\d 4 commands, but a house of 6 × 7 × 7 needs \d+ of it"),
        ({"size": (6, 7), "items": None}, r"size must be three numbers of cells, along x, y and z, got \(6, 7\)"),
        ({"size": (6, 4, 7), "items": None}, r"size\[1\] must be a whole number of at least 5, got 4"),
        ({"min_size": (7, 7, 7), "items": None}, r"min_size must be no more than size=\[6, 7, 7\], got \[7, 7, 7\]"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        task(**options)


def test_houses_of_several_sizes():
    made = housebuild.task(size=[8, 6, 7], min_size=[5, 5, 6], train_rows=20, eval_rows=4)
    shapes = {made.reference.project.target(row).shape for row in made.items}
    assert len(shapes) > 5 and all(5 <= x <= 8 and 5 <= y <= 6 and 6 <= z <= 7 for x, y, z in shapes)


# ---- as every task ----


def test_checks_audit_and_pickling():
    made = housebuild.task(num_turns=2, feedback="rect_modification", spiders=2, train_rows=4, eval_rows=2)
    check_task(made, scored_rows=2)
    audit = audit_rewards(TaskEnv(made), rows=4, episodes_per_row=2)
    assert [audit[team].max for team in ("empty", "constant", "copied prompt", "longest", "random words")] == [0.0] * 5
    assert audit["reference"].min == 1.0 and audit["one silent"].max <= 0.6
    env = pickle.loads(pickle.dumps(TaskEnv(made, render_mode="rgb_array")))
    env.reset(seed=0)
    env.step({"agent_0": LEFT, "agent_1": ""})
    assert env.render().shape[2] == 3


def test_wrapped_teams_build_the_same_world():
    """The world is read from the task's own history, whoever writes for the agents and whatever rewards are."""
    made = task(num_turns=3)
    env = ScoreWith(TaskEnv(made), lambda prompts, completions: [0.5] * len(completions))
    state = env.initial(HUT, (0,))
    for texts in ([LEFT + KILL, ""], ["", RIGHT]):
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True))])
        state = transition.state
    assert state.terminated and transition.infos["agent_0"]["reward/solved"] == 1.0
    assert JointAgent(TaskEnv(made, render_mode="rgb_array")).metadata["render_modes"] == ["ansi", "rgb_array"]


def test_rendering():
    env = TaskEnv(task(num_turns=2), render_mode="ansi")
    env.reset(seed=0)
    env.step({"agent_0": LEFT + KILL, "agent_1": "/setblock 1 1 0 glass"})
    assert env.render() == (
        "after turn 1 of 2, score 0.5000, spiders killed; built, then wanted:\ny=0\nPP.   PPP\nPP.   PPP\ny=1\nSG.   S.S\nS..   SGS"
    )
    image = TaskEnv(task(num_turns=2), render_mode="rgb_array")
    image.reset(seed=0)
    before = image.render()
    half = before.shape[1] // 2
    assert before.dtype == np.uint8 and len(np.unique(before[:, :half].reshape(-1, 3), axis=0)) == 1  # nothing stands yet
    image.step({"agent_0": LEFT + KILL, "agent_1": RIGHT})
    after = image.render()
    assert (after[:, :half] == after[:, half:]).all() and (after[:, half:] == before[:, half:]).all()
