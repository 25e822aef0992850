"""The rules of training: what a learner has, when it updates, what it reports, and what it leaves alone."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from learners.serialization import random_states
from learners.testing.subject import TEAM, Subject, enough, frozen, weights
from llm_envs.testing.compare import difference
from llm_envs.testing.subject import ViolationError, demand
from llm_envs.types import EnvStep, Metrics, Policy, RolloutSpec

_MEMBERS = ("policies", "rollout", "states_until_update", "update", "flush", "state_dict", "load_state_dict")
_SINGLE_EPISODES = 8


def members(subject: Subject) -> None:
    """It has `policies`, `rollout`, `states_until_update`, `update`, `flush`, `state_dict` and `load_state_dict`."""
    learner: Any = subject.learner()
    missing = [name for name in _MEMBERS if not hasattr(learner, name)]
    demand(not missing, f"{type(learner).__name__} has no {', '.join(missing)}")
    wrong = [name for name in _MEMBERS[3:] if not callable(getattr(learner, name))]
    demand(not wrong, f"{', '.join(wrong)} cannot be called")


def policies_in_order(subject: Subject) -> None:
    """`policies` maps every agent to a policy, in the order of the team it was given."""
    learner = subject.learner()
    demand(list(learner.policies) == list(TEAM), f"policies are of {list(learner.policies)}, the team is {list(TEAM)}")
    for agent, policy in learner.policies.items():
        demand(isinstance(policy, Policy), f"the policy of {agent} cannot generate: {policy!r}")


def rollout_is_a_spec(subject: Subject) -> None:
    """`rollout` is a `RolloutSpec`."""
    rollout: Any = subject.learner().rollout
    demand(isinstance(rollout, RolloutSpec), f"it is {rollout!r}")


def states_until_update(subject: Subject) -> None:
    """`states_until_update` is a whole number of at least 1 that no update comes before and that does not grow until one does."""
    run = subject.run()
    learner = run.learner
    _check_count(learner.states_until_update, "of a fresh learner")
    for number in range(enough(learner)):
        before, acting = learner.states_until_update, weights(learner)
        steps = run.episode()
        learner.update(steps)
        states, after = len({step.state_id for step in steps}), learner.states_until_update
        where = f"after episode {number}"
        _check_count(after, where)
        if states < before:
            found = difference(acting, weights(learner))
            said = f"it was {before} before an episode of {states} states"
            demand(found is None, f"{said}, and yet the policies changed {where}")
            demand(after <= before, f"{said} and is {after} now, {where}, though nothing was updated")


def _check_count(count: Any, where: str) -> None:
    whole = isinstance(count, int) and not isinstance(count, bool)
    demand(whole and count >= 1, f"{where} it is {count!r}")


def metrics(subject: Subject) -> None:
    """`update` and `flush` return lists of `Metrics`: numbers by name, at an env step that the learner has been given."""
    run = subject.run()
    learner = run.learner
    logged: list[Metrics] = []
    for number in range(enough(learner)):
        entries = learner.update(run.episode())
        _check_metrics(entries, run.numbering.env_step, f"update with episode {number}")
        logged += entries
    entries = learner.flush()
    _check_metrics(entries, run.numbering.env_step, "flush")
    demand(bool(logged or entries), f"nothing was logged in {run.numbering.episode} episodes and a flush")


def _check_metrics(entries: Any, env_step: int, where: str) -> None:
    demand(isinstance(entries, list), f"{where} returned no list but {entries!r:.200}")
    for entry in entries:
        demand(isinstance(entry, Metrics), f"{where} returned {entry!r:.200} among its metrics")
        known = isinstance(entry.env_step, int) and 1 <= entry.env_step <= env_step
        demand(known, f"{where} logs at env step {entry.env_step!r}, and it has seen those from 1 to {env_step}")
        for name, value in entry.values.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            demand(isinstance(name, str) and number, f"{where} logs {name!r} as {value!r:.200}, which is no Python number")


def weights_change(subject: Subject) -> None:
    """After enough episodes every agent's weights have changed."""
    run = subject.run()
    before = weights(run.learner)
    run.train(enough(run.learner))
    run.learner.flush()
    after = weights(run.learner)
    still = [agent for agent in before if difference(before[agent], after[agent]) is None]
    demand(not still, f"after {run.numbering.episode} episodes and a flush, the weights are the old ones of {', '.join(still)}")


def flush_updates(subject: Subject) -> None:
    """`flush` updates on whatever is left."""
    run = subject.run()
    before = weights(run.learner)
    for _ in range(_SINGLE_EPISODES):
        run.train(1)
        run.learner.flush()
    unchanged = difference(before, weights(run.learner)) is None
    demand(not unchanged, f"{_SINGLE_EPISODES} episodes, each followed by a flush, changed no weights")


def flush_empties(subject: Subject) -> None:
    """After `flush` nothing waits: there is room as at the start, and another flush does nothing."""
    run = subject.run()
    learner = run.learner
    at_first = learner.states_until_update
    learner.flush()  # of nothing
    run.train(enough(learner))
    learner.flush()
    room = learner.states_until_update
    demand(room >= at_first, f"states_until_update is {room} after a flush, {at_first} at the start")
    before = weights(learner)
    again = learner.flush()
    demand(again == [], f"a second flush logs {again!r:.200}")
    demand(difference(before, weights(learner)) is None, "a second flush changes weights")


def steps_unchanged(subject: Subject) -> None:
    """`update` leaves the steps it is given as they are."""
    run = subject.run()
    for number in range(enough(run.learner)):
        steps = run.episode()
        before = copy.deepcopy(steps)
        run.learner.update(steps)
        found = difference(before, steps, "steps")
        demand(found is None, f"episode {number}: {found}")


def global_streams(subject: Subject) -> None:
    """Training, saving and restoring leave the global random streams of Python, numpy and torch as they were."""
    run = subject.run()
    learner, other = run.learner, subject.learner()
    for number in range(enough(learner)):
        steps = run.episode()
        _untouched(lambda steps=steps: learner.update(steps), f"update with episode {number}")
    state = _untouched(learner.state_dict, "state_dict")
    _untouched(lambda: other.load_state_dict(state), "load_state_dict")
    _untouched(learner.flush, "flush")


def _untouched(call: Callable[[], Any], where: str) -> Any:
    before = frozen(random_states())
    returned = call()
    found = difference(before, frozen(random_states()))
    demand(found is None, f"{where} drew from or seeded the global stream {(found or '').partition(':')[0]}")
    return returned


def not_finite_raises(subject: Subject) -> None:
    """A reward that is not finite raises a FloatingPointError or ValueError, by the next flush, and no weights change."""
    for value in (math.nan, math.inf):
        run = subject.run()
        learner = run.learner
        run.train(enough(learner))
        learner.flush()
        before = weights(learner)
        raised = False
        try:
            for _ in range(enough(learner)):
                learner.update(_with_last_reward(run.episode(), value))
            learner.flush()
        except (ArithmeticError, ValueError):
            raised = True
        except Exception as error:
            raise ViolationError(f"a reward of {value} ended in {type(error).__name__}: {error}") from error
        demand(raised, f"a reward of {value} raised nothing")
        found = difference(before, weights(learner), "weights")
        demand(found is None, f"a reward of {value} raised, but only after it had changed {(found or '').partition(':')[0]}")


def _with_last_reward(steps: Sequence[EnvStep], value: float) -> list[EnvStep]:
    """The steps with another reward of the last agent: the others may have been updated by the time it is noticed."""
    return [dataclasses.replace(step, rewards={**step.rewards, TEAM[-1]: value}) for step in steps]
