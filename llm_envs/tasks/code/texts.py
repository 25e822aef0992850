"""Program text in completions: fences off, and what word processors, web pages and lists do to code undone."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from llm_envs.tasks.code.parsing import parsed
from llm_envs.tasks.code.quotes import plain_quotes
from llm_envs.tasks.fences import fenced_text

MOST_CHARACTERS = 50_000
"""So much of a program is read."""

_PYTHON = ("", "python", "python3", "py")
_DEFINITION = re.compile(r"\s*(?:async\s+def|def|class)\s+\w")
# Spaces of Unicode that Python does not take for indentation, and the mark that some editors put in front of a file.
_INDENTATION = re.compile(r"^[ \t\u00a0\u2000-\u200b\u202f\u205f\u3000\ufeff]+", re.MULTILINE)


def unfenced(text: str) -> str:
    """The program text in a completion: of its fenced blocks of Python or of no named language, or else all of it (`fences`).

    A text that is a program as it stands is read as it is: fences in it are in its docstrings.
    """
    if any(fence in text for fence in ("```", "~~~")) and parsed(shortened(text))[0] is not None:
        return text
    return fenced_text(text, _DEFINITION, _PYTHON)


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
