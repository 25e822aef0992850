"""Program text in completions: fences off, and what word processors, web pages and lists do to code undone."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from llm_envs.tasks.code.quotes import plain_quotes

MOST_CHARACTERS = 50_000
"""So much of a program is read."""

_FENCE = re.compile(r"\s*(?:```|~~~)\s*([\w+-]*)")
_PYTHON = ("", "python", "python3", "py")
_DEFINITION = re.compile(r"\s*(?:async\s+def|def|class)\s+\w")
# Spaces of Unicode that Python does not take for indentation, and the mark that some editors put in front of a file.
_INDENTATION = re.compile(r"^[ \t\u00a0\u2000-\u200b\u202f\u205f\u3000\ufeff]+", re.MULTILINE)


def unfenced(text: str) -> str:
    """The text of the fenced blocks, or the whole text without any. A block that is not closed goes to the end.

    One fence alone without a language, after text, either closes a block that the prompt has opened or opens one that is cut off:
    the program is what stands before if a function or class is defined there, or if none is defined after.
    """
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    fences = [(number, match[1].lower()) for number, line in enumerate(lines) if (match := _FENCE.match(line))]
    if not fences:
        return "\n".join(lines)
    if len(fences) == 1 and not fences[0][1] and "".join(lines[: fences[0][0]]).strip():
        before, after = lines[: fences[0][0]], lines[fences[0][0] + 1 :]
        return "\n".join(after if _defines(after) and not _defines(before) else before)
    inside: list[str] = []
    for (start, language), end in zip(fences[::2], [*(number for number, _ in fences[1::2]), len(lines)], strict=False):
        if language in _PYTHON:
            inside += textwrap.dedent("\n".join(lines[start + 1 : end])).split("\n")
    return "\n".join(inside)


def shortened(code: str) -> str:
    """The whole lines of a code's first `MOST_CHARACTERS` characters; all of it if it is not longer."""
    return code if len(code) <= MOST_CHARACTERS else code[:MOST_CHARACTERS].rpartition("\n")[0]


def mended(code: str) -> Iterator[str]:
    """What a code that does not parse may have been, the smallest change first.

    Spaces of Unicode in the indentation become plain ones, NULs at the end go, and if all lines are indented none is; then
    typographic quotes become plain ones too.
    """
    plain = _INDENTATION.sub(lambda match: re.sub(r"[^ \t]", _space, match[0]), code.rstrip("\0 \t\n"))
    dedented = textwrap.dedent(plain) + "\n"
    yield dedented
    straight = plain_quotes(dedented)
    if straight != dedented:
        yield straight


def _space(match: re.Match[str]) -> str:
    return "" if match[0] in "\u200b\ufeff" else " "


def _defines(lines: list[str]) -> bool:
    return any(map(_DEFINITION.match, lines))
