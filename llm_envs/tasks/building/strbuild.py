"""`strbuild-v0`: a team writes a text in blocks on a wall, in which no two equal blocks may touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from llm_envs.rewards import terms
from llm_envs.task import Task, agent_names
from llm_envs.tasks.building.boxes import cells_of
from llm_envs.tasks.building.checkerboard import checkerboard, shares_of, touching
from llm_envs.tasks.building.commands import SYNTAX, Cell, written
from llm_envs.tasks.building.draw import WallImage, WallText
from llm_envs.tasks.building.font import ALPHABET, checked_text, drawn
from llm_envs.tasks.building.generated import text_rows
from llm_envs.tasks.building.materials import BLOCKS, Grid, checked_materials
from llm_envs.tasks.building.project import (
    SHOWN,
    Feedback,
    Judge,
    NextTurn,
    Scene,
    Score,
    TargetShown,
    order_of,
    refused_with_items,
    score_feedback,
    share_of,
    shown_part,
)
from llm_envs.tasks.building.world import Rules, World, dealt
from llm_envs.tasks.options import checked_choice, checked_count, checked_flags
from llm_envs.tasks.rows import Rows, choose_rows
from llm_envs.types import AgentID, Item

FACTORS = {"coverage": 1.0, "extra": 1.0, "adjacency": 0.25, "palette": 0.5}
"""What the terms count. Penalties count no more than the match they are shares of, so a score is never negative."""

FeedbackMode = Literal["score_feedback", "position_feedback", "perfect_feedback"]


def task(
    *,
    agents: int | Sequence[AgentID] = 2,
    num_turns: int = 1,
    feedback: FeedbackMode = "score_feedback",
    original_prompt: bool = True,
    previous_response: bool = False,
    target_shown: TargetShown = "all",
    keep_world: bool = True,
    palettes: Sequence[Sequence[str]] | None = None,
    max_commands: int = 300,
    seed: int = 0,
    train_rows: int = 64,
    eval_rows: int = 16,
    min_length: int | None = None,
    max_length: int | None = None,
    alphabet: str = ALPHABET[:26],
    items: Rows | None = None,
    eval_items: Rows | None = None,
) -> Task:
    """A team writes a text in blocks on a wall, in which no two equal blocks may touch.

    Every agent reads the picture of a text (letters of 5 × 5 cells), its own blocks and how to write commands, one a line:
    `/setblock X Y Z BLOCK`. Every agent has blocks of its own, all of which must be used. Commands run agent by agent and
    overwrite. Other lines do nothing and are counted (`reward/rejected`).

    A turn's score is coverage − extra − ¼ · adjacency − ½ · palette:

    * coverage: share of the picture's cells that have a block.
    * extra: share of the other cells that have one, no more than the coverage. The match, coverage − extra, is 0 for an empty wall
      and for a full one.
    * adjacency: share of the pairs of blocks side by side or one above the other that are equal, times the match.
    * palette: share of the agents without a standing block of each of their kinds, times the match.

    With several turns every agent reads feedback next. The world is kept, later commands change it, and the episode ends when the
    score is 1. The reward of a turn is its score divided by `num_turns`; a finished wall is paid for the turns it saves as well.

    Range: rewards and returns in [0, 1], shared by the team. Logged as well: `iou`, `solved`.

    Args:
        agents: their number or names.
        num_turns: tries.
        feedback: `score_feedback` tells the score; `position_feedback` all cells of the picture; `perfect_feedback` each agent a
            share of the cells that are wrong.
        original_prompt: whether later prompts repeat the first one.
        previous_response: whether they repeat the agent's last text.
        target_shown: who sees the picture: `all`, each a part of the columns (`split`), only the `first` agent, or `none`.
        keep_world: whether a turn goes on with what stands, or starts from an empty wall.
        palettes: the blocks of each agent; two each by default, those of agents 0 to 3 all different, then the same again.
        max_commands: of all agents together in a turn, divided among them.
        seed: of the rows.
        train_rows: number of rows, all different.
        eval_rows: number of rows for evaluation, none of which is a training row.
        min_length: letters of the shortest text; by default one for every four agents, so that there are cells for all blocks.
        max_length: letters of the longest one, at most 12; by default three more than `min_length`.
        alphabet: letters the texts are made of, out of A-Z and 0-9.
        items: own rows `{"text": ...}` of A-Z and 0-9.
        eval_items: own rows for evaluation; none with own `items` unless given.
    """
    checked_choice("feedback", feedback, get_args(FeedbackMode))
    checked_choice("target_shown", target_shown, SHOWN)
    checked_flags(original_prompt=original_prompt, previous_response=previous_response, keep_world=keep_world)
    checked_count("num_turns", num_turns, 1)
    project = WallProject(agent_names(agents), num_turns, keep_world, _palettes(palettes, len(agent_names(agents))), max_commands)
    bundled = {"train": [], "eval": []}
    if items is None:
        shortest = -(-len(project.agents) // 4) if min_length is None else min_length
        lengths = {"min_length": shortest, "max_length": shortest + 3 if max_length is None else max_length}
        bundled["train"], bundled["eval"] = text_rows(
            seed=seed, train_rows=train_rows, eval_rows=eval_rows, alphabet=_letters(alphabet), **lengths
        )
        for row in (*bundled["train"], *bundled["eval"]):
            project.plan(row)  # refuses palettes and limits with which a row cannot be built
    else:
        made = {"seed": seed, "train_rows": train_rows, "eval_rows": eval_rows, "alphabet": alphabet}
        refused_with_items(task.__kwdefaults__ or {}, **made, min_length=min_length, max_length=max_length)
    rows = choose_rows(items, eval_items, bundled)
    return Task(
        name="strbuild-v0",
        items=rows[0],
        eval_items=rows[1],
        agents=project.agents,
        formatters=[Prompt(project, number, target_shown) for number in range(len(project.agents))],
        reward=terms(Judge(project), **FACTORS, iou=0, solved=0, rejected=0),
        transition=NextTurn(project, MODES[feedback], original_prompt, previous_response),
        num_turns=num_turns,
        external_prompt_passthrough=True,
        reference=Reference(project),
        renderers={"ansi": WallText(project), "rgb_array": WallImage(project)},
    )


def _palettes(palettes: Sequence[Sequence[str]] | None, num_agents: int) -> tuple[tuple[str, ...], ...]:
    if palettes is None:
        names = [block.name for block in BLOCKS]
        starts = (2 * number % len(names) for number in range(num_agents))
        return tuple((names[start], names[start + 1]) for start in starts)
    if not isinstance(palettes, (list, tuple)) or len(palettes) != num_agents:
        raise ValueError(f"palettes must be a list of blocks for each of {num_agents} agents, got {palettes!r}")
    return tuple(checked_materials(f"palettes[{number}]", palette) for number, palette in enumerate(palettes))


def _letters(alphabet: object) -> str:
    if not isinstance(alphabet, str) or not alphabet or set(alphabet) - set(ALPHABET) or len(set(alphabet)) < len(alphabet):
        raise ValueError(f"alphabet must be different letters out of {ALPHABET}, got {alphabet!r}")
    return alphabet


@dataclass(frozen=True)
class WallProject:
    """The task for a certain team.

    Attributes:
        agents: the team.
        num_turns: of an episode.
        keep_world: whether a turn goes on with what stands.
        palettes: the blocks of each agent.
        max_commands: of all agents together in a turn.
    """

    agents: tuple[AgentID, ...]
    num_turns: int
    keep_world: bool
    palettes: tuple[tuple[str, ...], ...]
    max_commands: int

    def __post_init__(self) -> None:
        checked_count("max_commands", self.max_commands, len(self.agents))

    def target(self, item: Item) -> Grid:
        """[x, y, 1] 1 where the row's text has blocks.

        Raises:
            KeyError, ValueError: for a row without a text that can be drawn.
        """
        return drawn(item["text"])[:, :, None].astype(np.int8)

    def rules(self, item: Item) -> Rules:
        """What the agents may do on this row."""
        x, y, z = self.target(item).shape
        return Rules((x, y, z), ("setblock",), self.palettes, dealt(self.max_commands, len(self.agents)))

    def score(self, item: Item, world: World) -> Score:
        """How good a wall is."""
        wanted, placed = self.target(item)[:, :, 0] > 0, world.blocks[:, :, 0] > 0
        covered, spilled = int((wanted & placed).sum()), int((placed & ~wanted).sum())
        coverage = covered / int(wanted.sum())
        extra = min(coverage, spilled / max(1, int((~wanted).sum())))
        match = coverage - extra
        pairs = touching(world.blocks)
        alike = sum(world.blocks[one] == world.blocks[two] for one, two in pairs) / max(1, len(pairs))
        unused = sum(bool(self.unused(world, agent)) for agent in range(len(self.agents))) / len(self.agents)
        paid = {"coverage": coverage, "extra": 0.0 - extra, "adjacency": 0.0 - alike * match, "palette": 0.0 - unused * match}
        return Score(paid, FACTORS, covered / int((wanted | placed).sum()), match == 1.0 and alike == unused == 0)

    def unused(self, world: World, agent: int) -> list[str]:
        """The blocks of an agent of which none stands that it placed."""
        return [block for block in self.palettes[agent] if world.standing(agent, block) == 0]

    def plan(self, item: Item) -> list[list[tuple[Cell, str]]]:
        """For each agent the cells and blocks of a best wall.

        Raises:
            ValueError: if there is none with these palettes and limits, or none is found.
        """
        sides = _halves(checked_text(item["text"]))
        limits = dealt(self.max_commands, len(self.agents))
        shares = shares_of(self.palettes, limits, len(sides[0]), len(sides[1]))
        if shares is None:
            raise ValueError(
                f"the text {item['text']!r} needs a wall on which no equal blocks touch and everybody uses all of their blocks; "
                f"none is found with palettes={self.palettes} and max_commands={self.max_commands}"
            )
        plans: list[list[tuple[Cell, str]]] = [[] for _ in self.agents]
        for cells, side in zip(sides, shares, strict=True):
            dealing = [(agent, block) for agent, block, count in side for _ in range(count)]
            for cell, (agent, block) in zip(cells, dealing, strict=True):
                plans[agent].append((cell, block))
        return plans


@lru_cache(maxsize=4096)  # an environment is often made again, with the same rows
def _halves(text: str) -> tuple[list[Cell], list[Cell]]:
    """The cells of a text as the halves of a checkerboard, not to be changed."""
    return checkerboard(drawn(text)[:, :, None].astype(np.int8))


@dataclass(frozen=True)
class Reference:
    """A best joint answer: a checkerboard of blocks, divided among the agents."""

    project: WallProject

    def __call__(self, item: Item) -> list[str]:
        """One text for each agent."""
        return ["\n".join(written(cell, cell, block) for cell, block in plan) for plan in self.project.plan(item)]


@dataclass(frozen=True)
class Prompt:
    """The formatter of one agent."""

    project: WallProject
    agent: int
    target_shown: TargetShown

    def __call__(self, item: Item) -> str:
        """What the agent reads first."""
        target, project = self.project.target(item), self.project
        width, height, _ = target.shape
        count = project.rules(item).max_commands[self.agent]
        return "\n".join(
            [
                f"You are {project.agents[self.agent]}. Your team builds a picture out of blocks on a wall: x from 0 (left) to "
                f"{width - 1}, y from 0 (ground) to {height - 1}, z is 0.",
                *self._picture(target),
                f"Your blocks: {', '.join(project.palettes[self.agent])}.{self._others()} Everybody must use each of their blocks.",
                "Equal blocks must not touch side by side or one above the other, whoever placed them.",
                f"Write one command a line, at most {count}: {SYNTAX['setblock']}. The block air takes a block away."
                f"{order_of(project)}",
            ]
        )

    def _others(self) -> str:
        palettes = zip(self.project.agents, self.project.palettes, strict=True)
        others = [f"{name} has {', '.join(palette)}" for name, palette in palettes if name != self.project.agents[self.agent]]
        return f" {'; '.join(others)}." if others else ""

    def _picture(self, target: Grid) -> list[str]:
        width, height, _ = target.shape
        seen = shown_part(self.target_shown, width, len(self.project.agents), self.agent)
        if not seen:
            return ["You do not see the picture."]
        whole = len(seen) == width
        rows = [
            f"y={y} " + "".join(".#"[target[x, y, 0]] if x in seen else "?" for x in range(width)) for y in reversed(range(height))
        ]
        part = "" if whole else f"You see the columns x={seen.start} to x={seen.stop - 1}; ? is for others to see. "
        return [f"{part}The picture (# is a block, . is none, the first column is x=0):", *rows]


# ---- feedback ----


def _cells(cells: Sequence[Cell]) -> str:
    return " ".join(f"({x},{y})" for x, y, _ in cells)


def position_feedback(scene: Scene[WallProject], agent: int) -> str:
    """All cells of the picture."""
    part = f" Take about 1/{scene.num_agents} of them, none beside another of yours." if scene.num_agents > 1 else ""
    return f"The picture's blocks are at (x,y): {_cells(cells_of(scene.target))}.{part}"


def perfect_feedback(scene: Scene[WallProject], agent: int) -> str:
    """The agent's share of the cells that are wrong, and its blocks that are not used."""
    project, blocks = scene.project, scene.world.blocks

    def mine(cells: Sequence[Cell]) -> str:
        return _cells([cell for cell in cells if share_of(cell, scene.num_agents) == agent])

    wrong = {
        "Blocks are missing at": mine(cells_of(scene.target * (blocks == 0))),
        "There should be none at": mine(cells_of(blocks * (scene.target == 0))),
        "Equal blocks touch at": " ".join(
            f"{_cells([one])}-{_cells([two])}" for one, two in touching(blocks) if blocks[one] == blocks[two] and mine([one])
        ),
        "You have not used": ", ".join(project.unused(scene.world, agent)),
    }
    found = [f"{what} {where}." for what, where in wrong.items() if where]
    return "\n".join(found) or "Nothing is wrong in your share."


MODES: dict[str, Feedback] = {
    "score_feedback": score_feedback,
    "position_feedback": position_feedback,
    "perfect_feedback": perfect_feedback,
}
