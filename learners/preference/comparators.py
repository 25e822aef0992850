"""Comparators: who writes the joint responses that the team's own are compared with.

A comparator writes in place of the agents; `learners.preference.duel` puts it beside them in a collection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from learners.learner import TrainablePolicy
from learners.policy import HFPolicy
from learners.preference.api import EndpointPolicy
from learners.preference.policy_history import PolicyHistory
from llm_envs.seeding import Path
from llm_envs.types import AgentID, Completion, Item, Policy
from llm_envs.wrappers import JointAgentAdapter, UnparsableCompletionError, joint_prompt, split_completion

NO_ANSWER = Completion("", (), (), (), "length")
"""What stands where a comparator has nothing to say. It has read nothing (`prompt_ids` is empty), so it is never compared."""

Writer: TypeAlias = Callable[[Sequence[str], int, Sequence[Path], Sequence[Item]], "list[list[str | None]]"]
"""`writer(prompts, n, keys, items)`: n texts for each prompt, None where there is none."""


class Comparator(Protocol):
    """Writes what the team's responses are compared with."""

    @property
    def whole_team(self) -> bool:
        """Whether it must see what all agents read to write for one."""
        ...

    def begin_round(self, iteration: int) -> None:
        """Get ready for a round, counted from 1: the policies are those that it begins with."""
        ...

    def generate(
        self, agents: Sequence[AgentID], prompts: Sequence[str], n: int, keys: Sequence[Path], items: Sequence[Item]
    ) -> list[list[Completion]]:
        """`n` completions of each prompt, `NO_ANSWER` where there is none.

        Args:
            agents: who is asked each prompt.
            prompts: texts.
            n: completions a prompt.
            keys: one path a prompt.
            items: the row of each prompt's episode.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """What an exact resume needs."""
        ...

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse a state that does not fit, with a ValueError; changes nothing."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        ...


class PolicyComparator:
    """Agents compared with policies, one for each.

    Args:
        own: the team's policies: what others write is put into their tokens.
        writers: who writes; the team itself, or others.
        history: of writers that are copies of the team.

    Raises:
        TypeError, ValueError: an agent whose writer has other tokens cannot take over texts.
    """

    whole_team = False

    def __init__(
        self,
        own: Mapping[AgentID, TrainablePolicy],
        writers: Mapping[AgentID, Policy],
        history: PolicyHistory | None = None,
    ) -> None:
        for agent, policy in own.items():
            if writers[agent] is not policy and not _same_tokens(writers[agent], policy):
                require_reader(agent, policy)
        self._own = own
        self._writers = writers
        self._history = history

    def begin_round(self, iteration: int) -> None:
        """Bring copies of the team up to date."""
        if self._history is not None:
            self._history.begin_round(iteration)

    def generate(
        self, agents: Sequence[AgentID], prompts: Sequence[str], n: int, keys: Sequence[Path], items: Sequence[Item]
    ) -> list[list[Completion]]:
        """Each writer's completions, one call for each distinct one."""
        by_writer: dict[int, list[int]] = {}
        for row, agent in enumerate(agents):
            by_writer.setdefault(id(self._writers[agent]), []).append(row)
        drawn: dict[int, list[Completion]] = {}
        for rows in by_writer.values():
            writer = self._writers[agents[rows[0]]]
            drawn |= zip(rows, writer.generate([prompts[r] for r in rows], n, [keys[r] for r in rows]), strict=True)
        return [translated(drawn[row], prompts[row], self._writers[agent], self._own[agent]) for row, agent in enumerate(agents)]

    def state_dict(self) -> dict[str, Any]:
        """The copies' weights and history."""
        return {} if self._history is None else self._history.state_dict()

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse another comparator's state; changes nothing."""
        if self._history is not None:
            self._history.check_state_dict(state)
        elif state:
            raise ValueError(f"the checkpoint has a comparator with {', '.join(state)}, this one keeps nothing")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the copies."""
        if self._history is not None:
            self._history.load_state_dict(state)


class CentralizedComparator:
    """One writer for all roles: it reads their prompts as one, and its text is split into theirs.

    A text that cannot be split answers for nobody; `num_unparsable` counts them.

    Args:
        own: the team's policies.
        writer: of the joint texts.
        adapter: joins prompts and splits texts.
        history: where the writer is a copy from the team.

    Raises:
        TypeError, ValueError: an agent cannot take over texts.
    """

    whole_team = True

    def __init__(
        self,
        own: Mapping[AgentID, TrainablePolicy],
        writer: Writer,
        adapter: JointAgentAdapter,
        history: PolicyHistory | None = None,
    ) -> None:
        for agent, policy in own.items():
            require_reader(agent, policy)
        self._own = own
        self._agents = list(own)
        self._writer = writer
        self._adapter = adapter
        self._history = history
        self.num_unparsable = 0

    def begin_round(self, iteration: int) -> None:
        """Bring a copy of the team up to date."""
        if self._history is not None:
            self._history.begin_round(iteration)

    def generate(
        self, agents: Sequence[AgentID], prompts: Sequence[str], n: int, keys: Sequence[Path], items: Sequence[Item]
    ) -> list[list[Completion]]:
        """The roles' parts of each joint text."""
        states: dict[Path, dict[AgentID, int]] = {}
        for row, (agent, key) in enumerate(zip(agents, keys, strict=True)):
            states.setdefault((*key[:-2], *key[-1:]), {})[agent] = row
        asked = [[prompts[rows[agent]] for agent in self._agents] for rows in states.values()]
        rows_of_items = [items[rows[self._agents[0]]] for rows in states.values()]
        joint = [joint_prompt(self._adapter, item, one) for item, one in zip(rows_of_items, asked, strict=True)]
        texts = self._writer(joint, n, list(states), rows_of_items)
        answers: dict[int, list[Completion]] = {}
        for rows, item, written in zip(states.values(), rows_of_items, texts, strict=True):
            split = [self._split(text, item) for text in written]
            for index, agent in enumerate(self._agents):
                parts = [None if one is None else one[index] for one in split]
                answers[rows[agent]] = as_completions(self._own[agent], prompts[rows[agent]], parts)
        return [answers[row] for row in range(len(prompts))]

    def _split(self, text: str | None, item: Item) -> list[str] | None:
        if text is None:
            return None
        try:
            return split_completion(self._adapter, text, item, len(self._agents))
        except UnparsableCompletionError:
            self.num_unparsable += 1
            return None

    def state_dict(self) -> dict[str, Any]:
        """The count, and the copies' weights."""
        history = {} if self._history is None else self._history.state_dict()
        return {"num_unparsable": self.num_unparsable, **history}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse another comparator's state; changes nothing."""
        if "num_unparsable" not in state:
            raise ValueError("the checkpoint's comparator wrote for each agent apart, this one for all")
        if self._history is not None:
            self._history.check_state_dict(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore count and copies."""
        self.num_unparsable = state["num_unparsable"]
        if self._history is not None:
            self._history.load_state_dict(state)


class EndpointComparator:
    """Agents compared with what an HTTP endpoint writes, each asked its own prompt.

    Args:
        own: the team's policies.
        endpoint: that writes.

    Raises:
        TypeError, ValueError: an agent cannot take over texts.
    """

    whole_team = False

    def __init__(self, own: Mapping[AgentID, TrainablePolicy], endpoint: EndpointPolicy) -> None:
        for agent, policy in own.items():
            require_reader(agent, policy)
        self._own = own
        self._agents = list(own)
        self._endpoint = endpoint

    def begin_round(self, iteration: int) -> None:
        """Nothing changes from round to round."""

    def generate(
        self, agents: Sequence[AgentID], prompts: Sequence[str], n: int, keys: Sequence[Path], items: Sequence[Item]
    ) -> list[list[Completion]]:
        """What the endpoint answers, `NO_ANSWER` where it failed."""
        texts = self._endpoint.complete(prompts, n, [self._agents.index(agent) for agent in agents], items)
        return [
            as_completions(self._own[agent], prompt, answers) for agent, prompt, answers in zip(agents, prompts, texts, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Nothing: an endpoint keeps its own state."""
        return {}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuse another comparator's state; changes nothing."""
        if state:
            raise ValueError(f"the checkpoint has a comparator with {', '.join(state)}, an endpoint keeps nothing")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""
        self.check_state_dict(state)


def policy_writer(policy: Policy) -> Writer:
    """Texts as a policy writes them."""

    def write(prompts: Sequence[str], n: int, keys: Sequence[Path], items: Sequence[Item]) -> list[list[str | None]]:
        return [[completion.text for completion in drawn] for drawn in policy.generate(prompts, n, keys)]

    return write


def endpoint_writer(endpoint: EndpointPolicy, agent_index: int) -> Writer:
    """Texts as an endpoint writes them, asked in one agent's name."""

    def write(prompts: Sequence[str], n: int, keys: Sequence[Path], items: Sequence[Item]) -> list[list[str | None]]:
        return endpoint.complete(prompts, n, [agent_index] * len(prompts), items)

    return write


def translated(completions: Sequence[Completion], prompt: str, writer: Policy, own: TrainablePolicy) -> list[Completion]:
    """A writer's completions as the team's policy would have written them: the very ids where both have the same tokens.

    What was cut before its end stays without an end.
    """
    if writer is own:
        return list(completions)
    if isinstance(own, HFPolicy) and _same_tokens(writer, own):
        (read,) = own.encode([prompt])  # templates of chats may differ even then
        return [replace(completion, prompt_ids=read) for completion in completions]
    written = as_completions(own, prompt, [completion.text for completion in completions])
    return [
        replace(ours, token_ids=ours.token_ids[:-1], finish_reason="length")
        if theirs.finish_reason == "length" and ours.finish_reason == "stop"
        else ours
        for ours, theirs in zip(written, completions, strict=True)
    ]


def require_reader(agent: AgentID, own: TrainablePolicy) -> None:
    """Refuse a policy that cannot take over texts of others as its own completions, before any is drawn.

    Raises:
        TypeError: it does not tokenise texts.
        ValueError: it has no end token to put behind them.
    """
    if not isinstance(own, HFPolicy):
        raise TypeError(f"comparing with texts of others needs policies that tokenise them, {agent} has a {type(own).__name__}")
    if not own.end_token_ids:
        raise ValueError(
            f"the comparator writes texts for {agent}, and they cannot be ended: neither its tokenizer nor its model's generation "
            "configuration names an end token"
        )


def as_completions(own: TrainablePolicy, prompt: str, texts: Sequence[str | None]) -> list[Completion]:
    """Texts of others as completions of a policy that `require_reader` has let pass; None is no answer."""
    assert isinstance(own, HFPolicy)
    answered = [text for text in texts if text is not None]
    written = iter(own.as_written([prompt] * len(answered), answered))
    return [NO_ANSWER if text is None else next(written) for text in texts]


def _same_tokens(writer: Policy, own: TrainablePolicy) -> bool:
    if not isinstance(writer, HFPolicy) or not isinstance(own, HFPolicy):
        return False
    mine, theirs = own.tokenizer, writer.tokenizer
    same = mine is theirs or (len(mine) == len(theirs) and mine.get_vocab() == theirs.get_vocab())
    return same and own.end_token_ids == writer.end_token_ids
