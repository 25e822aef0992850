"""What wrappers share: an environment whose states carry the wrapped environment's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pettingzoo import ParallelEnv

from llm_envs.env import BranchingEnv
from llm_envs.seeding import Path
from llm_envs.types import AgentID, Item, JointAction, Rendering, State, Transition, Turn

FRAME = 4096
"""Least characters that the space of a text made of several leaves for what stands around them."""


class Wrapper(BranchingEnv, ParallelEnv):  # type: ignore[misc]  # `state` is text
    """An environment around another one; by itself it changes nothing.

    A subclass overrides `branch`, and `initial` if observations change; never `step`, which stands on `branch`. Each state carries
    the wrapped environment's state as `inner`, so states stay values: snapshots, trees and copies need nothing else. A wrapper is
    an environment of its own: `unwrapped` gives itself, `env` the wrapped one.

    Args:
        env: what is wrapped. It is not stepped, and its own episode is left alone.
        agents: the team if it is another one: agents that read and write for all those of the wrapped one.
    """

    def __init__(self, env: BranchingEnv, *, agents: Sequence[AgentID] | None = None) -> None:
        if not isinstance(env, BranchingEnv):
            raise TypeError(f"{type(self).__name__} wraps a BranchingEnv (a task's, or another wrapper), got {env!r}")

        def room(length: int) -> int:
            # Another team's text holds everybody's, and a frame around them.
            return length if agents is None else len(env.possible_agents) * length + max(length, FRAME)

        super().__init__(
            env.possible_agents if agents is None else agents,
            num_turns=env.num_turns,
            items=env.items,
            eval_items=env.eval_items,
            name=f"{type(self).__name__}({env})",
            render_mode=env.render_mode,
            render_modes=env.metadata["render_modes"],
            max_prompt_length=room(env.max_prompt_length),
            max_completion_length=room(env.max_completion_length),
        )
        self.env = env

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """That of the wrapped environment: wrappers may change rewards, raw ones stay what they are."""
        return self.env.reward_range

    def initial(self, item: Item, key: Path, item_index: int = -1) -> State:
        """The state an episode on this row starts from."""
        inner = self.env.initial(item, key, item_index)
        return dataclasses.replace(inner, inner=inner)

    def check_state(self, state: State) -> None:
        """Refuse what is no state of such an environment, or carries none of the wrapped one's."""
        super().check_state(state)
        self.env.check_state(inner_state(state))

    def branch(self, state: State, joint_actions: Sequence[JointAction]) -> list[Transition]:
        """What each of several joint actions leads to: what it leads to inside."""
        actions = self.playable(state, joint_actions)
        transitions = self.env.branch(inner_state(state), actions)
        return [_seen_from_outside(state, transition) for transition in transitions]

    def global_state(self, state: State) -> str:
        """The wrapped environment's state as one text."""
        return self.env.global_state(inner_state(state))

    def rendered(self, state: State, mode: str) -> Rendering:
        """The wrapped environment's state drawn."""
        return self.env.rendered(inner_state(state), mode)


def inner_state(state: State) -> State:
    """The wrapped environment's state.

    Raises:
        ValueError: if there is none: the state comes from an environment that wraps nothing.
    """
    if state.inner is None:
        raise ValueError(
            f"this state ({state.place}) does not come from a wrapper; take it from the wrapper's reset, snapshot or branch"
        )
    return state.inner


def rewarded(transition: Transition, rewards: Mapping[AgentID, float], infos: Iterable[Mapping[str, Any]]) -> Transition:
    """The transition with other rewards, in the state's history too, and with more infos.

    Args:
        transition: stays as it was.
        rewards: one for each agent.
        infos: for each agent in order, entries to add or replace.
    """
    last = dataclasses.replace(transition.state.history[-1], rewards=rewards)
    return Transition(
        state=dataclasses.replace(transition.state, history=(*transition.state.history[:-1], last)),
        rewards=rewards,
        infos={agent: {**old, **new} for (agent, old), new in zip(transition.infos.items(), infos, strict=True)},
    )


def _seen_from_outside(parent: State, transition: Transition) -> Transition:
    # Earlier turns may look different from outside (other rewards), so the history goes on from the outer parent's.
    inner = transition.state
    turn = Turn(parent.observations, inner.history[-1].actions, transition.rewards)
    return dataclasses.replace(transition, state=dataclasses.replace(inner, history=(*parent.history, turn), inner=inner))
