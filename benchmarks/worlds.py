"""How long made-up worlds, their rows and best answers take, and scoring an answer: CPU time, the best of three runs.

python benchmarks/worlds.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import llm_envs
from llm_envs.tasks.travel.generated import Generated, generated_rows
from llm_envs.tasks.travel.world import Size, build_world


def seconds(run: Callable[[], Any]) -> float:
    """CPU seconds of a run, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def travel() -> Iterator[tuple[str, float]]:
    """What travel-v0 spends."""
    for cities in (30, 100):
        yield f"travel-v0: a world of {cities} cities", seconds(lambda cities=cities: build_world((0,), Size(cities=cities)))

    def rows() -> None:
        generated_rows.cache_clear()
        generated_rows(Generated())

    yield "travel-v0: worlds, 64 + 16 requests with their least cost", seconds(rows)
    env = llm_envs.make("travel-v0")
    item = max(env.items, key=lambda row: row["days"])
    texts = env.task.reference(item)
    action = dict(zip(env.possible_agents, texts, strict=True))
    state = env.initial(item, (0,))
    yield "travel-v0: cheapest plan of 7 days", seconds(lambda: env.task.reference(item))
    yield "travel-v0: one joint answer of 7 days, scored", seconds(lambda: env.branch(state, [action] * 100)) / 100


if __name__ == "__main__":
    for what, spent in travel():
        print(f"{what}: {1000 * spent:.1f} ms")
