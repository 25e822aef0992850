"""Containers that both sides have, by number, and what was in them when the sides last agreed.

Each message carries the contents of those that were changed since the last. A test may thus keep a list that the solution
changes, or change one that the solution keeps, as in one process.
"""

from __future__ import annotations

import json
import operator
import sys
from collections.abc import Callable

from llm_envs.sandbox import codec
from llm_envs.sandbox.codec import Tree

dump: Callable[[Tree], str] = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
"""The text of a tree."""


class _Shared:
    """A container; `class_tree` is that of its class if this extends the container's.

    `entries` is what was in it when `text` was written, if that is told by what they are: each stays what it is.
    """

    __slots__ = ("class_tree", "entries", "kind", "more", "text", "value")

    def __init__(self, value: object, kind: str, class_tree: Tree = None) -> None:
        self.value = value
        self.kind = kind
        self.class_tree = class_tree
        self.text = ""
        self.more: Tree = None
        self.entries: list[object] | None = None


def _same(known: list[object] | None, entries: list[object]) -> bool:
    return known is not None and len(known) == len(entries) and all(map(operator.is_, known, entries))


def _counted_alone() -> int:
    lone = _Shared([], "list")
    return sys.getrefcount(lone.value)


class Sharing:
    """The containers.

    Args:
        pack, unpack: of one value in them.
        steady: whether a value's tree is the same as long as it is in a container.
        busy: not empty while containers are looked through; an ordered mapping compares its keys then.
        forgets: whether this side lets go of those that nobody else here has.
    """

    def __init__(
        self,
        pack: Callable[[object], Tree],
        unpack: Callable[[Tree], object],
        *,
        steady: Callable[[object], bool],
        busy: list[None],
        forgets: bool,
    ) -> None:
        self._pack = pack
        self._unpack = unpack
        self._steady = steady
        self._busy = busy
        self._forgets = forgets
        self._shared: dict[int, _Shared] = {}
        self._numbers: dict[int, int] = {}
        self._known: list[int] = []
        self._fresh: list[int] = []
        self._alone = _counted_alone()

    def __contains__(self, number: object) -> bool:
        return number in self._shared

    def __getitem__(self, number: int) -> object:
        return self._shared[number].value

    # ---- writing ----

    def begin(self) -> None:
        """A message begins."""
        self._fresh.clear()
        self._known = list(self._shared)

    def number_of(self, value: object) -> int | None:
        """The number of a container that both sides have; None for another."""
        return self._numbers.get(id(value))

    def show(self, number: int, value: object, kind: str, class_tree: Tree = None) -> None:
        """Makes a container one that both sides have, by the message that has begun."""
        self._shared[number] = _Shared(value, kind, class_tree)
        self._numbers[id(value)] = number
        self._fresh.append(number)

    def changes(self) -> tuple[list[str], list[int]]:
        """Texts of the containers that are new or were changed, and numbers of those that are forgotten from now on."""
        changed, forgotten = [], []
        for number in self._known:  # a container before those in it, so that one pass forgets all of them
            shared = self._shared[number]
            text = self._text(number, shared)
            if text != shared.text:
                shared.text = text
                changed.append(text)
            elif self._forgets and sys.getrefcount(shared.value) <= self._alone:
                forgotten.append(number)
                self.drop(number)
        for number in self._fresh:  # grows while it is read
            shared = self._shared[number]
            shared.text = self._text(number, shared)
            changed.append(shared.text)
        return changed, forgotten

    def take_back(self) -> None:
        """Forgets the containers that were new in the last message."""
        for number in self._fresh:
            self.drop(number)
        self._fresh.clear()

    def _text(self, number: int, shared: _Shared) -> str:
        self._busy.append(None)
        try:
            entries, more = codec.contents(shared.value, shared.kind), codec.extra(shared.value, shared.kind)
        finally:
            self._busy.pop()
        if shared.more == more and _same(shared.entries, entries):
            return shared.text
        class_trees = [] if shared.class_tree is None else [shared.class_tree]
        text = dump([number, shared.kind, more, [self._pack(entry) for entry in entries], *class_trees])
        shared.more, shared.entries = more, entries if all(map(self._steady, entries)) else None
        return text

    # ---- reading ----

    def accept(self, number: int, value: object, kind: str) -> None:
        """Takes over an empty container of the other side, to be filled by `refill`."""
        self._shared[number] = _Shared(value, kind)
        self._numbers[id(value)] = number

    def refill(self, changed: list[Tree]) -> None:
        """Puts new contents in place of the old ones."""
        for number, _, _, entries, *_ in changed:
            shared = self._shared[number]
            codec.refill(shared.value, shared.kind, entries, self._unpack)
        for number, *_ in changed:
            self._shared[number].text = self._text(number, self._shared[number])

    def drop(self, number: int) -> None:
        """Forgets a container, if there is one of that number."""
        if number in self._shared:
            del self._numbers[id(self._shared.pop(number).value)]
