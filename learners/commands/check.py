"""`llm-marl check`: everything that can be said about an environment before anyone trains on it. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pettingzoo import ParallelEnv
from rich.console import Console

from learners.commands.display import console, number, option_help, print_table
from learners.commands.errors import FAILURE, UsageError
from learners.commands.options import dataclass_options
from learners.commands.parsing import leading_words, parse
from learners.commands.targets import env_options, find_env, make_env, open_sections
from llm_envs.env import BranchingEnv, TaskEnv


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of a check.

    Attributes:
        episodes: that the longer conformance checks play.
        rows: first rows of the data that each team of the reward audit plays.
        episodes_per_row: that it plays on each row.
        seed: of the random teams and of chance.
    """

    episodes: int = 3
    rows: int = 16
    episodes_per_row: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        for option, least in (("episodes", 1), ("rows", 1), ("episodes_per_row", 1), ("seed", 0)):
            if getattr(self, option) < least:
                raise ValueError(f"--{option} must be at least {least}, got {getattr(self, option)}")


def run(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status: 1 if something is wrong with the env."""
    if "--help" in argv or "-h" in argv:
        print(_help())
        return 0
    if not leading_words(argv):
        raise UsageError("what is to be checked? llm-marl check ENV (an id, module:factory or path/to/file.py:factory)")
    spec = find_env(argv[0])
    parsed = parse([*env_options(spec), *dataclass_options(CheckOptions)], argv[1:], open_sections=open_sections(spec))
    options, made = parsed.built(CheckOptions), parsed.section("env")
    return FAILURE if _failures(lambda: make_env(spec, made), spec.id, options, console()) else 0


def _failures(make: Callable[[], ParallelEnv], name: str, options: CheckOptions, out: Console) -> int:
    """How many parts of the check failed; everything is printed."""
    from llm_envs.testing import check_env, check_task

    env = make()
    out.print(f"{name}: {type(env).__name__} with {', '.join(env.possible_agents)}", style="bold")
    failed = 0
    if isinstance(env, TaskEnv):
        failed += _part("task", lambda: check_task(env.task), out)
    failed += _part("environment: PettingZoo's tests and ours", lambda: check_env(make, episodes=options.episodes), out)
    if isinstance(env, BranchingEnv):
        failed += _audit(env, options, out)
    else:
        out.print("\nreward audit: left out, it needs a Task or a BranchingEnv")
    out.print()
    out.print("FAILED" if failed else "passed", style="bold red" if failed else "bold green")
    return failed


def _part(title: str, check: Callable[[], Sequence[str]], out: Console) -> int:
    """Run a check and print what holds; 1 if it fails."""
    from llm_envs.testing import ConformanceError

    out.print(f"\n{title}", style="bold")
    try:
        held = check()
    except ConformanceError as error:
        print_table(out, [("FAIL", " ".join(str(error).split()))])
        return 1
    print_table(out, [("ok", rule) for rule in held])
    return 0


def _audit(env: BranchingEnv, options: CheckOptions, out: Console) -> int:
    """Print what teams of all kinds earn; 1 if the reward fails on one of them."""
    from llm_envs.rewards import RewardError
    from llm_envs.testing import audit_rewards

    out.print("\nreward audit: what teams earn that do not try", style="bold")
    try:
        audit = audit_rewards(env, rows=options.rows, episodes_per_row=options.episodes_per_row, seed=options.seed)
    except (RewardError, ValueError) as error:
        print_table(out, [("FAIL", " ".join(str(error).split()))])
        return 1
    rows = [(entry.team, number(entry.mean), number(entry.min), number(entry.max)) for entry in audit.teams]
    print_table(out, rows, ("team", "mean", "min", "max"))
    out.print(f"returns over {audit.episodes} episodes, averaged over the agents")
    for warning in audit.warnings:
        out.print(f"warning: {warning}", style="yellow")
    return 0


def _help() -> str:
    return option_help(
        "llm-marl check ENV [--env.OPTION VALUE]... [--OPTION VALUE]...",
        "Check an environment (an id, module:factory or path/to/file.py:factory): the task on its own rows, PettingZoo's tests, "
        "the rules that other libraries rely on, and what teams earn that do not try: empty, constant, copied, longest and random "
        "texts, and the reference solution if there is one. Exit status 1 if something fails; warnings of the audit do not count.",
        [("options", dataclass_options(CheckOptions))],
    )
