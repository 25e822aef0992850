"""Completions as a choice between candidates: a small `Discrete` action for any learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from llm_envs.calling import owned
from llm_envs.env import BranchingEnv
from llm_envs.spaces import clean_text
from llm_envs.types import AgentID, Item, Policy
from llm_envs.wrappers.tokens import Tokenizer, Vocabulary, as_ids, checked_length
from llm_envs.wrappers.view import View

Candidates: TypeAlias = "Sequence[str] | Mapping[AgentID, Sequence[str]] | Callable[[Item, AgentID], Sequence[str]] | Policy"
"""The texts to choose from: one list, a list for each agent, a function of item and agent, or a policy that proposes them."""


class ChoiceView(View, ParallelEnv):  # type: ignore[misc]  # `state` is float32
    """Prompts as ids in a `Box`, completions as the index of a candidate in a `Discrete`.

    All agents have the same spaces: `Discrete(n)` for the most candidates that any agent has. Where there are fewer, indices go
    round, so that every action is one: index k plays candidate k modulo their number. With `action_mask=True` an observation is
    `{"observation": ids, "action_mask": int8 [n]}`, whose mask has 1 for the first of each different candidate.

    A policy proposes `num_candidates` texts for every prompt, drawn from the path of the state as a collector's are, so the same
    episode has the same candidates; equal ones count once. Learners only see what they choose between with `max_candidate_tokens`.

    `candidates` has what each agent can choose from now. Infos of steps: `candidates`, what it could choose from, and
    `completion`, what it chose.

    Args:
        env: a task's, or a wrapper around one.
        candidates: one list, a list for each agent, `f(item, agent)` → list, or a policy.
        num_candidates: n, the most; needed for a function or a policy, else the longest list's.
        action_mask: whether observations have a mask.
        tokenizer: an object with `vocab_size`, `encode(text)` and `decode(ids)`; bytes by default.
        max_prompt_tokens: L, ids of the prompt in an observation, padded in front.
        max_candidate_tokens: C, ids of each candidate that follow them, padded behind; 0 leaves candidates out.
        max_state_tokens: S, ids in `state()`.
    """

    def __init__(
        self,
        env: BranchingEnv,
        candidates: Candidates,
        *,
        num_candidates: int | None = None,
        action_mask: bool = False,
        tokenizer: Tokenizer | None = None,
        max_prompt_tokens: int = 256,
        max_candidate_tokens: int = 0,
        max_state_tokens: int = 1024,
    ) -> None:
        vocabulary = Vocabulary(tokenizer)
        super().__init__(env, vocabulary, max_state_tokens)
        self.max_prompt_tokens = checked_length("max_prompt_tokens", max_prompt_tokens)
        self.max_candidate_tokens = checked_length("max_candidate_tokens", max_candidate_tokens, least=0)
        self.action_mask = action_mask
        self._source = _as_lists(candidates, self.possible_agents)
        self.num_candidates = _most(self._source, num_candidates)
        length = self.max_prompt_tokens + self.num_candidates * self.max_candidate_tokens
        self.observation_spaces = {agent: self._observation_space(length) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(self.num_candidates) for agent in self.possible_agents}
        self.candidates: dict[AgentID, tuple[str, ...]] = {}

    def _observation_space(self, length: int) -> spaces.Space:
        ids = self.vocabulary.space(length)
        mask = spaces.Box(0, 1, (self.num_candidates,), np.int8)
        return spaces.Dict({"observation": ids, "action_mask": mask}) if self.action_mask else ids

    def observe(self, agent: AgentID) -> NDArray[np.float32] | dict[str, NDArray[Any]]:
        """[L + n·C] the newest ids of the agent's prompt and the first ones of its candidates; with a mask if there is one."""
        ids = self.vocabulary.newest(self.prompt(agent), self.max_prompt_tokens)
        if self.max_candidate_tokens:
            padded = (*self.candidates[agent], *[""] * self.num_candidates)[: self.num_candidates]
            ids = np.concatenate([ids, *(self.vocabulary.first(text, self.max_candidate_tokens) for text in padded)])
        return {"observation": ids, "action_mask": self._mask(agent)} if self.action_mask else ids

    def text_of(self, agent: AgentID, action: Any) -> str:
        """The candidate of the index."""
        (index,) = as_ids(action, 1, self.num_candidates, f"the action of {agent}")
        return self.candidates[agent][index % len(self.candidates[agent])]

    def step_infos(self, agent: AgentID, text: str) -> dict[str, Any]:
        """What the agent chose, and from what."""
        return {"completion": text, "candidates": self.candidates[agent]}

    def on_new_prompts(self) -> None:
        """Take the candidates of the new prompts."""
        source, agents = self._source, self.possible_agents
        if isinstance(source, Policy):
            self.candidates = self._proposed(source)
        elif isinstance(source, Mapping):
            self.candidates = dict(source)
        else:
            item = self.env.snapshot().item
            self.candidates = {agent: self._fitting(source(owned(item), agent), f"candidates of {agent}") for agent in agents}

    def _proposed(self, policy: Policy) -> dict[AgentID, tuple[str, ...]]:
        state, n = self.env.snapshot(), self.num_candidates
        keys = [(*state.key, number) for number in range(len(self.possible_agents))]
        drawn = policy.generate([self.prompt(agent) for agent in self.possible_agents], n, keys)
        proposed: dict[AgentID, tuple[str, ...]] = {}
        for agent, completions in zip(self.possible_agents, drawn, strict=True):
            if len(completions) != n:
                raise ValueError(f"the policy must propose {n} candidates for {agent}, got {len(completions)}")
            proposed[agent] = self._fitting([completion.text for completion in completions], f"proposals for {agent}")
        return proposed

    def _fitting(self, texts: Sequence[str], what: str) -> tuple[str, ...]:
        checked = _checked_texts(texts, what)
        if len(checked) > self.num_candidates:
            raise ValueError(f"{what}: {len(checked)} texts, more than num_candidates={self.num_candidates}: {checked!r}")
        return checked

    def _mask(self, agent: AgentID) -> NDArray[np.int8]:
        mask = np.zeros(self.num_candidates, np.int8)
        mask[: len(self.candidates[agent])] = 1
        return mask


def _as_lists(candidates: Candidates, agents: Sequence[AgentID]) -> Mapping[AgentID, tuple[str, ...]] | Callable[..., Any] | Policy:
    """A checked list for each agent, or what gives one."""
    if isinstance(candidates, Policy):
        return candidates
    if isinstance(candidates, Mapping):
        if set(candidates) != set(agents):
            raise ValueError(f"candidates must have a list for each of {', '.join(agents)}, got {', '.join(map(str, candidates))}")
        return {agent: _checked_texts(candidates[agent], f"candidates of {agent}") for agent in agents}
    if callable(candidates):
        return candidates
    return dict.fromkeys(agents, _checked_texts(candidates, "candidates"))


def _checked_texts(texts: Any, what: str) -> tuple[str, ...]:
    """The different texts in order."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise TypeError(f"{what} must be a list of texts, got {texts!r}")
    if not texts:
        raise ValueError(f"{what} must have at least one text, got {texts!r}")
    return tuple(dict.fromkeys(clean_text(text, f"{what}: number {number}") for number, text in enumerate(texts)))


def _most(source: Mapping[AgentID, tuple[str, ...]] | Callable[..., Any] | Policy, wanted: int | None) -> int:
    if not isinstance(source, Mapping):
        if wanted is None:
            raise ValueError("candidates of a function or a policy need num_candidates, the most there can be")
        return checked_length("num_candidates", wanted)
    most = max(len(texts) for texts in source.values())
    if wanted is not None and checked_length("num_candidates", wanted) < most:
        raise ValueError(f"num_candidates={wanted} is less than the {most} candidates of an agent")
    return most if wanted is None else wanted
