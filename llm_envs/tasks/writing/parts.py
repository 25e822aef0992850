"""One agent's text that holds both parts, and how it is taken apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

SEPARATOR = "[PARAGRAPH_SPLIT]"
"""Stands between the two parts."""

_SECOND_LABEL = re.compile(r"^[ \t]*paragraph 2[ \t]*:", re.IGNORECASE | re.MULTILINE)
_LABEL = re.compile(r"\A\s*paragraph [12][ \t]*:", re.IGNORECASE)


def parts_of(texts: Sequence[str]) -> tuple[str, str]:
    """The two parts of a joint answer: two agents' texts as they are, one agent's text taken apart (`split_parts`)."""
    if len(texts) == 1:
        return split_parts(texts[0])
    first, second = texts
    return first, second


def split_parts(text: str) -> tuple[str, str]:
    """The parts before and after the first separator, else before and after a line that begins with `Paragraph 2:`.

    Without either the whole text is the first part and the second is empty. A label `Paragraph 1:` or `Paragraph 2:` in front of a
    part is dropped, and so is space around it.
    """
    first, found, second = text.partition(SEPARATOR)
    if not found:
        label = _SECOND_LABEL.search(text)
        first, second = (text, "") if label is None else (text[: label.start()], text[label.end() :])
    return _LABEL.sub("", first).strip(), _LABEL.sub("", second).strip()


def joined(first: str, second: str) -> str:
    """One agent's text that holds both parts."""
    return f"{first}\n{SEPARATOR}\n{second}"
