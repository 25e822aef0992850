"""Guards the parts of the building tasks: commands, the world they change, boxes, the font, rows by seed, houses, images."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.tasks.building.boxes import Box, boxes_of, cells_of, listed
from llm_envs.tasks.building.checkerboard import checkerboard, shares_of, touching
from llm_envs.tasks.building.commands import Kill, Place, Rejected, read_commands, written
from llm_envs.tasks.building.draw import CELL, SKY, cubes, squares
from llm_envs.tasks.building.font import ALPHABET, GLYPHS, drawn
from llm_envs.tasks.building.generated import house_rows, overlap, text_rows
from llm_envs.tasks.building.houses import draw_house, target_of
from llm_envs.tasks.building.materials import BLOCKS, NAMES, NUMBER, SYMBOLS
from llm_envs.tasks.building.schedule import jobs_for
from llm_envs.tasks.building.world import Rules, built, dealt, empty_world

ALL = ("setblock", "fill", "kill")


def read(text, verbs=ALL):
    return list(read_commands(text, verbs))


def reasons(text, verbs=ALL):
    return [entry.reason if isinstance(entry, Rejected) else "ok" for entry in read(text, verbs)]


# ---- commands ----


def test_commands_are_read_with_bullets_fences_and_any_case():
    lines = ["- /setblock 1 2 3 stone", "", "2. FILL 4 1 0 2 1 0 minecraft:Obsidian", "* `/kill spider`"]
    text = "\n".join(["I build:", "```mcfunction", *lines, "```", "/setblock 9 9 9 stone"])
    assert read(text) == [
        Place(1, "- /setblock 1 2 3 stone", (1, 2, 3), (1, 2, 3), "stone"),
        Place(3, "2. FILL 4 1 0 2 1 0 minecraft:Obsidian", (2, 1, 0), (4, 1, 0), "obsidian"),  # corners in any order
        Kill(4, "* `/kill spider`"),
    ]
    assert len(read("```\n/setblock 1 2 3 stone")) == 1  # the fence may lack its end


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("hello", "no command"),
        ("please /setblock 1 2 3 stone", "no command"),
        ("/", "no command"),
        ("/tp 1 2 3", "no command"),
        ("/setblock 1 2 stone", "write /setblock X Y Z BLOCK"),
        ("/setblock 1 2 3 4 stone", "write /setblock X Y Z BLOCK"),
        ("/setblock X Y Z BLOCK", "coordinates must be whole numbers"),
        ("/setblock ~1 2 3 stone", "coordinates must be whole numbers"),
        ("/setblock 1.0 2 3 stone", "coordinates must be whole numbers"),
        ("/setblock ١ 2 3 stone", "coordinates must be whole numbers"),
        ("/setblock 1234567890123 2 3 stone", "coordinates must be whole numbers"),
        ("/fill 1 2 3 stone", "write /fill X1 Y1 Z1 X2 Y2 Z2 BLOCK"),
        ("/kill", "write /kill spider"),
        ("/kill agent_0", "write /kill spider"),
    ],
)
def test_other_lines_are_rejected_with_a_reason(line, reason):
    assert reasons(line) == [reason]


def test_commands_that_a_task_does_not_have():
    assert reasons("/fill 0 0 0 1 1 1 stone\n/kill spider", ("setblock",)) == ["there is no /fill here", "there is no /kill here"]


@given(st.text())
def test_any_text_is_read(text):
    for entry in read(text):
        assert entry.line >= 1 and entry.text == entry.text.strip()


def test_written_commands_are_read_back():
    assert read(written((1, 2, 3), (1, 2, 3), "air") + "\n" + written((0, 0, 0), (1, 2, 3), "stone")) == [
        Place(1, "/setblock 1 2 3 air", (1, 2, 3), (1, 2, 3), "air"),
        Place(2, "/fill 0 0 0 1 2 3 stone", (0, 0, 0), (1, 2, 3), "stone"),
    ]


# ---- the world ----

RULES = Rules(
    size=(3, 2, 2),
    verbs=ALL,
    palettes=(("stone", "glass"), ("obsidian", "stone")),
    max_commands=(3, 2),
    stocks=({"stone": 2, "glass": 1}, {"obsidian": 5, "stone": 2}),
)


def played(*turns):
    world = empty_world(RULES.size)
    reports = [world.play(RULES, texts) for texts in turns]
    return world, [[[one.reason for one in report.rejected] for report in turn] for turn in reports]


def test_later_commands_and_later_agents_overwrite():
    world, _ = played(["/setblock 0 0 0 stone\n/setblock 0 0 0 glass\n/setblock 1 0 0 glass", "/setblock 0 0 0 obsidian"])
    assert NAMES[world.blocks[0, 0, 0]] == "obsidian" and world.owners[0, 0, 0] == 1
    assert world.blocks[1, 0, 0] == 0  # the one glass was in use


def test_what_cannot_be_obeyed_changes_nothing():
    texts = [
        "/setblock 3 0 0 stone\n/setblock 0 -1 0 stone\n/setblock 0 0 0 obsidian\n/setblock 0 0 0 gold\n/fill 0 0 0 2 0 0 stone",
        "",
    ]
    world, said = played(texts)
    assert not world.blocks.any()
    assert said == [
        [
            [
                "outside of the box",
                "outside of the box",
                "obsidian is not one of your blocks",
                "there is no block gold",
                "needs 3 stone, you have 2 left",
            ],
            [],
        ]
    ]


def test_commands_are_limited_by_turn():
    world, said = played(["/kill spider\n" * 4, ""], ["/kill spider\n", "/kill spider\n" * 3])
    assert world.killed
    assert said == [[["too many commands"], []], [[], ["too many commands"]]]


def test_blocks_taken_away_go_back_to_whoever_placed_them():
    """Agent 0 has 2 stone, both of which stand; agent 1 replaces one, so in the next turn agent 0 has 1 again."""
    first = ["/fill 0 0 0 1 0 0 stone", "/setblock 0 0 0 obsidian"]
    world, said = played(
        first, ["/setblock 2 0 0 stone\n/setblock 2 1 0 stone", "/setblock 1 0 0 air"], ["/setblock 2 1 0 stone", ""]
    )
    assert said == [[[], []], [["needs 1 stone, you have 0 left"], []], [[], []]]
    assert [world.standing(agent, "stone") for agent in (0, 1)] == [2, 0]


def test_a_block_that_stands_already_costs_nothing_and_keeps_its_owner():
    world, said = played(["/fill 0 0 0 1 0 0 stone\n/fill 0 0 0 1 0 0 stone", "/setblock 0 0 0 stone"])
    assert said == [[[], []]] and world.standing(0, "stone") == 2 and world.standing(1, "stone") == 0


class NaiveWorld:
    """The rules again, cell by cell with a dictionary."""

    def __init__(self):
        self.cells = {}

    def turn(self, texts):
        for agent, text in enumerate(texts):
            obeyed = 0
            for line in text.split("\n"):
                if not line or obeyed == RULES.max_commands[agent]:
                    continue
                *numbers, block = line.split()[1:]
                x, y, z, u, v, w = map(int, numbers)
                cells = list(
                    itertools.product(
                        range(min(x, u), max(x, u) + 1), range(min(y, v), max(y, v) + 1), range(min(z, w), max(z, w) + 1)
                    )
                )
                new = [cell for cell in cells if self.cells.get(cell, ("air", None))[0] != block]
                if any(c < 0 or c >= s for cell in cells for c, s in zip(cell, RULES.size, strict=True)):
                    continue
                if block != "air":
                    if block not in RULES.palettes[agent]:
                        continue
                    if sum(have == (block, agent) for have in self.cells.values()) + len(new) > RULES.stocks[agent][block]:
                        continue
                obeyed += 1
                for cell in new:
                    self.cells[cell] = (block, agent)
                    if block == "air":
                        del self.cells[cell]


def random_turns(seed):
    rng = np.random.default_rng(seed)

    def fill():
        corners = rng.integers((-1, 0, 0, 0, 0, 0), (3, 2, 2, 4, 2, 2))
        return f"/fill {' '.join(map(str, corners))} {rng.choice(['stone', 'glass', 'obsidian', 'air'])}"

    return [["\n".join(fill() for _ in range(rng.integers(5))) for _ in range(2)] for _ in range(rng.integers(1, 4))]


@pytest.mark.parametrize("seed", range(80))
def test_the_world_is_that_of_naive_rules(seed):
    turns = random_turns(seed)
    naive = NaiveWorld()
    for texts in turns:
        naive.turn(texts)
    world = built(RULES, turns)
    found = {cell: (NAMES[world.blocks[cell]], int(world.owners[cell])) for cell in cells_of(world.blocks)}
    assert found == naive.cells
    assert (world.owners[world.blocks == 0] == -1).all()


def test_a_copy_is_a_world_of_its_own():
    world = empty_world((2, 2, 2))
    twin = world.copy()
    twin.play(RULES, ["/setblock 0 0 0 stone", "/kill spider"])
    assert not world.blocks.any() and not world.killed and twin.killed


def test_shares_are_as_equal_as_they_can_be():
    assert dealt(300, 2) == (150, 150) and dealt(10, 4) == (3, 3, 2, 2) and dealt(1, 3) == (1, 0, 0)


# ---- boxes ----


def test_boxes_by_hand():
    """An L of stone on the ground with a glass on its corner: the long side first, along x."""
    grid = np.zeros((3, 2, 2), dtype=np.int8)
    grid[:, 0, 0] = grid[0, 0, 1] = NUMBER["stone"]
    grid[0, 1, 0] = NUMBER["glass"]
    boxes = boxes_of(grid)
    assert boxes == [Box((0, 0, 0), (2, 0, 0), "stone"), Box((0, 0, 1), (0, 0, 1), "stone"), Box((0, 1, 0), (0, 1, 0), "glass")]
    assert listed(boxes) == ["stone: x=0..2 y=0 z=0; x=0 y=0 z=1", "glass: x=0 y=1 z=0"]
    assert [box.volume for box in boxes] == [3, 1, 1]


@given(st.integers(0, 2**32 - 1), st.tuples(*[st.integers(1, 4)] * 3))
def test_boxes_hold_every_cell_once(seed, size):
    grid = np.random.default_rng(seed).integers(0, 3, size=size).astype(np.int8)
    cells = [cell for box in boxes_of(grid) for cell in box.cells()]
    assert sorted(cells) == sorted(cells_of(grid)) and len(set(cells)) == len(cells)
    assert all(NAMES[grid[cell]] == box.block for box in boxes_of(grid) for cell in box.cells())
    assert all(box.volume == len(list(box.cells())) for box in boxes_of(grid))


# ---- the font ----


def test_glyphs_are_five_by_five_and_all_different():
    assert list(GLYPHS) == list(ALPHABET) and len(set(GLYPHS.values())) == 36
    assert all(len(rows) == 5 and all(len(row) == 5 and set(row) <= {"#", "."} for row in rows) for rows in GLYPHS.values())
    # No letter is another one shifted, and every column and row of the frame is used somewhere.
    assert all(8 <= sum(row.count("#") for row in rows) <= 20 for rows in GLYPHS.values())


def test_a_text_is_drawn_from_the_ground():
    """L then 1, by hand: two columns of air between them, row 0 at the bottom."""
    picture = ["".join(".#"[int(cell)] for cell in drawn("L1")[:, y]) for y in reversed(range(5))]
    assert picture == ["#........#..", "#.......##..", "#........#..", "#........#..", "#####...###."]


@pytest.mark.parametrize("text", ["", "a", "A B", "Ä", None, 3, ["A"]])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="capital letters A-Z and digits, at least one, got"):
        drawn(text)


# ---- checkerboards ----


@pytest.mark.parametrize("text", [*ALPHABET, "XYZ", "QUIZ"])
def test_cells_of_a_half_never_touch(text):
    target = drawn(text)[:, :, None].astype(np.int8)
    halves = checkerboard(target)
    assert sorted(halves[0] + halves[1]) == sorted(cells_of(target))
    for half in halves:
        alone = np.zeros_like(target)
        alone[tuple(np.array(half).T)] = 1
        assert touching(alone) == []


def test_shares_use_every_block_and_keep_the_limits():
    palettes = (("stone", "glass"), ("stone", "obsidian"), ("glass",))
    first, second = shares_of(palettes, (4, 5, 4), 6, 7)
    assert sum(count for *_, count in first) == 6 and sum(count for *_, count in second) == 7
    assert {(agent, block) for agent, block, _ in (*first, *second)} == {
        (a, b) for a, palette in enumerate(palettes) for b in palette
    }
    assert {block for _, block, _ in first}.isdisjoint({block for _, block, _ in second})
    assert all(sum(c for a, _, c in (*first, *second) if a == agent) <= limit for agent, limit in enumerate((4, 5, 4)))
    assert shares_of(palettes, (4, 4, 4), 6, 7) is None  # 13 cells, 12 commands
    assert shares_of((("stone",), ("stone",)), (9, 9), 2, 2) is None  # one kind of block cannot make a checkerboard
    assert shares_of((("stone", "glass"),), (9,), 1, 0) is None  # no cell for one of the blocks


# ---- rows ----

TEXTS = {"seed": 0, "train_rows": 20, "eval_rows": 10, "min_length": 1, "max_length": 3, "alphabet": "ABC"}
HOUSES = {
    "seed": 0,
    "train_rows": 12,
    "eval_rows": 6,
    "min_size": (5, 5, 5),
    "max_size": (7, 6, 5),
    "max_overlap": 0.8,
    "spiders": 2,
}


@pytest.mark.parametrize("seed", range(5))
def test_texts_are_different_and_of_the_lengths_asked_for(seed):
    train, evaluation = text_rows(**{**TEXTS, "seed": seed})
    texts = [row["text"] for row in (*train, *evaluation)]
    assert (len(train), len(evaluation), len(set(texts))) == (20, 10, 30)
    # 30 rows of three lengths: there are only 3 and 9 short ones, the other 18 have three letters.
    assert [sum(len(text) == length for text in texts) for length in (1, 2, 3)] == [3, 9, 18]


def test_rows_depend_on_the_seed_alone():
    assert text_rows(**TEXTS) == text_rows(**TEXTS) != text_rows(**{**TEXTS, "seed": 1})
    assert house_rows(**HOUSES) == house_rows(**HOUSES) != house_rows(**{**HOUSES, "seed": 1})
    train, _ = house_rows(**HOUSES)
    train[0]["layers"][0][0] = "changed"
    assert house_rows(**HOUSES)[0][0]["layers"][0][0] != "changed"  # rows are new each time


def test_all_texts_there_are_and_no_more():
    everything = {**TEXTS, "train_rows": 38, "eval_rows": 1}  # 3 + 9 + 27
    assert len({row["text"] for rows in text_rows(**everything) for row in rows}) == 39
    with pytest.raises(ValueError, match="need 40 different texts, but there are only 39 of 1 to 3 letters out of 'ABC'"):
        text_rows(**{**everything, "eval_rows": 2})
    many = text_rows(**{**TEXTS, "train_rows": 3000, "max_length": 12, "alphabet": ALPHABET})
    assert len({row["text"] for rows in many for row in rows}) == 3010


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"train_rows": 0}, "train_rows must be a whole number of at least 1, got 0"),
        ({"eval_rows": True}, "eval_rows must be a whole number of at least 1, got True"),
        ({"min_length": 0}, "min_length must be a whole number of at least 1, got 0"),
        ({"max_length": 13}, "min_length ≤ max_length ≤ 12, got 1 and 13"),
        ({"min_length": 4}, "min_length ≤ max_length ≤ 12, got 4 and 3"),
    ],
)
def test_options_of_texts(wrong, message):
    with pytest.raises(ValueError, match=message):
        text_rows(**{**TEXTS, **wrong})


@pytest.mark.parametrize("seed", range(3))
def test_houses_are_different_and_evaluation_is_no_copy_of_training(seed):
    rows = house_rows(**{**HOUSES, "seed": seed})
    train, evaluation = ([target_of(row["layers"], what="row") for row in part] for part in rows)
    assert (len(train), len(evaluation)) == (12, 6)
    assert len({(house.shape, house.tobytes()) for house in (*train, *evaluation)}) == 18
    for house in evaluation:
        assert all(overlap(house, other) <= 0.8 for other in train if other.shape == house.shape)
    for house in (*train, *evaluation):
        assert all(low <= cells <= high for low, cells, high in zip((5, 5, 5), house.shape, (7, 6, 5), strict=True))
    assert all(len(row["attacks"]) == 2 and set(row["attacks"]) <= {1, 2, 3} for part in rows for row in part)


def test_the_default_rows_of_both_tasks_are_all_different():
    texts = text_rows(seed=0, train_rows=64, eval_rows=16, min_length=1, max_length=4, alphabet=ALPHABET[:26])
    assert len({row["text"] for part in texts for row in part}) == 80
    size = (6, 7, 7)
    houses = house_rows(seed=0, train_rows=64, eval_rows=16, min_size=size, max_size=size, max_overlap=0.8, spiders=0)
    assert len({str(row["layers"]) for part in houses for row in part}) == 80


def test_too_many_houses_are_refused():
    with pytest.raises(ValueError, match=r"found 12 of train_rows=12 different houses and 0 of eval_rows=1 .* max_overlap=0.1"):
        house_rows(**{**HOUSES, "min_size": (7, 6, 5), "max_overlap": 0.1, "eval_rows": 1})
    for wrong in (0, 1.5, True, "0.5"):
        with pytest.raises(ValueError, match="max_overlap must be above 0 and at most 1, got"):
            house_rows(**{**HOUSES, "max_overlap": wrong})


def test_overlap_by_hand():
    """Two cells alike, one of another block, one in the second only: 2 of 4. Air is not counted."""
    one = np.array([1, 2, 3, 0, 0], dtype=np.int8).reshape(5, 1, 1)
    two = np.array([1, 2, 4, 1, 0], dtype=np.int8).reshape(5, 1, 1)
    assert overlap(one, two) == 0.5 and overlap(np.stack([one, two]), two).tolist() == [0.5, 1.0]


# ---- houses ----


@pytest.mark.parametrize("size", [(5, 5, 5), (6, 7, 7), (9, 8, 5), (5, 12, 10)])
def test_houses_have_floor_walls_door_windows_stairs_and_roof(size):
    rng = np.random.default_rng(1)
    for _ in range(40):
        house = draw_house(rng, size)
        assert house.shape == size
        assert len(set(house[:, 0, :].ravel())) == 1 and house[0, 0, 0]  # a floor of one block
        corners = {int(house[x, 1, z]) for x in (0, -1) for z in (0, -1)}
        assert len(corners) == 1 and corners != {0}
        ring = [house[:, 1, 0], house[:, 1, -1], house[0, 1, :], house[-1, 1, :]]
        assert sum(int((side == 0).sum()) for side in ring) == 1  # the door's lower half
        assert (house == NUMBER["stone_stairs"]).any() and house[:, -1, :].any()
        covered = (house > 0).any(axis=1)
        assert covered.all()


def test_layers_are_read_and_refused():
    house = target_of([["P.", "S."], ["..", ".G"]], what="x")
    assert house.shape == (2, 2, 2)
    assert [NAMES[house[cell]] for cell in ((0, 0, 0), (0, 0, 1), (1, 1, 1), (1, 0, 0))] == ["oak_planks", "stone", "glass", "air"]
    for wrong in (None, [], [[]], [["P"], ["PP"]], [["P", "P"], ["P"]], [["?"]], [["."]], [[1]], 3, [3]):
        with pytest.raises(
            ValueError, match=r"x must be layers of equal rows of the symbols \.PSWOBGTR, with a block in them, got"
        ):
            target_of(wrong, what="x")


# ---- dividing the work on a house ----


def test_jobs_keep_the_stocks_and_build_everything():
    """Five stone in a row for two agents with three each: the row is cut where the first one's stone ends."""
    target = np.full((5, 1, 1), NUMBER["stone"], dtype=np.int8)
    rules = Rules((5, 1, 1), ("fill", "setblock"), (("stone",),) * 2, (9, 9), ({"stone": 3},) * 2)
    jobs, without = jobs_for(rules, target, empty_world(rules.size))
    assert jobs == [[Box((0, 0, 0), (2, 0, 0), "stone")], [Box((3, 0, 0), (4, 0, 0), "stone")]] and without == []


def test_jobs_say_for_what_nobody_has_blocks_left():
    target = np.array([3, 3, 0, 0], dtype=np.int8).reshape(4, 1, 1)
    rules = Rules((4, 1, 1), ("fill", "setblock"), (("white_concrete",),), (9,), ({"white_concrete": 2},))
    world = built(rules, [["/fill 1 0 0 2 0 0 white_concrete"]])
    jobs, without = jobs_for(rules, target, world)
    assert jobs == [[Box((2, 0, 0), (2, 0, 0), "air")]] and without == [Box((0, 0, 0), (0, 0, 0), "white_concrete")]


# ---- images ----


def test_squares_by_hand():
    """A wall of two columns: the lower left cell has colour 1, its inside as it is, its edge darker."""
    image = squares(np.array([[1, 0], [0, 0]], dtype=np.int8), np.array([[255, 255, 255], [100, 200, 40]]))
    assert image.shape == (2 * CELL, 2 * CELL, 3) and image.dtype == np.uint8
    assert image[-1, 1].tolist() == [100, 200, 40] and image[CELL, 1].tolist() == [75, 150, 30]
    assert image[1, 1].tolist() == image[-1, -1].tolist() == [255, 255, 255]


def test_cubes_cover_those_behind_them():
    grid = np.zeros((2, 2, 2), dtype=np.int8)
    empty = cubes(grid)
    assert empty.dtype == np.uint8 and (empty == SKY).all()
    grid[0, 0, 0] = NUMBER["obsidian"]
    behind = cubes(grid)
    colors = {tuple(color) for color in behind.reshape(-1, 3).tolist()}
    assert colors == {SKY, *(tuple(int(c * light) for c in BLOCKS[3].color) for light in (1.0, 0.8, 0.6))}
    grid[1, 1, 1] = NUMBER["glass"]  # straight in front of it
    before = cubes(grid)
    assert {tuple(color) for color in before.reshape(-1, 3).tolist()}.isdisjoint(colors - {SKY})


def test_symbols_and_names_fit():
    assert len(set(SYMBOLS)) == len(SYMBOLS) == len(NAMES) == len(BLOCKS) + 1 and NAMES[0] == "air"
