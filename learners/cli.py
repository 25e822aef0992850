"""`llm-marl`: finds the command and tells errors in one line. `learners/commands` does the rest."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from importlib import metadata

from learners.commands.errors import BAD_INPUT, FAILURE, INTERRUPTED, UsageError, missing_extra, one_line

# Imported when called: the help and the list of envs must not wait for torch.
COMMANDS = {
    "train": ("learners.commands.train", "train a team; with no options a small one, here, in a minute"),
    "evaluate": ("learners.commands.evaluate", "how good a trained run, or a team of models, is"),
    "envs": ("learners.commands.envs", "list the environments, or show one with a sample episode"),
    "check": ("learners.commands.check", "test an environment of your own, and what it pays careless teams"),
    "export": ("learners.commands.export", "write what a run recorded as rows for other libraries"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 2 for input that cannot be used, 1 for a failure, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    command = words[0] if words else "--help"
    label = f"llm-marl {command}" if command in COMMANDS else "llm-marl"
    try:
        return _dispatch(command, words[1:])
    except KeyboardInterrupt:
        print(f"{label}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; without this Python complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:
        if debug:
            raise
        print(f"{label}: error: {one_line(error)}{_advice(error)}", file=sys.stderr)
        return BAD_INPUT if isinstance(error, UsageError) else FAILURE


def _dispatch(command: str, words: Sequence[str]) -> int:
    if command in ("--help", "-h", "help"):
        print(_help())
        return 0
    if command == "--version":
        print(f"llm-marl {metadata.version('llm-envs')}")
        return 0
    if command not in COMMANDS:
        close = difflib.get_close_matches(command, COMMANDS)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UsageError(f"there is no command {command!r}{hint}; commands: {', '.join(COMMANDS)}")
    return importlib.import_module(COMMANDS[command][0]).run(list(words))


def _help() -> str:
    lines = [f"  {name:<10}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: llm-marl COMMAND [OPTIONS]",
            "",
            "Trains teams of language models that act together.",
            "",
            *lines,
            "",
            "  llm-marl COMMAND --help   the options of a command",
            "  llm-marl --version        the version",
            "  --debug                   with any command: show the traceback of an error",
        ]
    )


def _advice(error: Exception) -> str:
    expected = isinstance(error, UsageError) or missing_extra(error) is not None
    return "" if expected else " (--debug shows the traceback)"


if __name__ == "__main__":
    sys.exit(main())
