"""Two agents that each own an API serve a user: an episode in which one waits for the other's result, and what careless teams earn.

python examples/tool_use.py                    # rows and simulators of our own
python examples/tool_use.py --source package   # those of BFCL: pip install --no-deps bfcl-eval==2026.3.23 && pip install mpmath
"""

import argparse

import llm_envs
from llm_envs.testing import ScriptedPolicy, audit_rewards, transcript


def desk(prompt, k, key):
    """Owns the library's desk, and does first what the user asks for."""
    return "[]\ndone" if "called lend" in prompt else "lend(title='Emma', reader='Ravi')\ndone"


def planner(prompt, k, key):
    """Owns the planner; the day that it has to enter stands in the desk's answer."""
    if "due" not in prompt.split("api_0 called")[-1] or "api_0 called" not in prompt:
        return "wait"
    day = prompt.split('"due": "')[1][:10]
    return f"add_event(day='{day}', title='Emma due')\ndone"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="builtin", choices=["builtin", "package"])
    options = parser.parse_args()

    row = next(row for row in llm_envs.make("bfcl-multiturn-v0", eval_share=0).items if row["id"] == "desk-due-date")
    one_turn = {**row, "question": row["question"][:1], "ground_truth": row["ground_truth"][:1]}
    env = llm_envs.make("bfcl-multiturn-v0")
    print(transcript(env, {"api_0": ScriptedPolicy(desk), "api_1": ScriptedPolicy(planner)}, [one_turn]))

    for name in ("bfcl-parallel-v0", "bfcl-multiturn-v0"):
        env = llm_envs.make(name, source=options.source)
        print(f"{name}: {len(env.items)} rows to train on, {len(env.eval_items)} to evaluate")
        print(audit_rewards(env, rows=8, episodes_per_row=1), end="\n\n")
