"""A text space that real completions belong to."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from gymnasium import spaces

# Random play writes short plain text: a sample as long as `max_length` would fill the other agents' prompts.
SAMPLE_CHARACTERS = string.ascii_letters + string.digits + " .,:;!?-\n"
SAMPLE_LENGTH = 32


class UnicodeText(spaces.Text):
    """All texts of up to `max_length` code points that UTF-8 can write, the empty one included.

    gymnasium's `Text` holds its characters one by one, which for all of Unicode takes seconds and hundreds of megabytes. Here the set
    is a rule: any `str` without lone surrogates. `character_set` lists only what `sample` draws from.

    Args:
        max_length: in code points.
        seed: of the sampler.
    """

    def __init__(self, max_length: int = 2**20, *, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=SAMPLE_CHARACTERS, seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text of at most `max_length` code points without lone surrogates."""
        return isinstance(x, str) and len(x) <= self.max_length and is_unicode(x)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short plain text, or what gymnasium draws under a mask or probabilities of the listed characters."""
        if mask is not None or probability is not None:
            return super().sample(mask, probability)
        length = self.np_random.integers(0, min(SAMPLE_LENGTH, self.max_length) + 1)
        return "".join(self.np_random.choice(list(SAMPLE_CHARACTERS), size=length))

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]  # as gymnasium's spaces: equal by value, mutable by seeding


def is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogate, so that UTF-8 can write it."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def clean_text(text: object) -> str:
    """A plain `str` of the text (foreign libraries hand over `np.str_` and 0-d arrays), lone surrogates replaced by U+FFFD.

    Raises:
        TypeError: if it is no text.
    """
    if isinstance(text, np.ndarray) and text.ndim == 0:
        text = text.item()
    if not isinstance(text, str):
        raise TypeError(f"an action must be a text, got {type(text).__name__}: {text!r}")
    plain = str(text)
    return plain if is_unicode(plain) else plain.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
