"""The phases of a run. Most runs are one: rollouts of a learner. Others gather data first, and train on it in further phases.

A phase has rows (items of the env, pairs that were gathered), passes over them, and a way to train on some of them. Where a run is
in its phases, what it logs, when it is evaluated and saved is the trainer's affair, alike for all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from learners.config import TrainingConfig
from learners.interrupts import interruptible
from learners.learner import Learner, Trainee
from llm_envs.env import BranchingEnv
from llm_envs.rollouts import Numbering, collect
from llm_envs.seeding import ORDER, stream
from llm_envs.task import has_length
from llm_envs.types import AgentID, EnvStep, Item, Metrics, Policy, RolloutSpec


@dataclass
class Outcome:
    """What came of some rows.

    Attributes:
        metrics: to log.
        steps: env steps that were collected for them.
        failure: what stopped the training after the rows were taken in. It is raised once they are recorded and counted as done;
            the phase's `go_on` does the rest.
    """

    metrics: list[Metrics] = field(default_factory=list)
    steps: list[EnvStep] = field(default_factory=list)
    failure: BaseException | None = None


class Phase(Protocol):
    """A part of a run."""

    @property
    def name(self) -> str:
        """What a person sees while it goes on."""
        ...

    @property
    def unit(self) -> str:
        """What a row is, in the plural."""
        ...

    @property
    def epochs(self) -> int:
        """Passes over the rows."""
        ...

    @property
    def changes_policies(self) -> bool:
        """Whether the agents learn in it, so that evaluations are due."""
        ...

    def begin(self, env_step: int) -> list[Metrics]:
        """What comes before its first row, `env_step` being the run's so far; not called again on resume inside the phase.

        Returns what to log.
        """
        ...

    def go_on(self) -> list[Metrics]:
        """Finish what a failure or an interrupt stopped in its middle, if there is anything, before further rows. What to log."""
        ...

    def num_rows(self) -> int | None:
        """Rows of an epoch; None if nobody knows."""
        ...

    def rows(self, epoch: int, start: int) -> Iterator[tuple[int, Any]]:
        """Positions and rows of an epoch in its order, from its row number `start` on."""
        ...

    def chunk_size(self) -> int:
        """Rows that are trained on together next."""
        ...

    def train(self, chunk: Sequence[tuple[int, Any]], numbering: Numbering) -> Outcome:
        """Train on rows; advances the numbering by what is collected for it.

        What it raises leaves everything as it was, but for the numbering, which is the caller's to put back.
        """
        ...

    def end_epoch(self, epoch: int, num_rows: int, env_step: int) -> list[Metrics]:
        """What comes after an epoch's last row. Returns what to log.

        Args:
            epoch: which.
            num_rows: rows there were.
            env_step: of the run so far.

        Raises:
            ValueError: if there must be rows, and were none.
        """
        ...


class Sampler:
    """Draws episodes for items, as one learner wants them: the collector with its arguments settled.

    Args:
        env: is played.
        config: for seed and order.
        executor: rewards of different states are computed on it at once.
        policy_executor: different policies generate on it at once.
    """

    def __init__(
        self,
        env: BranchingEnv,
        config: TrainingConfig,
        *,
        executor: Executor | None = None,
        policy_executor: Executor | None = None,
    ) -> None:
        self.env = env
        self._config = config
        self._executor = executor
        self._policy_executor = policy_executor

    def on(self, env: BranchingEnv) -> Sampler:
        """The same on another env, such as a wrapper of this one."""
        return Sampler(env, self._config, executor=self._executor, policy_executor=self._policy_executor)

    def collect(
        self, chunk: Sequence[tuple[int, Item]], policies: Mapping[AgentID, Policy], spec: RolloutSpec, numbering: Numbering
    ) -> list[EnvStep]:
        """The env steps of items with their positions. Ctrl-C is let through."""
        with interruptible():
            return collect(
                self.env,
                policies,
                [item for _, item in chunk],
                spec,
                seed=self._config.seed,
                numbering=numbering,
                item_indices=[index for index, _ in chunk],
                executor=self._executor,
                policy_executor=self._policy_executor,
            )

    def num_items(self) -> int | None:
        """Items of an epoch; None for an iterable."""
        return len(self.env.items) if has_length(self.env.items) else None

    def items(self, epoch: int, start: int) -> Iterator[tuple[int, Item]]:
        """Positions and items of an epoch, from its item number `start` on; with `shuffle` in an order of the epoch's own."""
        items = self.env.items
        if not has_length(items):
            return islice(enumerate(items), start, None)
        count = len(items)
        order: Iterable[int] = range(count)
        if self._config.shuffle:
            order = stream(ORDER, (self._config.seed, epoch)).permutation(count).tolist()
        return ((index, items[index]) for index in islice(order, start, None))

    def require_items(self, epoch: int, num_rows: int) -> None:
        """Refuse an epoch without items.

        Raises:
            ValueError: if there were none.
        """
        if num_rows == 0:
            raise ValueError(f"the items gave no rows in epoch {epoch}: an iterable must restart when read again")


class RolloutPhase:
    """Collect → update with a learner, epoch by epoch.

    Args:
        sampler: collects.
        learner: is updated.
        epochs: passes over the items.
        name: of the phase.
        first_epoch: number of its first epoch in the run: a later phase over the same items goes on with fresh orders.
        wanted: whether there is anything to learn from, once the phase begins; without it has no rows. None is always.
        at_finish: called after the last epoch.
    """

    changes_policies = True
    unit = "items"

    def __init__(
        self,
        sampler: Sampler,
        learner: Learner,
        epochs: int,
        name: str = "training",
        *,
        first_epoch: int = 0,
        wanted: Callable[[], bool] | None = None,
        at_finish: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.epochs = epochs
        self._wanted = (lambda: True) if wanted is None else wanted
        self._sampler = sampler
        self._learner = learner
        self._first_epoch = first_epoch
        self._at_finish = at_finish

    def begin(self, env_step: int) -> list[Metrics]:
        """Nothing comes before the items."""
        return []

    def go_on(self) -> list[Metrics]:
        """Finish an update that was stopped in its middle."""
        return list(self._learner.update([])) if self._learner.states_until_update == 0 else []

    def num_rows(self) -> int | None:
        """Items of an epoch."""
        return self._sampler.num_items() if self._wanted() else 0

    def rows(self, epoch: int, start: int) -> Iterator[tuple[int, Item]]:
        """Positions and items of an epoch."""
        return self._sampler.items(self._first_epoch + epoch, start) if self._wanted() else iter(())

    def chunk_size(self) -> int:
        """Items that are collected together: as many as surely fit before the next update.

        Nothing else bounds it. Evaluations and checkpoints that fall inside a chunk see the same weights at its ends, so asking for
        them never changes how training is batched, and with it no rounding.
        """
        env = self._sampler.env
        most_states = self._learner.rollout.max_states(len(env.possible_agents), env.num_turns)
        return max(1, math.ceil(self._learner.states_until_update / most_states))

    def train(self, chunk: Sequence[tuple[int, Item]], numbering: Numbering) -> Outcome:
        """Collect the items' episodes and update the learner with them."""
        started = time.perf_counter()
        steps = self._sampler.collect(chunk, self._learner.policies, self._learner.rollout, numbering)
        try:
            metrics = list(self._learner.update(steps))
        except BaseException as failure:
            if self._learner.states_until_update > 0:
                raise  # the learner has none of the steps
            return Outcome([], steps, failure)
        if metrics:
            metrics.append(speed(steps, time.perf_counter() - started))
        return Outcome(metrics, steps)

    def end_epoch(self, epoch: int, num_rows: int, env_step: int) -> list[Metrics]:
        """Update on what is left."""
        if self._wanted():
            self._sampler.require_items(epoch, num_rows)
        metrics = list(self._learner.flush())
        if epoch == self.epochs - 1 and self._at_finish is not None:
            self._at_finish()
        return metrics


def rollouts_of(learner: Trainee, sampler: Sampler, config: TrainingConfig) -> list[Phase]:
    """The usual run: `num_train_epochs` passes of rollouts.

    Raises:
        TypeError: for something that does not learn from rollouts.
    """
    if not isinstance(learner, Learner):
        raise TypeError(f"a {type(learner).__name__} is no Learner: it needs phases that say how it is trained")
    return [RolloutPhase(sampler, learner, config.num_train_epochs)]


def speed(steps: Sequence[EnvStep], seconds: float) -> Metrics:
    """Speed of a chunk: clock readings, so the only metrics that differ between two equal runs."""
    # Siblings share completions in cross mode, so each is counted once.
    drawn = {
        (step.state_id, agent, step.choice[agent]): len(completion.token_ids)
        for step in steps
        for agent, completion in step.completions.items()
    }
    values = {"time/env_steps_per_second": len(steps) / seconds, "time/tokens_per_second": sum(drawn.values()) / seconds}
    return Metrics(steps[-1].env_step, values, group="time")
