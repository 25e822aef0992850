"""A text space that real completions belong to, known to gymnasium's batching, flattening and shared memory."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Sequence
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatten, unflatten
from gymnasium.vector.utils import batch_differing_spaces, create_empty_array, read_from_shared_memory
from numpy.typing import NDArray

# Random play writes short plain text: a sample as long as `max_length` would fill the other agents' prompts.
SAMPLE_CHARACTERS = string.ascii_letters + string.digits + " .,:;!?-\n"
SAMPLE_LENGTH = 32

# Code points U+D800 to U+DFFF are halves of UTF-16 pairs: legal in a Python str, but no characters, and UTF-8 has no form for them.
_FIRST_SURROGATE, _AFTER_SURROGATES, _END = 0xD800, 0xE000, 0x110000
_GAP = _AFTER_SURROGATES - _FIRST_SURROGATE


class _Characters(Sequence[str]):
    """Every Unicode character in order, as a rule instead of a list of a million: set and sequence in one."""

    def __len__(self) -> int:
        return _END - _GAP

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        return chr(position if position < _FIRST_SURROGATE else position + _GAP)

    def __iter__(self) -> Iterator[str]:
        return map(chr, itertools.chain(range(_FIRST_SURROGATE), range(_AFTER_SURROGATES, _END)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.str_]:
        # Drawing under a mask makes an array of all characters; in memory it is their code points, one after the other.
        codes = np.concatenate([np.arange(_FIRST_SURROGATE), np.arange(_AFTER_SURROGATES, _END)])
        return codes.astype("=u4").view("=U1").astype(dtype or np.str_)

    def __contains__(self, character: object) -> bool:
        return isinstance(character, str) and len(character) == 1 and is_unicode(character)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Characters)

    def __hash__(self) -> int:
        return hash(_Characters)


_UNICODE = _Characters()


class UnicodeText(spaces.Text):
    """All texts of up to `max_length` code points that UTF-8 can write, the empty one included.

    gymnasium's `Text` holds its characters one by one, which for all of Unicode takes seconds and hundreds of megabytes. Here the
    set is a rule: any `str` without lone surrogates. Samples are short and plain, as only a length and an alphabet make random play
    useful.

    Args:
        max_length: in code points.
        seed: of the sampler.
    """

    def __init__(self, max_length: int = 2**20, *, seed: int | np.random.Generator | None = None) -> None:
        if not isinstance(max_length, (int, np.integer)) or isinstance(max_length, bool) or max_length < 1:
            raise ValueError(f"max_length must be a whole number of at least 1, got {max_length!r}")
        # Not `Text.__init__`, which would build the sets that this class is there to avoid.
        spaces.Space.__init__(self, dtype=str, seed=seed)
        self.min_length = 0
        self.max_length = int(max_length)

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text of at most `max_length` code points without lone surrogates."""
        return isinstance(x, str) and len(x) <= self.max_length and is_unicode(x)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short plain text; under a mask or probabilities, what gymnasium's `Text` would draw from all of Unicode."""
        if mask is not None or probability is not None:
            return super().sample(mask, probability)
        length = self.np_random.integers(0, min(SAMPLE_LENGTH, self.max_length) + 1)
        return "".join(self.np_random.choice(list(SAMPLE_CHARACTERS), size=length))

    @property
    def character_set(self) -> Any:
        """All of Unicode: `in`, `len` and `==` as a set has them."""
        return _UNICODE

    @property
    def character_list(self) -> Any:
        """All of Unicode, in order: indexing and `len` as a tuple has them."""
        return _UNICODE

    @property
    def characters(self) -> str:
        """All of Unicode as one text (a million characters, built at each call)."""
        return "".join(_UNICODE)

    def character_index(self, char: str) -> np.int32:
        """The character's position among all."""
        if char not in _UNICODE:
            raise KeyError(char)
        return np.int32(ord(char) if ord(char) < _FIRST_SURROGATE else ord(char) - _GAP)

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]  # as gymnasium's spaces: equal by value, mutable by seeding


def is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogate, so that UTF-8 can write it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean_text(text: object, what: str = "this") -> str:
    """A plain `str` of the text (foreign libraries hand over `np.str_` and 0-d arrays).

    Surrogates that form a pair become the character they stand for, lone ones become U+FFFD.

    Args:
        text: of any string type.
        what: it is, for the error.

    Raises:
        TypeError: if it is no text.
    """
    if isinstance(text, np.ndarray) and text.ndim == 0:
        text = text.item()
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a text, got {type(text).__name__}: {text!r}")
    plain = str(text)
    return plain if is_unicode(plain) else plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ---- gymnasium's functions over spaces ----
# It dispatches on the type. What it has for `Text` is right here too, but walks through all `max_length` places in Python, or asks
# for the exact type, or (shared memory) reads the texts once and never again.


@flatten.register(UnicodeText)
def _flatten(space: UnicodeText, x: str) -> NDArray[np.int32]:
    places = np.full(space.max_length, len(_UNICODE), dtype=np.int32)
    codes = np.frombuffer(x.encode("utf-32-le"), dtype=np.int32)
    places[: len(codes)] = np.where(codes < _FIRST_SURROGATE, codes, codes - _GAP)
    return places


@unflatten.register(UnicodeText)
def _unflatten(space: UnicodeText, x: NDArray[np.int32]) -> str:
    places = x[x < len(_UNICODE)].astype(np.uint32)
    return np.where(places < _FIRST_SURROGATE, places, places + _GAP).astype("<u4").tobytes().decode("utf-32-le")


@batch_differing_spaces.register(UnicodeText)
def _batch_differing(texts: Sequence[UnicodeText]) -> spaces.Space:
    # gymnasium hands a list of the spaces to the function of their exact type.
    return batch_differing_spaces.dispatch(spaces.Text)(texts)


@create_empty_array.register(UnicodeText)
def _create_empty_array(space: UnicodeText, n: int = 1, fn: object = np.zeros) -> tuple[str, ...]:
    return ("",) * n


@read_from_shared_memory.register(UnicodeText)  # type: ignore[arg-type]  # a view, as an array is
def _read_from_shared_memory(space: UnicodeText, shared_memory: SynchronizedArray, n: int = 1) -> _SharedTexts:
    places = np.frombuffer(shared_memory.get_obj(), dtype=np.int32)  # type: ignore[call-overload]  # an array is a buffer
    return _SharedTexts(space, places.reshape(n, space.max_length))


class _SharedTexts(Sequence[str]):
    """Texts of several processes in shared memory, as they are when looked at: what an array is for other spaces.

    A vector env reads its shared memory once, when built, and copies it deeply at each step; so the copy is where texts are taken.
    """

    def __init__(self, space: UnicodeText, places: NDArray[np.int32]) -> None:
        self._space = space
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[str]:
        return (_unflatten(self._space, places) for places in self._places)

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)
