"""A policy that follows a script: for tests of environments, learners and plumbing without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from llm_envs.seeding import Path
from llm_envs.types import Completion

Script: TypeAlias = Sequence[str] | Callable[[str, int, Path], str]
"""Texts, of which sample k is the k-th (round and round), or a function of prompt, k and key."""

END_TOKEN = 256
"""Token id of the end of a text. The others are the bytes of its UTF-8 form, 0 to 255."""


class ScriptedPolicy:
    """Writes what its script says, the same for the same prompt, sample index and key.

    Its completions are complete: token ids are bytes with an end token, and every log-probability is 0, since nothing was left to
    chance.

    Args:
        script: texts, of which sample k is the k-th (round and round), or `f(prompt, k, key) -> text`.

    Raises:
        ValueError: without texts.
    """

    def __init__(self, script: Script) -> None:
        if not callable(script) and (isinstance(script, str) or not script):
            raise ValueError(f"a script is at least one text in a list, or a function of prompt, k and key; got {script!r}")
        self.script = script

    def generate(self, prompts: Sequence[str], n: int, keys: Sequence[Path]) -> list[list[Completion]]:
        """`n` completions of each prompt, in order."""
        return [
            [completion_of(self.text(prompt, k, tuple(key)), prompt) for k in range(n)]
            for prompt, key in zip(prompts, keys, strict=True)
        ]

    def text(self, prompt: str, k: int, key: Path) -> str:
        """What is written as sample k of this prompt."""
        return self.script(prompt, k, key) if callable(self.script) else self.script[k % len(self.script)]


def completion_of(text: str, prompt: str = "") -> Completion:
    """The text as a completion in bytes that was certain."""
    ids = (*text.encode("utf-8", "surrogatepass"), END_TOKEN)
    return Completion(text, ids, (0.0,) * len(ids), tuple(prompt.encode("utf-8", "surrogatepass")), "stop")
