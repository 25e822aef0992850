"""Experts that suggest edits between turns: anything that answers a conversation, and the reading of what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias

from llm_envs.types import ChatPrompt, Policy

MOST_ATTEMPTS = 100
"""Braces of an answer at which an object is looked for."""

Messages: TypeAlias = Sequence[Mapping[str, str]]
"""A conversation: `{"role": ..., "content": ...}` each."""


class Expert(Protocol):
    """Whoever gives advice: a chat endpoint, a policy (`PolicyExpert`), a rule."""

    def __call__(self, messages: Messages) -> str:
        """The answer to a conversation; the same to the same one, if episodes are to be repeatable. An exception stops the run."""
        ...


@dataclass(frozen=True)
class PolicyExpert:
    """A policy as an expert. It always draws from the same stream, so that its advice depends on the conversation alone.

    Attributes:
        policy: who writes.
        seed: of its draws.
    """

    policy: Policy
    seed: int = 0

    def __call__(self, messages: Messages) -> str:
        """One completion of the conversation."""
        ((completion,),) = self.policy.generate([ChatPrompt(messages)], 1, [(self.seed,)])
        return completion.text


def question(problem: str, texts: Mapping[str, str], diagnosis: str) -> list[dict[str, str]]:
    """What the expert is asked.

    Args:
        problem: the row's prompt.
        texts: what each programmer wrote, by the name of the function that it has to write.
        diagnosis: what is known about it.
    """
    keys = ", ".join(f'"{name}"' for name in texts)
    written = "\n\n".join(f"The text for `{name}`:\n{text}" for name, text in texts.items())
    return [
        {
            "role": "system",
            "content": "You review the code of programmers who solve a problem together and do not see each other's code. "
            f"Answer with one JSON object that has the keys {keys}: for each of these functions a list of short edits that its "
            "programmer should make. The list is empty where nothing has to change.",
        },
        {"role": "user", "content": f"The problem:\n{problem.strip()}\n\n{written}\n\nWhat is known:\n{diagnosis}"},
    ]


def read_suggestions(answer: str, names: Sequence[str]) -> dict[str, list[str]] | None:
    """The suggested edits for each function, from the first JSON object in the answer that names one; None if there is none.

    An edit is a text, or a list of texts; anything else under a name is no suggestion.
    """
    decoder = json.JSONDecoder()
    for brace in islice(re.finditer(r"\{", answer), MOST_ATTEMPTS):
        try:
            found, _ = decoder.raw_decode(answer, brace.start())
        except (json.JSONDecodeError, RecursionError):
            continue
        if isinstance(found, dict) and any(name in found for name in names):
            return {name: _edits(found.get(name)) for name in names}
    return None


def _edits(value: Any) -> list[str]:
    edits = [value] if isinstance(value, str) else value
    return [edit.strip() for edit in edits if isinstance(edit, str) and edit.strip()] if isinstance(edits, list) else []
