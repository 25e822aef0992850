"""How the agents of a turn come to their texts: all at once, one after another, or after reading each other's drafts.

An environment only sees the joint action. These are the usual baselines that a trained team is compared with; with one writer for
the whole team, `wrappers.JointAgent`, they are four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from llm_envs.types import AgentID, ChatPrompt


class TurnProtocol(Protocol):
    """Who writes in which round of a turn, and what it reads then. An agent's last text is its action. Any such object will do."""

    def rounds(self, agents: Sequence[AgentID]) -> Sequence[Sequence[AgentID]]:
        """The writers of each round; every agent at least once, in the first round without having read anybody."""
        ...

    def prompt(self, agent: AgentID, observation: str, written: Sequence[Mapping[AgentID, str]]) -> str:
        """What a writer reads.

        Args:
            agent: the writer.
            observation: what the environment shows it in this turn; a `ChatPrompt` stays one.
            written: the texts of the rounds before, by agent.
        """
        ...


@dataclass(frozen=True)
class Parallel:
    """All agents write at once and none reads another's text: what environments mean and learners train."""

    def rounds(self, agents: Sequence[AgentID]) -> list[list[AgentID]]:
        """One round of all."""
        return [list(agents)]

    def prompt(self, agent: AgentID, observation: str, written: Sequence[Mapping[AgentID, str]]) -> str:
        """The observation."""
        return observation


@dataclass(frozen=True)
class Pipeline:
    """One agent after another, in the team's order; each reads what those before it have written in this turn."""

    def rounds(self, agents: Sequence[AgentID]) -> list[list[AgentID]]:
        """A round for each."""
        return [[agent] for agent in agents]

    def prompt(self, agent: AgentID, observation: str, written: Sequence[Mapping[AgentID, str]]) -> str:
        """The observation, then the texts so far."""
        texts = {other: text for texts in written for other, text in texts.items()}
        return with_note(observation, _quoted("Others have written:", texts)) if texts else observation


@dataclass(frozen=True)
class Discussion:
    """Everybody drafts, reads all drafts, and writes again; the last round counts.

    Attributes:
        num_rounds: of writing, drafts included.

    Raises:
        ValueError: for fewer than two rounds.
    """

    num_rounds: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.num_rounds, int) or self.num_rounds < 2:
            raise ValueError(f"a discussion needs num_rounds of at least 2, got {self.num_rounds!r}")

    def rounds(self, agents: Sequence[AgentID]) -> list[list[AgentID]]:
        """As many rounds of all."""
        return [list(agents)] * self.num_rounds

    def prompt(self, agent: AgentID, observation: str, written: Sequence[Mapping[AgentID, str]]) -> str:
        """The observation, then the last round's texts, the own first."""
        if not written:
            return observation
        drafts = written[-1]
        others = {other: text for other, text in drafts.items() if other != agent}
        note = _quoted("Your draft:", {agent: drafts[agent]})
        return with_note(observation, f"{note}\n\n{_quoted('Drafts of the others:', others)}\n\nWrite your final answer.")


PROTOCOLS: Mapping[str, TurnProtocol] = {"parallel": Parallel(), "pipeline": Pipeline(), "discussion": Discussion()}
"""By name."""


def with_note(observation: str, note: str) -> str:
    """The observation with a note after it; a conversation gets a further message."""
    if isinstance(observation, ChatPrompt):
        messages: list[Mapping[str, Any]] = [*observation.messages, {"role": "user", "content": note}]
        return ChatPrompt(messages)
    return f"{observation}\n\n{note}\n"


def _quoted(title: str, texts: Mapping[AgentID, str]) -> str:
    return "\n\n".join([title, *(f"[{agent}]\n{text}" for agent, text in texts.items())])
