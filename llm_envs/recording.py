"""The stream of `EnvStep`s on disk, one JSON object a line: appended while collected, read back, replayed through an env."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from llm_envs.env import BranchingEnv
from llm_envs.seeding import TRAINING, episode_key
from llm_envs.task import has_length
from llm_envs.types import AgentID, ChatPrompt, Completion, EnvStep, Item, State, Transition


class RecordingError(ValueError):
    """A recording cannot be written, read or replayed."""


class Recorder:
    """Appends env steps to a file.

    Nothing is lost on the way: numbers come back bit for bit and conversations with their messages; in infos, numpy numbers come
    back as plain ones and tuples as lists. Each `write` reaches the operating system before it returns, so a killed process loses
    nothing it had written; a line cut short by a crash is dropped when the file is opened again.

    Args:
        path: of the file; missing folders are made. An existing file is continued.
        position: go on from here, as `position` said earlier, and drop what came later: for resuming from a checkpoint.

    Raises:
        RecordingError: if the file is shorter than `position`, or a line does not end there.
    """

    def __init__(self, path: str | Path, position: int | None = None) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        end = _end_of_lines(self.path)
        if position is not None:
            end = _checked_position(self.path, position, end)
        self._file = self.path.open("ab")
        self._file.truncate(end)
        self._file.seek(0, os.SEEK_END)  # Else `tell` would still say where the file ended before.

    def write(self, steps: Iterable[EnvStep]) -> None:
        """Append the steps; all or, if one cannot be written, none.

        Raises:
            RecordingError: naming env step and key, for an info that JSON has no form for.
        """
        self._file.write(b"".join(_line(step) for step in steps))
        self._file.flush()

    def position(self) -> int:
        """The end of what was written, in bytes."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file; again is fine."""
        self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_steps(path: str | Path) -> Iterator[EnvStep]:
    """The steps of a recording in order. A last line without its end was being written, and is left out.

    Raises:
        RecordingError: naming file and line, for any other line that is no env step.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _step(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise RecordingError(f"{path}, line {number} is no env step ({type(error).__name__}: {error})") from error


def read_episodes(path: str | Path) -> Iterator[list[EnvStep]]:
    """The steps of each episode, in order: what a learner's `update` takes.

    Raises:
        RecordingError: as `read_steps`, and if an episode's number comes back (two runs in one file).
    """
    latest = -1
    for episode, steps in groupby(read_steps(path), key=lambda step: step.episode):
        if episode <= latest:
            raise RecordingError(f"{path}: episode {episode} comes after episode {latest}: are there several runs in this file?")
        latest = episode
        yield list(steps)


def replay(
    env: BranchingEnv,
    steps: Iterable[EnvStep],
    items: Sequence[Item] | Mapping[int, Item] | None = None,
    *,
    seed: int = 0,
    purpose: int = TRAINING,
) -> list[EnvStep]:
    """The recorded joint actions played through an env, for instance one with another reward.

    Prompts, completions, choices and all numbers stay as recorded; rewards, infos, ends and the global state are the env's. Where
    the env ends an episode earlier than the recording did, the later steps are left out.

    Args:
        env: the agents and prompts must be those of the recording.
        steps: whole episodes, each from its first turn.
        items: the rows by item index, or a mapping from episode to row; `env.items` by default.
        seed: of the recorded run, for transitions that draw at random.
        purpose: of the recorded collection (`TRAINING` or `EVALUATION`), for the same.

    Raises:
        RecordingError: naming episode and turn, if a row is missing, an episode does not begin with its first turn or was played by
            another team, or an agent would read something else than it did: its completion was written for another prompt then.
    """
    replayed: list[EnvStep] = []
    for episode, recorded in groupby(steps, key=lambda step: step.episode):
        recorded = list(recorded)
        team = recorded[0].prompts
        if set(team) != set(env.possible_agents):
            played, wanted = ", ".join(team), ", ".join(env.possible_agents)
            raise RecordingError(f"episode {episode} was played by {played}, but the env is for {wanted}")
        item_index, item = _row(env, recorded[0], items)
        root = env.initial(item, episode_key(seed, purpose, episode, item_index), item_index)
        replayed.extend(_replay_episode(env, root, recorded))
    return replayed


def _replay_episode(env: BranchingEnv, root: State, recorded: Sequence[EnvStep]) -> list[EnvStep]:
    first = recorded[0]
    if first.turn != 1:
        raise RecordingError(f"episode {first.episode} begins with turn {first.turn}: replay needs whole episodes")
    states = {first.state_id: root}
    known = {first.state_id}
    replayed: list[EnvStep] = []
    for state_id, group in groupby(recorded, key=lambda step: step.state_id):
        siblings = list(group)
        if state_id not in known:
            raise RecordingError(f"episode {first.episode}: nothing leads to state {state_id}: replay needs whole episodes")
        known.update(step.next_state_id for step in siblings if step.next_state_id is not None)
        if state_id not in states:
            continue  # The env ended the episode before it.
        state = states[state_id]
        _check_prompts(state, siblings[0])
        actions = [{agent: completion.text for agent, completion in step.completions.items()} for step in siblings]
        for step, transition in zip(siblings, env.branch(state, actions), strict=True):
            if step.next_state_id is not None and not transition.state.done:
                states[step.next_state_id] = transition.state
            replayed.append(_replayed(env, state, step, transition))
    return replayed


def _replayed(env: BranchingEnv, state: State, step: EnvStep, transition: Transition) -> EnvStep:
    reached = transition.state
    return replace(
        step,
        next_state_id=None if reached.done else step.next_state_id,
        rewards=transition.rewards,
        terminated=reached.terminated,
        truncated=reached.truncated,
        next_prompts=None if reached.terminated else reached.observations,
        global_state=env.global_state(state),
        infos=transition.infos,
        next_global_state=env.global_state(reached) if reached.truncated and not reached.terminated else None,
    )


def _check_prompts(state: State, step: EnvStep) -> None:
    for agent, prompt in step.prompts.items():
        now = state.observations.get(agent)
        if now != prompt:
            where = f"episode {step.episode}, turn {step.turn}: {agent}"
            raise RecordingError(f"{where} would read {now!r}, but its completions were written for {prompt!r}")


def _row(env: BranchingEnv, first: EnvStep, items: Sequence[Item] | Mapping[int, Item] | None) -> tuple[int, Item]:
    index = next((info["item_index"] for info in first.infos.values() if "item_index" in info), -1)
    if isinstance(items, Mapping):
        if first.episode not in items:
            raise RecordingError(f"items has no row for episode {first.episode}")
        return index, items[first.episode]
    rows: Any = env.items if items is None else items
    if not has_length(rows):
        raise RecordingError(f"episode {first.episode}: the env's items have no positions; give items")
    if not 0 <= index < len(rows):
        raise RecordingError(
            f"episode {first.episode} was on item {index}, but there are {len(rows)}; give a mapping from episode to row"
        )
    return index, rows[index]


def _end_of_lines(path: Path) -> int:
    """Bytes up to the end of the last whole line; 0 for no file."""
    if not path.exists():
        return 0
    end = path.stat().st_size
    with path.open("rb") as file:
        while end > 0:
            start = max(0, end - 2**16)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


def _checked_position(path: Path, position: int, end: int) -> int:
    if not 0 <= position <= end:
        raise RecordingError(f"{path} has {end} bytes of whole lines: it cannot go on from {position}")
    if position > 0:
        with path.open("rb") as file:
            file.seek(position - 1)
            if file.read(1) != b"\n":
                raise RecordingError(f"{path}: no line ends at {position}")
    return position


def _line(step: EnvStep) -> bytes:
    where = f"env step {step.env_step}"
    record = {
        "env_step": step.env_step,
        "episode": step.episode,
        "state_id": step.state_id,
        "next_state_id": step.next_state_id,
        "turn": step.turn,
        "prompts": _prompts(step.prompts),
        "completions": {agent: _completion(completion) for agent, completion in step.completions.items()},
        "choice": dict(step.choice),
        "rewards": dict(step.rewards),
        "terminated": step.terminated,
        "truncated": step.truncated,
        "next_prompts": None if step.next_prompts is None else _prompts(step.next_prompts),
        "global_state": step.global_state,
        "infos": {agent: _plain(info, f"{where}: infos of {agent}") for agent, info in step.infos.items()},
        "next_global_state": step.next_global_state,
    }
    try:
        # ASCII with escapes holds every str there is, lone surrogates included.
        return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"
    except TypeError as error:
        raise RecordingError(f"{where}: {error}") from error


def _prompts(prompts: Mapping[AgentID, str]) -> dict[AgentID, Any]:
    return {agent: list(p.messages) if isinstance(p, ChatPrompt) else p for agent, p in prompts.items()}


def _completion(completion: Completion) -> dict[str, Any]:
    return {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "logprobs": completion.logprobs,
        "prompt_ids": completion.prompt_ids,
        "finish_reason": completion.finish_reason,
    }


def _plain(value: Any, where: str) -> Any:
    """The value in JSON's types.

    Raises:
        RecordingError: naming where it stands, if it has no form there.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):  # a long double stays one
        return _plain(value.item(), where)
    if isinstance(value, (list, tuple)):
        return [_plain(entry, f"{where}[{index}]") for index, entry in enumerate(value)]
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise RecordingError(f"{where} has the key {wrong[0]!r}: keys must be texts")
        return {str(key): _plain(entry, f"{where}[{key!r}]") for key, entry in value.items()}
    raise RecordingError(f"{where} is {type(value).__name__}, which JSON has no form for: {value!r}; give numbers, texts or lists")


def _step(record: Mapping[str, Any]) -> EnvStep:
    fields = dict(record)
    fields["prompts"] = _read_prompts(fields["prompts"])
    if fields["next_prompts"] is not None:
        fields["next_prompts"] = _read_prompts(fields["next_prompts"])
    fields["completions"] = {agent: _read_completion(entry) for agent, entry in fields["completions"].items()}
    return EnvStep(**fields)


def _read_prompts(prompts: Mapping[AgentID, Any]) -> dict[AgentID, str]:
    return {agent: p if isinstance(p, str) else ChatPrompt(p) for agent, p in prompts.items()}


def _read_completion(entry: Mapping[str, Any]) -> Completion:
    fields = dict(entry)
    for name in ("token_ids", "logprobs", "prompt_ids"):
        fields[name] = tuple(fields[name])
    return Completion(**fields)
