"""Why a verifiers taskset cannot be played by agents who only write one answer."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from llm_envs.adapters.verifiers_score import package
from llm_envs.calling import REQUIRED, keyword_options

# What says that a task works on files or runs programs on a machine, and the value that says nothing.
_MACHINE = {"image": None, "workdir": None, "agent_user": None, "skills": [], "artifacts": []}


def refusals(taskset: Any, tasks: Sequence[Any]) -> list[str]:
    """Every reason against these tasks of a taskset, each once; none if they can be played."""
    reasons = list(_of_taskset(taskset))
    seen: set[tuple[type, int]] = set()
    for task in tasks:
        # Tasks share class and config, which say most.
        if (type(task), id(task.config)) not in seen:
            seen.add((type(task), id(task.config)))
            reasons += _of_behaviour(task)
        reasons += _of_data(task.data)
    return list(dict.fromkeys(reasons))


def _of_taskset(taskset: Any) -> Iterator[str]:
    vf = package("verifiers.v1")
    for base, what in ((vf.Env, "an environment"), (vf.Harness, "a harness")):
        own = _exported(taskset, base)
        if own is not None:
            yield f"it brings {what} of its own, {own.__name__}, which leads the conversation and may reward it"
    tools = taskset.toolsets(taskset.config)
    if tools:
        yield f"its tasks share tools ({_names(tools)})"


def _exported(taskset: Any, base: type) -> type | None:
    """The subclass of `base` that the taskset's package exports beside it, where the package's loader looks for one."""
    if taskset.config.id:
        modules = [package("verifiers.v1.utils.loaders").import_taskset(taskset.config.id)]
    else:
        own = type(taskset).__module__
        modules = [importlib.import_module(name) for name in (own, own.rpartition(".")[0]) if name in sys.modules]
    plain = package("verifiers.v1").SingleAgentEnv
    for module in modules:
        for name in getattr(module, "__all__", ()):
            found = getattr(module, name, None)
            if isinstance(found, type) and issubclass(found, base) and found not in (base, plain):
                return found
    return None


def _of_behaviour(task: Any) -> Iterator[str]:
    kind, base = type(task), package("verifiers.v1").Task
    if kind.NEEDS_CONTAINER:
        yield f"{kind.__name__} needs a container"
    for hook in ("setup", "finalize", "runtime_env"):
        if getattr(kind, hook) is not getattr(base, hook):
            yield f"{kind.__name__}.{hook}() prepares or reads the machine of a run"
    tools = kind.toolsets(task.config)
    if tools:
        yield f"it has tools ({_names(tools)})"
    rewards, metrics, stops = (task.hooks(attribute) for attribute in ("reward", "metric", "stop"))
    if not rewards:
        yield f"{kind.__name__} has no reward"
    on_machines = [function.__name__ for function in (*rewards, *metrics) if _needs_runtime(function)]
    if on_machines:
        yield f"{', '.join(on_machines)} of {kind.__name__} can only be scored in a runtime"
    if task.config.judges:
        yield f"models judge it ({', '.join(judge.name or judge.id for judge in task.config.judges)}), which no second run repeats"
    intercepts = package("verifiers.v1.utils.decorators").discover_decorated(task, "intercept")
    if stops or intercepts:
        yield f"{', '.join(function.__name__ for function in (*stops, *intercepts))} of {kind.__name__} act on the model's calls"


def _of_data(data: Any) -> Iterator[str]:
    wanted = [field for field, nothing in _MACHINE.items() if getattr(data, field) != nothing]
    if wanted:
        yield f"task {data.idx} wants a machine ({', '.join(f'{field}={getattr(data, field)!r:.80}' for field in wanted)})"
    if data.prompt is None:
        yield f"task {data.idx} has no prompt: its user, or a simulated one, opens the conversation"
        return
    messages = [] if isinstance(data.prompt, str) else data.prompt
    if not isinstance(data.prompt, str) and (not messages or messages[-1].role != "user"):
        yield f"the prompt of task {data.idx} does not end with a message of the user"
    for message in messages:
        if message.role == "tool" or getattr(message, "tool_calls", None):
            yield f"the prompt of task {data.idx} has calls of tools"
        if isinstance(message.content, list) and any(part.type != "text" for part in message.content):
            yield f"the prompt of task {data.idx} has images"


def _needs_runtime(function: Any) -> bool:
    """Whether the package skips the function without a runtime; with a default it is called without."""
    return keyword_options(function).defaults.get("runtime") is REQUIRED


def _names(tools: Sequence[Any]) -> str:
    return ", ".join(type(tool).__name__ for tool in tools)
