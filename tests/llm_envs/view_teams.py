"""Environments of texts for tests of the views: teams of one to three agents of two roles, awkward rows, one turn or several."""

from __future__ import annotations

from llm_envs import Task, TaskEnv
from llm_envs.testing import ScriptedPolicy
from llm_envs.wrappers import AutoregressiveTokenView, ChoiceView, TokenView

TEAM = ("solver_0", "critic_0", "critic_1")

ROWS = [
    {"prompt": "short", "words": ["yes", "no", "maybe"]},
    {"prompt": "", "words": [""]},
    {"prompt": "naïve ☃ 猫 👩‍🚀\n\x00 \U0010ffff", "words": ["猫", "é"]},
    {"prompt": "over-long " * 50 + "END", "words": ["a" * 40, "b"]},
]

WORDS = {"solver_0": ["yes", "no", ""], "critic_0": ["猫"], "critic_1": ["a", "b"]}
"""Candidates of each agent: three, one and two."""


def length_each(*lists):
    """Each agent earns a tenth of its length."""
    return [[len(text) / 10 for text in joint] for joint in zip(*lists, strict=True)]


def echo(agent_completions, turn):
    """Everybody reads what it wrote; an agent that writes "stop" ends the episode."""
    return None if "stop" in agent_completions else [f"turn {turn}: {text}" for text in agent_completions]


def by_path(prompt, k, key):
    """A word that depends on the state's path, so that a wrong key shows."""
    return f"word {(sum(key) + len(key) + k) % 3}"


def text_env(agents=2, turns=1, **options):
    """The environment of the first so many agents of the team."""
    plain = {"items": ROWS, "agents": TEAM[:agents], "reward": length_each, "num_turns": turns, "name": "echo"}
    return TaskEnv(Task(**{**plain, "transition": echo if turns > 1 else None, **options}))


PROPOSER = ScriptedPolicy(by_path)

# Small numbers, so that prompts are too long, random completions end and an episode takes few steps.
VIEWS = {
    "tokens": lambda env: TokenView(env, max_prompt_tokens=16, max_completion_tokens=6, max_state_tokens=24),
    "token by token": lambda env: AutoregressiveTokenView(env, max_prompt_tokens=8, max_completion_tokens=3, max_state_tokens=24),
    "choice": lambda env: ChoiceView(env, ["yes", "no"], max_prompt_tokens=16),
    "choice of each, masked": lambda env: ChoiceView(
        env, {agent: WORDS[agent] for agent in env.possible_agents}, action_mask=True, max_prompt_tokens=16
    ),
    "choice of the item": lambda env: ChoiceView(env, words_of, num_candidates=3, max_candidate_tokens=4),
    "choice of proposals, masked": lambda env: ChoiceView(
        env, PROPOSER, num_candidates=4, action_mask=True, max_candidate_tokens=6, max_prompt_tokens=8
    ),
}


def words_of(item, agent):
    """The row's own candidates."""
    return item["words"]
