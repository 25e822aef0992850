"""Texts as numbers of a fixed shape: tokens with an end and a padding id, for libraries that know arrays alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

MOST_IDS = 2**24
"""Ids below it are exact in float32, which all consumers' default networks take."""


@runtime_checkable
class Tokenizer(Protocol):
    """What turns texts into ids and back. Any object with these will do; it needs no special ids of its own."""

    @property
    def vocab_size(self) -> int:
        """Ids are 0 to `vocab_size` − 1."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """The ids of a text, "" included, without special ones."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """A text for any ids whatever, also such as no text has."""
        ...


class ByteTokenizer:
    """The bytes of a text's UTF-8 form: 256 ids, every text, nothing to download. Bytes that are no text decode to U+FFFD."""

    vocab_size = 256

    def encode(self, text: str) -> Sequence[int]:
        """The bytes of the text."""
        return text.encode()

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the bytes."""
        return bytes(ids).decode("utf-8", "replace")


class Vocabulary:
    """A tokenizer's ids and two more: `end`, which closes a completion, and `pad`, which stands for nothing.

    Args:
        tokenizer: of the texts; bytes by default.

    Raises:
        TypeError: if it lacks a method.
        ValueError: for a `vocab_size` that is no positive number, or so large that float32 could not hold its ids.
    """

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self.tokenizer = ByteTokenizer() if tokenizer is None else tokenizer
        if not isinstance(self.tokenizer, Tokenizer):
            raise TypeError(f"a tokenizer has vocab_size, encode(text) and decode(ids), got {tokenizer!r}")
        size = self.tokenizer.vocab_size
        if not isinstance(size, (int, np.integer)) or not 1 <= size <= MOST_IDS - 2:
            raise ValueError(f"vocab_size of {type(self.tokenizer).__name__} must be from 1 to {MOST_IDS - 2}, got {size!r}")
        self.end = int(size)
        self.pad = int(size) + 1
        self.size = int(size) + 2

    def space(self, length: int) -> spaces.Box:
        """The space of `length` ids: float32, since networks multiply them (integers fail in several libraries' defaults)."""
        return spaces.Box(0, self.size - 1, (length,), np.float32)

    def newest(self, text: str, length: int) -> NDArray[np.float32]:
        """[length] the last ids of the text, padded in front: its end always stands at the end."""
        ids = self._encoded(text)[-length:] if length else ()
        return self._filled(ids, slice(length - len(ids), length), length)

    def first(self, text: str, length: int) -> NDArray[np.float32]:
        """[length] the first ids of the text, padded behind."""
        ids = self._encoded(text)[:length]
        return self._filled(ids, slice(0, len(ids)), length)

    def written(self, ids: Sequence[int], length: int) -> NDArray[np.float32]:
        """[length] ids as they were written, padded behind."""
        return self._filled(ids, slice(0, len(ids)), length)

    def text(self, ids: Sequence[int]) -> str:
        """The text of the ids up to the first `end`, or of all. A `pad` among them writes nothing."""
        kept: list[int] = []
        for one in ids:
            if one == self.end:
                break
            if one != self.pad:
                kept.append(one)
        return self.tokenizer.decode(kept)

    def _filled(self, ids: Sequence[int], place: slice, length: int) -> NDArray[np.float32]:
        filled = np.full(length, self.pad, np.float32)
        filled[place] = np.frombuffer(ids, np.uint8) if isinstance(ids, bytes) else ids
        return filled

    def _encoded(self, text: str) -> Sequence[int]:
        ids = self.tokenizer.encode(text)
        if not isinstance(ids, bytes) and len(ids) and not 0 <= min(ids) <= max(ids) < self.end:
            name = type(self.tokenizer).__name__
            raise ValueError(f"{name}.encode gave ids from {min(ids)} to {max(ids)}, vocab_size is {self.end}: {text[:100]!r}")
        return ids


def as_ids(action: Any, length: int, size: int, what: str) -> list[int]:
    """The action as ids: a list, or an array of whatever integer type, with as many entries as wanted.

    Args:
        action: of whatever library.
        length: entries wanted.
        size: ids are below it.
        what: the action is, for messages.

    Raises:
        TypeError: if the entries are no whole numbers.
        ValueError: for another number of entries, or ids that are none.
    """
    array = np.asarray(action)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what} must be whole numbers, got {array.dtype}: {action!r}")
    if array.size != length:
        raise ValueError(f"{what} must have {length} entries, got the shape {array.shape}")
    ids = array.reshape(-1).tolist()
    if not 0 <= min(ids) <= max(ids) < size:
        raise ValueError(f"{what} must be from 0 to {size - 1}, got {min(ids)} to {max(ids)}")
    return ids


def checked_length(name: str, value: int, least: int = 1) -> int:
    """The length, if it is one.

    Raises:
        ValueError: naming the option, for anything but a whole number of at least `least`.
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)
