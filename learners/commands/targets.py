"""Environments by what users write: an id, `module:factory`, or `path/to/file.py:factory`; and their options and rows."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learners.commands.errors import UsageError, bad_input
from learners.commands.options import Option, function_options
from llm_envs.calling import keyword_options
from llm_envs.registry import EnvSpec, spec
from llm_envs.task import Task

if TYPE_CHECKING:
    from pettingzoo import ParallelEnv

    from llm_envs.env import BranchingEnv

ROWS = ("items", "eval_items")
"""Options of a factory that may be given as the path of a file of rows."""


def find_env(target: str) -> EnvSpec:
    """What an id, `module:factory` or `path/to/file.py:factory` stands for. Modules are also looked for in the working directory.

    Raises:
        UsageError: if there is no such id, file or function.
    """
    path, colon, name = target.rpartition(":")
    if colon and path.endswith(".py"):
        target = f"{_module_of(Path(path).expanduser())}:{name}"
    elif colon and "" not in sys.path and str(Path.cwd()) not in sys.path:
        # As `python -m` does; a console script starts with its own folder instead.
        sys.path.insert(0, str(Path.cwd()))
    with bad_input():
        found = spec(target)
        found.load()
        return found


def env_options(found: EnvSpec) -> list[Option]:
    """The options of an env, `env.<name>`. Rows may be given as the path of a file too."""
    factory = found.load()
    if isinstance(factory, Task):
        return []
    # How an env is shown is the command's affair.
    settable = {name: default for name, default in found.options().items() if name != "render_mode"}
    options = function_options(factory, settable, "env.")
    return [_rows_option(option) if option.name.removeprefix("env.") in ROWS else option for option in options]


def open_sections(found: EnvSpec) -> tuple[str, ...]:
    """Sections whose options nobody can list: `env` if the factory takes options it does not name."""
    factory = found.load()
    return () if isinstance(factory, Task) or not keyword_options(factory).open_ended else ("env",)


def make_env(found: EnvSpec, options: Mapping[str, Any], *, render_mode: str | None = None) -> ParallelEnv:
    """The environment, with rows read from their files.

    Raises:
        UsageError: if an option cannot be, or rows cannot be read.
    """
    with bad_input(f"{found.id}: "):
        return found.make(render_mode=render_mode, **{name: _rows(name, value) for name, value in options.items()})


def env_of_team(found: EnvSpec, options: Mapping[str, Any]) -> BranchingEnv:
    """The environment that a team of models plays.

    Args:
        found: what is made.
        options: of its factory.

    Raises:
        UsageError: as `make_env`, and for a parallel env that cannot branch.
    """
    from llm_envs.env import BranchingEnv

    env = make_env(found, options)
    if not isinstance(env, BranchingEnv):
        raise UsageError(f"{found.id} gives a {type(env).__name__}; playing it with models needs a Task or a BranchingEnv")
    return env


def description(found: EnvSpec) -> str:
    """What an env is, in a line: the first paragraph of its factory's docstring."""
    factory = found.load()
    if isinstance(factory, Task):
        return f"the task {factory.name}"
    return " ".join((factory.__doc__ or "no docstring").strip().split("\n\n")[0].split())


def _module_of(path: Path) -> str:
    """The module of a file, importable from now on with what lies beside it."""
    path = path.resolve()
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    sys.path.insert(0, str(path.parent))
    importlib.invalidate_caches()
    found = importlib.util.find_spec(path.stem)
    if found is None or found.origin is None or Path(found.origin).resolve() != path:
        raise UsageError(f"{path}: another module is called {path.stem!r} too; rename the file")
    return path.stem


def _rows_option(option: Option) -> Option:
    text = f"{option.help} Or the path of a .jsonl or .json file of rows.".strip()
    return Option(option.name, str | list[dict[str, Any]] | None, option.default, text)


def _rows(name: str, value: Any) -> Any:
    if name not in ROWS or not isinstance(value, str):
        return value
    path = Path(value).expanduser()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return json.loads(text)
