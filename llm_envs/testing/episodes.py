"""Playing single episodes with policies, and the teams that checks and audits play them with."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from llm_envs.env import BranchingEnv, TaskEnv
from llm_envs.seeding import ROUND, SAMPLING, Path, stream
from llm_envs.task import has_length
from llm_envs.testing.scripted import ScriptedPolicy
from llm_envs.types import AgentID, Item, Policy, State, Transition

Reference = Callable[[Item], "Sequence[str | Sequence[str]]"]
"""Row → for each agent a text, or its texts turn by turn, that together earn the most."""

CHARACTERS = string.ascii_lowercase + string.digits + " .,\n"


def first_rows(env: BranchingEnv, items: Iterable[Item] | None, limit: int) -> list[tuple[int, Item]]:
    """The first rows with their positions (-1 without any): of `items`, else of the env."""
    rows = env.items if items is None else items
    positions = has_length(rows)
    return [(index if positions else -1, row) for index, row in enumerate(islice(iter(rows), limit))]


def play_episode(
    env: BranchingEnv, policies: Mapping[AgentID, Policy], item: Item, item_index: int, key: Path
) -> list[tuple[State, Transition]]:
    """The states acted from and what the policies' joint actions led to, until the end."""
    state = env.initial(item, key, item_index)
    played: list[tuple[State, Transition]] = []
    while not state.done:
        action: dict[AgentID, str] = {}
        for number, agent in enumerate(env.possible_agents):
            ((completion,),) = policies[agent].generate([state.observations[agent]], 1, [(*state.key, number)])
            action[agent] = completion.text
        (transition,) = env.branch(state, [action])
        played.append((state, transition))
        state = transition.state
    return played


def reference_of(env: BranchingEnv) -> Reference | None:
    """The task's reference solution; None if it gives none, or the env is no task's."""
    return env.task.reference if isinstance(env, TaskEnv) else None


def reference_team(env: BranchingEnv, reference: Reference, item: Item) -> dict[AgentID, ScriptedPolicy]:
    """A team that plays the reference solution of this row.

    Raises:
        ValueError: if it does not give a text, or texts, for each agent.
    """
    scripts = reference_scripts(env, reference, item)
    return {agent: _by_turn(script) for agent, script in scripts.items()}


def reference_scripts(env: BranchingEnv, reference: Reference, item: Item) -> dict[AgentID, tuple[str, ...]]:
    """What each agent writes in the turns of the reference solution, in order; the last text again in later turns.

    Raises:
        ValueError: if it does not give a text, or texts, for each agent.
    """
    given = list(reference(item))
    scripts = [(texts,) if isinstance(texts, str) else tuple(texts) for texts in given]
    if len(scripts) != len(env.possible_agents) or not all(
        texts and all(isinstance(text, str) for text in texts) for texts in scripts
    ):
        agents = ", ".join(env.possible_agents)
        raise ValueError(
            f"reference must give one text for each of {agents}, got {given!r}; several turns' texts are a list of texts"
        )
    return dict(zip(env.possible_agents, scripts, strict=True))


def _by_turn(script: tuple[str, ...]) -> ScriptedPolicy:
    return ScriptedPolicy(lambda prompt, k, key: script[min(turn_of(key), len(script) - 1)])


def turn_of(key: Path) -> int:
    """The turn that a policy's key is of, from 0.

    The key is (seed, purpose, episode, branch, branch, …, agent), or in a later round of a turn (…, branch, round, agent, sample).
    """
    later = (place for place, part in enumerate(key) if part >= ROUND)
    return next(later, len(key) - 1) - 3


def random_text(prompt: str, k: int, key: Path) -> str:
    """Up to 64 random characters."""
    rng = stream(SAMPLING, (*key, k))
    return "".join(rng.choice(list(CHARACTERS), size=rng.integers(0, 65)))


def random_words(prompt: str, k: int, key: Path) -> str:
    """One to four random words of the prompt, in random order."""
    rng = stream(SAMPLING, (*key, k))
    words = [word.strip(string.punctuation) for word in prompt.split()] or [""]
    return " ".join(words[i] for i in rng.integers(0, len(words), size=rng.integers(1, 5)))


def copied_prompt(prompt: str, k: int, key: Path) -> str:
    """The prompt itself."""
    return str(prompt)


def keywords(prompt: str, k: int, key: Path) -> str:
    """Every word of the prompt once, each after a word without a meaning."""
    words = dict.fromkeys(word.strip(string.punctuation) for word in prompt.split())
    return " ".join(f"w{number:03d} {word}" for number, word in enumerate(words))
