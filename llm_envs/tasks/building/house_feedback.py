"""What the builders of a house are told between turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from llm_envs.tasks.building.boxes import boxes_of, cells_of, listed
from llm_envs.tasks.building.commands import Cell
from llm_envs.tasks.building.materials import NAMES, Grid
from llm_envs.tasks.building.project import Feedback, Scene, score_feedback, share_of, span
from llm_envs.tasks.building.schedule import jobs_for
from llm_envs.tasks.building.world import empty_world

FeedbackMode: TypeAlias = Literal[
    "score_feedback",
    "perfect_feedback",
    "position_feedback",
    "position_modification",
    "rect_modification",
    "resource_schedule",
]

MODIFICATIONS = 20
"""Cells that `position_modification` names."""


def wrong_cells(scene: Scene[Any]) -> list[Cell]:
    """Cells that do not hold what they should, air included, along x first, then z, then y."""
    return cells_of((scene.target != scene.world.blocks).astype(np.int8))


def _listed(grid: Grid, cells: Sequence[Cell]) -> str:
    return " ".join(f"({x},{y},{z}) {NAMES[grid[x, y, z]]}" for x, y, z in cells)


def perfect_feedback(scene: Scene[Any], agent: int) -> str:
    """The agent's share of the wrong cells: missing, of another block, and too much."""
    mine = [cell for cell in wrong_cells(scene) if share_of(cell, scene.num_agents) == agent]
    target, blocks = scene.target, scene.world.blocks
    wrong = {
        "Missing": [cell for cell in mine if not blocks[cell]],
        "Another block should be at": [cell for cell in mine if blocks[cell] and target[cell]],
        "There should be none at": [cell for cell in mine if not target[cell]],
    }
    found = [f"{what}: {_listed(target, cells).replace(' air', '')}." for what, cells in wrong.items() if cells]
    return "\n".join(found) or "Nothing is wrong in your share."


def position_feedback(scene: Scene[Any], agent: int) -> str:
    """All boxes of the house."""
    part = f" Take about 1/{scene.num_agents} of them." if scene.num_agents > 1 else ""
    return "\n".join([f"The house is made of:{part}", *listed(boxes_of(scene.target))])


def position_modification(scene: Scene[Any], agent: int) -> str:
    """The first wrong cells, with what they should hold."""
    wrong = wrong_cells(scene)
    more = f" {len(wrong) - MODIFICATIONS} more are wrong." if len(wrong) > MODIFICATIONS else ""
    return f"Change these cells: {_listed(scene.target, wrong[:MODIFICATIONS])}.{more}" if wrong else "All cells are right."


def rect_modification(scene: Scene[Any], agent: int) -> str:
    """The agent's commands that were obeyed, and the wrong boxes in its part of the layers."""
    obeyed = [command.text for command in scene.reports[agent].accepted]
    layers = span(scene.target.shape[1], scene.num_agents, agent)
    wrong = boxes_of(scene.target, [cell for cell in wrong_cells(scene) if cell[1] in layers])
    done = ["These commands of yours were obeyed:", *obeyed] if obeyed else ["No command of yours was obeyed."]
    where = f"y={layers.start} to y={layers.stop - 1}" if layers else "no layers"
    todo = [f"Your part is {where}. These boxes should be:", *listed(wrong)] if wrong else [f"Your part is {where}. It is right."]
    return "\n".join([*done, *todo])


def resource_schedule(scene: Scene[Any], agent: int) -> str:
    """What the agent should place next so that everybody's stock lasts."""
    start = scene.world if scene.project.keep_world else empty_world(scene.rules.size)
    jobs, without = jobs_for(scene.rules, scene.target, start)
    lines = ["Place next:", *listed(jobs[agent])] if jobs[agent] else ["You have nothing to place."]
    if without:
        lines += ["Nobody has blocks left for these until wrong ones are replaced:", *listed(without)]
    return "\n".join(lines)


MODES: dict[str, Feedback] = {
    "score_feedback": score_feedback,
    "perfect_feedback": perfect_feedback,
    "position_feedback": position_feedback,
    "position_modification": position_modification,
    "rect_modification": rect_modification,
    "resource_schedule": resource_schedule,
}
