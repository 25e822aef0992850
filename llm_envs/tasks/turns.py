"""What tasks of several turns share: feedback in front of the first prompt, and a reward that makes early success pay."""

from __future__ import annotations

from collections.abc import Mapping

from llm_envs.types import ChatPrompt


def turn_weight(solved: bool, turn: int, num_turns: int) -> float:
    """What a turn's score is multiplied by, so that a return over `num_turns` turns is a mean over turns.

    A turn counts 1/H. A solution ends the episode and is paid for the turns it saves too, (H − t + 1)/H: solving earlier always
    earns more, and playing on for partial scores never does.

    Args:
        solved: whether the turn ended the episode with the best score.
        turn: t, from 1.
        num_turns: H.
    """
    return (num_turns - turn + 1) / num_turns if solved else 1 / num_turns


def with_feedback(feedback: str, first_prompt: str) -> str:
    """The prompt of a later turn: the feedback, then what the agent read first; a conversation gets it as a further message."""
    if isinstance(first_prompt, ChatPrompt):
        return ChatPrompt([*first_prompt.messages, {"role": "user", "content": feedback}])
    return f"{feedback} {first_prompt}"


def next_prompt(first: str | None, last: str | None, diagnosis: str, request: str) -> str:
    """What an agent reads in a later turn.

    Args:
        first: its first prompt, None if it is not repeated.
        last: its last answer, None if it is not shown.
        diagnosis: of the answer; empty for none.
        request: what it should write now.
    """
    shown = None if last is None else f"Your last answer was:\n{last}"
    return "\n\n".join(part for part in (first, shown, diagnosis or None, request) if part is not None)


def weighed(terms: Mapping[str, float], factors: Mapping[str, float], weight: float) -> dict[str, float]:
    """A turn's terms: those that are paid times the turn's weight (`turn_weight`), those with no factor or 0 as they are."""
    return {name: value * weight if factors.get(name) else value for name, value in terms.items()}
