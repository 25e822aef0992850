"""A small row and the playing of joint answers, for the tests of the code families."""

from __future__ import annotations

from llm_envs.env import TaskEnv
from llm_envs.tasks.code.assembly import CodeOptions, code_task

NEXT = {
    "task_id": "t/next",
    "prompt": 'def f(x):\n    """The number after x.\n\n    >>> f(1)\n    2\n    >>> f(5)\n    6\n    """\n',
    "entry_point": "f",
    "canonical_solution": "    return x + 1\n",
    "test": "def check(candidate):\n"
    "    assert candidate(1) == 2\n"
    "    assert candidate(2) == 3\n"
    "    assert candidate(-1) == 0\n"
    "    assert candidate(99) == 100\n",
}
"""Four hidden checks; a constant passes one of them."""

OTHER = {**NEXT, "task_id": "t/other"}

AUX = "def aux(x):\n    return x + 1\n"
MAIN = "def f(x):\n    y = aux(x)\n    return y if y else 0\n"
ALONE = "def f(x):\n    return x + 1\n"


def env_of(row=NEXT, **options):
    """The env of one row to train on."""
    return TaskEnv(code_task("code-v0", [row, OTHER], CodeOptions(**options), eval_ids=["t/other"]))


def play(env, *turns):
    """Rewards and terms of the first agent for joint answers given turn by turn, and the last state."""
    state = env.initial(env.items[0], (0, 0), 0)
    rewards, terms = [], []
    for texts in turns:
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True))])
        assert len(set(transition.rewards.values())) == 1  # the team shares it
        info = transition.infos[env.possible_agents[0]]
        rewards.append(info["raw_reward"])
        terms.append({name.removeprefix("reward/"): value for name, value in info.items() if name.startswith("reward/")})
        state = transition.state
    return rewards, terms, state
