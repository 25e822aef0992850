"""What teams of programmers choose about their turns, whatever they program: tries, feedback, time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from llm_envs.sandbox import Limits
from llm_envs.tasks.code.experts import Expert
from llm_envs.tasks.options import checked_choice, checked_count, checked_flags

Mode: TypeAlias = Literal["plain", "passed", "level_passed", "level_feedback", "expert_edits", "bandit"]
MODES: tuple[str, ...] = get_args(Mode)
KnownFaults: TypeAlias = Literal["skip", "keep"]
"""What to do about rows or tests of a data set that are known to be wrong: they are no signal unless they are to be kept."""

ENDLESS_CALLS = 3
"""After so many calls that use up their time nothing more of a program is tried."""


@dataclass(frozen=True, kw_only=True)
class TurnOptions:
    """How often a team tries, and what it is told in between.

    Attributes:
        num_turns: tries; 1 if the feedback is "bandit".
        feedback: what is said between turns (`Mode`).
        reveal_hidden: whether feedback is about the hidden tests too.
        original_prompt: whether later prompts repeat the first one.
        previous_response: whether an agent is shown its last answer.
        expert: who suggests edits; with the feedback "expert_edits" and only then.
        cpu_seconds: CPU time of one check; a program has `ENDLESS_CALLS` times as much.

    Raises:
        ValueError, TypeError: naming the option and its value.
    """

    num_turns: int = 1
    feedback: Mode = "level_feedback"
    reveal_hidden: bool = False
    original_prompt: bool = True
    previous_response: bool = True
    expert: Expert | None = None
    cpu_seconds: float = 3.0

    def __post_init__(self) -> None:
        checked_count("num_turns", self.num_turns, 1)
        checked_choice("feedback", self.feedback, MODES)
        checked_flags(
            reveal_hidden=self.reveal_hidden, original_prompt=self.original_prompt, previous_response=self.previous_response
        )
        if self.feedback == "expert_edits" and not callable(self.expert):
            raise ValueError(f"feedback='expert_edits' needs an expert, a function from messages to a text, got {self.expert!r}")
        if self.feedback != "expert_edits" and self.expert is not None:
            raise ValueError(f"expert={self.expert!r} goes with feedback='expert_edits', not with {self.feedback!r}")
        _ = self.limits  # checks them
        if self.feedback == "bandit":
            object.__setattr__(self, "num_turns", 1)

    @property
    def limits(self) -> Limits:
        """What the sandbox allows a program."""
        seconds = self.cpu_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise TypeError(f"cpu_seconds must be a number, got {seconds!r}")
        return Limits(cpu_seconds=seconds, total_cpu_seconds=ENDLESS_CALLS * seconds)


def tell_known_faults(name: str, left_out: Mapping[str, str]) -> None:
    """Writes into the log, as information, what is left out because it is known to be wrong, and why; nothing if nothing is.

    Args:
        name: id of the environment.
        left_out: rows or tests, with the reasons.
    """
    if left_out:
        listing = "; ".join(f"{one} ({reason})" for one, reason in left_out.items())
        logging.getLogger(__name__).info("%s: known_faults='skip' leaves out %d: %s", name, len(left_out), listing)
