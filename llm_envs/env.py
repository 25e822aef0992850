"""The environment: two pure functions, `initial` and `branch`, under the PettingZoo face.

`BranchingEnv` owns the face (reset, step, spaces, snapshots) and knows no task; `TaskEnv` owns what a `Task` means.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from llm_envs.passes import Passes, row_at
from llm_envs.rewards import declared_range, processed
from llm_envs.seeding import PLAY, Path
from llm_envs.spaces import UnicodeText, clean_text
from llm_envs.task import Task, agent_names
from llm_envs.types import AgentID, Item, JointAction, Rendering, State, Transition, Turn

Observation: TypeAlias = dict[str, str]
Infos: TypeAlias = dict[AgentID, dict[str, Any]]


class BranchingEnv(ParallelEnv[AgentID, Observation, str]):
    """A PettingZoo parallel environment of texts whose state is a value.

    A subclass gives `initial` and `branch`; everything else stands on them. All agents act at once and end together. A public
    subclass lists `ParallelEnv` as a base of its own: some libraries look for it there.

    Args:
        agents: the team, `<role>_<number>`, in order.
        num_turns: H, the most turns an episode has.
        items: rows that `reset` and trainers start episodes from.
        eval_items: rows for evaluation, None without.
        name: shown in messages and `metadata`.
        render_mode: None or one of `render_modes`.
        render_modes: that `rendered` knows.
        max_prompt_length: of the observation spaces, in characters.
        max_completion_length: of the action spaces, in characters. A longer action is played all the same.
    """

    def __init__(
        self,
        agents: Sequence[AgentID],
        *,
        num_turns: int,
        items: Sequence[Item] | Iterable[Item],
        eval_items: Sequence[Item] | Iterable[Item] | None = None,
        name: str = "branching",
        render_mode: str | None = None,
        render_modes: Sequence[str] = ("ansi",),
        max_prompt_length: int = 2**20,
        max_completion_length: int = 2**20,
    ) -> None:
        if render_mode is not None and render_mode not in render_modes:
            raise ValueError(f"render_mode must be None or {' or '.join(map(repr, render_modes))}, got {render_mode!r}")
        self.metadata = {"name": name, "render_modes": list(render_modes), "is_parallelizable": True}
        self.possible_agents = list(agent_names(agents))
        self.agents: list[AgentID] = []
        self.num_turns = num_turns
        self.items = items
        self.eval_items = eval_items
        self.render_mode = render_mode
        self.max_prompt_length = max_prompt_length
        self.max_completion_length = max_completion_length
        observation_spaces: dict[AgentID, spaces.Space] = {
            agent: spaces.Dict({"prompt": UnicodeText(max_prompt_length)}) for agent in self.possible_agents
        }
        self.observation_spaces = observation_spaces
        self.action_spaces = {agent: UnicodeText(max_completion_length) for agent in self.possible_agents}
        self._state: State | None = None
        self._run_seed: int | None = None  # of the stream of episodes that `reset` started
        self._env_step = 0
        self._episode = 0
        self._passes = Passes(0)

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """Lowest and highest raw reward of a turn, where they are declared (`set_reward_range`)."""
        return None

    # ---- what a subclass gives ----

    def initial(self, item: Item, key: Path, item_index: int = -1) -> State:
        """The state an episode on this row starts from. Pure.

        Args:
            item: the row.
            key: path of the state, `(seed, purpose, episode)`.
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
            parts.extend(f"[turn {number}, {agent} reads]\n{turn.observations[agent]}" for agent in self.possible_agents)
            parts.extend(f"[turn {number}, {agent} writes]\n{turn.actions[agent]}" for agent in self.possible_agents)
        parts.extend(f"[{agent} reads]\n{state.observations[agent]}" for agent in self.possible_agents)
        return "\n\n".join(parts)

    def rendered(self, state: State, mode: str) -> Rendering:
        """The state drawn in one of the environment's `render_modes`: its text for "ansi"."""
        return self.global_state(state)

    # ---- the PettingZoo face ----

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[dict[AgentID, Observation], Infos]:
        """Start an episode: observations `{"prompt": text}`, and an empty info for each agent.

        Args:
            seed: starts the stream of items, chance and env steps anew; None goes on with it (from entropy the first time). The
                first row after a seed is row `seed` modulo their number, and every pass over the rows has an order of its own. Rows
                without positions come in the order they have.
            options: `{"item": position}` or `{"item": row}` chooses the row; other keys are ignored.

        Raises:
            ValueError: for a negative seed, a position there is none of, or a row the task cannot be played on.
        """
        if seed is not None or self._run_seed is None:
            self._start_run(seed)
        else:
            self._episode += 1
        assert self._run_seed is not None
        item_index, item = self._chosen(options)
        self._state = self.initial(item, (self._run_seed, PLAY, self._episode), item_index)
        self.agents = list(self.possible_agents)
        return self._observations(self._state), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[AgentID, str]
    ) -> tuple[
        dict[AgentID, Observation],
        dict[AgentID, float],
        dict[AgentID, bool],
        dict[AgentID, bool],
        Infos,
    ]:
        """Play one turn: `branch` with one joint action.

        Returns:
            Observations, rewards, terminations, truncations and infos, each for every agent that acted, in order. Infos are those
            of the transition and `env_step`, which counts from the last seed.

        Raises:
            RuntimeError: before a reset or after the end.
            ValueError: if the actions are not those of the agents.
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
        """Go on from a state taken earlier, here or in another env of the same task; returns its observations.

        Raises:
            TypeError, ValueError: if it is no state, or of another team or wrapper. The env then stays where it is.
        """
        self.check_state(state)
        self._state = state
        self.agents = [] if state.done else list(self.possible_agents)
        return self._observations(state)

    def render(self) -> Rendering | None:
        """The episode so far as `render_mode` says: text with "ansi", an image [H, W, 3] with "rgb_array"; None without a mode."""
        return None if self.render_mode is None else self.rendered(self._require_state(), self.render_mode)

    def close(self) -> None:
        """Nothing is held open."""

    def observation_space(self, agent: AgentID) -> spaces.Space:
        """The agent's observation space, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: AgentID) -> spaces.Space:
        """The agent's action space, always the same object."""
        return self.action_spaces[agent]

    def check_state(self, state: State) -> None:
        """Refuse what is no state of such an environment.

        Raises:
            TypeError: if it is no state.
            ValueError: if it is of other agents.
        """
        if not isinstance(state, State):
            raise TypeError(f"expected a State, got {type(state).__name__}: {state!r}")
        if set(state.observations) != set(self.possible_agents):
            raise ValueError(
                f"this state ({state.place}) is of the agents {_listed(state.observations)}, not {_listed(self.possible_agents)}"
            )

    def playable(self, state: State, joint_actions: Iterable[Mapping[AgentID, Any]]) -> list[dict[AgentID, str]]:
        """The joint actions with every text cleaned and in the agents' order: what each `branch` starts with.

        Raises:
            ValueError: if the state is none of this environment's or an end, or a joint action does not name exactly the agents.
            TypeError: if one is no mapping or holds something that is no text.
        """
        self.check_state(state)
        if state.done:
            raise ValueError(f"the episode is over after turn {state.turn}, nothing can be done in {state.place}")
        if isinstance(joint_actions, (str, Mapping)) or not isinstance(joint_actions, Iterable):
            raise TypeError(f"joint_actions must be a list of joint actions, got {joint_actions!r}")
        return [self._cleaned(action) for action in joint_actions]

    def _cleaned(self, action: Mapping[AgentID, Any]) -> dict[AgentID, str]:
        if not isinstance(action, Mapping):
            raise TypeError(f"a joint action must be a mapping from agent to text, got {action!r}")
        if set(action) != set(self.possible_agents):
            raise ValueError(f"a joint action must name {_listed(self.possible_agents)}, got {_listed(action)}")
        return {agent: clean_text(action[agent], f"the action of {agent}") for agent in self.possible_agents}

    def _observations(self, state: State) -> dict[AgentID, Observation]:
        return {agent: {"prompt": state.observations[agent]} for agent in self.possible_agents}

    def _require_state(self) -> State:
        if self._state is None:
            raise RuntimeError("the env has no state yet: call reset() first")
        return self._state

    def _start_run(self, seed: int | None) -> None:
        try:
            chosen = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else operator.index(seed)
        except TypeError as error:
            raise TypeError(f"seed must be a whole number or None, got {seed!r}") from error
        if chosen < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        self._run_seed = chosen
        self._env_step = self._episode = 0
        self._passes = Passes(chosen)

    def _chosen(self, options: Mapping[str, Any] | None) -> tuple[int, Item]:
        wanted = options.get("item") if isinstance(options, Mapping) else None
        if isinstance(wanted, Mapping):
            return -1, wanted
        return self._passes.next_row(self.items) if wanted is None else row_at(self.items, wanted)


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names)) or "none"


class TaskEnv(BranchingEnv, ParallelEnv):  # type: ignore[misc]  # `state` is text
    """The environment of a task.

    Args:
        task: what to do.
        render_mode: None, "ansi", or another one of the task's `renderers`.
    """

    def __init__(self, task: Task, *, render_mode: str | None = None) -> None:
        if not isinstance(task, Task):
            raise TypeError(f"task must be a Task, got {task!r}")
        super().__init__(
            task.agent_ids,
            num_turns=task.num_turns,
            items=task.items,
            eval_items=task.eval_items,
            name=task.name,
            render_mode=render_mode,
            render_modes=tuple(dict.fromkeys(("ansi", *task.renderers))),
            max_prompt_length=task.max_prompt_length,
            max_completion_length=task.max_completion_length,
        )
        self.task = task
        self._formatters = task.build_formatters()
        self._rewards = task.build_rewards()
        self._transitions = task.build_transitions()

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """Lowest and highest raw reward of a turn, where the task's reward declares them (`set_reward_range`)."""
        return declared_range(self.task.reward)

    def rendered(self, state: State, mode: str) -> Rendering:
        """The state as the task's renderer of this mode draws it; as text where it has none for "ansi"."""
        renderer = self.task.renderers.get(mode)
        return super().rendered(state, mode) if renderer is None else renderer(state)

    def initial(self, item: Item, key: Path, item_index: int = -1) -> State:
        """The state an episode on this row starts from: every agent's formatted prompt.

        Raises:
            ValueError: naming row, field and agent, if the row cannot be formatted.
        """
        if not isinstance(item, Mapping):
            raise ValueError(f"item {item_index} must be a mapping, got {type(item).__name__}: {item!r}")
        prompts = {agent: self._formatters.format(agent, item, item_index) for agent in self.possible_agents}
        return State(item=item, observations=self._fitting(prompts, item_index), key=key, item_index=item_index)

    def check_state(self, state: State) -> None:
        """Refuse what is no state of such an environment; also a wrapper's state, which is ahead of the task's."""
        super().check_state(state)
        if state.inner is not None:
            raise ValueError(f"this state ({state.place}) comes from a wrapper; the task's own is its `inner`")

    def branch(self, state: State, joint_actions: Sequence[JointAction]) -> list[Transition]:
        """What each of several joint actions leads to; the reward function gets them all in one call.

        Raises:
            ValueError: as `playable`, and for prompts of the next turn that cannot be formatted.
            RewardError, TransitionError: if the task's functions fail.
        """
        actions = self.playable(state, joint_actions)
        if not actions:
            return []
        transitions = []
        for index, (action, score) in enumerate(zip(actions, self._rewards(state, actions), strict=True)):
            rewards = processed(self.task.reward_processor, score.total, state)
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
        return State(
            item=state.item,
            observations=state.observations if prompts is None else self._next_prompts(state, prompts),
            history=history,
            key=(*state.key, index),
            item_index=state.item_index,
            terminated=prompts is None,
        )

    def _next_prompts(self, state: State, external: Sequence[str]) -> dict[AgentID, str]:
        prompts = dict(zip(self.possible_agents, external, strict=True))
        if not self.task.external_prompt_passthrough:
            prompts = {
                agent: self._formatters.format(agent, {**state.item, "prompt": prompt}, state.item_index, prompt)
                for agent, prompt in prompts.items()
            }
        return self._fitting(prompts, state.item_index)

    def _fitting(self, prompts: dict[AgentID, str], item_index: int) -> dict[AgentID, str]:
        for agent, prompt in prompts.items():
            if len(prompt) > self.max_prompt_length:
                raise ValueError(
                    f"item {item_index}: the prompt of {agent} has {len(prompt)} characters, "
                    f"more than max_prompt_length={self.max_prompt_length} of the task {self.task.name!r}"
                )
        return prompts
