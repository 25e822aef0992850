"""What writers read in later turns: their last text, and as much about it as the feedback's mode says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from llm_envs.tasks.turns import next_prompt
from llm_envs.tasks.writing.grounding import MEASURES
from llm_envs.tasks.writing.scoring import Judge, Verdict
from llm_envs.types import Item

Mode: TypeAlias = Literal["plain", "level_passed", "level_feedback"]
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True)
class Feedback:
    """The transition: everybody's next prompt, or the end after an answer that cannot be better.

    Attributes:
        judge: measures the answer again.
        mode: "plain" says nothing of it, "level_passed" which levels are full, "level_feedback" what was measured.
        original_prompt: whether the first prompt stands in front.
        previous_response: whether the agent's own last answer is shown.
    """

    judge: Judge
    mode: Mode
    original_prompt: bool
    previous_response: bool

    def __call__(
        self, item: Item, agent_completions: Sequence[str], prompt_history_per_agent: Sequence[Sequence[str]]
    ) -> list[str] | None:
        """One prompt for each agent; None after an answer with the highest score."""
        verdict = self.judge.verdict(agent_completions, item)
        if verdict.perfect:
            return None
        said = _SAY[self.mode](verdict, self.judge.roles)
        return [
            next_prompt(
                history[0] if self.original_prompt else None,
                text if self.previous_response else None,
                said,
                "Write a better answer.",
            )
            for text, history in zip(agent_completions, prompt_history_per_agent, strict=True)
        ]


def _nothing(verdict: Verdict, roles: Sequence[str]) -> str:
    return ""


def _level_by_level(verdict: Verdict, roles: Sequence[str]) -> str:
    reached = {"grounding": verdict.grounding.score, **verdict.levels}
    lines = [f"- {name}: {_passed(value, verdict.scoring.most[name])}" for name, value in reached.items()]
    return "\n".join(["Levels:", *lines])


def _passed(value: float, most: float) -> str:
    return "full" if value >= most - 1e-9 else "low" if value < most / 2 else "not full"


def _levels_in_full(verdict: Verdict, roles: Sequence[str]) -> str:
    found = verdict.structure
    measured = verdict.measures(roles)
    both = " and ".join(f"{role} {length}" for role, length in zip(roles, found.length, strict=True))
    notes = {
        "length": f"words: {both}",
        "ratio": f"the {roles[1]} text has {found.length_ratio:.2f} times the characters of the {roles[0]} text",
        "vocabulary": f"it has {found.unique_ratio:.2f} times as many different words",
        "style": f"{found.transitions} kinds of transitions; overlap of both texts {found.jaccard:.2f}",
    }
    lines = [f"- grounding {verdict.grounding.score:.2f} of 1: together the texts say {_found_share(measured['coverage'])}"]
    for role in roles:
        values = ", ".join(f"{name} {measured[f'{name}_{role}']:.2f}" for name in ("recall", *MEASURES))
        lines.append(f"    {role}: {values}")
    lines += [f"- {name} {value:.2f} of {verdict.scoring.most[name]:g}: {notes[name]}" for name, value in verdict.levels.items()]
    return "\n".join(["Levels:", *lines])


def _found_share(coverage: float) -> str:
    """How much of what is wanted of the source was said, in words."""
    return "enough of the source" if coverage == 1.0 else f"{100 * coverage:.0f} % of what is wanted of the source"


_SAY: dict[str, Callable[[Verdict, Sequence[str]], str]] = {
    "plain": _nothing,
    "level_passed": _level_by_level,
    "level_feedback": _levels_in_full,
}
