"""The rules of `state_dict` and `load_state_dict`: a run can stop anywhere and go on as if it had not."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from typing import Any

from learners.learner import Learner
from learners.serialization import load_tree, save_tree
from learners.testing.subject import STRANGERS, TEAM, Subject, enough, frozen, weights
from llm_envs.rollouts import Numbering
from llm_envs.testing.compare import difference
from llm_envs.testing.subject import ViolationError, demand


def _stored(state: Any) -> dict[str, Any]:
    """The state after it was written to files and read back, as a checkpoint does."""
    demand(isinstance(state, Mapping), f"state_dict returned no mapping but {state!r:.200}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            save_tree(folder, state)
        except TypeError as error:
            raise ViolationError(f"a checkpoint cannot hold it: {error}") from error
        return load_tree(folder)


def _cuts(episodes: int) -> set[int]:
    """After how many episodes a run is stopped: while it waits and just after an update."""
    return {1, episodes // 2, episodes - 1}


def state_survives_files(subject: Subject) -> None:
    """The state is a tree of tensors and plain values that a checkpoint's files give back as it was; taking it changes nothing."""
    run = subject.run()
    for number in sorted(_cuts(enough(run.learner))):
        run.train(number - run.numbering.episode)
        state = run.learner.state_dict()
        before = frozen(state)
        found = difference(before, frozen(_stored(state)), "state")
        demand(found is None, f"after {number} episodes, read back: {found}")
        found = difference(before, frozen(run.learner.state_dict()), "state")
        demand(found is None, f"after {number} episodes, taken twice: {found}")


def resume_is_exact(subject: Subject) -> None:
    """A run that is saved and restored goes on bit for bit like one that was not: completions, metrics, state."""
    straight = subject.run()
    episodes = enough(straight.learner)
    saved: dict[int, tuple[dict[str, Any], Numbering]] = {}
    steps, metrics = [], []
    for number in range(episodes):
        if number in _cuts(episodes):
            saved[number] = _stored(straight.learner.state_dict()), copy.copy(straight.numbering)
        some_steps, some_metrics = straight.train(1)
        steps.append(some_steps)
        metrics.append(some_metrics)
    flushed = straight.learner.flush()
    state = frozen(straight.learner.state_dict())
    for cut, (tree, numbering) in saved.items():
        learner = subject.learner(spoiled=True)
        learner.load_state_dict(tree)
        resumed = subject.run(learner, numbering)
        where = f"resumed after episode {cut} of {episodes}"
        for number in range(cut, episodes):
            some_steps, some_metrics = resumed.train(1)
            found = difference(steps[number], some_steps, "steps") or difference(metrics[number], some_metrics, "metrics")
            demand(found is None, f"{where}, episode {number + 1} differs: {found}")
        found = difference(flushed, learner.flush(), "metrics of the flush")
        found = found or difference(state, frozen(learner.state_dict()), "state")
        demand(found is None, f"{where}: {found}")


def refuses_strangers(subject: Subject) -> None:
    """The state of another team is refused with a ValueError, and nothing is changed."""
    run = subject.run()
    run.train(1)
    strange = _stored(subject.learner(STRANGERS).state_dict())
    _refused(run.learner, strange, f"the state of the team {', '.join(STRANGERS)}")
    turned = _stored(subject.learner(TEAM[::-1]).state_dict())
    _refused(run.learner, turned, f"the state of the team {', '.join(TEAM[::-1])}, which has another order,")


def _refused(learner: Learner, state: Mapping[str, Any], what: str) -> None:
    before, acting = frozen(learner.state_dict()), weights(learner)
    refused = False
    try:
        learner.load_state_dict(state)
    except ValueError:
        refused = True
    except Exception as error:
        raise ViolationError(f"{what} ended in {type(error).__name__}: {error}") from error
    demand(refused, f"{what} was taken by the team {', '.join(learner.policies)}")
    found = difference(before, frozen(learner.state_dict()), "state") or difference(acting, weights(learner), "weights")
    demand(found is None, f"{what} was refused, but only after it had changed {(found or '').partition(':')[0]}")
