"""Reading words out of completions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from llm_envs.types import Item

_WORD = re.compile(r"\w+(?:['-]\w+)*")


def words_of(text: str) -> list[str]:
    """The text's words in order, case folded, without punctuation around them."""
    return _WORD.findall(text.casefold())


def word_list(item: Item, field: str, at_least: int) -> list[str]:
    """The row's list of different words, case folded.

    Raises:
        KeyError: without the field.
        ValueError: naming the row, if it holds anything but `at_least` or more different single words.
    """
    words = item[field]
    if isinstance(words, str) or not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{field!r} must be a list of words, got {words!r} in the row {dict(item)!r}")
    folded = [word.casefold() for word in words]
    wrong = [word for word in folded if not _WORD.fullmatch(word)]
    if wrong:
        raise ValueError(f"{field!r} must hold single words, got {wrong[0]!r} in the row {dict(item)!r}")
    if len(set(folded)) < len(folded) or len(folded) < at_least:
        raise ValueError(f"{field!r} must hold at least {at_least} different words, got {words!r} in the row {dict(item)!r}")
    return folded
