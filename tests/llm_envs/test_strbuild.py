"""Guards `strbuild-v0`: what builders read, what walls earn (by hand), feedback, options, and that careless walls earn little."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.env import TaskEnv
from llm_envs.tasks.building import strbuild
from llm_envs.tasks.building.boxes import cells_of
from llm_envs.tasks.building.font import ALPHABET, drawn
from llm_envs.testing import audit_rewards, check_task

I_CELLS = [(1, 4), (2, 4), (3, 4), (2, 3), (2, 2), (2, 1), (1, 0), (2, 0), (3, 0)]
"""Of the letter I: a bar above, a column, a bar below; 9 cells of 25."""


def task(**options):
    return strbuild.task(**{"items": [{"text": "I"}], **options})


def place(*blocks):
    """`(x, y, block)` as commands."""
    return "\n".join(f"/setblock {x} {y} 0 {block}" for x, y, block in blocks)


def play(task, *joints):
    """Rewards, the last infos and the last state of joint answers given in the agents' order."""
    env = TaskEnv(task)
    state, rewards, infos = env.initial(task.items[0], (0, 0), 0), [], {}
    for texts in joints:
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True))])
        state, infos = transition.state, transition.infos
        rewards.append(transition.rewards[env.possible_agents[0]])
    return rewards, infos, state


def terms(infos, agent="agent_0"):
    return {name.removeprefix("reward/"): value for name, value in infos[agent].items() if name.startswith("reward/")}


TOP = place((1, 4, "oak_planks"), (2, 4, "stone"), (3, 4, "oak_planks"))
COLUMN = place((2, 3, "obsidian"), (2, 2, "white_concrete"), (2, 1, "obsidian"))
BOTTOM = place((1, 0, "obsidian"), (2, 0, "white_concrete"), (3, 0, "obsidian"))


# ---- what they read ----


def test_first_prompts():
    env = TaskEnv(task(agents=["mason_0", "smith_0"]))
    prompts = env.initial({"text": "I"}, (0,)).observations
    assert prompts["smith_0"] == (
        "You are smith_0. "
        "Your team builds a picture out of blocks on a wall: x from 0 (left) to 4, y from 0 (ground) to 4, z is 0.\n"
        "The picture (# is a block, . is none, the first column is x=0):\n"
        "y=4 .###.\n"
        "y=3 ..#..\n"
        "y=2 ..#..\n"
        "y=1 ..#..\n"
        "y=0 .###.\n"
        "Your blocks: white_concrete, obsidian. mason_0 has oak_planks, stone. Everybody must use each of their blocks.\n"
        "Equal blocks must not touch side by side or one above the other, whoever placed them.\n"
        "Write one command a line, at most 150: /setblock X Y Z BLOCK. The block air takes a block away. "
        "The commands of mason_0, then smith_0 run in this order."
    )


def test_who_sees_the_picture():
    def pictures(**options):
        env = TaskEnv(task(**options))
        prompts = env.initial({"text": "I"}, (0,)).observations.values()
        return [[line[4:] for line in prompt.split("\n") if line.startswith("y=")] for prompt in prompts]

    whole = [".###.", "..#..", "..#..", "..#..", ".###."]
    assert pictures() == pictures(target_shown="all") == [whole, whole]
    assert pictures(target_shown="first") == [whole, []]
    assert pictures(target_shown="none") == [[], []]
    left, right = pictures(target_shown="split")  # columns 0 and 1, columns 2 to 4
    assert left == [".#???", "..???", "..???", "..???", ".#???"] and right == ["??##.", "??#..", "??#..", "??#..", "??##."]
    for agents in range(1, 8):  # every column is seen by one of them, whatever their number
        parts = [part for part in pictures(target_shown="split", agents=agents) if part]
        assert [sum(part[0][x] != "?" for part in parts) for x in range(5)] == [1] * 5


def test_a_team_of_one():
    prompt = TaskEnv(task(agents=1)).initial({"text": "I"}, (0,)).observations["agent_0"]
    assert "at most 300" in prompt and " has " not in prompt and "in this order" not in prompt
    assert play(task(agents=1), task(agents=1).reference({"text": "I"}))[0] == [1.0]


def test_blocks_are_dealt_out():
    """Two each; the fifth agent has those of the first."""
    project = strbuild.task(agents=5).reference.project
    assert [list(palette) for palette in project.palettes] == [
        ["oak_planks", "stone"],
        ["white_concrete", "obsidian"],
        ["stone_bricks", "glass"],
        ["stone_stairs", "red_wool"],
        ["oak_planks", "stone"],
    ]
    assert project.rules({"text": "I"}).max_commands == (60,) * 5


# ---- what they earn ----


def test_a_wall_by_hand():
    """5 of 9 cells, 1 of 16 others: match 5/9 − 1/16 = 71/144. Of 4 pairs one is concrete on concrete. Nothing is unused."""
    first = TOP + "\nI am done"
    second = place((2, 3, "white_concrete"), (2, 2, "white_concrete"), (0, 0, "obsidian"))
    rewards, infos, state = play(task(), [first, second])
    match = 71 / 144
    assert terms(infos) == {
        "coverage": pytest.approx(5 / 9),
        "extra": pytest.approx(-1 / 16),
        "adjacency": pytest.approx(-match / 4),
        "palette": 0.0,
        "iou": pytest.approx(5 / 10),
        "solved": 0.0,
        "rejected": 1.0,
    }
    assert terms(infos, "agent_1")["rejected"] == 0.0
    assert rewards == [pytest.approx(match * (1 - 1 / 16))] and state.terminated


@pytest.mark.parametrize(
    ("texts", "score"),
    [
        ([TOP, COLUMN + "\n" + BOTTOM], 1.0),
        (["", ""], 0.0),
        ([TOP, ""], 3 / 9 * (1 - 1 / 2 * 1 / 2)),  # agent_1 has used nothing
        ([place((1, 4, "stone"), (2, 4, "stone")), ""], 2 / 9 * (1 - 1 / 4 - 1 / 2)),  # one pair, equal; neither has used all
        ([TOP, place(*[(x, y, "obsidian") for x, y in I_CELLS])], 1 * (1 - 1 / 4 - 1 / 2)),  # all overwritten by one block
        ([place(*[(x, 0, "stone") for x in (0, 4)]), ""], 0.0),  # more wrong than right
        ([place((1, 4, "obsidian")), place((1, 4, "stone"))], 0.0),  # not theirs
        (["```\n" + TOP + "\n```\n" + COLUMN, COLUMN + "\n" + BOTTOM], 1.0),
    ],
)
def test_walls_by_hand(texts, score):
    assert play(task(), texts)[0] == [pytest.approx(score, abs=1e-12)]


def test_only_right_walls_earn_1():
    """All walls that differ from a best one in one cell (no block, or another kind): 1 exactly for those that are right as well."""
    kinds = ["oak_planks", "stone", "white_concrete", "obsidian"]
    one = task(agents=1, palettes=[kinds])
    lines = [line.split()[1:] for line in "\n".join([TOP, COLUMN, BOTTOM]).split("\n")]
    best = {(int(x), int(y)): block for x, y, _, block in lines}
    perfect = 0
    for cell in [(x, y) for x in range(5) for y in range(5)]:
        for kind in ("air", *kinds):
            wall = {place: block for place, block in {**best, cell: kind}.items() if block != "air"}
            touching = [((x, y), other) for x, y in wall for other in ((x + 1, y), (x, y + 1)) if other in wall]
            right = set(wall) == set(I_CELLS) and set(wall.values()) == set(kinds) and all(wall[a] != wall[b] for a, b in touching)
            (reward,), infos, _ = play(one, [place(*[(*where, block) for where, block in wall.items()])])
            assert (reward == 1.0) == right == bool(infos["agent_0"]["reward/solved"])
            perfect += right
    assert perfect > 9


def halves(cells, *blocks):
    """Each agent's commands for every other cell, with its two blocks in turn."""
    return [place(*[(x, y, blocks[agent][y % 2]) for x, y in cells if x % 2 == agent]) for agent in (0, 1)]


def test_careless_walls_earn_little():
    """A full wall 0, one agent alone ¾ at most, one block everywhere ½ at most, the wall of another text less than ½ on average."""
    made = strbuild.task()
    env = TaskEnv(made)
    earned = {"full": [], "alone": [], "one block": [], "another": []}
    palettes = made.reference.project.palettes
    for row, other in zip(made.items[:24], made.items[1:25], strict=True):
        target = drawn(row["text"])
        wall = [(x, y) for x in range(target.shape[0]) for y in range(5)]
        wanted = [cell for cell in wall if target[cell]]
        texts = {
            "full": halves(wall, *palettes),
            "alone": [place(*[(x, y, palettes[0][(x + y) % 2]) for x, y in wanted]), ""],
            "one block": [place(*[(x, y, "stone") for x, y in wanted]), ""],
            "another": made.reference(other),
        }
        actions = [dict(zip(env.possible_agents, joint, strict=True)) for joint in texts.values()]
        for name, transition in zip(texts, env.branch(env.initial(row, (0,)), actions), strict=True):
            earned[name].append(transition.rewards["agent_0"])
    assert max(earned["full"]) == 0.0
    assert max(earned["alone"]) <= 0.75 and max(earned["one block"]) <= 0.5
    assert np.mean(earned["another"]) < 0.5


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), min_size=1, max_size=2))
def test_any_text_is_an_action(texts):
    rewards, infos, _ = play(task(num_turns=2), *texts)
    assert rewards == [0.0] * len(rewards) and terms(infos)["coverage"] == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_random_commands_earn_between_0_and_1(seed):
    rng = np.random.default_rng(seed)
    made = task(num_turns=3, keep_world=bool(seed % 2))
    blocks = (["oak_planks", "stone", "air"], ["white_concrete", "obsidian", "air"])
    env = TaskEnv(made)
    state, total = env.initial(made.items[0], (0, seed), 0), 0.0
    while not state.done:
        texts = [
            place(*[(*rng.choice(I_CELLS if rng.random() < 0.7 else [[0, 0]]), rng.choice(own)) for _ in range(8)])
            for own in blocks
        ]
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True))])
        state, infos = transition.state, transition.infos["agent_0"]
        total += transition.rewards["agent_0"]
        assert 0.0 <= transition.rewards["agent_0"] <= 1.0
        assert infos["raw_reward"] == pytest.approx(
            infos["reward/coverage"] + infos["reward/extra"] + infos["reward/adjacency"] / 4 + infos["reward/palette"] / 2
        )
    assert 0.0 <= total <= 1.0 and env.reward_range == (0.0, 1.0)


# ---- several turns ----


def test_the_world_is_kept_and_a_finished_wall_ends_the_episode():
    """H = 3. The top alone scores 3/9 · ¾ = ¼ and counts a third; then only the rest is needed, paid for two of three turns."""
    rewards, infos, state = play(task(num_turns=3), [TOP, ""], ["", COLUMN + "\n" + BOTTOM])
    assert rewards == [pytest.approx(1 / 12), pytest.approx(2 / 3)]
    assert state.terminated and state.turn == 2 and infos["agent_0"]["reward/solved"] == 1.0
    assert play(task(num_turns=3), [TOP, COLUMN + "\n" + BOTTOM])[0] == [1.0]


def test_a_world_that_is_not_kept_is_built_anew():
    rewards, _, state = play(task(num_turns=3, keep_world=False), [TOP, ""], ["", COLUMN + "\n" + BOTTOM])
    assert rewards[1] == pytest.approx(6 / 9 * (1 - 1 / 4) / 3) and not state.done
    assert "Everything is taken away again: build it anew. This is about what stood." in state.observations["agent_0"]


def test_wrong_blocks_can_be_taken_away():
    wrong = place((0, 0, "stone"), (1, 4, "stone"))
    rewards, _, _ = play(
        task(num_turns=2), [TOP + "\n" + wrong, COLUMN + "\n" + BOTTOM], [place((1, 4, "oak_planks")), place((0, 0, "air"))]
    )
    assert rewards[1] == 0.5


def feedback(mode, texts, **options):
    _, _, state = play(task(num_turns=2, feedback=mode, original_prompt=False, **options), texts)
    return list(state.observations.values())


def test_score_feedback():
    """The score to four decimals, and the lines that did nothing with reasons, five at most."""
    bad = "\n".join(["hm"] * 6 + ["/setblock 9 0 0 stone"])
    one, two = feedback("score_feedback", [TOP, bad])
    assert one == "Turn 2 of 2. What stands is kept.\n\nThe score of what you built is 0.2500 of 1."
    assert two == one + (
        "\n\nThese lines of yours did nothing:\n"
        "line 1, 'hm': no command\nline 2, 'hm': no command\nline 3, 'hm': no command\nline 4, 'hm': no command\n"
        "line 5, 'hm': no command\nand 2 more"
    )


def test_position_feedback():
    cells = "(1,0) (2,0) (3,0) (2,1) (2,2) (2,3) (1,4) (2,4) (3,4)"
    told = f"The picture's blocks are at (x,y): {cells}. Take about 1/2 of them, none beside another of yours."
    assert feedback("position_feedback", ["", ""]) == [f"Turn 2 of 2. What stands is kept.\n\n{told}"] * 2


def test_perfect_feedback():
    """Cells with an even sum go to agent 0. Missing: (2,1) and the lower bar; one too many at (0,1); (2,2) and (2,3) are equal."""
    wall = [TOP, place((2, 3, "obsidian"), (2, 2, "obsidian"), (0, 1, "obsidian"))]
    one, two = feedback("perfect_feedback", wall)
    assert one.split("\n\n")[1] == "Blocks are missing at (2,0).\nEqual blocks touch at (2,2)-(2,3)."
    assert two.split("\n\n")[1] == (
        "Blocks are missing at (1,0) (3,0) (2,1).\nThere should be none at (0,1).\nYou have not used white_concrete."
    )


def test_perfect_feedback_on_a_share_that_is_right():
    one, _ = feedback("perfect_feedback", [TOP, COLUMN + "\n" + place((2, 0, "white_concrete"))])
    assert one.split("\n\n")[1] == "Nothing is wrong in your share."


def test_what_later_prompts_repeat():
    env = TaskEnv(task())
    first = env.initial({"text": "I"}, (0,)).observations["agent_0"]
    for original in (True, False):
        for previous in (True, False):
            made = task(num_turns=2, original_prompt=original, previous_response=previous)
            prompt = play(made, [TOP, ""])[2].observations["agent_0"]
            assert (first in prompt, f"\n\nYou wrote:\n{TOP}" in prompt) == (original, previous)


# ---- rows, reference, options ----


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 200), marks=pytest.mark.slow)], ids=["20", "200"])
def test_the_reference_reaches_the_maximum(seeds):
    for seed in seeds:
        made = strbuild.task(seed=seed, train_rows=1, eval_rows=1, agents=1 + seed % 6, alphabet=ALPHABET, num_turns=1 + seed % 2)
        for row in (*made.items, *made.eval_items):
            env = TaskEnv(made)
            (transition,) = env.branch(env.initial(row, (0,)), [dict(zip(env.possible_agents, made.reference(row), strict=True))])
            assert set(transition.rewards.values()) == {1.0} and transition.state.terminated
            assert {info["reward/rejected"] for info in transition.infos.values()} == {0.0}


@pytest.mark.parametrize("agents", [8, 13])
def test_large_teams_get_longer_texts(agents):
    made = strbuild.task(agents=agents)
    assert min(len(row["text"]) for row in made.items) == -(-agents // 4)
    assert play(made, made.reference(made.items[0]))[0] == [1.0]


def test_work_is_divided():
    """Two agents: nobody places more than one block more than the other, on any default row."""
    made = strbuild.task()
    for row in made.items:
        counts = [text.count("\n") + 1 for text in made.reference(row)]
        assert abs(counts[0] - counts[1]) <= 1 and sum(counts) == len(cells_of(drawn(row["text"])[:, :, None]))


def test_rows():
    made = strbuild.task()
    assert (len(made.items), len(made.eval_items)) == (64, 16)
    train, evaluation = ({row["text"] for row in rows} for rows in (made.items, made.eval_items))
    assert (len(train), len(evaluation), len(train & evaluation)) == (64, 16, 0)
    assert strbuild.task().items == made.items != strbuild.task(seed=1).items
    assert task().eval_items is None
    with pytest.raises(ValueError, match=r"on item 0: .*capital letters A-Z and digits, at least one, got 'a b'"):
        play(task(items=[{"text": "a b"}]), ["", ""])
    with pytest.raises(ValueError, match="at most 12 letters, got 13: 'ABCDEFGHIJKLM'"):
        play(task(items=[{"text": "ABCDEFGHIJKLM"}]), ["", ""])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feedback": "perfect"}, "feedback must be one of score_feedback, position_feedback, perfect_feedback, got 'perfect'"),
        ({"target_shown": "some"}, "target_shown must be one of all, split, first, none, got 'some'"),
        ({"keep_world": 1}, "keep_world must be True or False, got 1"),
        ({"max_commands": 1}, "max_commands must be a whole number of at least 2, got 1"),
        ({"max_commands": 8, "items": None}, "needs a wall on which no equal blocks touch"),
        ({"palettes": [["stone"]]}, "palettes must be a list of blocks for each of 2 agents"),
        ({"palettes": [["stone"], ["gold"]]}, r"palettes\[1\] must be a list of blocks out of oak_planks, .*, got \['gold'\]"),
        ({"palettes": [["stone", "stone"], ["glass"]]}, r"palettes\[0\] must name each block once"),
        ({"palettes": [["stone"], ["stone"]], "items": None}, "none is found with palettes="),
        ({"alphabet": "aB", "items": None}, "alphabet must be different letters out of"),
        ({"alphabet": "ABA", "items": None}, "alphabet must be different letters out of"),
        ({"max_length": 13, "items": None}, "max_length ≤ 12"),
        ({"train_rows": 26, "max_length": 1, "items": None}, "there are only 26"),
        ({"seed": 1}, "seed=1 is about rows that are made here; leave it out with items of your own"),
        ({"train_rows": 2}, "train_rows=2 is about rows"),
        ({"eval_rows": 2}, "eval_rows=2 is about rows"),
        ({"min_length": 1}, "min_length=1 is about rows"),
        ({"max_length": 2}, "max_length=2 is about rows"),
        ({"alphabet": "AB"}, "alphabet='AB' is about rows"),
        ({"num_turns": 0}, "num_turns must be a whole number of at least 1, got 0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        task(**options)


def test_own_palettes():
    made = task(palettes=[["glass"], ["red_wool", "stone"]])
    assert play(made, made.reference({"text": "I"}))[0] == [1.0]


def test_the_limit_of_commands():
    """Six for two agents: three each, the fourth is rejected."""
    _, infos, _ = play(task(max_commands=6), [TOP + "\n" + TOP, ""])
    assert terms(infos)["rejected"] == 3.0


# ---- as every task ----


def test_checks_audit_and_pickling():
    made = strbuild.task(num_turns=2, feedback="perfect_feedback")
    check_task(made, scored_rows=2)
    audit = audit_rewards(TaskEnv(made), rows=4, episodes_per_row=2)
    assert [audit[team].max for team in ("empty", "constant", "copied prompt", "longest", "random words")] == [0.0] * 5
    assert audit["reference"].min == 1.0 and audit["one silent"].max <= 0.5
    env = pickle.loads(pickle.dumps(TaskEnv(made, render_mode="rgb_array")))
    env.reset(seed=0)
    env.step({"agent_0": TOP, "agent_1": ""})
    assert env.render().shape[2] == 3


def test_rendering():
    env = TaskEnv(task(num_turns=2), render_mode="ansi")
    assert env.metadata["render_modes"] == ["ansi", "rgb_array"]
    env.reset(seed=0)
    env.step({"agent_0": TOP, "agent_1": place((0, 0, "obsidian"), (2, 3, "white_concrete"))})
    assert env.render() == (
        "after turn 1 of 2, score 0.3819; built, then wanted:\n"
        "y=4 .PSP.   .###.\n"
        "y=3 ..W..   ..#..\n"
        "y=2 .....   ..#..\n"
        "y=1 .....   ..#..\n"
        "y=0 O....   .###."
    )
    image = TaskEnv(task(num_turns=2), render_mode="rgb_array")
    image.restore(env.snapshot())
    drawing = image.render()
    assert drawing.dtype == np.uint8 and drawing.shape == (11 * 12, 5 * 12, 3)
    assert drawing[6 * 12 + 6, 2 * 12 + 6].tolist() == [126, 126, 126]  # the stone in the middle of the upper bar
    assert drawing[6, 2 * 12 + 6].tolist() == [96, 120, 160]  # where it is wanted
