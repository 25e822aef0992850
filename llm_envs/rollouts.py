"""The one collector: breadth first over all items, one `generate` call per distinct policy and turn."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from llm_envs.env import BranchingEnv
from llm_envs.protocols import Parallel, TurnProtocol
from llm_envs.seeding import EVALUATION, ROUND, TRAINING, Path, episode_key
from llm_envs.types import AgentID, Completion, EnvStep, Item, JointAction, Policy, RolloutSpec, State, Transition

In = TypeVar("In")
Out = TypeVar("Out")

_Groups: TypeAlias = list[list[Completion]]
"""For each prompt its completions."""


@dataclass
class Numbering:
    """The numbers already given out in a run. The collector advances it; a checkpoint stores it.

    Attributes:
        env_step: joint actions evaluated so far.
        episode: episodes started so far.
        state_id: states numbered so far.
    """

    env_step: int = 0
    episode: int = 0
    state_id: int = 0


@dataclass
class _Node:
    """A state of the tree under way. Children are filled in by the next turn."""

    state: State
    root: int
    completions: Mapping[AgentID, list[Completion]] = field(default_factory=dict)
    choices: list[dict[AgentID, int]] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    children: list[_Node | None] = field(default_factory=list)
    state_id: int = -1


def collect(
    env: BranchingEnv,
    policies: Mapping[AgentID, Policy],
    items: Iterable[Item],
    spec: RolloutSpec,
    *,
    seed: int = 0,
    numbering: Numbering | None = None,
    item_indices: Sequence[int] | None = None,
    purpose: int = TRAINING,
    executor: Executor | None = None,
    policy_executor: Executor | None = None,
    protocol: TurnProtocol | None = None,
) -> list[EnvStep]:
    """The env steps of one episode (a tree, or a chain with one generation) for each item.

    All live states of all items are played together, turn by turn, and agents that share a policy share its call. Results are those
    of collecting the items one by one: they are numbered by episode, then turn, then order of the states, then joint action.

    Args:
        env: the environment; it is not stepped, and its own episode is left alone.
        policies: one for each agent. The same object for several agents means shared weights.
        items: rows to start from.
        spec: samples, joint mode and early termination.
        seed: of the run; all chance derives from `(seed, purpose, episode, branch, …)`, in evaluation from `(seed, purpose,
            position of the item, branch, …)`, so that evaluations of an item have their random numbers in common.
        numbering: goes on from it and advances it; None starts at 0.
        item_indices: positions of the items in their data set; 0, 1, … by default.
        purpose: `TRAINING` or `EVALUATION`.
        executor: runs `env.branch` for different states at once (slow rewards); threads, or processes if the env can be pickled.
        policy_executor: threads that run different policies' `generate` at once (agents on devices of their own).
        protocol: how the agents of a turn come to their texts (`llm_envs.protocols`); all at once by default. With several rounds,
            `EnvStep.prompts` are what the environment showed, and a completion's `prompt_ids` what its writer read.

    Raises:
        ValueError: if the policies are not those of the env's agents, a policy returns other numbers of completions than asked,
            seed, purpose or positions are none, or a protocol of several rounds meets cross joint actions or leaves an agent out.
            An error leaves `numbering` as it was.
        TypeError: if a policy returns something else, or the seed is no whole number.
    """
    agents = env.possible_agents
    if not isinstance(policies, Mapping) or set(policies) != set(agents):
        given = (", ".join(policies) or "none") if isinstance(policies, Mapping) else repr(policies)
        raise ValueError(f"policies must be given for {', '.join(agents)}, got {given}")
    numbering = Numbering() if numbering is None else numbering
    rows = list(items)
    indices = list(range(len(rows))) if item_indices is None else list(item_indices)
    if len(indices) != len(rows) or (purpose == EVALUATION and any(index < 0 for index in indices)):
        raise ValueError(f"item_indices must be a position for each of {len(rows)} items, got {indices}")
    roots = []
    for offset, (row, index) in enumerate(zip(rows, indices, strict=True)):
        key = episode_key(seed, purpose, numbering.episode + offset, index)
        roots.append(_Node(env.initial(row, key, index), root=offset))
    writers = _Writers(agents, policies, policy_executor)
    levels: list[list[_Node]] = []
    live = roots
    while live:
        levels.append(live)
        _sample(live, writers, spec, protocol or Parallel())
        _advance(env, live, spec, executor)
        live = [child for node in live for child in node.children if child is not None]
    steps = _numbered(env, levels, len(roots), numbering)
    numbering.episode += len(roots)
    return steps


def joint_choices(agents: Sequence[AgentID], spec: RolloutSpec, turn: int = 1) -> list[dict[AgentID, int]]:
    """Which of its samples each agent plays in every joint action: aligned indices, or all combinations with agent 0 slowest."""
    samples = range(spec.generations(turn))
    if spec.joint_mode == "aligned":
        return [dict.fromkeys(agents, k) for k in samples]
    return [dict(zip(agents, combination, strict=True)) for combination in itertools.product(samples, repeat=len(agents))]


@dataclass(frozen=True)
class _Writers:
    """The agents with their policies; a call for each distinct policy.

    Attributes:
        agents: the team, in order.
        policies: one for each.
        executor: runs different policies at once.
    """

    agents: Sequence[AgentID]
    policies: Mapping[AgentID, Policy]
    executor: Executor | None

    def write(self, prompts: Mapping[AgentID, list[str]], n: int, keys: Mapping[AgentID, list[Path]]) -> dict[AgentID, _Groups]:
        """Each agent's `n` completions of each of its prompts."""
        teams: dict[int, list[AgentID]] = {}
        for agent in prompts:
            teams.setdefault(id(self.policies[agent]), []).append(agent)

        def generate(team: list[AgentID]) -> dict[AgentID, _Groups]:
            asked = [prompt for agent in team for prompt in prompts[agent]]
            groups = self.policies[team[0]].generate(asked, n, [key for agent in team for key in keys[agent]])
            _check_groups(team, groups, len(asked), n)
            count = len(prompts[team[0]])
            return {agent: groups[i * count : (i + 1) * count] for i, agent in enumerate(team)}

        drawn: dict[AgentID, _Groups] = {}
        for part in map_in_order(generate, list(teams.values()), self.executor):
            drawn.update(part)
        return drawn


def _sample(nodes: list[_Node], writers: _Writers, spec: RolloutSpec, protocol: TurnProtocol) -> None:
    """Draw every agent's completions at all nodes, round by round."""
    agents, turn = writers.agents, nodes[0].state.turn + 1
    samples = spec.generations(turn)
    first, *later = protocol.rounds(agents)
    if later and samples > 1 and spec.joint_mode != "aligned":
        raise ValueError(f"with {type(protocol).__name__} a sample answers others' of its own number: joint_mode must be 'aligned'")
    prompts = {agent: [protocol.prompt(agent, node.state.observations[agent], ()) for node in nodes] for agent in first}
    keys = {agent: [(*node.state.key, agents.index(agent)) for node in nodes] for agent in first}
    drawn = writers.write(prompts, samples, keys)
    if later:
        drawn = _further_rounds(nodes, writers, protocol, samples, drawn, later)
    silent = [agent for agent in agents if agent not in drawn]
    if silent:
        raise ValueError(f"{type(protocol).__name__} has no round in which {', '.join(silent)} writes")
    for index, node in enumerate(nodes):
        node.completions = {agent: drawn[agent][index] for agent in agents}
        node.choices = joint_choices(agents, spec, turn)


def _further_rounds(
    nodes: list[_Node],
    writers: _Writers,
    protocol: TurnProtocol,
    samples: int,
    drawn: dict[AgentID, _Groups],
    later: Sequence[Sequence[AgentID]],
) -> dict[AgentID, _Groups]:
    """Each agent's last completions; from the second round on every sample has a prompt of its own."""
    places = [(index, k) for index in range(len(nodes)) for k in range(samples)]
    written = [[{agent: drawn[agent][index][k].text for agent in drawn}] for index, k in places]
    last = dict(drawn)
    for number, round_writers in enumerate(later):
        prompts = {
            agent: [
                protocol.prompt(agent, nodes[index].state.observations[agent], texts)
                for (index, _), texts in zip(places, written, strict=True)
            ]
            for agent in round_writers
        }
        keys = {
            agent: [(*nodes[index].state.key, ROUND + number, writers.agents.index(agent), k) for index, k in places]
            for agent in round_writers
        }
        for agent, groups in (drawn := writers.write(prompts, 1, keys)).items():
            completions = [completion for (completion,) in groups]
            last[agent] = [completions[start : start + samples] for start in range(0, len(completions), samples)]
        for place, texts in enumerate(written):
            texts.append({agent: groups[place][0].text for agent, groups in drawn.items()})
    return last


def _check_groups(team: Sequence[AgentID], groups: list[list[Completion]], prompts: int, n: int) -> None:
    if not (_is_list(groups) and all(_is_list(group) and all(isinstance(c, Completion) for c in group) for group in groups)):
        raise TypeError(f"the policy of {', '.join(team)} must return a list of [Completion, …] lists, got {groups!r:.300}")
    sizes = [len(group) for group in groups]
    if sizes != [n] * prompts:
        raise ValueError(f"the policy of {', '.join(team)} must return {n} completions for each of {prompts} prompts, got {sizes}")


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _advance(env: BranchingEnv, nodes: list[_Node], spec: RolloutSpec, executor: Executor | None) -> None:
    """Play every node's joint actions and open a child for each one the episode goes on from."""
    plays = [(node.state, _joint_actions(node)) for node in nodes]
    # Not a closure: an executor of processes pickles what it runs.
    for node, transitions in zip(nodes, map_in_order(functools.partial(_branch, env), plays, executor), strict=True):
        node.transitions = transitions
        stopped = _exceeds(transitions, spec.early_termination_threshold)
        node.children = [
            None if stopped or transition.state.done else _Node(transition.state, node.root) for transition in transitions
        ]


def _joint_actions(node: _Node) -> list[JointAction]:
    return [{agent: node.completions[agent][k].text for agent, k in choice.items()} for choice in node.choices]


def _branch(env: BranchingEnv, play: tuple[State, list[JointAction]]) -> list[Transition]:
    return env.branch(*play)


def _exceeds(transitions: Sequence[Transition], threshold: float | None) -> bool:
    if threshold is None:
        return False
    rewards = [reward for transition in transitions for reward in transition.rewards.values()]
    return math.fsum(rewards) / len(rewards) > threshold


def map_in_order(function: Callable[[In], Out], values: Sequence[In], executor: Executor | None) -> list[Out]:
    """The function's values in order; with an executor all that have begun end before the first error is raised, or Ctrl-C is."""
    if executor is None or len(values) < 2:
        return [function(value) for value in values]
    futures = [executor.submit(function, value) for value in values]
    try:
        wait(futures)
    except BaseException:
        # Nothing may go on behind the back of who is told: it may be putting gradients where they are being dropped.
        for future in futures:
            future.cancel()
        wait(futures)
        raise
    return [future.result() for future in futures]


def _numbered(env: BranchingEnv, levels: list[list[_Node]], episodes: int, numbering: Numbering) -> list[EnvStep]:
    """The records, numbered as if the items had been collected one by one."""
    by_episode: list[list[_Node]] = [[] for _ in range(episodes)]
    for level in levels:
        for node in level:
            by_episode[node.root].append(node)
    for nodes in by_episode:
        for node in nodes:
            node.state_id = numbering.state_id
            numbering.state_id += 1
    steps: list[EnvStep] = []
    for offset, nodes in enumerate(by_episode):
        for node in nodes:
            steps.extend(_records(env, node, numbering, numbering.episode + offset))
    return steps


def _records(env: BranchingEnv, node: _Node, numbering: Numbering, episode: int) -> list[EnvStep]:
    global_state = env.global_state(node.state)
    records = []
    for choice, transition, child in zip(node.choices, node.transitions, node.children, strict=True):
        numbering.env_step += 1
        reached = transition.state
        records.append(
            EnvStep(
                env_step=numbering.env_step,
                episode=episode,
                state_id=node.state_id,
                next_state_id=None if child is None else child.state_id,
                turn=node.state.turn + 1,
                prompts=node.state.observations,
                completions={agent: node.completions[agent][k] for agent, k in choice.items()},
                choice=choice,
                rewards=transition.rewards,
                terminated=reached.terminated,
                truncated=reached.truncated,
                next_prompts=None if reached.terminated else reached.observations,
                global_state=global_state,
                infos=transition.infos,
                next_global_state=env.global_state(reached) if reached.truncated and not reached.terminated else None,
            )
        )
    return records
