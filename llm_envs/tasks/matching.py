"""`matching-v0`: the agents have to say the same word, without agreeing on it beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from llm_envs.task import Task, agent_names
from llm_envs.tasks.rows import Rows, choose_rows
from llm_envs.tasks.turns import turn_weight, with_feedback
from llm_envs.tasks.words import word_list, words_of
from llm_envs.types import AgentID, Item, State

WORDS = ("red", "blue", "green", "gold")
TRAIN_ROWS, EVAL_ROWS = 64, 16


def task(
    *,
    words: Sequence[str] | None = None,
    agents: int | Sequence[AgentID] = 2,
    num_turns: int = 1,
    items: Rows | None = None,
    eval_items: Rows | None = None,
) -> Task:
    """The agents have to say the same word, without agreeing on it beforehand.

    Every agent reads `pick one word: red blue green gold` and names one. A turn scores (c − 1)/(n − 1), where c of the n agents
    named the most popular word: 1 if all did, 0 if no two did. An answer names a word if exactly one of the listed words stands in
    it, in any case and among any other text; another answer belongs to no camp.

    With several turns everybody reads `you said red. others said blue. pick one word: …` next (`nothing` for an answer that named
    no word; several others in the order of the agents). The episode ends when all agree. The reward of a turn is its score divided
    by `num_turns`; full agreement is paid for the turns it saves as well.

    Range: rewards and returns in [0, 1], shared by the team; the return is 1 only for agreement in the first turn.

    Args:
        words: what to choose from, at least two; red, blue, green, gold unless own rows are given.
        agents: their number or names, at least two.
        num_turns: tries.
        items: own rows `{"words": [...]}`.
        eval_items: own rows for evaluation; none with own `items` unless given.
    """
    names = agent_names(agents)
    if len(names) < 2:
        raise ValueError(f"matching needs at least 2 agents, got {len(names)}")
    if words is not None and items is not None:
        raise ValueError("words describes the bundled rows: give it without items, or put it in the rows")
    row: Item = {"words": WORDS if words is None else words}
    row = {"words": word_list(row, "words", at_least=2)}
    # One game, played again and again: what there is to learn is a convention, and chance differs from row to row.
    rows = choose_rows(items, eval_items, {"train": [row] * TRAIN_ROWS, "eval": [row] * EVAL_ROWS})
    return Task(
        name="matching-v0",
        items=rows[0],
        eval_items=rows[1],
        agents=names,
        formatters=prompt,
        reward=Agreement(num_turns),
        transition=feedback,
        num_turns=num_turns,
        external_prompt_passthrough=True,
        reference=Reference(len(names)),
    )


def prompt(item: Item) -> str:
    """What every agent reads first."""
    return f"pick one word: {' '.join(word_list(item, 'words', at_least=2))}"


def named(text: str, words: Sequence[str]) -> str | None:
    """The one listed word in the text; None if there is none or more than one."""
    found = set(words_of(text)).intersection(words)
    return found.pop() if len(found) == 1 else None


def agreement(answers: Sequence[str | None]) -> float:
    """(c − 1)/(n − 1) for the c of n answers in the largest camp, 0 without any. In [0, 1]."""
    camps = Counter(answer for answer in answers if answer is not None)
    return (max(camps.values(), default=1) - 1) / (len(answers) - 1)


@dataclass(frozen=True)
class Agreement:
    """The reward: the turn's agreement, weighted by what the turn counts. In [0, 1]."""

    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    num_turns: int

    def __call__(self, *responses: list[str], batch_items: Sequence[Item], states: Sequence[State]) -> list[float]:
        """One reward for each joint response, for the team."""
        words = word_list(batch_items[0], "words", at_least=2)
        rewards = []
        for joint, state in zip(zip(*responses, strict=True), states, strict=True):
            score = agreement([named(text, words) for text in joint])
            rewards.append(score * turn_weight(score == 1.0, state.turn + 1, self.num_turns))
        return rewards


def feedback(item: Item, agent_completions: Sequence[str], prompt_history_per_agent: Sequence[Sequence[str]]) -> list[str] | None:
    """Everybody's next prompt, which says what was said; None if all agree."""
    words = word_list(item, "words", at_least=2)
    answers = [named(text, words) for text in agent_completions]
    if agreement(answers) == 1.0:
        return None
    said = [answer or "nothing" for answer in answers]
    return [
        with_feedback(f"you said {mine}. others said {' '.join(said[:i] + said[i + 1 :])}.", prompt_history_per_agent[i][0])
        for i, mine in enumerate(said)
    ]


@dataclass(frozen=True)
class Reference:
    """A best joint answer: everybody names the first word."""

    num_agents: int

    def __call__(self, item: Item) -> list[str]:
        """One text for each agent."""
        return [word_list(item, "words", at_least=2)[0]] * self.num_agents
