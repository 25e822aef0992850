"""Recorded streams for other libraries: rows of joint actions, of completions with rewards, of preference pairs. Loads no torch.

The rows have the columns that TRL names (`prompt`, `completion`, `reward`; `prompt`, `chosen`, `rejected`) and some that say where
they come from. An agent is trained there on its own rows.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from learners import credit
from llm_envs.recording import read_episodes
from llm_envs.types import AgentID, ChatPrompt, EnvStep

if TYPE_CHECKING:
    from datasets import Dataset

Row: TypeAlias = dict[str, Any]
Episodes: TypeAlias = Iterable[Sequence[EnvStep]]
"""The steps of each episode; `llm_envs.recording.read_episodes` gives them."""

ExportFormat: TypeAlias = Literal["steps", "reward", "preference"]
PairChoice: TypeAlias = Literal["best_worst", "all"]


def step_rows(episodes: Episodes) -> Iterator[Row]:
    """A row for each agent of each joint action, in the stream's order: everything that was recorded of it but the global state.

    Columns: `env_step`, `episode`, `state_id`, `next_state_id`, `turn`, `agent`, `prompt`, `completion`, `choice`, `reward`,
    `terminated`, `truncated`, `finish_reason`, `prompt_ids`, `completion_ids`, `logprobs`, and `infos` as JSON.
    """
    for step in itertools.chain.from_iterable(episodes):
        for agent, completion in step.completions.items():
            yield {
                "env_step": step.env_step,
                "episode": step.episode,
                "state_id": step.state_id,
                "next_state_id": step.next_state_id,
                "turn": step.turn,
                "agent": agent,
                "prompt": step.prompts[agent],
                "completion": completion.text,
                "choice": step.choice[agent],
                "reward": float(step.rewards[agent]),
                "terminated": step.terminated,
                "truncated": step.truncated,
                "finish_reason": completion.finish_reason,
                "prompt_ids": list(completion.prompt_ids),
                "completion_ids": list(completion.token_ids),
                "logprobs": list(completion.logprobs),
                "infos": json.dumps(dict(step.infos.get(agent, {}))),
            }


def reward_rows(episodes: Episodes, *, discount: float = 1.0) -> Iterator[Row]:
    """A row for each completion that an agent drew, once however many joint actions used it, with what it was worth.

    `reward` is the agent's return: the mean over the joint actions with this completion of their reward and, discounted, the mean
    return of what followed.

    Columns: `prompt`, `completion`, `reward`, `agent`, `episode`, `turn`, `state_id`, `env_step` (the last one with it).

    Args:
        episodes: whole ones.
        discount: weight of what follows, from one turn to the next.

    Raises:
        ValueError: for steps that are no whole trees.
        FloatingPointError: for a reward that is not finite.
    """
    for group, agent, texts, worth in _valued(episodes, discount):
        for text, value in zip(texts, worth, strict=True):
            yield {
                "prompt": group.steps[0].prompts[agent],
                "completion": text,
                "reward": value,
                "agent": agent,
                "episode": group.episode,
                "turn": group.turn,
                "state_id": group.state_id,
                "env_step": group.env_step,
            }


def preference_rows(
    episodes: Episodes, *, discount: float = 1.0, pairs: PairChoice = "best_worst", min_gap: float = 0.0
) -> Iterator[Row]:
    """A row for each pair of an agent's completions at one state that were not worth the same.

    What a completion is worth is the `reward` of `reward_rows`. Equal texts and gaps of at most `min_gap` are no pairs.

    Columns: `prompt`, `chosen`, `rejected`, `chosen_reward`, `rejected_reward`, and where they come from.

    Args:
        episodes: whole ones.
        discount: weight of what follows, from one turn to the next.
        pairs: "best_worst" gives one pair a state, the first best and the first worst; "all" gives every pair, in the order of the
            samples.
        min_gap: reward units.

    Raises:
        ValueError: for an option that is none, or steps that are no whole trees.
        FloatingPointError: for a reward that is not finite.
    """
    if pairs not in get_args(PairChoice):
        raise ValueError(f"pairs must be one of {', '.join(map(repr, get_args(PairChoice)))}, got {pairs!r}")
    if not (math.isfinite(min_gap) and min_gap >= 0):
        raise ValueError(f"min_gap must be a number of at least 0, got {min_gap!r}")
    for group, agent, texts, worth in _valued(episodes, discount):
        for better, worse in _pairs(worth, pairs):
            if texts[better] == texts[worse] or worth[better] - worth[worse] <= min_gap:
                continue
            yield {
                "prompt": group.steps[0].prompts[agent],
                "chosen": texts[better],
                "rejected": texts[worse],
                "chosen_reward": worth[better],
                "rejected_reward": worth[worse],
                "agent": agent,
                "episode": group.episode,
                "turn": group.turn,
                "state_id": group.state_id,
                "env_step": group.env_step,
            }


def _valued(episodes: Episodes, discount: float) -> Iterator[tuple[credit.Group, AgentID, list[str], list[float]]]:
    """For each agent at each state: its texts, and what each was worth."""
    if not 0 <= discount <= 1:
        raise ValueError(f"discount must be a number from 0 to 1, got {discount!r}")
    for steps in episodes:
        returns = credit.tree_returns(steps, discount)
        for group in credit.groups(steps):
            for agent in group.steps[0].completions:
                texts = [completion.text for completion in credit.completions_of(group, agent)]
                sums = credit.completion_returns(group, returns, agent)
                counts = credit.joint_action_counts(group, agent)
                yield group, agent, texts, [total / count for total, count in zip(sums, counts, strict=True)]


def _pairs(worth: Sequence[float], pairs: PairChoice) -> list[tuple[int, int]]:
    """Positions of better and worse, or equal, completions."""
    if pairs == "best_worst":
        return [(worth.index(max(worth)), worth.index(min(worth)))]
    return [(i, j) if worth[i] >= worth[j] else (j, i) for i, j in itertools.combinations(range(len(worth)), 2)]


def export_rows(
    path: str | Path,
    format: ExportFormat,
    *,
    agent: AgentID | None = None,
    discount: float = 1.0,
    pairs: PairChoice = "best_worst",
    min_gap: float = 0.0,
) -> list[Row]:
    """The rows of a recording.

    Where every prompt is a conversation, `prompt` is its messages, and `completion`, `chosen` and `rejected` are a message of the
    assistant, as TRL has it; else all are texts.

    Args:
        path: of the recording, `stream.jsonl`.
        format: "steps" (`step_rows`), "reward" (`reward_rows`) or "preference" (`preference_rows`).
        agent: its rows alone; None gives everybody's.
        discount: of `reward_rows` and `preference_rows`.
        pairs: of `preference_rows`.
        min_gap: the same.

    Raises:
        ValueError: for a format, an option or an agent that is none, and as those functions.
        RecordingError: for a file that is no recording.
    """
    formats: Mapping[str, Callable[[], Iterator[Row]]] = {
        "steps": lambda: step_rows(read_episodes(path)),
        "reward": lambda: reward_rows(read_episodes(path), discount=discount),
        "preference": lambda: preference_rows(read_episodes(path), discount=discount, pairs=pairs, min_gap=min_gap),
    }
    if format not in formats:
        raise ValueError(f"format must be one of {', '.join(map(repr, formats))}, got {format!r}")
    rows = list(formats[format]())
    agents = list(dict.fromkeys(row["agent"] for row in rows))
    if agent is not None and rows and agent not in agents:
        raise ValueError(f"there are no {format} rows of {agent!r}, only of {', '.join(agents)}")
    return _as_messages([row for row in rows if agent in (None, row["agent"])])


def _as_messages(rows: list[Row]) -> list[Row]:
    """The rows with conversations as lists of messages, if all prompts are; otherwise with plain texts."""
    if not rows or not all(isinstance(row["prompt"], ChatPrompt) for row in rows):
        return [{**row, "prompt": str(row["prompt"])} for row in rows]
    return [{name: _message(name, value) for name, value in row.items()} for row in rows]


def _message(name: str, value: Any) -> Any:
    if isinstance(value, ChatPrompt):
        return [dict(message) for message in value.messages]
    return [{"role": "assistant", "content": value}] if name in ("completion", "chosen", "rejected") else value


# ---- where rows go ----


def to_dataset(rows: Sequence[Row]) -> Dataset:
    """The rows as a Hugging Face data set.

    Raises:
        ImportError: without the package `datasets`.
    """
    try:
        from datasets import Dataset
    except ModuleNotFoundError as error:
        raise ImportError("a data set needs the package datasets: pip install 'llm-envs[train]'") from error
    return Dataset.from_list(list(rows))


def write_rows(rows: Sequence[Row], path: str | Path) -> None:
    """Write the rows to a `.jsonl` or `.parquet` file; missing folders are made.

    Raises:
        ValueError: for another ending.
        ImportError: for Parquet without the package `datasets`.
    """
    path = Path(path)
    if path.suffix not in (".jsonl", ".parquet"):
        raise ValueError(f"rows are written to a .jsonl or .parquet file, got {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        to_dataset(rows).to_parquet(str(path))
        return
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
