"""A centralised team: one agent writes every role's text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from pettingzoo import ParallelEnv

from llm_envs.calling import owned
from llm_envs.env import BranchingEnv
from llm_envs.formatters import as_prompt
from llm_envs.seeding import Path
from llm_envs.types import AgentID, Item, JointAction, State, Transition, Turn
from llm_envs.wrappers.base import Wrapper, inner_state

TEAM: AgentID = "team_0"

_PREAMBLE = (
    "You write for a whole team. Below is what each member is asked. Answer for every member, each answer in a section of its own, "
    "and write nothing outside the sections."
)


class UnparsableCompletionError(ValueError):
    """No role's section was found in a joint completion."""


class JointAgentAdapter(Protocol):
    """How a team's prompts become one prompt, and one completion the team's texts. Any object with these two methods will do."""

    def build_prompt(self, item: Item, agent_prompts: Sequence[str]) -> str | Sequence[Mapping[str, Any]]:
        """A prompt (text or chat messages, not empty) that asks for every role's text."""
        ...

    def parse_completion(self, text: str, item: Item, n: int) -> Sequence[str]:
        """The n roles' texts.

        Raises:
            UnparsableCompletionError: if there are none in it.
        """
        ...


@dataclasses.dataclass(frozen=True)
class TaggedSections:
    """The default adapter: a section `<role>…</role>` for each role.

    Reading is tolerant: upper or lower case, spaces in tags, the first section of a role counts, surrounding space is dropped, a
    missing section is "". A section that is opened and never closed (a completion cut at its limit) goes on to the next tag or the
    end.

    Attributes:
        roles: names of the tags, one for each role.

    Raises:
        ValueError: without roles, or for one given twice.
    """

    roles: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.roles or len({role.casefold() for role in self.roles}) < len(self.roles):
            raise ValueError(f"roles must be different names, whatever their case, got {self.roles!r}")

    def build_prompt(self, item: Item, agent_prompts: Sequence[str]) -> str:
        """Every role's prompt under its name, then the form of the answer."""
        if len(agent_prompts) != len(self.roles):
            raise ValueError(f"TaggedSections has the roles {', '.join(self.roles)}, but there are {len(agent_prompts)} agents")
        asked = [f"{role} is asked:\n{prompt}" for role, prompt in zip(self.roles, agent_prompts, strict=True)]
        form = "\n".join(f"<{role}>\n(the answer of {role})\n</{role}>" for role in self.roles)
        return "\n\n".join([_PREAMBLE, *asked, f"Use exactly this form:\n{form}"])

    def parse_completion(self, text: str, item: Item, n: int) -> list[str]:
        """The roles' texts.

        Raises:
            UnparsableCompletionError: if no role has a section.
        """
        sections = [_section(text, role, self.roles) for role in self.roles]
        if all(section is None for section in sections):
            raise UnparsableCompletionError(f"none of the sections {', '.join(self.roles)} is in {text[:200]!r}")
        return [section or "" for section in sections]


def _section(text: str, role: str, roles: Sequence[str]) -> str | None:
    def tag(names: Iterable[str], slash: str) -> str:
        # White space stands in one place of each: two that could share it would be tried in every division.
        return rf"<\s*{slash}(?:{'|'.join(map(re.escape, names))})\s*>"

    flags = re.IGNORECASE | re.DOTALL
    begin, end, any_tag = tag([role], ""), tag([role], r"/\s*"), tag(roles, r"(?:/\s*)?")
    found = re.search(rf"{begin}(.*?){end}", text, flags)
    if found is None:
        found = re.search(rf"{begin}(.*?)(?:{any_tag}|\Z)", text, flags)
    return None if found is None else found.group(1).strip()


def joint_prompt(adapter: JointAgentAdapter, item: Item, agent_prompts: Sequence[str]) -> str:
    """What the adapter asks one writer for all roles, checked; a `ChatPrompt` if it gives messages.

    Raises:
        TypeError, ValueError: if it is neither text nor messages, or empty.
    """
    source = f"what {type(adapter).__name__}.build_prompt returns"
    prompt = as_prompt(adapter.build_prompt(item, agent_prompts), source)
    if not prompt.strip():
        raise ValueError(f"{source} must not be empty, got {prompt!r}")
    return prompt


def split_completion(adapter: JointAgentAdapter, text: str, item: Item, n: int) -> list[str]:
    """The n roles' texts as the adapter reads them, checked.

    Raises:
        UnparsableCompletionError: from the adapter.
        TypeError: if it returns a bare text, no list, or something in it is no text.
        ValueError: if it returns another number of texts.
    """
    texts = adapter.parse_completion(text, item, n)
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not all(isinstance(one, str) for one in texts):
        raise TypeError(f"{type(adapter).__name__}.parse_completion must return a list of {n} texts, got {texts!r}")
    if len(texts) != n:
        raise ValueError(f"{type(adapter).__name__}.parse_completion must return {n} texts, got {len(texts)}: {texts!r}")
    return list(texts)


class JointAgent(Wrapper, ParallelEnv):  # type: ignore[misc]  # `state` is text
    """An environment of one agent, `team_0`, that reads every role's prompt and writes every role's text in one completion.

    Its reward is the mean of the roles' rewards. A completion that cannot be split plays the empty text for every role. Infos:
    `turn`, `item_index`, the roles' means of `raw_reward` and each `reward/<term>`, for each role
    `role_reward/<role>` and `role_completion/<role>`; `parse_failed` is 1 for a completion that could not be split, else 0.

    Args:
        env: what is wrapped. Any number of roles and turns.
        adapter: how prompts are joined and completions split; `TaggedSections` over the roles' names by default.
    """

    def __init__(self, env: BranchingEnv, adapter: JointAgentAdapter | None = None) -> None:
        super().__init__(env, agents=[TEAM])
        self.adapter = TaggedSections(tuple(env.possible_agents)) if adapter is None else adapter
        wanting = [name for name in ("build_prompt", "parse_completion") if not callable(getattr(self.adapter, name, None))]
        if wanting:
            raise TypeError(f"adapter must have the methods build_prompt and parse_completion, but {adapter!r} lacks {wanting[0]}")

    def initial(self, item: Item, key: Path, item_index: int = -1) -> State:
        """The state an episode on this row starts from."""
        inner = self.env.initial(item, key, item_index)
        return dataclasses.replace(inner, observations=self._prompt(inner), inner=inner)

    def branch(self, state: State, joint_actions: Sequence[JointAction]) -> list[Transition]:
        """What each of several joint completions leads to."""
        texts = [action[TEAM] for action in self.playable(state, joint_actions)]
        inner = inner_state(state)
        split = [self._split(text, inner.item) for text in texts]
        transitions = self.env.branch(inner, [action or dict.fromkeys(self.env.possible_agents, "") for action in split])
        return [
            self._joined(state, text, transition, failed=action is None)
            for text, action, transition in zip(texts, split, transitions, strict=True)
        ]

    def _split(self, text: str, item: Item) -> dict[AgentID, str] | None:
        roles = self.env.possible_agents
        try:
            return dict(zip(roles, split_completion(self.adapter, text, owned(item), len(roles)), strict=True))
        except UnparsableCompletionError:
            return None

    def _joined(self, parent: State, text: str, transition: Transition, *, failed: bool) -> Transition:
        inner = transition.state
        rewards = {TEAM: _mean(transition.rewards.values())}
        observations = parent.observations if inner.terminated else self._prompt(inner)
        turn = Turn(parent.observations, {TEAM: text}, rewards)
        state = dataclasses.replace(inner, observations=observations, history=(*parent.history, turn), inner=inner)
        return Transition(state, rewards, {TEAM: {**_joined_infos(transition), "parse_failed": int(failed)}})

    def _prompt(self, inner: State) -> dict[AgentID, str]:
        prompts = [inner.observations[role] for role in self.env.possible_agents]
        prompt = joint_prompt(self.adapter, owned(inner.item), prompts)
        if len(prompt) > self.max_prompt_length:
            source = f"what {type(self.adapter).__name__}.build_prompt returns"
            raise ValueError(f"{source} has {len(prompt)} characters, more than max_prompt_length={self.max_prompt_length}")
        return {TEAM: prompt}


def _joined_infos(transition: Transition) -> dict[str, Any]:
    """The roles' infos as one: the same values as they are, rewards as means, and each role's own beside them."""
    by_role = transition.infos
    first = next(iter(by_role.values()))
    infos: dict[str, Any] = {"turn": first["turn"], "item_index": first["item_index"]}
    for key in first:
        if key == "raw_reward" or key.startswith("reward/"):
            infos[key] = _mean(info[key] for info in by_role.values())
    for role, text in transition.state.history[-1].actions.items():
        infos[f"role_reward/{role}"] = transition.rewards[role]
        infos[f"role_completion/{role}"] = text
    return infos


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
