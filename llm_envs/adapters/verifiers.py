"""`verifiers:<taskset>`: tasks of the package verifiers that take one answer in words, for a team: `from_verifiers`.

The package (https://github.com/PrimeIntellect-ai/verifiers) plays its environments itself: it starts a program that calls a model
through the package's own server, and nobody outside can take a turn. What can be had without it are a task's prompt and its
`score`, so tasks of one answer, without tools or a machine, are played here; all others are refused (`verifiers_needs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llm_envs.adapters.question_teams import Prompt, Questions, TeamOptions, answer_of, check_sizes
from llm_envs.adapters.verifiers_needs import refusals
from llm_envs.adapters.verifiers_score import Kind, Marks, TaskScorer, conversation, package
from llm_envs.task import Task
from llm_envs.types import Item

_BOXED = "\\boxed{"


def task(
    taskset: str,
    /,
    *,
    team: Literal["check", "vote"] = "check",
    solvers: int | None = None,
    num_turns: int | None = None,
    size: int = 64,
    eval_size: int = 16,
    config: Mapping[str, Any] | None = None,
    eval_config: Mapping[str, Any] | None = None,
    how: str = "",
    right_at: float | None = None,
    verdict_weight: float | None = None,
    own_weight: float | None = None,
    allow_threads: bool = False,
) -> Task:
    r"""Tasks of a verifiers taskset for a team: a solver and a checker, or several solvers who vote.

    `team="check"`: `solver_0` answers the task in every turn. `checker_0` makes notes of its own in the first turn and says in
    every later one whether the solver's last answer is right; each then reads what the other wrote. Terms of the reward:

    * `solution`: the taskset's reward of the solver's text, divided by `num_turns`; for both.
    * `verdict`: `verdict_weight` for saying rightly whether the last answer earned at least `right_at`, divided by the number of
      verdicts; for the checker alone. The first of the words "right" and "wrong" counts.

    `team="vote"`: `solver_0`, `solver_1`, … answer at once. The answer given most often is the team's (of several, the one that
    comes first in the order of the agents), and the text of the first who gave it is scored. Answers are compared by what stands
    in the last `<answer>` tags, or else in the last `\boxed{}`, or else by the whole text. With several turns everybody reads the
    others' answers next. Terms:

    * `vote`: the taskset's reward of the team's text, divided by `num_turns`; for all.
    * `own`: the same of an agent's own text, times `own_weight`; for that agent.

    The taskset's reward is the weighted sum of its reward functions: a return lies where that does. Each function of a number is
    logged as `rewards.<name>`, unweighted, and each metric as `metrics.<name>`, of the team's text and divided by `num_turns`.

    Args:
        taskset: its id in the package: an installed module that exports a `Taskset`.
        team: "check" or "vote".
        solvers: with "vote", their number; 3 by default.
        num_turns: 2 by default with "check", which needs at least that, and 1 with "vote".
        size: tasks to train on: the first ones of the taskset.
        eval_size: tasks for evaluation: those after them, or the first ones with `eval_config`; 0 for none.
        config: of the taskset, `{"split": "train"}`; its config class documents it.
        eval_config: the config of another taskset of the same id for evaluation, `{"split": "test"}`.
        how: what solvers are told besides the task's own prompt.
        right_at: with "check": the reward from which an answer is right; by default what 1 from every reward function would give.
        verdict_weight: with "check"; 0.5 by default.
        own_weight: with "vote"; 0 by default, which only logs it.
        allow_threads: score outside of the main thread too. Refused without it: a reward that uses signals, as math-verify does,
            cannot there, and some then give 0 without an error.

    Raises:
        ValueError: for a taskset that the package cannot load or that a team cannot play, saying why, too few tasks, or an option
            that is none or cannot apply.
        ImportError: without the package, or a taskset that is not installed.
    """
    return from_verifiers(
        _loaded(taskset, config),
        eval_taskset=None if eval_config is None else _loaded(taskset, eval_config),
        team=team,
        solvers=solvers,
        num_turns=num_turns,
        size=size,
        eval_size=eval_size,
        how=how,
        right_at=right_at,
        verdict_weight=verdict_weight,
        own_weight=own_weight,
        allow_threads=allow_threads,
    )


def from_verifiers(
    taskset: Any,
    /,
    *,
    eval_taskset: Any = None,
    team: Literal["check", "vote"] = "check",
    solvers: int | None = None,
    num_turns: int | None = None,
    size: int = 64,
    eval_size: int = 16,
    how: str = "",
    right_at: float | None = None,
    verdict_weight: float | None = None,
    own_weight: float | None = None,
    allow_threads: bool = False,
) -> Task:
    """Tasks of a verifiers `Taskset` for a team, as `verifiers:<taskset>` has them: a task for `TaskEnv`.

    Args:
        taskset: a `Taskset`, or a view of one (`taskset.shuffle(seed=0)`); must be picklable where the environment has to be.
        eval_taskset: for evaluation; by default the tasks that follow those to train on.
        team: see `task`, as all further options.
        solvers: the same.
        num_turns: the same.
        size: the same.
        eval_size: the same.
        how: the same.
        right_at: the same.
        verdict_weight: the same.
        own_weight: the same.
        allow_threads: the same.

    Raises:
        ValueError, ImportError: as `task`.
        TypeError: for what is no `Taskset`.
    """
    options = TeamOptions(team=team, solvers=solvers, num_turns=num_turns, verdict_weight=verdict_weight, own_weight=own_weight)
    if right_at is not None and team != "check":
        raise ValueError(f"right_at cannot apply with team={team!r}, got {right_at!r}")
    check_sizes(size, eval_size)
    _check_kinds(taskset, eval_taskset)
    name = f"verifiers:{taskset.config.id or type(taskset).__name__}"
    tasks, eval_tasks = _chosen(name, taskset, size, eval_taskset, eval_size)
    rows = [{"key": task.key, "question": _question(task)} for task in [*tasks, *eval_tasks]]
    if len({row["key"] for row in rows}) < len(rows):
        raise ValueError(f"{name}: several tasks have the same key, so one comes twice, or in training and in evaluation")
    scorer = TaskScorer(name, [*tasks, *eval_tasks], allow_threads)
    probe = _probe(scorer, rows[0])
    if team == "check":
        scorer.right_at = _right_at(scorer, tasks[0], probe) if right_at is None else right_at
    return options.task(
        Questions(
            name=name,
            items=rows[:size],
            eval_items=rows[size:],
            marker=scorer,
            how=how,
            answer=str.strip if team == "check" else final_answer,
            details=_details(scorer, tasks[0], probe),
        )
    )


# ---- the package ----


def _loaded(taskset: str, config: Mapping[str, Any] | None) -> Any:
    """The taskset of an id, as the package finds it."""
    loaders = package("verifiers.v1.utils.loaders")
    try:
        kind = loaders.taskset_config_type(taskset)
        return loaders.load_taskset(kind.model_validate({**(config or {}), "id": taskset}))
    except ImportError as error:
        raise ImportError(f"verifiers:{taskset} cannot be imported: {error}; caused by: {error.__cause__}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"verifiers:{taskset} with {dict(config or {})}: {error}") from error


def _check_kinds(taskset: Any, eval_taskset: Any) -> None:
    kind = package("verifiers.v1").Taskset
    for option, given in (("taskset", taskset), ("eval_taskset", eval_taskset)):
        if not isinstance(given, kind) and not (option == "eval_taskset" and given is None):
            raise TypeError(f"{option} must be a Taskset of verifiers.v1, got {given!r:.200}")


def _chosen(name: str, taskset: Any, size: int, eval_taskset: Any, eval_size: int) -> tuple[list[Any], list[Any]]:
    """Tasks to train on and for evaluation.

    Raises:
        ValueError: if there are fewer, or if a team cannot play them.
    """
    if eval_taskset is None:
        both = _first(name, taskset, size + eval_size, "size + eval_size")
        tasks, eval_tasks, reasons = both[:size], both[size:], refusals(taskset, both)
    else:
        tasks, eval_tasks = _first(name, taskset, size, "size"), _first(name, eval_taskset, eval_size, "eval_size")
        reasons = [*refusals(taskset, tasks), *refusals(eval_taskset, eval_tasks)]
    if reasons:
        raise ValueError(f"{name} cannot be played by agents who write one answer: {'; '.join(dict.fromkeys(reasons))}")
    return tasks, eval_tasks


def _first(name: str, taskset: Any, count: int, option: str) -> list[Any]:
    tasks = list(taskset.take(count))
    if len(tasks) < count:
        raise ValueError(f"{name} has {len(tasks)} tasks, but {option} is {count}")
    return tasks


def _question(task: Any) -> Prompt:
    """What solvers read of the task: a text, or chat messages."""
    texts = package("verifiers.v1.types").content_text
    messages = [{"role": message.role, "content": texts(message.content)} for message in conversation(task.data)]
    return messages[0]["content"] if len(messages) == 1 else messages


# ---- what is logged, and what is right ----


def _probe(scorer: TaskScorer, row: Item) -> Marks:
    """The marks of an empty answer: which names there are, and that rewards do not fail on one."""
    try:
        return scorer.marks("", row)
    except RuntimeError:  # the wrong thread; the package turns what a reward raises into an error of its own
        raise
    except Exception as error:
        raise ValueError(
            f"{scorer.name}: an agent may write nothing, but on that the rewards of the first task fail: {error}"
        ) from error


def _right_at(scorer: TaskScorer, task: Any, probe: Marks) -> float:
    """What 1 from every reward function gives."""
    names = [function.__name__ for function in task.hooks("reward")]
    keyed = [name for name in names if name not in probe.rewards]
    full = sum(weight for weight in probe.weights.values() if weight > 0)
    if keyed or not full:
        reason = f"{', '.join(keyed)} gives several scores" if keyed else "no reward has a weight above 0"
        raise ValueError(f"{scorer.name}: {reason}, so give right_at: the reward from which an answer is right")
    return full


def _details(scorer: TaskScorer, task: Any, probe: Marks) -> dict[str, Recorded]:
    """The functions that give a number, by name; those of several scores have names that only a score tells."""
    kinds: list[tuple[Kind, Mapping[str, float]]] = [("rewards", probe.rewards), ("metrics", probe.metrics)]
    return {
        f"{kind}.{function.__name__}": Recorded(scorer, kind, function.__name__)
        for kind, given in kinds
        for function in task.hooks(kind.removesuffix("s"))
        if function.__name__ in given
    }


@dataclass(frozen=True)
class Recorded:
    """One reward or metric of a text, unweighted."""

    scorer: TaskScorer
    kind: Kind
    name: str

    def __call__(self, text: str, item: Item) -> float:
        """The number.

        Raises:
            KeyError: if the function gave no single number this time.
        """
        marks = self.scorer.marks(text, item)
        return (marks.rewards if self.kind == "rewards" else marks.metrics)[self.name]


def final_answer(text: str) -> str:
    r"""What stands in the last `<answer>` tags, or else in the last `\boxed{}`, or else the whole text, stripped."""
    answer = answer_of(text)
    start = text.rfind(_BOXED)
    if answer != text.strip() or start < 0:
        return answer
    depth = 1
    for end in range(start + len(_BOXED), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + len(_BOXED) : end].strip()
    return answer
