"""Dividing the work on a house among agents whose stocks are limited."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TypeAlias

from llm_envs.tasks.building.boxes import Box, boxes_of, cells_of
from llm_envs.tasks.building.materials import AIR, Grid
from llm_envs.tasks.building.world import Rules, World

Job: TypeAlias = Box


def jobs_for(rules: Rules, target: Grid, world: World) -> tuple[list[list[Job]], list[Job]]:
    """For each agent the boxes it should fill, so that the target stands; and those for which no stock is left.

    Greedy: of the boxes of wrong cells the largest goes to the agent with the most blocks of its kind left, and is cut where they
    end. Without limits, and for boxes of air, it goes to the agent with the fewest cells so far.

    Args:
        rules: with the stocks.
        target: what should stand.
        world: what does.
    """
    agents = range(len(rules.palettes))
    jobs: list[list[Job]] = [[] for _ in agents]
    loads = [0 for _ in agents]
    left = _left(rules, world)
    todo = boxes_of(target, cells_of((target != world.blocks).astype("int8")))
    order = count()  # of boxes alike in size: the first found
    heap = [(-box.volume, next(order), box) for box in todo]
    heapq.heapify(heap)
    without: list[Job] = []
    while heap:
        _, _, box = heapq.heappop(heap)
        if box.block == AIR or left is None:
            agent = min(agents, key=lambda one: loads[one])
            taken = box.volume
        else:
            stock, kind = left, box.block
            agent = max(agents, key=lambda one: (stock[one][kind], -loads[one]))
            taken = min(box.volume, stock[agent][kind])
            stock[agent][kind] -= taken
        if taken == 0:
            without.append(box)
            continue
        cells = list(box.cells())
        loads[agent] += taken
        jobs[agent] += [box] if taken == len(cells) else boxes_of(target, cells[:taken])
        for rest in boxes_of(target, cells[taken:]):
            heapq.heappush(heap, (-rest.volume, next(order), rest))
    return jobs, without


def _left(rules: Rules, world: World) -> list[dict[str, int]] | None:
    """For each agent, the blocks of each kind that it may still place; None without limits."""
    if rules.stocks is None:
        return None
    return [
        {block: limit - world.standing(agent, block) for block, limit in stock.items()} for agent, stock in enumerate(rules.stocks)
    ]
