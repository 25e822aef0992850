"""Two programmers, two turns: a helper and a main function are written at once, run in a sandbox, and talked about.

python examples/code.py
"""

import llm_envs
from llm_envs.testing import ScriptedPolicy, transcript

# What a model might write: in the first turn main forgets that growth must stop at the ground; it never calls the helper.
HELPER = ["def aux(height, step):\n    return max(0, height + step)\n"] * 2
MAIN = [
    "def run_heights(steps):\n    heights, height = [], 0\n    for step in steps:\n        height += step\n"
    "        heights.append(height)\n    return heights\n",
    "```python\ndef run_heights(steps):\n    heights = [0]\n    for step in steps:\n"
    "        heights.append(aux(heights[-1], step))\n    return heights[1:]\n```",
]


def scripted(texts):
    """A policy that writes the turns' texts one after the other: the length of a sample's key says the turn."""
    return ScriptedPolicy(lambda prompt, k, key: texts[min(len(key) - 4, len(texts) - 1)])


if __name__ == "__main__":
    env = llm_envs.make("humaneval-v0", num_turns=2, feedback="level_feedback", original_prompt=False, previous_response=False)
    row = next(row for row in [*env.items, *env.eval_items] if row["entry_point"] == "run_heights")
    shown = {key: row[key] for key in ("task_id", "prompt", "entry_point", "test")}
    print(transcript(env, {"aux_0": scripted(HELPER), "main_0": scripted(MAIN)}, [shown]))
