"""A task: rows, formatters, a reward and a transition. It is checked when it is built and becomes an env with `TaskEnv(task)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from llm_envs.calling import check_arguments
from llm_envs.formatters import Formatter, Formatters
from llm_envs.rewards import Reward, RewardProcessor, Rewards
from llm_envs.transitions import ExternalTransition, Transitions
from llm_envs.types import AgentID, Item, Rendering, State

# The form PettingZoo's own test asks for; TorchRL groups agents by what stands before the number.
_AGENT_NAME = re.compile(r"[a-z]+_[0-9]+")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a team of agents has to do.

    Attributes:
        reward: a function, named terms that are summed and each reported, or `terms` of one function (`llm_envs.rewards`).
        items: rows to start episodes from: a list of mappings, a Hugging Face `Dataset`, or an iterable without length.
        eval_items: rows kept for evaluation; None means none.
        agents: their number (`agent_0`, …), or their names, `<role>_<number>`.
        formatters: what each agent reads (`llm_envs.formatters`); the row's `prompt` by default.
        transition: what happens between turns (`llm_envs.transitions`); required with more than one turn.
        num_turns: H. Reaching it ends the task: a termination.
        reward_processor: float → float, applied to each agent's summed reward before training.
        external_prompt_passthrough: take a transition's prompts as they are, instead of formatting them again as the row's
            `prompt`.
        name: shown in messages and `metadata`.
        max_prompt_length: longest observation, in characters.
        max_completion_length: longest action of the action space, in characters.
        reference: `f(item)` → for each agent one text, played in every turn, or its texts turn by turn; they earn the most on this
            row. For tests and audits.
        renderers: by render mode, `f(state)` → what `render` gives: text for "ansi" (without one: prompts and answers so far), an
            image [H, W, 3] of 8 bits for "rgb_array".

    Raises:
        ValueError, TypeError: naming the option, its value and what is expected.
    """

    reward: Reward
    items: Sequence[Item] | Iterable[Item]
    eval_items: Sequence[Item] | Iterable[Item] | None = None
    agents: int | Sequence[AgentID] = 2
    formatters: Formatter | Sequence[Formatter] | None = None
    transition: ExternalTransition | None = None
    num_turns: int = 1
    reward_processor: RewardProcessor | None = None
    external_prompt_passthrough: bool = False
    name: str = "task"
    max_prompt_length: int = 2**20
    max_completion_length: int = 2**20
    reference: Callable[[Item], Sequence[str | Sequence[str]]] | None = None
    renderers: Mapping[str, Callable[[State], Rendering]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for option in ("num_turns", "max_prompt_length", "max_completion_length"):
            value = getattr(self, option)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{option} must be a whole number of at least 1, got {value!r}")
        if self.num_turns > 1 and self.transition is None:
            raise ValueError(f"num_turns={self.num_turns} needs a transition: what do the agents read in the second turn?")
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a text, got {self.name!r}")
        if not isinstance(self.external_prompt_passthrough, bool):
            raise TypeError(f"external_prompt_passthrough must be True or False, got {self.external_prompt_passthrough!r}")
        if self.reward_processor is not None:
            check_arguments(self.reward_processor, "reward_processor", "a reward")
        if self.reference is not None:
            check_arguments(self.reference, "reference", "the item")
        if not isinstance(self.renderers, Mapping) or not all(isinstance(mode, str) for mode in self.renderers):
            raise TypeError(f"renderers must be a mapping from render mode to function, got {self.renderers!r}")
        for mode, renderer in self.renderers.items():
            check_arguments(renderer, f"renderers[{mode!r}]", "the state")
        check_items("items", self.items)
        if self.eval_items is not None:
            check_items("eval_items", self.eval_items)
        # Building them settles every call, so that a function that does not fit fails here and not in the middle of a run.
        self.build_formatters()
        self.build_rewards()
        self.build_transitions()

    @property
    def agent_ids(self) -> tuple[AgentID, ...]:
        """The agents' names, in order."""
        return agent_names(self.agents)

    def build_formatters(self) -> Formatters:
        """The formatters, settled."""
        return Formatters(self.formatters, self.agent_ids)

    def build_rewards(self) -> Rewards:
        """The reward terms, settled."""
        return Rewards(self.reward, self.agent_ids)

    def build_transitions(self) -> Transitions | None:
        """The transition, settled; None without one."""
        return None if self.transition is None else Transitions(self.transition, self.agent_ids)


def agent_names(agents: int | Sequence[AgentID], role: str = "agent") -> tuple[AgentID, ...]:
    """Checked names of the agents; for a number `agent_0`, `agent_1`, …, or of another role.

    Raises:
        ValueError: for no agents, names that are not `<role>_<number>`, or one given twice.
    """
    if isinstance(agents, int):
        if agents < 1 or isinstance(agents, bool):
            raise ValueError(f"agents must be at least 1, got {agents}")
        return tuple(f"{role}_{number}" for number in range(agents))
    # A set has no order that every process agrees on.
    names = tuple(agents) if isinstance(agents, Sequence) and not isinstance(agents, str) else ()
    if not names or not all(isinstance(name, str) and _AGENT_NAME.fullmatch(name) for name in names):
        raise ValueError(
            "agents must be a number or names of the form <role>_<number>, lower-case letters (writer_0), in a list, "
            f"got {agents!r}"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"agents must have different names, got {names}")
    return tuple(map(str, names))


def check_items(option: str, items: object) -> None:
    """Refuse what cannot give rows again and again.

    Raises:
        ValueError: naming the option, for a text, a single row, an iterator, no iterable, no rows, or a first row that is not there
            or no mapping.
    """
    if isinstance(items, Iterator):
        raise ValueError(f"{option} must be iterable more than once, but {type(items).__name__} runs dry: make it a list of rows")
    if isinstance(items, (str, bytes, Mapping)) or not (isinstance(items, Iterable) or has_length(items)):
        raise ValueError(f"{option} must be a list of rows, a Dataset or an iterable of rows, got {type(items).__name__}")
    if has_length(items):
        if len(items) == 0:
            raise ValueError(f"{option} has no rows")
        try:
            first = items[0]
        except Exception as error:
            found = f"row 0 of {type(items).__name__} gives {type(error).__name__}: {error}"
            raise ValueError(f"{option} must give its rows by position, but {found}") from error
        if not isinstance(first, Mapping):
            raise ValueError(f"{option} must hold mappings, but row 0 is {type(first).__name__}: {first!r}")


def has_length(items: object) -> TypeGuard[Sequence[Item]]:
    """Whether rows can be counted and fetched by position."""
    return hasattr(items, "__len__") and hasattr(items, "__getitem__")
