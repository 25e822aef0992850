"""Episodes as text: the record of how an environment behaves, kept beside the tests and compared line by line."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from llm_envs.env import BranchingEnv
from llm_envs.registry import list_envs, make, spec
from llm_envs.seeding import TRAINING
from llm_envs.testing.episodes import (
    copied_prompt,
    first_rows,
    play_episode,
    random_text,
    random_words,
    reference_of,
    reference_team,
)
from llm_envs.testing.scripted import ScriptedPolicy
from llm_envs.types import AgentID, Item, JointAction, Policy, State, Transition

ROWS = 2
"""Rows on which a team is shown whose texts differ from row to row."""

Team: TypeAlias = Callable[[Item], Mapping[AgentID, Policy]]
"""Row → the policies that play it."""


def transcript(
    env: BranchingEnv,
    play: Mapping[AgentID, Policy] | Sequence[JointAction],
    items: Iterable[Item] | None = None,
    *,
    rows: int = 1,
    seed: int = 0,
) -> str:
    """One episode a row as readable text: what every agent read and wrote, what it earned, how it ended. The same on every machine.

    Args:
        env: what is played.
        play: a policy for each agent, or the joint actions of the turns in order (the last one again in later turns).
        items: rows; the env's own by default.
        rows: how many of them, from the first.
        seed: of the policies' draws and of chance in transitions.
    """
    policies = play if isinstance(play, Mapping) else _actors(env, play)
    return _episodes(env, lambda item: policies, first_rows(env, items, rows), seed)


def env_transcript(id: str) -> str:
    """How a registered environment behaves: its spaces, and teams of all kinds on its first rows; also with two turns if it can.

    The teams are silence, the copied prompt, random text, random words, and the reference solution if the task gives one.
    """
    variants: list[dict[str, Any]] = [{}]
    if spec(id).options().get("num_turns") == 1:
        variants.append({"num_turns": 2})
    return "\n".join(_variant(id, options) for options in variants)


def _variant(id: str, options: dict[str, Any]) -> str:
    env = make(id, **options)
    if not isinstance(env, BranchingEnv):
        raise TypeError(f"{id} is no BranchingEnv: a transcript needs its initial and branch, got {env!r}")
    shown = "".join(f", {name}={value!r}" for name, value in options.items())
    lines = [f"=== make({id!r}{shown}) ===", f"agents: {', '.join(env.possible_agents)}; turns: at most {env.num_turns}"]
    lines += [
        f"{agent} observes {env.observation_space(agent)} and acts in {env.action_space(agent)}" for agent in env.possible_agents
    ]
    parts = ["\n".join(lines) + "\n"]
    for name, (team, rows) in _teams(env).items():
        parts.append(f"--- team: {name} ---\n\n{_episodes(env, team, first_rows(env, None, rows))}")
    return "\n".join(parts)


def _teams(env: BranchingEnv) -> dict[str, tuple[Team, int]]:
    """Each team with the number of rows it is shown on."""
    scripts = {
        "silence": (ScriptedPolicy([""]), 1),
        "copied prompt": (ScriptedPolicy(copied_prompt), 1),
        "random text": (ScriptedPolicy(random_text), 1),
        "random words": (ScriptedPolicy(random_words), ROWS),
    }
    teams: dict[str, tuple[Team, int]] = {name: (_everybody(env, policy), rows) for name, (policy, rows) in scripts.items()}
    reference = reference_of(env)
    if reference is not None:
        solution = reference
        teams["reference"] = (lambda item: reference_team(env, solution, item), ROWS)
    return teams


def _everybody(env: BranchingEnv, policy: Policy) -> Team:
    return lambda item: dict.fromkeys(env.possible_agents, policy)


def _actors(env: BranchingEnv, actions: Sequence[JointAction]) -> dict[AgentID, Policy]:
    if not actions:
        raise ValueError("play needs at least one joint action")
    # The key of a sample is (seed, purpose, episode, branch, …, agent): its length says the turn.
    return {
        agent: ScriptedPolicy(lambda prompt, k, key, agent=agent: actions[min(len(key) - 4, len(actions) - 1)][agent])
        for agent in env.possible_agents
    }


def _episodes(env: BranchingEnv, team: Team, rows: Iterable[tuple[int, Item]], seed: int = 0) -> str:
    parts = []
    for episode, (index, item) in enumerate(rows):
        played = play_episode(env, team(item), item, index, (seed, TRAINING, episode))
        row = json.dumps({str(key): value for key, value in item.items()}, ensure_ascii=False, default=repr)
        parts.append(f"row {index}: {_visible(row)}\n\n{_episode(env, played)}")
    return "\n".join(parts)


def _episode(env: BranchingEnv, played: Sequence[tuple[State, Transition]]) -> str:
    lines: list[str] = []
    for state, transition in played:
        lines.append(f"turn {state.turn + 1}")
        prompts = state.observations
        if len(prompts) > 1 and len(set(prompts.values())) == 1:
            lines.append(_spoken("  all read", prompts[env.possible_agents[0]]))
        else:
            lines += [_spoken(f"  {agent} reads", prompts[agent]) for agent in env.possible_agents]
        actions = transition.state.history[-1].actions
        lines += [_spoken(f"  {agent} writes", actions[agent]) for agent in env.possible_agents]
        lines.append(f"  reward: {_shared(transition.rewards)}")
        terms = [key for key in transition.infos[env.possible_agents[0]] if key.startswith("reward/")]
        lines += [f"  {term}: {_shared({agent: info[term] for agent, info in transition.infos.items()})}" for term in terms]
    last = played[-1][1].state
    lines.append(f"{'terminated' if last.terminated else 'truncated'} after turn {last.turn}")
    return "\n".join(lines) + "\n"


def _spoken(who: str, text: str) -> str:
    """The text with a bar before each of its lines, and nothing invisible in it."""
    lines = [_visible(line) for line in text.split("\n")]
    # Editors and version control do not keep a space at the end of a line.
    lines = [f"{line[:-1]}\\x20" if line.endswith(" ") else line for line in lines]
    margins = [who, *[" " * len(who)] * (len(lines) - 1)]
    return "\n".join(f"{margin} | {line}".rstrip() for margin, line in zip(margins, lines, strict=True))


def _visible(line: str) -> str:
    """The line with an escape for every character that does not show, or that UTF-8 cannot write."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def _shared(values: Mapping[AgentID, float]) -> str:
    different = set(values.values())
    if len(different) == 1:
        return f"{different.pop():.6g}"
    return ", ".join(f"{agent} {value:.6g}" for agent, value in values.items())


# ---- the folder of transcripts ----


def compare_transcripts(folder: Path, ids: Sequence[str] | None = None) -> dict[str, str]:
    """What differs from the folder, by id: a missing file, or the lines that changed; empty if nothing does.

    Args:
        folder: `<id>.txt` for every id.
        ids: all registered ones by default; then a file without an environment differs too.
    """
    different: dict[str, str] = {}
    for id in list_envs() if ids is None else ids:
        path = folder / f"{id}.txt"
        if not path.exists():
            different[id] = f"{path} is missing"
            continue
        old, new = path.read_text(encoding="utf-8"), env_transcript(id)
        if old != new:
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), "now", lineterm="")
            different[id] = "\n".join(lines)
    if ids is None:
        known = set(list_envs())
        for path in sorted(folder.glob("*.txt")):
            if path.stem not in known:
                different[path.stem] = f"{path} belongs to no environment"
    return different


def write_transcripts(folder: Path, ids: Sequence[str] | None = None) -> list[Path]:
    """Write the transcript of each id (all registered ones by default); returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for id in list_envs() if ids is None else ids:
        path = folder / f"{id}.txt"
        path.write_text(env_transcript(id), encoding="utf-8")
        written.append(path)
    return written
