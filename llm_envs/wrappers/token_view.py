"""Prompts and completions as token ids: a whole completion an action, or one token an action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from llm_envs.env import BranchingEnv
from llm_envs.types import AgentID
from llm_envs.wrappers.tokens import Tokenizer, Vocabulary, as_ids, checked_length
from llm_envs.wrappers.view import Returned, View


class TokenView(View, ParallelEnv):  # type: ignore[misc]  # `state` is float32
    """Prompts as ids in a `Box`, completions as ids in a `MultiDiscrete`.

    An observation holds the newest ids of the prompt, padded in front. An action holds a whole completion: what comes after the
    first `vocabulary.end` is ignored, `vocabulary.pad` writes nothing. Ids are bytes unless there is a tokenizer; the two special
    ones follow the tokenizer's.

    Args:
        env: a task's, or a wrapper around one.
        tokenizer: an object with `vocab_size`, `encode(text)` and `decode(ids)`.
        max_prompt_tokens: L, ids in an observation.
        max_completion_tokens: K, ids in an action. A policy over them has K·V outputs.
        max_state_tokens: S, ids in `state()`.
    """

    def __init__(
        self,
        env: BranchingEnv,
        tokenizer: Tokenizer | None = None,
        *,
        max_prompt_tokens: int = 256,
        max_completion_tokens: int = 32,
        max_state_tokens: int = 1024,
    ) -> None:
        vocabulary = Vocabulary(tokenizer)
        super().__init__(env, vocabulary, max_state_tokens)
        self.max_prompt_tokens = checked_length("max_prompt_tokens", max_prompt_tokens)
        self.max_completion_tokens = checked_length("max_completion_tokens", max_completion_tokens)
        self.observation_spaces = {agent: vocabulary.space(self.max_prompt_tokens) for agent in self.possible_agents}
        nvec = [vocabulary.size] * self.max_completion_tokens
        self.action_spaces = {agent: spaces.MultiDiscrete(nvec) for agent in self.possible_agents}

    def observe(self, agent: AgentID) -> NDArray[np.float32]:
        """[L] the newest ids of the agent's prompt."""
        return self.vocabulary.newest(self.prompt(agent), self.max_prompt_tokens)

    def text_of(self, agent: AgentID, action: Any) -> str:
        """The text of the ids."""
        return self.vocabulary.text(as_ids(action, self.max_completion_tokens, self.vocabulary.size, f"the action of {agent}"))


class AutoregressiveTokenView(View, ParallelEnv):  # type: ignore[misc]  # `state` is float32
    """One token of each agent in each step; a turn is over when every agent has ended.

    An agent ends with `vocabulary.end` or with its K-th token. Those that have ended wait: their actions are ignored until the
    turn's last agent ends too. That step brings the turn's rewards, for everybody; the others bring 0.0. An observation holds the
    newest L ids of the prompt, padded in front, and then the K places of what the agent has written in this turn, padded behind.
    `state()` has the newest S ids of the state as text, and then every agent's K places.

    Infos: `wrote`, 1 if the agent's token of this step counted, else 0; those of the turn at its end.

    Args:
        env: a task's, or a wrapper around one.
        tokenizer: an object with `vocab_size`, `encode(text)` and `decode(ids)`; bytes by default.
        max_prompt_tokens: L.
        max_completion_tokens: K, the end token included.
        max_state_tokens: S.
    """

    def __init__(
        self,
        env: BranchingEnv,
        tokenizer: Tokenizer | None = None,
        *,
        max_prompt_tokens: int = 256,
        max_completion_tokens: int = 32,
        max_state_tokens: int = 1024,
    ) -> None:
        vocabulary = Vocabulary(tokenizer)
        super().__init__(env, vocabulary, max_state_tokens)
        self.max_prompt_tokens = checked_length("max_prompt_tokens", max_prompt_tokens)
        self.max_completion_tokens = checked_length("max_completion_tokens", max_completion_tokens)
        length = self.max_prompt_tokens + self.max_completion_tokens
        self.observation_spaces = {agent: vocabulary.space(length) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(vocabulary.size) for agent in self.possible_agents}
        self.state_space = vocabulary.space(self.max_state_tokens + len(self.possible_agents) * self.max_completion_tokens)
        self._written: dict[AgentID, tuple[int, ...]] = dict.fromkeys(self.possible_agents, ())

    def observe(self, agent: AgentID) -> NDArray[np.float32]:
        """[L + K] the newest ids of the agent's prompt, and what it has written of its completion."""
        return np.concatenate([self.vocabulary.newest(self.prompt(agent), self.max_prompt_tokens), self._places(agent)])

    def on_new_prompts(self) -> None:
        """Nothing is written yet."""
        self._written = dict.fromkeys(self.possible_agents, ())

    def ended(self, agent: AgentID) -> bool:
        """Whether the agent's completion of this turn is complete."""
        written = self._written[agent]
        return len(written) == self.max_completion_tokens or written[-1:] == (self.vocabulary.end,)

    def step(self, actions: Mapping[AgentID, Any]) -> Returned:
        """Write one token of each agent; as `BranchingEnv.step` when the turn is over.

        Raises:
            RuntimeError: before a reset or after the end.
            TypeError, ValueError: for actions that are none, or not those of the agents.
        """
        self.require_actions(actions)
        tokens = {a: as_ids(actions[a], 1, self.vocabulary.size, f"the action of {a}") for a in self.possible_agents}
        wrote = {agent: not self.ended(agent) for agent in self.possible_agents}
        self._written = {a: (*self._written[a], *tokens[a]) if wrote[a] else self._written[a] for a in self.possible_agents}
        if all(self.ended(agent) for agent in self.possible_agents):
            returned = self.play({agent: self.vocabulary.text(self._written[agent]) for agent in self.possible_agents})
        else:
            returned = self._in_between()
        for agent, info in returned[-1].items():
            info["wrote"] = int(wrote[agent])
        return returned

    def state(self) -> NDArray[np.float32]:  # type: ignore[override]  # of float32, as `state_space` says
        """[S + N·K] the newest ids of the state as text, and what every agent has written of its completion."""
        return np.concatenate([super().state(), *(self._places(agent) for agent in self.possible_agents)])

    def _places(self, agent: AgentID) -> NDArray[np.float32]:
        return self.vocabulary.written(self._written[agent], self.max_completion_tokens)

    def _in_between(self) -> Returned:
        agents = self.possible_agents
        return (
            {agent: self.observe(agent) for agent in agents},
            dict.fromkeys(agents, 0.0),
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )
