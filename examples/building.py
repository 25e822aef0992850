"""Teams that build with blocks: the solution and a random team, with the world drawn as text.

python examples/building.py
"""

import numpy as np

import llm_envs
from llm_envs.testing import transcript


def random_team(env, item, seed=0, commands=20):
    """Commands with random places and the agents' own blocks: well formed, but blind."""
    rng = np.random.default_rng(seed)
    rules = env.task.reference.project.rules(item)
    texts = {}
    for agent, palette in zip(env.possible_agents, rules.palettes, strict=True):
        cells = rng.integers(0, rules.size, size=(commands, 3))
        texts[agent] = "\n".join(f"/setblock {x} {y} {z} {rng.choice(palette)}" for x, y, z in cells)
    return texts


def show(name, **options):
    """Both teams on the first row."""
    env = llm_envs.make(name, render_mode="ansi", **options)
    item = env.items[0]
    teams = {
        "random": random_team(env, item),
        "reference": dict(zip(env.possible_agents, env.task.reference(item), strict=True)),
    }
    for team, texts in teams.items():
        env.reset(seed=0, options={"item": 0})
        _, rewards, *_ = env.step(texts)
        print(f"{name}, {team} team: {rewards[env.possible_agents[0]]:.3f}")
        print(env.render(), end="\n\n")
    return env


if __name__ == "__main__":
    wall = show("strbuild-v0", agents=3, min_length=3)
    show("housebuild-v0", spiders=2, size=[6, 6, 6])

    # Two turns: one agent's share first, then the other's, as the feedback asks. The world is kept.
    wall = llm_envs.make("strbuild-v0", items=[{"text": "L"}], num_turns=2, feedback="perfect_feedback", original_prompt=False)
    first, second = wall.task.reference(wall.items[0])
    print(transcript(wall, [{"agent_0": first, "agent_1": ""}, {"agent_0": "", "agent_1": second}]))
