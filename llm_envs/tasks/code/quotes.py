"""Typographic quotes, which word processors and some models write in programs."""

from __future__ import annotations

_PLAIN = str.maketrans(
    {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'"}
)


def plain_quotes(code: str) -> str:
    """The code with straight quotes in the place of typographic ones."""
    return code.translate(_PLAIN)
