"""How a command fails: in one line, with a status that says whose fault it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130
"""Exit statuses: the user's input cannot be used; something went wrong; stopped by Ctrl-C (128 + SIGINT)."""

EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "datasets": "train",
    "safetensors": "train",
    "jsonargparse": "train",
    "docstring_parser": "train",
    "rich": "train",
    "yaml": "train",
    "matplotlib": "train",
    "peft": "lora",
    "wandb": "wandb",
    "tensorboard": "tensorboard",
    "httpx": "api",
    "tenacity": "api",
}
"""Which extra of this distribution brings a module."""


class UsageError(Exception):
    """What the user gave cannot be used. The message names it and what is expected."""


@contextmanager
def bad_input(what: str = "") -> Iterator[None]:
    """Errors that say an input is wrong become `UsageError`: for building things, before anything runs.

    Args:
        what: put in front of the message, `--model: `.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        raise UsageError(f"{what}{error}") from error
    except OSError as error:
        raise UsageError(f"{what}{error.filename}: {error.strerror}" if error.filename else f"{what}{error}") from error
    except ImportError as error:
        if missing_extra(error) is not None:
            raise
        raise UsageError(f"{what}{error}") from error


def missing_extra(error: BaseException) -> str | None:
    """The extra of this distribution that would bring a module that was not found; None for any other error."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    return EXTRAS.get(error.name.partition(".")[0])


def one_line(error: BaseException) -> str:
    """The error for a person, without line breaks."""
    extra = missing_extra(error)
    if extra is not None:
        return f"{error}: pip install 'llm-envs[{extra}]'"
    text = " ".join(str(error).split())
    if isinstance(error, UsageError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
