"""The rules of `initial` and `branch`: states are values, and what follows from one depends on nothing else."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

from llm_envs.env import BranchingEnv
from llm_envs.testing.compare import difference
from llm_envs.testing.subject import PROBES, Subject, ViolationError, actions, demand
from llm_envs.types import JointAction, State, Transition


def _joint_actions(env: BranchingEnv, state: State) -> list[JointAction]:
    """Several joint actions to take at a state; the last is the reference solution, if there is one."""
    seen = {agent: {"prompt": text} for agent, text in state.observations.items()}
    env.restore(state)
    joint: list[JointAction] = [actions(env, seen, episode=0, turn=number) for number in range(2)]
    joint.append({agent: PROBES[number % len(PROBES)] for number, agent in enumerate(env.possible_agents)})
    joint.append(actions(env, seen, episode=2, turn=0))
    return joint


def _states(env: BranchingEnv, episodes: int) -> list[State]:
    """A state of each turn, over several episodes."""
    states: list[State] = []
    for episode in range(episodes):
        env.reset(seed=episode)
        state = env.snapshot()
        while not state.done:
            states.append(state)
            going_on = [t.state for t in env.branch(state, _joint_actions(env, state)) if not t.state.done]
            if not going_on:
                break
            state = going_on[episode % len(going_on)]
    return states


def _without_position(transition: Transition) -> Transition:
    """The transition without the branch's number, which is all that may tell siblings with equal actions apart."""
    return dataclasses.replace(transition, state=_keyless(transition.state))


def _keyless(state: State) -> State:
    inner = None if state.inner is None else _keyless(state.inner)
    return dataclasses.replace(state, key=(), inner=inner)


def step_is_branch(subject: Subject) -> None:
    """`step` gives what `branch` gives with one joint action."""
    env = subject.branching()
    for episode in range(subject.episodes):
        observations, _ = env.reset(seed=episode)
        turn = 0
        while env.agents:
            joint = actions(env, observations, episode, turn)
            (expected,) = env.branch(env.snapshot(), [joint])
            observations, rewards, terminations, truncations, infos = env.step(joint)
            turn += 1
            plain = {agent: {key: value for key, value in info.items() if key != "env_step"} for agent, info in infos.items()}
            agents = env.possible_agents
            pairs: list[tuple[str, Any, Any]] = [
                ("state", env.snapshot(), expected.state),
                ("rewards", rewards, {agent: float(reward) for agent, reward in expected.rewards.items()}),
                ("infos", plain, {agent: dict(info) for agent, info in expected.infos.items()}),
                ("prompts", {a: seen["prompt"] for a, seen in observations.items()}, dict(expected.state.observations)),
                ("terminations", terminations, dict.fromkeys(agents, expected.state.terminated)),
                ("truncations", truncations, dict.fromkeys(agents, expected.state.truncated)),
            ]
            for what, one, two in pairs:
                found = difference(one, two, what)
                demand(found is None, f"turn {turn} of episode {episode}: {found}")


def restore_repeats(subject: Subject) -> None:
    """After `restore`, here or in another environment of the kind, the same action leads to the same."""
    env, other = subject.branching(), subject.branching()
    for state in _states(env, subject.episodes):
        joint = _joint_actions(env, state)[1]
        results = []
        for one in (env, env, other):
            seen = one.restore(state)
            demand(one.agents == one.possible_agents, f"after restoring turn {state.turn + 1}, agents is {one.agents!r}")
            found = difference({a: s["prompt"] for a, s in seen.items()}, dict(state.observations), "prompts")
            demand(found is None, f"restore observes something else: {found}")
            observations, rewards, *flags, _ = one.step(joint)
            results.append((observations, rewards, flags, one.snapshot()))
        for result in results[1:]:
            found = difference(results[0], result)
            demand(found is None, f"turn {state.turn + 1} differs after a restore: {found}")


def siblings_independent(subject: Subject) -> None:
    """What a joint action leads to depends neither on its siblings nor on their order."""
    env = subject.branching()
    for state in _states(env, subject.episodes):
        joint = _joint_actions(env, state)
        together = [_without_position(t) for t in env.branch(state, joint)]
        backwards = [_without_position(t) for t in env.branch(state, joint[::-1])][::-1]
        alone = [_without_position(env.branch(state, [one])[0]) for one in joint]
        for how, others in (("in another order", backwards), ("alone", alone)):
            for number, (one, two) in enumerate(zip(together, others, strict=True)):
                found = difference(one, two)
                demand(found is None, f"turn {state.turn + 1}, joint action {number} {how}: {found}")
        demand(env.branch(state, []) == [], "no joint actions lead to something")


def states_unchanged(subject: Subject) -> None:
    """Branching from a state changes neither it nor its row, and repeats."""
    env = subject.branching()
    for state in _states(env, subject.episodes):
        joint = _joint_actions(env, state)
        before, before_actions = copy.deepcopy(state), copy.deepcopy(joint)
        first, second = env.branch(state, joint), env.branch(state, joint)
        found = difference(before, state) or difference(before_actions, joint)
        demand(found is None, f"turn {state.turn + 1} changed {found}")
        found = difference(first, second)
        demand(found is None, f"turn {state.turn + 1} gave two results: {found}")


def states_copy(subject: Subject) -> None:
    """States survive pickling and copying, and lead to the same afterwards."""
    env = subject.branching()
    for state in _states(env, subject.episodes):
        joint = _joint_actions(env, state)
        expected = env.branch(state, joint)
        try:
            others = [copy.deepcopy(state), pickle.loads(pickle.dumps(state))]
        except Exception as error:
            raise ViolationError(f"a state cannot be copied or pickled: {type(error).__name__}: {error}") from error
        for other in others:
            found = difference(state, other, "state") or difference(expected, env.branch(other, joint))
            demand(found is None, f"turn {state.turn + 1}, a copied state: {found}")


def keys_are_paths(subject: Subject) -> None:
    """The key of a start is the one given; of a child, the parent's with the branch's number."""
    env = subject.branching()
    env.reset(seed=0)
    item = env.snapshot().item
    start, again = env.initial(item, (7, 0, 3), 0), env.initial(item, (7, 0, 3), 0)
    demand(start.key == (7, 0, 3), f"the key of a start is {start.key}, not (7, 0, 3)")
    found = difference(start, again)
    demand(found is None, f"the same start twice differs: {found}")
    for state in _states(env, subject.episodes):
        children = env.branch(state, _joint_actions(env, state))
        keys = [child.state.key for child in children]
        demand(keys == [(*state.key, j) for j in range(len(keys))], f"the keys of the children of {state.key} are {keys}")
        turns = {child.state.turn for child in children}
        demand(turns == {state.turn + 1}, f"the children of turn {state.turn} have played {turns} turns")


def ends_are_ends(subject: Subject) -> None:
    """From an end there is no going on, and a joint action that is not everybody's is refused."""
    env = subject.branching()
    for state in _states(env, subject.episodes):
        joint = _joint_actions(env, state)
        for child in env.branch(state, joint):
            demand(not (child.state.terminated and child.state.truncated), "a state is terminated and truncated at once")
            if child.state.done:
                demand(_refuses(env, child.state, joint[0]), "branch goes on from an end")
        demand(_refuses(env, state, {}), "branch takes a joint action of nobody")
        demand(_refuses(env, state, {**joint[0], "stranger_0": ""}), "branch takes a joint action of a stranger")


def _refuses(env: BranchingEnv, state: State, joint: JointAction) -> bool:
    try:
        env.branch(state, [joint])
    except ValueError:
        return True
    return False


def global_text(subject: Subject) -> None:
    """`global_state` is a text, and the same at each call."""
    env = subject.branching()
    for state in _states(env, subject.episodes):
        text = env.global_state(state)
        demand(isinstance(text, str) and text == env.global_state(state), f"global_state is {text!r:.300}")
