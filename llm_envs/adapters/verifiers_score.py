"""What a verifiers task gives without its package's rollouts: a conversation to read, and a score for the answer to it."""

from __future__ import annotations

import asyncio
import functools
import importlib
import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from llm_envs.types import Item

Kind = Literal["rewards", "metrics"]

UNKNOWN = frozenset(
    {
        *("calls", "usage", "last_usage", "num_input_tokens", "num_output_tokens", "num_total_tokens", "is_truncated", "timing"),
        *("token_ids", "renderer_token_ids", "logical_ids", "mask", "sampled_mask", "is_content", "logprobs", "entropies"),
    }
)
"""What a trace tells of the model's calls, and a text does not. It would read as 0 or empty; asking for it is an error."""

_KEPT = 256
"""Scores that are kept, because several terms of a reward ask for the same one."""


def package(module: str) -> Any:
    """A module of the package.

    Raises:
        ImportError: without the package.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "verifiers":
            raise
        raise ImportError(
            "tasks of verifiers need the package verifiers, and Python 3.11 or newer: pip install 'llm-envs[verifiers]'"
        ) from error


def conversation(data: Any) -> list[Any]:
    """The messages that a task starts with, the system prompt first; only for data with a prompt."""
    vf = package("verifiers.v1")
    system = [] if data.system_prompt is None else [vf.SystemMessage(content=data.system_prompt)]
    prompt = [vf.UserMessage(content=data.prompt)] if isinstance(data.prompt, str) else list(data.prompt)
    return [*system, *prompt]


@dataclass(frozen=True)
class Marks:
    """What one answer earned.

    Attributes:
        total: the weighted sum of the rewards.
        rewards: each by name, unweighted.
        metrics: each by name.
        weights: of the rewards, by name.
    """

    total: float
    rewards: Mapping[str, float]
    metrics: Mapping[str, float]
    weights: Mapping[str, float]


class TaskScorer:
    """The tasks' own rewards and metrics, for answers to them.

    Args:
        name: of the taskset, for messages.
        tasks: each with another key.
        allow_threads: score outside of the main thread too.

    Attributes:
        right_at: the reward from which an answer is right, for whom it matters.
    """

    def __init__(self, name: str, tasks: Sequence[Any], allow_threads: bool) -> None:
        self.name = name
        self.right_at = math.inf
        self.allow_threads = allow_threads
        self._tasks = {task.key: task for task in tasks}
        self._marks = functools.lru_cache(_KEPT)(self._scored)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_marks"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._marks = functools.lru_cache(_KEPT)(self._scored)

    def score(self, text: str, item: Item) -> float:
        """The weighted sum of the rewards for the text."""
        return self.marks(text, item).total

    def right(self, score: float) -> bool:
        """Whether a reward counts as right."""
        return score >= self.right_at - 1e-9  # it is a sum of products

    def marks(self, text: str, item: Item) -> Marks:
        """What the text earns as the answer to the row's task.

        Raises:
            KeyError: for a row of another task.
            RuntimeError: in another thread than the main one.
            Exception: whatever the package makes of a reward's error.
        """
        return self._marks(text, item["key"])

    def _scored(self, text: str, key: str) -> Marks:
        if key not in self._tasks:
            raise KeyError(f"{self.name} has no task with the key {key!r}; it has {len(self._tasks)} others")
        task = self._tasks[key]
        loop_runs = _loop_runs()
        if not self.allow_threads and (loop_runs or threading.current_thread() is not threading.main_thread()):
            raise RuntimeError(
                f"{self.name} is asked for a score outside of the main thread, or from an event loop that runs. A reward that uses "
                "signals, as math-verify does, cannot work there, and some give 0 then: score in the main thread (no "
                "reward_workers), or say allow_threads=True if no reward uses signals"
            )
        if not loop_runs:
            return asyncio.run(scored(task, text))
        with ThreadPoolExecutor(1) as thread:  # one without a loop that runs
            return thread.submit(lambda: asyncio.run(scored(task, text))).result()


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def scored(task: Any, text: str) -> Marks:
    """The marks of a text as the answer to a task.

    Raises:
        ValueError: for rewards or metrics that were not scored.
        TimeoutError: after the task's own time limit for scoring.
        Exception: whatever the package makes of a reward's error.
    """
    trace = trace_of(task, text)
    await asyncio.wait_for(task.score(trace), task.data.timeout.scoring)
    unscored = [name for given in (trace.rewards, trace.metrics) for name, value in given.items() if value is None]
    if unscored or not trace.rewards:
        raise ValueError(f"{type(task).__name__} did not score {', '.join(unscored) or 'anything'}")
    return Marks(
        total=float(trace.reward),
        rewards={name: reward.score for name, reward in trace.rewards.items()},
        metrics=dict(trace.metrics),
        weights={name: reward.weight for name, reward in trace.rewards.items()},
    )


def trace_of(task: Any, text: str) -> Any:
    """The trace of a model that read the task's prompt and answered with the text, as the package's rollouts record it."""
    vf = package("verifiers.v1")
    trace_type, node_type = _text_types()
    trace = trace_type(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        state=package("verifiers.v1.state").state_cls(type(task))(),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
    )
    for message in conversation(task.data):
        trace.nodes.append(node_type(parent=len(trace.nodes) - 1 if trace.nodes else None, message=message))
    reply = vf.AssistantMessage(content=text or None)  # as its clients read an empty reply
    trace.nodes.append(node_type(parent=len(trace.nodes) - 1, message=reply, sampled=True))
    trace.stop("agent_completed")
    return trace


class _Guard:
    """A part of a trace that says what it does not know."""

    def __getattribute__(self, name: str) -> Any:
        if name in UNKNOWN:
            raise NotImplementedError(f"a reward asks for {name!r} of the model's calls, but here only the text is known")
        return super().__getattribute__(name)


@functools.lru_cache(1)
def _text_types() -> tuple[Any, Any]:
    """Trace and node of the package, guarded."""
    vf = package("verifiers.v1")

    class TextNode(_Guard, vf.MessageNode):
        pass

    class TextBranch(_Guard, vf.Branch):
        pass

    branch_type: Any = TextBranch

    class TextTrace(_Guard, vf.Trace):
        @property
        def branches(self) -> list[Any]:
            return [branch_type(index=0, nodes=self.nodes)]

    return TextTrace, TextNode
