"""Any PettingZoo parallel environment as ours: `from_parallel_env`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pettingzoo import ParallelEnv

from llm_envs.adapters.game_env import BranchBy, GameEnv
from llm_envs.adapters.games import Outcome
from llm_envs.adapters.text_game import TextGame
from llm_envs.adapters.texts import ToAction, ToPrompt, our_names, plain
from llm_envs.types import AgentID, Item, JointAction

SEEDS = 64
EVAL_SEEDS = 16


def from_parallel_env(
    env: ParallelEnv | Callable[[], ParallelEnv],
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
    """A PettingZoo parallel environment as one that branches, for our collector and learners.

    Agents keep their names if all are `<role>_<number>`, else they are `agent_0`, … in the order of `possible_agents`. Ours end
    together: one that leaves earlier reads on what it read last, its texts are not played, and it earns 0.

    Args:
        env: an environment, which is copied and never touched, or a function that makes a fresh one.
        num_turns: turns after which an episode is cut off, if the environment has not ended it: a truncation.
        branch_by: how to get to a second environment at the same place: "restore" (its own `snapshot()` and `restore(snapshot)`),
            "copy" (a deep copy) or "replay" (`reset` with the same seed and the actions since). None tries them in this order and
            takes the first that gives what straight play gives.
        items: rows `{"seed": ..., "options": ...}` for `reset`; both may be missing, the seed then comes from the run. By default
            the seeds 0 to 63.
        eval_items: rows for evaluation; the seeds 64 to 79 by default, none with own `items`.
        to_prompt: `f(agent, observation) -> str`; by default the observation if it is a text, or the text in its Dict.
        to_action: `f(agent, text) -> action`; by default the text without characters that a Text space lacks, cut to its length.
        name: for messages; the environment's by default.
        render_mode: of the adapter: None or "ansi".

    Raises:
        ValueError: for spaces that are no texts without `to_prompt` or `to_action`, an environment that is not the same after
            `reset` with the same seed, or a way of branching that is not right.
        TypeError: for something that is no parallel environment.
    """
    make_env = env if callable(env) and not isinstance(env, ParallelEnv) else partial(copy.deepcopy, env)
    made: Any = make_env()
    if not isinstance(made, ParallelEnv):
        raise TypeError(f"from_parallel_env takes a pettingzoo.ParallelEnv or a function that makes one, got {made!r:.200}")
    rows, eval_rows = seed_rows(items, eval_items)
    return GameEnv(
        partial(ParallelGame, make_env, to_prompt, to_action),
        list(our_names(made.possible_agents).values()),
        num_turns=num_turns,
        items=rows,
        eval_items=eval_rows,
        name=name or str(made.metadata.get("name", type(made).__name__)),
        branch_by=branch_by,
        render_mode=render_mode,
    )


def seed_rows(
    items: Sequence[Item] | Iterable[Item] | None, eval_items: Sequence[Item] | Iterable[Item] | None
) -> tuple[Sequence[Item] | Iterable[Item], Sequence[Item] | Iterable[Item] | None]:
    """The given rows, or rows with seeds of which those for evaluation are others than those to train on."""
    if items is not None:
        return items, eval_items
    held_out = [{"seed": seed} for seed in range(SEEDS, SEEDS + EVAL_SEEDS)]
    return [{"seed": seed} for seed in range(SEEDS)], held_out if eval_items is None else eval_items


def reset_options(item: Item) -> dict[str, Any] | None:
    """A copy of the row's options for `reset`."""
    options = item.get("options")
    return None if options is None else dict(options)


class ParallelGame(TextGame):
    """A parallel environment as a game of texts under our names.

    Args:
        make_env: makes a fresh one.
        to_prompt: see `from_parallel_env`.
        to_action: the same.
    """

    def start(self, item: Item, seed: int) -> Mapping[AgentID, str]:
        """Reset with the seed and the row's options."""
        observations, _ = self.env.reset(seed=seed, options=reset_options(item))
        self._prompts = dict.fromkeys(self._names.values(), "")
        return self._read(observations)

    def play(self, actions: JointAction) -> Outcome:
        """Step with the texts of the agents that are still there."""
        acting = list(self.env.agents)
        joint = {agent: self._to_action(agent, actions[self._names[agent]]) for agent in acting}
        observations, rewards, _, truncations, infos = self.env.step(joint)
        over = not self.env.agents
        return Outcome(
            prompts=self._read(observations),
            rewards={ours: float(rewards.get(agent, 0.0)) for agent, ours in self._names.items()},
            acted=[self._names[agent] for agent in acting],
            # Ended in different ways: cut off, for a critic then bootstraps.
            terminated=over and not any(truncations.values()),
            truncated=over and any(truncations.values()),
            infos={self._names[agent]: plain(info) for agent, info in infos.items()},
        )

    def _read(self, observations: Mapping[AgentID, Any]) -> Mapping[AgentID, str]:
        read = {self._names[agent]: self._to_prompt(agent, seen) for agent, seen in observations.items() if agent in self._names}
        self._prompts = {**self._prompts, **read}
        return dict(self._prompts)
