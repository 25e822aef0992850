"""`check_task`: a task's formatters, reward and transition on its own rows."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import islice

from llm_envs.env import TaskEnv
from llm_envs.rewards import RewardError
from llm_envs.task import Task
from llm_envs.testing.compare import difference
from llm_envs.testing.conformance import ConformanceError
from llm_envs.testing.episodes import reference_scripts
from llm_envs.testing.subject import PROBES
from llm_envs.transitions import TransitionError
from llm_envs.types import Item, JointAction, State


def check_task(task: Task, *, rows: int = 1000, scored_rows: int = 3) -> tuple[str, ...]:
    """Check a task on its own rows; returns what holds, in words.

    Args:
        task: what is checked.
        rows: most training and evaluation rows that are formatted.
        scored_rows: how many rows are played to the end with odd texts, copied prompts and the reference solution.

    Raises:
        ConformanceError: naming row, agent and texts, if a formatter, the reward or the transition fails or returns something
            wrong, if a row is changed, or if the reward of a joint response depends on the others or differs when asked again.
    """
    env = TaskEnv(task)
    counts = [_check_formatters(env, name, items, rows) for name, items in (("items", task.items), ("eval_items", task.eval_items))]
    turns = 0
    for index, item in enumerate(islice(iter(task.items), scored_rows)):
        turns += _check_row(env, index, item)
    return (
        f"formatters give every agent a prompt on {counts[0]} training and {counts[1]} evaluation rows",
        f"the reward scores 1, 3 and {len(task.agent_ids)} joint responses alike and the same again, over {turns} turns",
        "rows stay as they are, and transitions lead to prompts or to an end",
    )


def _check_formatters(env: TaskEnv, option: str, items: Iterable[Item] | None, limit: int) -> int:
    count = 0
    for index, item in enumerate(islice(iter(items or ()), limit)):
        before = copy.deepcopy(item)
        try:
            env.initial(item, (0, 0, index), index)
        except ValueError as error:
            raise ConformanceError(f"{option}, row {index}: {error}") from error
        found = difference(before, item, "the row")
        if found is not None:
            raise ConformanceError(f"{option}, row {index}: a formatter changed {found}")
        count += 1
    return count


def _check_row(env: TaskEnv, index: int, item: Item) -> int:
    """Turns played."""
    state = env.initial(item, (0, 0, index), index)
    before = copy.deepcopy(item)
    turns = 0
    while not state.done:
        where = f"row {index}, turn {state.turn + 1}"
        joint = _joint_actions(env, state)
        state = _check_reward(env, state, joint, where)
        turns += 1
        found = difference(before, item, "the row")
        if found is not None:
            raise ConformanceError(f"{where}: reward or transition changed {found}")
    return turns


def _joint_actions(env: TaskEnv, state: State) -> list[JointAction]:
    agents = env.possible_agents
    joint: list[JointAction] = [dict.fromkeys(agents, text) for text in PROBES]
    joint.append({agent: str(state.observations[agent]) for agent in agents})
    joint.append({agent: PROBES[number % 3] for number, agent in enumerate(agents)})
    if env.task.reference is not None:
        try:
            scripts = reference_scripts(env, env.task.reference, state.item)
        except ValueError as error:
            raise ConformanceError(str(error)) from error
        joint.append({agent: texts[min(state.turn, len(texts) - 1)] for agent, texts in scripts.items()})
    return joint


def _check_reward(env: TaskEnv, state: State, joint: Sequence[JointAction], where: str) -> State:
    """A state that the episode goes on in, or an end."""

    def rewards(chosen: Sequence[JointAction]) -> list[dict[str, float]]:
        try:
            return [dict(transition.rewards) for transition in env.branch(state, chosen)]
        except RewardError as error:
            raise ConformanceError(f"{where}: {error}. A malformed completion is an action, and must earn something") from error
        except (TransitionError, ValueError) as error:
            raise ConformanceError(f"{where}: {error}") from error

    alone = [rewards([one])[0] for one in joint]
    for size in sorted({1, 3, len(env.possible_agents)}):
        for start in range(0, len(joint), size):
            group = joint[start : start + size]
            found = difference(alone[start : start + size], rewards(group), "rewards")
            if found is not None:
                again = "again" if size == 1 else f"among {len(group)}"
                raise ConformanceError(
                    f"{where}: joint responses scored {again} earn something else: {found}; they were {group!r:.300}"
                )
    children = [transition.state for transition in env.branch(state, joint)]
    return next((child for child in children if not child.done), children[0])
