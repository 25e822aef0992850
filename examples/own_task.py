"""An own task in ten lines: two agents share out a sum. Run it to check the task, audit its reward and see an episode.

python examples/own_task.py
"""

import re

import llm_envs
from llm_envs.testing import audit_rewards, check_env, check_task, transcript


def shares(first, second, batch_items):
    """1 if the two numbers add up to the row's total, less the further they are from it. In (0, 1]; 0 without two numbers."""
    total = batch_items[0]["total"]
    pairs = [(re.search(r"\d{1,9}", one), re.search(r"\d{1,9}", two)) for one, two in zip(first, second, strict=True)]
    return [1 / (1 + abs(int(a.group()) + int(b.group()) - total)) if a and b else 0.0 for a, b in pairs]


def add_up(total=7, rows=16):
    """The task. Every agent writes a number; together they should make the total."""
    items = [{"prompt": f"together you need {total + i}. your number:", "total": total + i} for i in range(rows)]
    return llm_envs.Task(items=items, reward=shares, reference=lambda row: [str(row["total"] // 2), str((row["total"] + 1) // 2)])


llm_envs.register("add-up-v0", add_up)

if __name__ == "__main__":
    env = llm_envs.make("add-up-v0", total=10)
    print(f"{len(check_env(env))} rules hold for the environment; for the task:", *check_task(env.task), sep="\n  ")
    print()
    print(audit_rewards(env))
    print()
    print(transcript(env, [{"agent_0": "4", "agent_1": "I take 6"}]))
