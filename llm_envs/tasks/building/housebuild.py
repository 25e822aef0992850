"""`housebuild-v0`: a team builds a house from a blueprint, each agent with a limited stock of every block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from llm_envs.rewards import terms
from llm_envs.task import Task, agent_names
from llm_envs.tasks.building.boxes import boxes_of, listed
from llm_envs.tasks.building.commands import SYNTAX, Cell, written
from llm_envs.tasks.building.draw import HouseImage, HouseText, pictures
from llm_envs.tasks.building.generated import house_rows, overlap
from llm_envs.tasks.building.house_feedback import MODES, FeedbackMode
from llm_envs.tasks.building.houses import LEAST, target_of
from llm_envs.tasks.building.materials import NAMES, NUMBER, SYMBOLS, Grid
from llm_envs.tasks.building.project import (
    SHOWN,
    Judge,
    NextTurn,
    Score,
    TargetShown,
    order_of,
    others_of,
    refused_with_items,
    shown_part,
)
from llm_envs.tasks.building.schedule import Job, jobs_for
from llm_envs.tasks.building.world import Rules, World, dealt, empty_world
from llm_envs.tasks.options import checked_choice, checked_count, checked_flags
from llm_envs.tasks.rows import Rows, choose_rows
from llm_envs.types import AgentID, Item

FACTORS = {"match": 1.0, "spider": 0.1}
"""What the terms count. The spiders' damage counts as a share of the match, so a score is never negative."""

Blueprint = Literal["boxes", "layers"]


def task(
    *,
    agents: int | Sequence[AgentID] = 2,
    num_turns: int = 1,
    feedback: FeedbackMode = "score_feedback",
    original_prompt: bool = True,
    previous_response: bool = False,
    target_shown: TargetShown = "all",
    blueprint: Blueprint = "boxes",
    keep_world: bool = True,
    stocks: bool = True,
    max_commands: int = 600,
    spiders: int = 0,
    health: int = 5,
    seed: int = 0,
    train_rows: int = 64,
    eval_rows: int = 16,
    size: Sequence[int] = (6, 7, 7),
    min_size: Sequence[int] | None = None,
    max_overlap: float = 0.8,
    items: Rows | None = None,
    eval_items: Rows | None = None,
) -> Task:
    """A team builds a house from a blueprint, each agent with a limited stock of every block.

    Every agent reads the blueprint, its stock and how to write commands, one a line: `/fill X1 Y1 Z1 X2 Y2 Z2 BLOCK`,
    `/setblock X Y Z BLOCK`. Of c blocks of a kind in the house, each of n agents has ⌈c/n⌉ + ⌊c/2n⌋: no one can build it alone. A
    command that needs more does nothing; a block that is taken away or replaced goes back to the stock of the agent that placed it.
    Commands run agent by agent. Other lines do nothing and are counted (`reward/rejected`).

    A turn's score is match − 0.1 · spider:

    * match: cells with the right block, divided by the cells that have or should have one. Air earns nothing.
    * spider: with `spiders` in the row, min(1, damage/health) times the match, unless an agent has written `/kill spider`.

    With several turns every agent reads feedback next. The world is kept, later commands change it, and the episode ends when the
    score is 1. The reward of a turn is its score divided by `num_turns`; a finished house is paid for the turns it saves as well.

    Range: rewards and returns in [0, 1], shared by the team. Logged as well: `iou` (the match), `solved`.

    Args:
        agents: their number or names.
        num_turns: tries.
        feedback: what agents are told: `score_feedback`, `perfect_feedback`, `position_feedback`, `position_modification`,
            `rect_modification` or `resource_schedule` (docs/tasks/building.md).
        original_prompt: whether later prompts repeat the first one.
        previous_response: whether they repeat the agent's last text.
        target_shown: who sees the blueprint: `all`, each some of the layers (`split`), only the `first` agent, or `none`.
        blueprint: its form: `boxes` of equal blocks, or pictures of the `layers`.
        keep_world: whether a turn goes on with what stands and the spiders that are dead, or starts anew.
        stocks: whether blocks are limited.
        max_commands: of all agents together in a turn, divided among them.
        spiders: in every row, each with an attack of 1 to 3 that is drawn with the row.
        health: damage with which the spiders cost the most.
        seed: of the rows.
        train_rows: number of rows, all different houses.
        eval_rows: number of rows for evaluation, none of them a training house.
        size: cells along x, y (height) and z, at least 5 each.
        min_size: if given, each house has sizes from these to `size`.
        max_overlap: most that an evaluation house may share with any training house, as a match; 1 only keeps them different.
        items: own rows `{"layers": ..., "attacks": [...]}`.
        eval_items: own rows for evaluation; none with own `items` unless given.
    """
    checked_choice("feedback", feedback, get_args(FeedbackMode))
    checked_choice("target_shown", target_shown, SHOWN)
    checked_choice("blueprint", blueprint, get_args(Blueprint))
    checked_flags(original_prompt=original_prompt, previous_response=previous_response, keep_world=keep_world, stocks=stocks)
    checked_count("num_turns", num_turns, 1)
    checked_count("spiders", spiders, 0)
    project = HouseProject(agent_names(agents), num_turns, keep_world, stocks, max_commands, health)
    bundled = {"train": [], "eval": []}
    if items is None:
        largest, least = _size("size", size), _size("min_size", size if min_size is None else min_size)
        if any(low > high for low, high in zip(least, largest, strict=True)):
            raise ValueError(f"min_size must be no more than size={list(largest)}, got {list(least)}")
        bundled["train"], bundled["eval"] = house_rows(
            seed=seed,
            train_rows=train_rows,
            eval_rows=eval_rows,
            min_size=least,
            max_size=largest,
            max_overlap=max_overlap,
            spiders=spiders,
        )
        for row in (*bundled["train"], *bundled["eval"]):
            blocks = sum(len(line) - line.count(".") for layer in row["layers"] for line in layer)
            if blocks + 1 > max_commands // len(project.agents):
                project.plan(row)  # refuses a limit with which the house cannot be built; where each cell has a command, it can
    else:
        made = {"seed": seed, "train_rows": train_rows, "eval_rows": eval_rows, "size": size, "min_size": min_size}
        refused_with_items(task.__kwdefaults__ or {}, **made, max_overlap=max_overlap, spiders=spiders)
    rows = choose_rows(items, eval_items, bundled)
    return Task(
        name="housebuild-v0",
        items=rows[0],
        eval_items=rows[1],
        agents=project.agents,
        formatters=[Prompt(project, number, target_shown, blueprint) for number in range(len(project.agents))],
        reward=terms(Judge(project), **FACTORS, iou=0, solved=0, rejected=0),
        transition=NextTurn(project, MODES[feedback], original_prompt, previous_response),
        num_turns=num_turns,
        external_prompt_passthrough=True,
        reference=Reference(project),
        renderers={"ansi": HouseText(project), "rgb_array": HouseImage(project)},
    )


def _size(option: str, size: object) -> Cell:
    if not isinstance(size, (list, tuple)) or len(size) != 3:
        raise ValueError(f"{option} must be three numbers of cells, along x, y and z, got {size!r}")
    x, y, z = (checked_count(f"{option}[{number}]", cells, LEAST) for number, cells in enumerate(size))
    return x, y, z


@dataclass(frozen=True)
class HouseProject:
    """The task for a certain team.

    Attributes:
        agents: the team.
        num_turns: of an episode.
        keep_world: whether a turn goes on with what stands.
        stocks: whether blocks are limited.
        max_commands: of all agents together in a turn.
        health: damage with which the spiders cost the most.
    """

    agents: tuple[AgentID, ...]
    num_turns: int
    keep_world: bool
    stocks: bool
    max_commands: int
    health: int

    def __post_init__(self) -> None:
        checked_count("max_commands", self.max_commands, len(self.agents))
        checked_count("health", self.health, 1)

    def target(self, item: Item) -> Grid:
        """[x, y, z] the row's house.

        Raises:
            KeyError, ValueError: for a row without layers that are one.
        """
        return target_of(item["layers"], what="a row's 'layers'")

    def attacks(self, item: Item) -> list[int]:
        """The attack of each spider; none if the row has none.

        Raises:
            ValueError: if they are no whole numbers from 0.
        """
        attacks = item.get("attacks") or []
        if not isinstance(attacks, (list, tuple)) or not all(type(attack) is int and attack >= 0 for attack in attacks):
            raise ValueError(f"a row's 'attacks' must be whole numbers, one for each spider, got {attacks!r}")
        return list(attacks)

    def rules(self, item: Item) -> Rules:
        """What the agents may do on this row."""
        target, team = self.target(item), len(self.agents)
        counts = counts_of(target)
        stock = {block: -(-count // team) + count // (2 * team) for block, count in counts.items()}
        x, y, z = target.shape
        verbs = ("setblock", "fill", *(["kill"] if self.attacks(item) else []))
        palettes = (tuple(counts),) * team
        return Rules((x, y, z), verbs, palettes, dealt(self.max_commands, team), (stock,) * team if self.stocks else None)

    def score(self, item: Item, world: World) -> Score:
        """How good a house is."""
        target, blocks = self.target(item), world.blocks
        match = float(overlap(blocks, target))
        hurt = 0.0 if world.killed else min(1.0, sum(self.attacks(item)) / self.health)
        return Score({"match": match, "spider": 0.0 - hurt * match}, FACTORS, match, match == 1.0 and hurt == 0.0)

    def plan(self, item: Item) -> list[list[Job]]:
        """For each agent the boxes of a best house.

        Raises:
            ValueError: if an agent needs more commands than it has.
        """
        rules, target = self.rules(item), self.target(item)
        jobs, left = jobs_for(rules, target, empty_world(rules.size))
        assert not left  # together the agents have at least what the house needs
        extra = 1 if self.attacks(item) else 0
        for agent, (mine, limit) in enumerate(zip(jobs, rules.max_commands, strict=True)):
            if len(mine) + extra > limit:
                raise ValueError(
                    f"max_commands={self.max_commands} gives {self.agents[agent]} {limit} commands, but a house of "
                    f"{' × '.join(map(str, rules.size))} needs {len(mine) + extra} of it"
                )
        return jobs


def counts_of(target: Grid) -> Mapping[str, int]:
    """How many of each block a house has, for those it has."""
    counts = np.bincount(target.ravel(), minlength=len(NAMES)).tolist()
    return {name: counts[number] for name, number in NUMBER.items() if number and counts[number]}


@dataclass(frozen=True)
class Reference:
    """A best joint answer: the boxes of the house, divided so that the stocks last; the first agent kills the spiders."""

    project: HouseProject

    def __call__(self, item: Item) -> list[str]:
        """One text for each agent."""
        texts = [[written(box.low, box.high, box.block) for box in jobs] for jobs in self.project.plan(item)]
        if self.project.attacks(item):
            texts[0].append(SYNTAX["kill"])
        return ["\n".join(lines) for lines in texts]


@dataclass(frozen=True)
class Prompt:
    """The formatter of one agent."""

    project: HouseProject
    agent: int
    target_shown: TargetShown
    blueprint: Blueprint

    def __call__(self, item: Item) -> str:
        """What the agent reads first."""
        project, rules = self.project, self.project.rules(item)
        x, y, z = (cells - 1 for cells in rules.size)
        team = f" You build with {others_of(project, self.agent)}." if len(project.agents) > 1 else ""
        stock = rules.stocks[self.agent] if rules.stocks is not None else dict.fromkeys(rules.palettes[self.agent], "any number")
        ways = " or ".join(SYNTAX[verb] for verb in ("fill", "setblock"))
        return "\n".join(
            [
                f"You are {project.agents[self.agent]}.{team} Your team builds a house: x from 0 to {x}, y from 0 (ground) to {y}, "
                f"z from 0 to {z}.",
                *self._blueprint(project.target(item)),
                f"Your blocks: {', '.join(f'{block} ({count})' for block, count in stock.items())}.",
                f"Write one command a line, at most {rules.max_commands[self.agent]}: {ways}. Corners are part of the box. "
                f"The block air takes blocks away.{order_of(project)}",
                *self._event(item),
            ]
        )

    def _event(self, item: Item) -> list[str]:
        attacks = self.project.attacks(item)
        if not attacks:
            return []
        hurt = " and ".join(map(str, attacks))
        return [f"Spiders attack, for {hurt} of {self.project.health} health, unless one of the team writes {SYNTAX['kill']}"]

    def _blueprint(self, target: Grid) -> list[str]:
        height = target.shape[1]
        seen = shown_part(self.target_shown, height, len(self.project.agents), self.agent)
        if not seen:
            return ["You do not see the blueprint."]
        part = (
            ""
            if len(seen) == height
            else f"You see the layers y={seen.start} to y={seen.stop - 1}; the others are for others to see. "
        )
        if self.blueprint == "layers":
            return [f"{part}The blueprint, rows from z=0, in each row x from 0; {_legend(target)}:", *pictures(target, seen)]
        inside = np.zeros_like(target)
        inside[:, seen.start : seen.stop] = target[:, seen.start : seen.stop]
        return [f"{part}The blueprint, all else is air:", *listed(boxes_of(inside))]


def _legend(target: Grid) -> str:
    return ", ".join([f"{SYMBOLS[NUMBER[block]]} is {block}" for block in counts_of(target)] + [". is air"])
