"""Checks of options that many tasks have: each says which option is wrong, its value, and what is expected."""

from __future__ import annotations

from collections.abc import Sequence


def checked_count(option: str, value: object, least: int) -> int:
    """The value if it is a whole number of at least `least`.

    Raises:
        ValueError: naming the option.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{option} must be a whole number of at least {least}, got {value!r}")
    return value


def checked_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices.

    Raises:
        ValueError: naming the option.
    """
    if value not in choices:
        raise ValueError(f"{option} must be one of {', '.join(choices)}, got {value!r}")


def checked_flags(**flags: object) -> None:
    """Refuse what is neither True nor False.

    Raises:
        TypeError: naming the option.
    """
    for option, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{option} must be True or False, got {value!r}")
