"""What planners read in later turns: their last answer, and as much about it as the feedback's mode says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from llm_envs.tasks.travel.checks import COMMON_SENSE, failed_fields, wished
from llm_envs.tasks.travel.judge import Judge, Verdict
from llm_envs.tasks.travel.trips import read_trip
from llm_envs.tasks.turns import next_prompt
from llm_envs.types import Item

Mode: TypeAlias = Literal["plain", "passed", "checks"]
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True)
class Feedback:
    """The transition: everybody's next prompt, or the end after a plan that is right.

    Attributes:
        judge: looks at the answer again.
        mode: `plain` says nothing, `passed` which terms hold of the team's plan, `checks` what failed in the agent's own slots.
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
        """One prompt for each agent; None after a solved request."""
        verdict = self.judge.verdict(agent_completions, read_trip(item))
        if verdict.solved:
            return None
        return [
            next_prompt(
                history[0] if self.original_prompt else None,
                text if self.previous_response else None,
                _SAY[self.mode](verdict, agent),
                "The trip is not planned yet. Answer again, with all of your slots.",
            )
            for agent, (text, history) in enumerate(zip(agent_completions, prompt_history_per_agent, strict=True))
        ]


def passed(verdict: Verdict) -> str:
    """Which terms hold of the whole plan."""
    checks = verdict.checks
    terms = {
        "grounding": verdict.grounding == 1.0,
        "common sense": all(checks[name] for name in COMMON_SENSE),
        "hard constraints": all(checks[name] for name in wished(verdict.trip)),
        "budget": checks["budget"],
        "collaboration": verdict.collaboration == 1.0,
    }
    return "\n".join(f"- {name}: {'holds' if holds else 'does not hold'}" for name, holds in terms.items())


def failed(verdict: Verdict, agent: int) -> str:
    """The agent's answer that could not be read, or the checks that failed in its slots, with the days that they are about."""
    problem = verdict.merged.answers[agent].problem
    if problem:
        return f"- your answer was not read: it {problem}"
    team = verdict.team
    own = set(team.part(agent, verdict.trip.days))
    lines = []
    for name, holds in verdict.checks.items():
        about = failed_fields(name, verdict.days) if not holds else set()
        if about and (not team.binding or about & own):
            days = sorted({day for day, field in about if not team.binding or (day, field) in own})
            where = f" (day {', '.join(map(str, days))})" if name in ("complete", "reference") else ""
            lines.append(f"- {name}{where}: failed")
    if verdict.merged.overlap:
        lines.append("- overlap: slots were filled by several")
    return "\n".join(lines) or "- nothing failed in your slots"


_SAY: dict[str, Callable[[Verdict, int], str]] = {
    "plain": lambda verdict, agent: "",
    "passed": lambda verdict, agent: passed(verdict),
    "checks": failed,
}
