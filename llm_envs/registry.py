"""Names for environments: versioned ids, from this package, from other distributions and from the running program."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import Any, TypeAlias

from pettingzoo import ParallelEnv

from llm_envs.calling import REQUIRED, Options, function_name, keyword_options
from llm_envs.env import TaskEnv
from llm_envs.task import Task

Factory: TypeAlias = Callable[..., "Task | ParallelEnv"]
"""Keyword options → a task or an environment."""

GROUP = "llm_envs"
"""Entry-point group: a distribution offers `my-task-v0 = "my_module:my_factory"`."""

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*-v[0-9]+")

# Imported when first made, so that listing the envs and importing the package stay light.
_BUILT_IN: dict[str, str] = {
    "matching-v0": "llm_envs.tasks.matching:task",
    "split-v0": "llm_envs.tasks.split:task",
    "length-ratio-v0": "llm_envs.tasks.length_ratio:task",
    "bfcl-parallel-v0": "llm_envs.tasks.tool_use.bfcl_parallel:task",
    "bfcl-multiturn-v0": "llm_envs.tasks.tool_use.bfcl_multiturn:task",
    "strbuild-v0": "llm_envs.tasks.building.strbuild:task",
    "housebuild-v0": "llm_envs.tasks.building.housebuild:task",
    "tldr-v0": "llm_envs.tasks.writing.tldr:task",
    "arxiv-v0": "llm_envs.tasks.writing.arxiv:task",
    "humaneval-v0": "llm_envs.tasks.code.humaneval:task",
    "coophumaneval-v0": "llm_envs.tasks.code.coophumaneval:task",
    "mbpp-v0": "llm_envs.tasks.code.mbpp:task",
    "travel-v0": "llm_envs.tasks.travel.travel:task",
    "classeval-v0": "llm_envs.tasks.classeval.classeval:task",
}

# Other people's environments: `<prefix>:<name>` is made by a function of the name and options.
_ADAPTERS: dict[str, str] = {
    "textarena": "llm_envs.adapters.textarena:env",
    "reasoning-gym": "llm_envs.adapters.reasoning_gym:task",
    "verifiers": "llm_envs.adapters.verifiers:task",
}


@dataclass(frozen=True)
class EnvSpec:
    """What an id stands for.

    Attributes:
        id: `<name>-v<number>`, `module:function`, or `<adapter>:<name>`.
        factory: gives a task or an env; a `module:function` text is imported when first needed; a task stands for itself.
        defaults: options it was registered with.
        source: where it comes from, for messages.
        arguments: what the factory gets by position, before its options.
    """

    id: str
    factory: Factory | Task | str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    source: str = "this program"
    arguments: tuple[str, ...] = ()

    def load(self) -> Factory | Task:
        """The factory itself, imported if need be.

        Raises:
            ImportError: naming id, source and target, if importing fails for whatever reason.
        """
        if not isinstance(self.factory, str):
            return self.factory
        try:
            target: Factory | Task = _imported(self.factory)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ImportError(f"{self.id} ({self.source}) cannot be loaded from {self.factory!r}: {reason}") from error
        if not callable(target) and not isinstance(target, Task):
            raise ImportError(f"{self.id} ({self.source}): {self.factory!r} is neither a factory nor a Task but {target!r}")
        if not self.arguments or isinstance(target, Task):
            return target
        bound = partial(target, *self.arguments)
        bound.__doc__ = target.__doc__
        return bound

    def options(self) -> Mapping[str, Any]:
        """Every option by name with its default; `REQUIRED` (`llm_envs.calling`) where there is none."""
        return {**_options(self.load()).defaults, **self.defaults}

    def make(self, *, render_mode: str | None = None, **options: Any) -> ParallelEnv:
        """The environment. `max_cycles` is taken as another name of `num_turns`.

        Raises:
            TypeError: for an option the factory does not have, a missing one, or something that is no env.
        """
        factory = self.load()
        known = _options(factory)
        chosen = _without_alias(self.id, known, {**self.defaults, **options})
        self._refuse(known, chosen)
        if render_mode is not None and ("render_mode" in known.defaults or known.open_ended):
            chosen["render_mode"] = render_mode
        built = factory if isinstance(factory, Task) else factory(**chosen)
        if isinstance(built, Task):
            return TaskEnv(built, render_mode=render_mode)
        if not isinstance(built, ParallelEnv):
            raise TypeError(f"{self.id} must give a Task or a ParallelEnv, but its factory returned {built!r}")
        if render_mode is not None and "render_mode" not in chosen:
            raise TypeError(f"{self.id} has no option 'render_mode'; its options: {', '.join(known.defaults) or 'none'}")
        return built

    def _refuse(self, known: Options, chosen: Mapping[str, Any]) -> None:
        offered = ", ".join(known.defaults) or "none"
        unknown = [] if known.open_ended else [name for name in chosen if name not in known.defaults]
        if unknown:
            raise TypeError(f"{self.id} has no option {unknown[0]!r}{_hint(unknown[0], known.defaults)}; its options: {offered}")
        missing = [name for name, default in known.defaults.items() if default is REQUIRED and name not in chosen]
        if missing:
            raise TypeError(f"{self.id} needs the option {missing[0]!r}; its options: {offered}")


_registered: dict[str, EnvSpec] = {}


def register(id: str, factory: Factory | Task | str, /, **defaults: Any) -> None:
    """Give an environment a name.

    Args:
        id: `<name>-v<number>`; what could change results gets a new number.
        factory: a function with keyword options that returns a `Task` or a `ParallelEnv`, its `module:function`, or a `Task`.
        **defaults: options for the factory unless `make` is given others.

    Raises:
        ValueError: for an id of another form, or one that stands for something else already. Running the same registration again is
            fine; a function of the same module and name then takes the older one's place.
        TypeError: for options the factory does not have.
    """
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise ValueError(f"an env id must look like my-task-v0, got {id!r}")
    if isinstance(factory, str):
        _check_target(factory)
    elif not callable(factory) and not isinstance(factory, Task):
        raise TypeError(f"{id}: the factory must be a function, a Task or 'module:function', got {factory!r}")
    new = EnvSpec(id, factory, dict(defaults))
    if not isinstance(factory, str):
        known = _options(factory)
        unknown = [] if known.open_ended else [name for name in defaults if name not in known.defaults]
        if unknown:
            raise TypeError(f"{id} has no option {unknown[0]!r}; its options: {', '.join(known.defaults) or 'none'}")
    for old in _found(id):
        if (_identity(old.factory), old.defaults) != (_identity(factory), new.defaults):
            raise ValueError(f"{id} is taken by {old.source} ({_identity(old.factory)}); give the new one another name or version")
    _registered[id] = new


def make(id: str, /, *, render_mode: str | None = None, **options: Any) -> ParallelEnv:
    """The environment of an id, or of `module:function`.

    Args:
        id: see `list_envs()`; `textarena:<game>`, `reasoning-gym:<data set>` and `verifiers:<taskset>` are those packages'.
        render_mode: None, "ansi", or another one of the environment's `metadata["render_modes"]`.
        **options: of its factory; `spec(id).options()` has them. `max_cycles` is another name of `num_turns`.

    Raises:
        ValueError: for an unknown id, with those like it, or one that several sources claim.
        ImportError: if its factory cannot be imported.
        TypeError: for an option it does not have.
    """
    return spec(id).make(render_mode=render_mode, **options)


def list_envs() -> list[str]:
    """Every id that `make` knows, sorted. Nothing is imported for it."""
    return sorted({*_BUILT_IN, *_registered, *(point.name for point in metadata.entry_points(group=GROUP))})


def spec(id: str, /) -> EnvSpec:
    """What an id, or `module:function`, stands for.

    Raises:
        ValueError: as `make`.
        TypeError: for an id that is no text.
    """
    if not isinstance(id, str):
        raise TypeError(f"an env id must be a text like my-task-v0, got {id!r}")
    adapter, _, name = id.partition(":")
    if adapter in _ADAPTERS and name:
        return EnvSpec(id, _ADAPTERS[adapter], source=f"the package {adapter}", arguments=(name,))
    if ":" in id:
        return EnvSpec(id, _check_target(id), source="named by its module")
    found = _found(id)
    if len(found) > 1:
        raise ValueError(f"{id} is claimed by {' and by '.join(one.source for one in found)}: remove or rename one")
    if found:
        return found[0]
    known = list_envs()
    others = ", ".join(("module:function", *(f"{one}:…" for one in _ADAPTERS)))
    raise ValueError(f"there is no env {id!r}{_hint(id, known)}; known: {', '.join(known)}, or {others}")


def _found(id: str) -> list[EnvSpec]:
    """All that claim the id."""
    found = [_registered[id]] if id in _registered else []
    if id in _BUILT_IN:
        found.append(EnvSpec(id, _BUILT_IN[id], source="llm_envs"))
    for point in metadata.entry_points(group=GROUP, name=id):
        source = f"the distribution {point.dist.name}" if point.dist is not None else "an entry point"
        found.append(EnvSpec(id, point.value, source=source))
    # The same thing under the same name twice is no conflict.
    distinct: dict[tuple[str, str], EnvSpec] = {}
    for one in found:
        distinct.setdefault((_identity(one.factory), repr(sorted(one.defaults.items()))), one)
    return list(distinct.values())


def _identity(factory: Factory | Task | str) -> str:
    if isinstance(factory, str):
        return factory
    if isinstance(factory, Task):
        return f"task {factory.name} {id(factory)}"
    if hasattr(factory, "__qualname__"):
        return f"{factory.__module__}:{factory.__qualname__}"
    return f"{function_name(factory)} {id(factory)}"


def _options(factory: Factory | Task) -> Options:
    return Options({}, open_ended=False) if isinstance(factory, Task) else keyword_options(factory)


def _without_alias(name: str, known: Options, chosen: dict[str, Any]) -> dict[str, Any]:
    if "max_cycles" not in chosen or "max_cycles" in known.defaults or "num_turns" not in known.defaults:
        return chosen
    cycles = chosen.pop("max_cycles")
    if chosen.get("num_turns", cycles) != cycles:
        raise TypeError(f"{name}: max_cycles={cycles} is another name of num_turns={chosen['num_turns']}; give one")
    return {**chosen, "num_turns": cycles}


def _imported(target: str) -> Any:
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _check_target(target: str) -> str:
    module, _, name = target.partition(":")
    if not module or not name:
        raise ValueError(f"expected module:function, got {target!r}")
    return target


def _hint(wrong: str, known: Any) -> str:
    # Whoever leaves the version out, or takes an old one, means the same name.
    stem = re.sub(r"-v\d+$", "", wrong)
    close = [name for name in known if re.sub(r"-v\d+$", "", name) == stem] or difflib.get_close_matches(wrong, list(known))
    return f" (did you mean {', '.join(close)}?)" if close else ""
