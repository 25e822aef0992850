"""Answers in fences: what a family reads of a completion that may have text around its answer.

Every family whose answers have a form (programs, calls, commands, slots) reads them by this one rule, so that a right answer earns
the same however a model wraps it. It is CommonMark's, read leniently where models are careless.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection
from dataclasses import dataclass, field

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)")
_LANGUAGE = re.compile(r"[A-Za-z][\w+#.-]*(?=\s|$)")
_DEEPER = 3
"""Columns by which a closing fence may stand further right than the opening one; fences in docstrings stand further in."""


@dataclass
class _Block:
    """Lines between two fences.

    Attributes:
        fence: that opened it.
        indent: columns before the fence.
        language: in lower case; "" without one.
        start: number of the line with the fence.
        before: what stands in front of the fence in its line.
        lines: of the block.
        closed: whether a fence without a language ended it.
    """

    fence: str
    indent: int
    language: str
    start: int
    before: str = ""
    lines: list[str] = field(default_factory=list)
    closed: bool = False

    def ends_with(self, fence: re.Match[str]) -> bool:
        """Whether a line's fence is one of its ends."""
        character = self.fence[0]
        alike = fence[2][0] == character and len(fence[2]) >= len(self.fence) and character not in fence[3]
        return alike and _width(fence[1]) <= self.indent + _DEEPER

    def __str__(self) -> str:
        return textwrap.dedent("\n".join(self.lines))


def fenced_text(text: str, answer: re.Pattern[str], languages: Collection[str] | None = None) -> str:
    """What is read of a completion: the contents of its fenced blocks, one after the other, or all of it if there is no block.

    A block opens with a line of three or more backticks or tildes, whose first word is its language, or with backticks at the end
    of a line of text; what stands behind the fence and names no language is its first line. It ends with a fence of the same
    character that is at least as long, on a line or at the end of one, or else with the text. A shorter fence, and one that is
    indented by more than three columns more, belongs to the block; one with a language ends it and opens the next. A line that
    begins with inline code of three or more backticks (```` ```f()``` ````) has blocks of that. Common indentation is taken off
    each block. Line ends are those of Unix.

    A fence without a language that stands after text and is not closed says little: the prompt may have opened a block that it
    closes, or the text was cut off. What stands before it is then the block if an answer begins there, or if none begins after it.

    Args:
        text: the completion.
        answer: how a line of an answer begins; only asked in that last case.
        languages: in lower case, "" for none; blocks of other ones are left out with their contents. None reads all: so do families
            whose answers people give several names.
    """
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    blocks, outside = _blocks(lines)
    if blocks and _closes_what_was_before(blocks[0], lines, answer):
        first = blocks[0]
        first.lines = [*lines[: first.start], *([first.before] if first.before else [])]
    read = [block for block in blocks if languages is None or block.language in languages]
    return "\n".join([str(block) for block in read if any(map(str.strip, block.lines))] if read else outside)


def _blocks(lines: list[str]) -> tuple[list[_Block], list[str]]:
    """The blocks, and the lines in none of them."""
    blocks: list[_Block] = []
    outside: list[str] = []
    inside: _Block | None = None
    for number, line in enumerate(lines):
        if inside is not None:
            inside = _continued(inside, line, number, blocks)
        elif spans := _spans(line, number):
            blocks += spans
        elif (inside := _opened(line, number)) is not None:
            blocks.append(inside)
            outside += [inside.before] if inside.before else []
        else:
            outside.append(line)
    return blocks, outside


def _continued(block: _Block, line: str, number: int, blocks: list[_Block]) -> _Block | None:
    """The block that goes on after a line of this one: itself, the next, or none."""
    character, least = block.fence[0], len(block.fence)
    found = _FENCE.fullmatch(line)
    if found is not None and block.ends_with(found):
        language = _LANGUAGE.match(found[3])
        block.closed = language is None
        if language is None:
            return None
        blocks.append(_Block(found[2], _width(found[1]), language[0].lower(), number))
        return blocks[-1]
    rest = line.rstrip()
    content = rest.rstrip("`")
    if character == "`" and len(rest) - len(content) >= least and content.strip() and "`" not in content:
        block.lines.append(content)
        block.closed = True
        return None
    block.lines.append(line)
    return block


def _opened(line: str, number: int) -> _Block | None:
    """The block that a line opens."""
    found = _FENCE.fullmatch(line)
    if found is not None:
        indent, fence, info = _width(found[1]), found[2], found[3].strip()
        if fence[0] == "`" and "`" in info:
            return None
        language = _LANGUAGE.match(info)
        if language is not None:
            return _Block(fence, indent, language[0].lower(), number)
        return _Block(fence, indent, "", number, lines=[info] if info else [])
    before, fence, info = line.partition("```")
    more = info.lstrip("`")
    fence, language = fence + "`" * (len(info) - len(more)), more.strip()
    if fence and "`" not in more and (not language or _LANGUAGE.fullmatch(language)):
        return _Block(fence, 0, language.lower(), number, before)
    return None


def _spans(line: str, number: int) -> list[_Block]:
    """Inline code of three or more backticks in a line that begins with it, as blocks of one line."""
    found = _FENCE.fullmatch(line)
    if found is None or "`" not in found[3] or found[2][0] != "`":
        return []
    pieces = line.split(found[2])[1:-1:2]
    return [_Block(found[2], 0, "", number, lines=[piece.strip()], closed=True) for piece in pieces if piece.strip("` ")]


def _closes_what_was_before(block: _Block, lines: list[str], answer: re.Pattern[str]) -> bool:
    """Whether the first fence of a text ends an answer that stands in front of it."""
    before = [*lines[: block.start], block.before]
    if block.closed or block.language or not any(map(str.strip, before)):
        return False
    return any(map(answer.match, before)) or not any(map(answer.match, block.lines))


def _width(blanks: str) -> int:
    return len(blanks.expandtabs(4))
