"""Any PettingZoo AEC (turn-based) environment as ours: `from_aec_env`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pettingzoo import AECEnv

from llm_envs.adapters.game_env import BranchBy, GameEnv
from llm_envs.adapters.games import Outcome
from llm_envs.adapters.parallel import reset_options, seed_rows
from llm_envs.adapters.text_game import TextGame
from llm_envs.adapters.texts import ToAction, ToPrompt, our_names, plain
from llm_envs.types import AgentID, Item, JointAction


def from_aec_env(
    env: AECEnv | Callable[[], AECEnv],
    *,
    num_turns: int,
    branch_by: BranchBy | None = None,
    items: Sequence[Item] | Iterable[Item] | None = None,
    eval_items: Sequence[Item] | Iterable[Item] | None = None,
    to_prompt: ToPrompt | None = None,
    to_action: ToAction | None = None,
    name: str | None = None,
    render_mode: str | None = None,
) -> GameEnv:
    """A PettingZoo AEC environment as one in which all agents write at once, and that branches.

    In each turn every agent is asked. The agent whose turn it is acts; then the next one, with the text it wrote already, as long
    as it would read now what it read when it wrote it. So a game in which moves are hidden until all have moved is played a round
    a turn, and one in which each move is seen is played a move a turn: the others' texts are not used. `infos[agent]["acted"]`
    says whose were.

    Args:
        env: an environment, which is copied and never touched, or a function that makes a fresh one.
        num_turns: turns of all agents after which an episode is cut off.
        branch_by: as for `from_parallel_env`.
        items: the same.
        eval_items: the same.
        to_prompt: the same.
        to_action: the same.
        name: for messages; the environment's by default.
        render_mode: of the adapter: None or "ansi".

    Raises:
        ValueError, TypeError: as `from_parallel_env`.
    """
    make_env = env if callable(env) and not isinstance(env, AECEnv) else partial(copy.deepcopy, env)
    made: Any = make_env()
    if not isinstance(made, AECEnv):
        raise TypeError(f"from_aec_env takes a pettingzoo.AECEnv or a function that makes one, got {made!r:.200}")
    rows, eval_rows = seed_rows(items, eval_items)
    return GameEnv(
        partial(AECGame, make_env, to_prompt, to_action),
        list(our_names(made.possible_agents).values()),
        num_turns=num_turns,
        items=rows,
        eval_items=eval_rows,
        name=name or str(made.metadata.get("name", type(made).__name__)),
        branch_by=branch_by,
        render_mode=render_mode,
    )


class AECGame(TextGame):
    """An AEC environment as a game of texts in which all write at once.

    Args:
        make_env: makes a fresh one.
        to_prompt: see `from_parallel_env`.
        to_action: the same.
    """

    def start(self, item: Item, seed: int) -> Mapping[AgentID, str]:
        """Reset with the seed and the row's options."""
        self.env.reset(seed=seed, options=reset_options(item))
        self._prompts = dict.fromkeys(self._names.values(), "")
        return self._read()

    def play(self, actions: JointAction) -> Outcome:
        """Play the texts of all agents that may act on what they read."""
        rewards = dict.fromkeys(self._names.values(), 0.0)
        acted: list[AgentID] = []
        ended: dict[AgentID, bool] = {}  # whether each agent that left was cut off
        while self.env.agents:
            agent = self.env.agent_selection
            ours = self._names[agent]
            if self.env.terminations[agent] or self.env.truncations[agent]:
                ended[agent] = self.env.truncations[agent]
                self._prompts[ours] = self._prompt(agent)  # what it reads last
                self.env.step(None)
                continue
            if ours in acted or (acted and self._prompt(agent) != self._prompts[ours]):
                break
            self.env.step(self._to_action(agent, actions[ours]))
            acted.append(ours)
            for other, reward in self.env.rewards.items():
                rewards[self._names[other]] += float(reward)
        infos = {self._names[agent]: plain(self.env.infos.get(agent)) for agent in self.env.agents}
        over, cut = not self.env.agents, any(ended.values())
        return Outcome(self._read(), rewards, acted, terminated=over and not cut, truncated=over and cut, infos=infos)

    def _prompt(self, agent: AgentID) -> str:
        return self._to_prompt(agent, self.env.observe(agent))

    def _read(self) -> Mapping[AgentID, str]:
        # An agent that has left reads on what it read last.
        self._prompts = {**self._prompts, **{self._names[agent]: self._prompt(agent) for agent in self.env.agents}}
        return dict(self._prompts)
