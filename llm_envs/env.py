"""The environment: two pure functions, `initial` and `branch`, under the PettingZoo face.

`BranchingEnv` owns the face (reset, step, spaces, snapshots) and knows no task; `TaskEnv` owns what a `Task` means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from llm_envs.rewards import processed
from llm_envs.seeding import ENVIRONMENT, Path, stream
from llm_envs.spaces import UnicodeText, clean_text
from llm_envs.task import Task, has_length
from llm_envs.types import AgentID, Item, JointAction, State, Transition, Turn

Observation = dict[str, str]


class BranchingEnv(ParallelEnv[AgentID, Observation, str]):
    """A PettingZoo parallel environment of texts whose state is a value.

    A subclass gives `initial` and `branch`; everything else stands on them. All agents act at once and end together.

    Attributes:
        possible_agents: the team, in order.
        num_turns: H, the most turns an episode has.
        items: rows that `reset` and trainers start episodes from.
        eval_items: rows for evaluation, None without.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "branching", "render_modes": ["ansi"], "is_parallelizable": True}

    def __init__(
        self,
        agents: Sequence[AgentID],
        *,
        num_turns: int,
        items: Sequence[Item] | Iterable[Item],
        eval_items: Sequence[Item] | Iterable[Item] | None = None,
        render_mode: str | None = None,
        max_prompt_length: int = 2**20,
        max_completion_length: int = 2**20,
    ) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode must be None or 'ansi', got {render_mode!r}")
        self.possible_agents = list(agents)
        self.agents: list[AgentID] = []
        self.num_turns = num_turns
        self.items = items
        self.eval_items = eval_items
        self.render_mode = render_mode
        self.observation_spaces = {
            agent: spaces.Dict({"prompt": UnicodeText(max_prompt_length)}) for agent in self.possible_agents
        }
        self.action_spaces = {agent: UnicodeText(max_completion_length) for agent in self.possible_agents}
        self._state: State | None = None
        self._env_step = 0
        self._seed: int | None = None
        self._episode = 0
        self._order: list[int] = []
        self._rows: Iterator[Item] | None = None

    # ---- what a subclass gives ----

    def initial(self, item: Item, key: Path, item_index: int = -1) -> State:
        """The state an episode on this row starts from. Pure.

        Args:
            item: the row.
            key: path of the state, `(seed, episode)`.
            item_index: position of the row, for infos and messages.
        """
        raise NotImplementedError

    def branch(self, state: State, joint_actions: Sequence[JointAction]) -> list[Transition]:
        """What each of several joint actions taken at one state leads to, in order. Pure: `state` stays as it was.

        Child j has the key `(*state.key, j)`. Chance in a transition comes from the parent's `rng()`, so siblings share it.

        Raises:
            ValueError: if the state is an end, or a joint action does not name every agent.
        """
        raise NotImplementedError

    def global_state(self, state: State) -> str:
        """The state as one text: every agent's prompts and completions so far, then what each reads now."""
        parts: list[str] = []
        for number, turn in enumerate(state.history, start=1):
            for agent in self.possible_agents:
                parts.append(f"[turn {number}, {agent} reads]\n{turn.observations[agent]}")
            for agent in self.possible_agents:
                parts.append(f"[turn {number}, {agent} writes]\n{turn.actions[agent]}")
        parts.extend(f"[{agent} reads]\n{state.observations[agent]}" for agent in self.possible_agents)
        return "\n\n".join(parts)

    # ---- the PettingZoo face ----

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[AgentID, Observation], dict[AgentID, dict[str, Any]]]:
        """Start an episode: observations `{"prompt": text}`, and an empty info for each agent.

        Args:
            seed: starts the stream of items and chance anew; None goes on with it (from entropy the first time).
            options: `{"item": position}` or `{"item": row}` chooses the row; other keys are ignored.
        """
        if seed is not None or self._seed is None:
            self._seed = int(seed) if seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
            self._episode, self._order, self._rows = 0, [], None
        else:
            self._episode += 1
        item_index, item = self._choose(options)
        self._state = self.initial(item, (self._seed, self._episode), item_index)
        self.agents = list(self.possible_agents)
        return self._observations(self._state), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[AgentID, str]
    ) -> tuple[
        dict[AgentID, Observation],
        dict[AgentID, float],
        dict[AgentID, bool],
        dict[AgentID, bool],
        dict[AgentID, dict[str, Any]],
    ]:
        """Play one turn: `branch` with one joint action.

        Returns:
            Observations, rewards, terminations, truncations and infos, each for every agent that acted, in order.

        Raises:
            RuntimeError: before a reset or after the end.
        """
        if not self.agents:
            raise RuntimeError("step needs a running episode: call reset() first")
        (transition,) = self.branch(self._require_state(), [actions])
        self._state = transition.state
        self._env_step += 1
        acted = self.agents
        self.agents = [] if transition.state.done else list(self.possible_agents)
        return (
            self._observations(transition.state),
            {agent: float(transition.rewards[agent]) for agent in acted},
            dict.fromkeys(acted, transition.state.terminated),
            dict.fromkeys(acted, transition.state.truncated),
            {agent: {"env_step": self._env_step, **transition.infos[agent]} for agent in acted},
        )

    def state(self) -> str:  # type: ignore[override]  # PettingZoo says an array; ours is text, numeric views give arrays
        """The current state as text; see `global_state`."""
        return self.global_state(self._require_state())

    def snapshot(self) -> State:
        """The current state as a value, to hand to `restore` or `branch`."""
        return self._require_state()

    def restore(self, state: State) -> dict[AgentID, Observation]:
        """Go on from a state taken earlier, here or in another env of the same task; returns its observations."""
        self._state = state
        self.agents = [] if state.done else list(self.possible_agents)
        return self._observations(state)

    def render(self) -> str | None:
        """The episode so far as text with `render_mode="ansi"`, else None."""
        return self.global_state(self._require_state()) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Nothing is held open."""

    def observation_space(self, agent: AgentID) -> spaces.Space:
        """The agent's observation space, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: AgentID) -> spaces.Space:
        """The agent's action space, always the same object."""
        return self.action_spaces[agent]

    def joint_action(self, action: Mapping[AgentID, Any]) -> dict[AgentID, str]:
        """The joint action with every agent's text cleaned, in the agents' order.

        Raises:
            ValueError: if it does not name exactly the agents.
        """
        if set(action) != set(self.possible_agents):
            raise ValueError(f"a joint action must name {', '.join(self.possible_agents)}, got {', '.join(map(str, action)) or 'none'}")
        return {agent: clean_text(action[agent]) for agent in self.possible_agents}

    def _observations(self, state: State) -> dict[AgentID, Observation]:
        return {agent: {"prompt": state.observations[agent]} for agent in self.possible_agents}

    def _require_state(self) -> State:
        if self._state is None:
            raise RuntimeError("the env has no state yet: call reset() first")
        return self._state

    def _choose(self, options: Mapping[str, Any] | None) -> tuple[int, Item]:
        wanted = options.get("item") if isinstance(options, Mapping) else None
        if isinstance(wanted, Mapping):
            return -1, wanted
        if wanted is not None:
            return self._item_at(wanted)
        if not has_length(self.items):
            return self._next_row()
        if not self._order:
            # A permutation for each pass over the rows, so that seeds differ in order and every row has its turn.
            self._order = stream(ENVIRONMENT, (self._require_seed(), self._episode)).permutation(len(self.items)).tolist()  # type: ignore[arg-type]
        index = self._order.pop(0)
        return index, self.items[index]  # type: ignore[index]

    def _item_at(self, wanted: Any) -> tuple[int, Item]:
        if not has_length(self.items):
            raise ValueError(f"options['item']={wanted!r}: these items have no positions; give the row itself")
        count = len(self.items)  # type: ignore[arg-type]
        if not isinstance(wanted, (int, np.integer)) or isinstance(wanted, bool) or not 0 <= wanted < count:
            raise ValueError(f"options['item'] must be a row or a position from 0 to {count - 1}, got {wanted!r}")
        return int(wanted), self.items[int(wanted)]  # type: ignore[index]

    def _next_row(self) -> tuple[int, Item]:
        if self._rows is None:
            self._rows = iter(self.items)
        row = next(self._rows, None)
        if row is None:
            self._rows = iter(self.items)
            row = next(self._rows, None)
        if row is None:
            raise ValueError("items has no rows")
        return -1, row

    def _require_seed(self) -> int:
        assert self._seed is not None
        return self._seed


class TaskEnv(BranchingEnv, ParallelEnv):
    """The environment of a task.

    Args:
        task: what to do.
        render_mode: None or "ansi".
    """

    def __init__(self, task: Task, *, render_mode: str | None = None) -> None:
        super().__init__(
            task.agent_ids,
            num_turns=task.num_turns,
            items=task.items,
            eval_items=task.eval_items,
            render_mode=render_mode,
            max_prompt_length=task.max_prompt_length,
            max_completion_length=task.max_completion_length,
        )
        self.task = task
        self.metadata = {**BranchingEnv.metadata, "name": task.name}
        self._formatters = task.build_formatters()
        self._rewards = task.build_rewards()
        self._transitions = task.build_transitions()

    def initial(self, item: Item, key: Path, item_index: int = -1) -> State:
        """The state an episode on this row starts from: every agent's formatted prompt."""
        if not isinstance(item, Mapping):
            raise ValueError(f"item {item_index} must be a mapping, got {type(item).__name__}: {item!r}")
        observations = {agent: self._formatters.format(agent, item, item_index) for agent in self.possible_agents}
        return State(item=item, observations=observations, key=key, item_index=item_index)

    def branch(self, state: State, joint_actions: Sequence[JointAction]) -> list[Transition]:
        """What each of several joint actions leads to; the reward function gets them all in one call."""
        if state.done:
            raise ValueError(f"the episode on item {state.item_index} ended after turn {state.turn}: nothing can be done from here")
        actions = [self.joint_action(action) for action in joint_actions]
        if not actions:
            return []
        scores = self._rewards(state, actions)
        transitions = []
        for index, (action, score) in enumerate(zip(actions, scores, strict=True)):
            rewards = processed(self.task.reward_processor, score.total, state.item)
            infos = {
                agent: {
                    "turn": state.turn + 1,
                    "item_index": state.item_index,
                    "raw_reward": score.total[agent],
                    **{f"reward/{term}": values[agent] for term, values in score.terms.items()},
                }
                for agent in self.possible_agents
            }
            transitions.append(Transition(self._next_state(state, index, action, rewards), rewards, infos))
        return transitions

    def _next_state(self, state: State, index: int, action: JointAction, rewards: Mapping[AgentID, float]) -> State:
        history = (*state.history, Turn(state.observations, action, rewards))
        last = len(history) == self.num_turns
        prompts = None if last or self._transitions is None else self._transitions(state, action, rewards)
        observations = state.observations if prompts is None else self._read(state, prompts)
        return State(
            item=state.item,
            observations=observations,
            history=history,
            key=(*state.key, index),
            item_index=state.item_index,
            terminated=prompts is None,
        )

    def _read(self, state: State, prompts: Sequence[str]) -> dict[AgentID, str]:
        by_agent = dict(zip(self.possible_agents, prompts, strict=True))
        if self.task.external_prompt_passthrough:
            return by_agent
        return {
            agent: self._formatters.format(agent, {**state.item, "prompt": prompt}, state.item_index, prompt)
            for agent, prompt in by_agent.items()
        }
