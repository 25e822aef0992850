"""The nouns of the project: what flows from a task to a learner.

Everything here is a value. Nothing samples, scores or trains; of the project only `seeding` is imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from llm_envs.seeding import ENVIRONMENT, Path, stream

AgentID: TypeAlias = str
"""A role's name, `<role>_<number>`: `writer_0`."""

Item: TypeAlias = Mapping[str, Any]
"""A data set row: what an episode starts from."""

JointAction: TypeAlias = Mapping[AgentID, str]
"""One text for every agent."""

Rendering: TypeAlias = str | NDArray[np.uint8]
"""What an environment draws: text, or an image [H, W, 3]."""

FinishReason: TypeAlias = Literal["stop", "length"]


class ChatPrompt(str):
    """A prompt that is a conversation: readable text everywhere, `messages` for a policy's chat template.

    It is a `str`, so spaces, recordings and foreign learners need not know. The text shows every message under its role. Further
    fields of a message (`name`, …) are kept for the template; those that are None are not: data libraries fill in such.

    Raises:
        ValueError: without messages, or if one lacks the texts `role` and `content`.
    """

    messages: tuple[Mapping[str, Any], ...]

    def __new__(cls, messages: Iterable[Mapping[str, Any]]) -> ChatPrompt:
        """The prompt of these messages."""
        checked = tuple(_checked_message(position, message) for position, message in enumerate(messages))
        if not checked:
            raise ValueError("a chat prompt needs at least one message, got none")
        text = "\n\n".join(f"{message['role']}: {message['content']}" for message in checked)
        prompt = super().__new__(cls, text)
        prompt.messages = checked
        return prompt

    def __reduce__(self) -> tuple[type[ChatPrompt], tuple[tuple[dict[str, Any], ...]]]:
        return ChatPrompt, (tuple(dict(message) for message in self.messages),)


def _checked_message(position: int, message: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(message, Mapping) or not all(isinstance(message.get(k), str) for k in ("role", "content")):
        raise ValueError(f"chat message {position} needs the texts 'role' and 'content', got {message!r}")
    return {field: value for field, value in message.items() if value is not None}


@dataclass(frozen=True)
class Turn:
    """What happened in one joint exchange."""

    observations: Mapping[AgentID, str]
    actions: Mapping[AgentID, str]
    rewards: Mapping[AgentID, float]


@dataclass(frozen=True)
class State:
    """Everything the future of an episode depends on. A value: branching from it leaves it as it was.

    Attributes:
        item: the row the episode started from.
        observations: what every agent reads next; after a truncation, what it would have read; after a termination, what it read
            last.
        history: the turns played.
        key: path of the state, `(seed, purpose, episode, branch, branch, …)`. All chance derives from it.
        item_index: position of the item in its data set, -1 for a row from elsewhere.
        terminated: the task is over: the value beyond is 0.
        truncated: stopped from outside: a critic bootstraps.
        inner: the state of the wrapped environment, for a state of a wrapper.
    """

    item: Item
    observations: Mapping[AgentID, str]
    history: tuple[Turn, ...] = ()
    key: Path = (0,)
    item_index: int = -1
    terminated: bool = False
    truncated: bool = False
    inner: State | None = field(default=None, repr=False)

    @property
    def turn(self) -> int:
        """Turns played so far: 0 at the start."""
        return len(self.history)

    @property
    def done(self) -> bool:
        """Whether the episode is over, for either reason."""
        return self.terminated or self.truncated

    @property
    def place(self) -> str:
        """Where the episode stands, for messages: "item 3, turn 1" while the first turn is being played."""
        item = self.item_index if self.item_index >= 0 else _shortened(repr(dict(self.item)))
        return f"item {item}, turn {self.turn + 1}"

    def rng(self) -> np.random.Generator:
        """A fresh generator for what happens at this state; siblings that leave it share its draws."""
        return stream(ENVIRONMENT, self.key)


def _shortened(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


@dataclass(frozen=True)
class Transition:
    """What one joint action led to.

    Attributes:
        state: the state reached. `key` is the parent's with the branch's index appended.
        rewards: one for each agent, processed.
        infos: one for each agent: `turn` (from 1), `item_index`, `raw_reward` (before the processor), and `reward/<term>` for every
            named term. Wrappers add theirs.
    """

    state: State
    rewards: Mapping[AgentID, float]
    infos: Mapping[AgentID, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Completion:
    """A text as it was sampled. Ids and log-probabilities are taken once and never computed from the text again.

    Attributes:
        text: decoded, special tokens left out.
        token_ids: [T] as sampled, the end token included if it was drawn.
        logprobs: [T] nats, under the distribution sampled from.
        prompt_ids: [P] exactly what the model saw.
        finish_reason: `stop` if an end token was drawn, `length` if the limit cut it.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    finish_reason: FinishReason = "stop"


@dataclass(frozen=True, slots=True)
class EnvStep:
    """One joint action evaluated: the only record a learner reads.

    Attributes:
        env_step: its number over the whole run, from 1: the x axis of every curve.
        episode: number of the episode (one item's tree or chain) over the whole run, from 0.
        state_id: the state acted from; steps with the same one are siblings.
        next_state_id: the state reached, None where nothing was collected from it.
        turn: 1 for the first.
        prompts: what each agent read.
        completions: what each agent wrote.
        choice: which of the agent's samples at this state it is, 0..K-1.
        rewards: one for each agent, processed.
        terminated: the task ended here.
        truncated: a limit from outside ended it here.
        next_prompts: what each agent reads next (also after a truncation); None after a termination.
        global_state: the state acted from as text: what a centralised critic may read.
        infos: of the transition.
        next_global_state: the state reached as text, where a limit cut the episode there: a centralised critic bootstraps from it.
            None elsewhere, since the next env step has it.
    """

    env_step: int
    episode: int
    state_id: int
    next_state_id: int | None
    turn: int
    prompts: Mapping[AgentID, str]
    completions: Mapping[AgentID, Completion]
    choice: Mapping[AgentID, int]
    rewards: Mapping[AgentID, float]
    terminated: bool
    truncated: bool
    next_prompts: Mapping[AgentID, str] | None
    global_state: str
    infos: Mapping[AgentID, Mapping[str, Any]] = field(default_factory=dict)
    next_global_state: str | None = None


JointMode: TypeAlias = Literal["aligned", "cross", "crossed"]


@dataclass(frozen=True)
class RolloutSpec:
    """How a learner wants its data collected.

    Attributes:
        num_generations: K, completions each agent draws at every state.
        joint_mode: `aligned` joins equal indices (K joint actions); `cross` forms every combination (Kⁿ), agent 0 slowest.
            `crossed` is another name of it, and becomes `cross`.
        early_termination_threshold: a state whose mean reward over joint actions and agents exceeds it is not expanded.
        later_generations: completions at every state after the first turn; None draws `num_generations` there too, a whole tree,
            and 1 makes each joint action of the first turn the start of a chain.
    """

    num_generations: int = 1
    joint_mode: JointMode = "aligned"
    early_termination_threshold: float | None = None
    later_generations: int | None = None

    def __post_init__(self) -> None:
        for option, count in (("num_generations", self.num_generations), ("later_generations", self.later_generations)):
            if option == "later_generations" and count is None:
                continue
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ValueError(f"{option} must be a whole number of at least 1, got {count!r}")
        if self.joint_mode == "crossed":
            object.__setattr__(self, "joint_mode", "cross")
        if self.joint_mode not in ("aligned", "cross"):
            raise ValueError(f"joint_mode must be 'aligned' or 'cross', got {self.joint_mode!r}")
        threshold = self.early_termination_threshold
        if threshold is not None and not (isinstance(threshold, (int, float, np.number)) and math.isfinite(threshold)):
            raise ValueError(f"early_termination_threshold must be None or finite, got {threshold!r}")

    def generations(self, turn: int) -> int:
        """Completions that each agent draws at a state of a turn, counted from 1."""
        return self.num_generations if turn == 1 or self.later_generations is None else self.later_generations

    def num_joint_actions(self, num_agents: int, turn: int = 1) -> int:
        """Joint actions formed at one state of a turn, counted from 1."""
        return self.generations(turn) if self.joint_mode == "aligned" else self.generations(turn) ** num_agents

    def max_states(self, num_agents: int, num_turns: int) -> int:
        """Most states one episode can have: 1 + J₁ + J₁·J₂ + … over its turns."""
        states, total = 1, 1
        for turn in range(1, num_turns):
            states *= self.num_joint_actions(num_agents, turn)
            total += states
        return total


@runtime_checkable
class Policy(Protocol):
    """Whatever writes texts."""

    def generate(self, prompts: Sequence[str], n: int, keys: Sequence[Path]) -> list[list[Completion]]:
        """`n` completions of each prompt, in order.

        Args:
            prompts: texts; a `ChatPrompt` carries messages.
            n: K, completions a prompt.
            keys: one path a prompt. Sample k of prompt i draws from the stream of `(*keys[i], k)` and nothing else, so that the
                same completions come however the calls are batched or threaded.
        """
        ...


@dataclass(frozen=True)
class Metrics:
    """Numbers to log.

    Attributes:
        env_step: where they stand on the x axis.
        values: by their logged names.
        group: entries of one group are logged at most once every `logging_steps`.
    """

    env_step: int
    values: Mapping[str, float]
    group: str = "train"
