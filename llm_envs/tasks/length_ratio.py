"""`length-ratio-v0`: two agents answer the same prompt, the second at a given multiple of the first one's length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from llm_envs.formatters import as_prompt
from llm_envs.task import Task, agent_names
from llm_envs.tasks.rows import Rows, choose_rows, load_data
from llm_envs.tasks.turns import with_feedback
from llm_envs.types import AgentID, Item


def task(
    *,
    target_min: float = 2.0,
    target_max: float = 3.0,
    agents: int | Sequence[AgentID] = 2,
    num_turns: int = 1,
    items: Rows | None = None,
    eval_items: Rows | None = None,
) -> Task:
    """Two agents answer the same prompt, the second at a given multiple of the first one's length.

    Both agents read `tell me about the rain.` and answer. With r the characters of the second text divided by those of the first, a
    turn earns 1 for r in [`target_min`, `target_max`], exp(−distance of r to that interval) outside, and 0 if the first text is
    empty.

    With several turns each agent reads `you wrote 40 characters, the other 50. tell me about the rain.` next. Every turn earns so,
    and the episode always has `num_turns` turns.

    Range: a turn's reward in [0, 1], shared by the team; a return in [0, `num_turns`].

    Args:
        target_min: least wanted ratio, at least 0.
        target_max: greatest wanted ratio.
        agents: 2, or two names; the first named is the first of the ratio.
        num_turns: answers each agent gives.
        items: own rows `{"topic": ...}`, or `{"prompt": ...}` with a text or chat messages, read as it is.
        eval_items: own rows for evaluation; none with own `items` unless given.
    """
    names = agent_names(agents)
    if len(names) != 2:
        raise ValueError(f"length-ratio is for exactly 2 agents, got {len(names)}")
    topics = load_data("topics")
    bundled = {split: [{"topic": topic} for topic in topics[split]] for split in ("train", "eval")}
    rows = choose_rows(items, eval_items, bundled)
    reward = LengthRatio(target_min, target_max)
    return Task(
        name="length-ratio-v0",
        items=rows[0],
        eval_items=rows[1],
        agents=names,
        formatters=prompt,
        reward=reward,
        transition=feedback,
        num_turns=num_turns,
        external_prompt_passthrough=True,
        reference=Reference(reward),
    )


def prompt(item: Item) -> str:
    """What both agents read first: a sentence on the row's topic, or the row's own prompt."""
    # A data library fills fields that other rows have with None.
    if item.get("topic") is not None:
        return f"tell me about {item['topic']}."
    if item.get("prompt") is not None:
        return as_prompt(item["prompt"], "the row's 'prompt'")
    raise ValueError(f"a row needs the field 'topic' or 'prompt', got {dict(item)!r}")


@dataclass(frozen=True)
class LengthRatio:
    """The reward: 1 while the ratio of lengths lies in the interval, falling off as exp(−distance). In [0, 1].

    Attributes:
        target_min: least wanted ratio.
        target_max: greatest wanted ratio.
    """

    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    target_min: float = 2.0
    target_max: float = 3.0

    def __post_init__(self) -> None:
        numbers = isinstance(self.target_min, (int, float)) and isinstance(self.target_max, (int, float))
        if not (numbers and 0 <= self.target_min <= self.target_max < math.inf):
            found = f"{self.target_min!r} and {self.target_max!r}"
            raise ValueError(f"target_min and target_max must be 0 ≤ target_min ≤ target_max < ∞, got {found}")

    def __call__(self, first: list[str], second: list[str]) -> list[float]:
        """One reward for each pair of texts, for the team."""
        return [self.score(len(one), len(two)) for one, two in zip(first, second, strict=True)]

    def score(self, first: int, second: int) -> float:
        """The reward of two lengths in characters."""
        if first == 0:
            return 0.0
        ratio = second / first
        return math.exp(-max(self.target_min - ratio, ratio - self.target_max, 0.0))


def feedback(agent_completions: Sequence[str], prompt_history_per_agent: Sequence[Sequence[str]]) -> list[str]:
    """Each agent's next prompt, which says how long the two texts were."""
    first, second = (len(text) for text in agent_completions)
    return [
        with_feedback(f"you wrote {mine} characters, the other {theirs}.", history[0])
        for mine, theirs, history in zip((first, second), (second, first), prompt_history_per_agent, strict=True)
    ]


@dataclass(frozen=True)
class Reference:
    """A best joint answer: two texts on the topic whose lengths lie in the interval."""

    reward: LengthRatio

    def __call__(self, item: Item) -> list[str]:
        """One text for each agent."""
        lengths = [(first, math.ceil(first * self.reward.target_min)) for first in range(12, 200)]
        first, second = max(lengths, key=lambda pair: self.reward.score(*pair))
        text = f"{item.get('topic') or 'an answer'}. "
        return [(text * length)[:length] for length in (first, second)]
