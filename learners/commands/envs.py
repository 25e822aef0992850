"""`llm-marl envs`: the list of environments, or one of them with a sample episode. Loads no torch."""

from __future__ import annotations

from collections.abc import Sequence

from pettingzoo import ParallelEnv
from rich.console import Console

from learners.commands.display import console, option_help, option_lines, print_table
from learners.commands.errors import UsageError, one_line
from learners.commands.options import Option
from learners.commands.parsing import leading_words, parse
from learners.commands.targets import description, env_options, find_env, make_env, open_sections
from llm_envs.env import BranchingEnv
from llm_envs.registry import list_envs
from llm_envs.task import has_length

_SEED = Option("seed", int, 0, "of the sample episode's draws and chance.")


def run(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    if "--help" in argv or "-h" in argv:
        print(_help())
        return 0
    if leading_words(argv):
        _show(argv[0], argv[1:], console())
    else:
        parse([], argv)
        _list(console())
    return 0


def _list(out: Console) -> None:
    print_table(out, [(name, _description(name)) for name in list_envs()], ("env", "what it is"))
    out.print()
    out.print("llm-marl envs ID shows one: its options, spaces and a sample episode")


def _description(name: str) -> str:
    try:
        return description(find_env(name))
    except UsageError as error:
        # One package that is broken must not hide the others.
        return f"cannot be loaded: {one_line(error)}"


def _show(target: str, argv: Sequence[str], out: Console) -> None:
    spec = find_env(target)
    options = env_options(spec)
    parsed = parse([*options, _SEED], argv, open_sections=open_sections(spec))
    env = make_env(spec, parsed.section("env"))
    out.print(f"{spec.id} ({spec.source})", style="bold")
    out.print(description(spec))
    out.print()
    out.print("options", style="bold")
    for line in [line for option in options for line in option_lines(option)] or ["  none"]:
        out.print(line, soft_wrap=True)
    out.print()
    _show_face(env, out)
    if isinstance(env, BranchingEnv):
        _show_episode(env, parsed.values["seed"], out)


def _show_face(env: ParallelEnv, out: Console) -> None:
    out.print("env", style="bold")
    rows = [("agents", ", ".join(env.possible_agents))]
    if isinstance(env, BranchingEnv):
        rows += [("turns", f"at most {env.num_turns}"), ("items", _count(env.items)), ("eval items", _count(env.eval_items))]
    for agent in env.possible_agents:
        rows += [(f"{agent} observes", str(env.observation_space(agent))), (f"{agent} acts in", str(env.action_space(agent)))]
    print_table(out, rows)


def _count(items: object) -> str:
    if items is None:
        return "none"
    return f"{len(items)}" if has_length(items) else "no length"


def _show_episode(env: BranchingEnv, seed: int, out: Console) -> None:
    from llm_envs.testing import ScriptedPolicy, transcript
    from llm_envs.testing.episodes import first_rows, random_words, reference_of, reference_team

    reference = reference_of(env)
    if reference is None:
        team, how = dict.fromkeys(env.possible_agents, ScriptedPolicy(random_words)), "random words of the prompts"
    else:
        ((_, item),) = first_rows(env, None, 1)
        team, how = reference_team(env, reference, item), "the task's reference solution"
    out.print()
    out.print(f"a sample episode: {how}", style="bold")
    out.print(transcript(env, team, rows=1, seed=seed).rstrip())


def _help() -> str:
    return option_help(
        "llm-marl envs\n       llm-marl envs ENV [--env.OPTION VALUE]... [--seed N]",
        "List the environments there are; or show one (an id, module:factory or path/to/file.py:factory): its options, agents, "
        "spaces and a sample episode, played by the task's reference solution or at random.",
        [("with an ENV", [_SEED])],
    )
