"""`Sandbox`: trials on a pool of wardens, with a memory of reports."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from llm_envs.sandbox.layers import LAYERS
from llm_envs.sandbox.trial import Limits, Report, SandboxError, Trial

if TYPE_CHECKING:
    from llm_envs.sandbox.worker import Worker


class Pool:
    """Workers that are made when they are needed, at most so many.

    Args:
        size: most workers at one time.
        without: layers of isolation not to take.
    """

    def __init__(self, size: int, without: Collection[str] = ()) -> None:
        self._without = without
        self._free = threading.Semaphore(size)
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._owner = os.getpid()

    def run(self, trial: Trial, limits: Limits) -> Report:
        """The report of a trial, by a worker that is free."""
        with self._free:
            worker = self._take()
            try:
                return worker.run(trial, limits)
            finally:
                self._give_back(worker)

    def layers(self) -> Mapping[str, bool]:
        """Which layers of isolation hold."""
        with self._free:
            worker = self._take()
            self._give_back(worker)
            return worker.layers

    def _take(self) -> Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        from llm_envs.sandbox.worker import Worker  # loads what only POSIX systems have

        return Worker(self._without)

    def _give_back(self, worker: Worker) -> None:
        if not worker.closed:
            with self._lock:
                self._idle.append(worker)

    def close(self) -> None:
        """Ends all workers; a child that was forked with this pool in its memory leaves them alone."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()


class Sandbox:
    """Runs untrusted solutions with limits, and judges them by trusted tests in another process.

    Safe to use from several threads; can be pickled (processes and the memory of reports stay behind). Processes are started by
    the first trial and end with `close`, with the `with` block, or with this object. docs/sandbox.md says what is isolated, and
    what is not.

    Args:
        limits: of every trial.
        workers: trials at one time; as many as this process may use processors unless given.
        cache: reports that are remembered, so that a reward and its feedback cost one trial; 0 for none.
        without: layers of isolation not to take although the system has them, by the names of `isolation()`.

    Raises:
        SandboxError: on Windows, where processes cannot be limited like this.
        ValueError: fewer than one worker, a negative cache, or a layer that does not exist.
    """

    def __init__(
        self, limits: Limits | None = None, workers: int | None = None, *, cache: int = 4096, without: Iterable[str] = ()
    ) -> None:
        if os.name != "posix":
            raise SandboxError(f"untrusted code can be run on Linux (and with fewer guarantees on macOS), not on {sys.platform}")
        for name, value, least in (("workers", 1 if workers is None else workers, 1), ("cache", cache, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        self.limits = limits if limits is not None else Limits()
        self.workers = workers if workers is not None else _processors()
        self._cache_size = cache
        self._without = tuple(without)
        if unknown := set(self._without) - set(LAYERS):
            raise ValueError(f"without may name {', '.join(LAYERS)}, got {', '.join(sorted(unknown))}")
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._reports: OrderedDict[Trial, Report] = OrderedDict()
        self._pool = Pool(self.workers, self._without)
        self._end = weakref.finalize(self, self._pool.close)
        self._owner = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {"limits": self.limits, "workers": self.workers, "_cache_size": self._cache_size, "_without": self._without}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def run(self, trial: Trial) -> Report:
        """The report of a trial; remembered ones cost nothing.

        Raises:
            SandboxError: the machine, the setup or a check is at fault; such a trial is not remembered.
        """
        if os.getpid() != self._owner:  # forked: processes and locks belong to the parent
            self._begin()
        with self._lock:
            known = self._reports.get(trial)
            if known is not None:
                self._reports.move_to_end(trial)
                return known
        report = self._pool.run(trial, self.limits)
        with self._lock:
            self._reports[trial] = report
            while len(self._reports) > self._cache_size:
                self._reports.popitem(last=False)
        return report

    def run_all(self, trials: Iterable[Trial]) -> list[Report]:
        """The reports of trials in their order, whatever the number of workers. Equal trials are run once.

        Raises:
            SandboxError: as `run`, for the first trial that has it.
        """
        wanted = list(trials)
        different = list(dict.fromkeys(wanted))
        if min(self.workers, len(different)) < 2:
            reports = [self.run(trial) for trial in different]
        else:
            with ThreadPoolExecutor(min(self.workers, len(different))) as threads:
                reports = list(threads.map(self.run, different))
        found = dict(zip(different, reports, strict=True))
        return [found[trial] for trial in wanted]

    def isolation(self) -> Mapping[str, bool]:
        """Which layers of isolation hold here, by name; see docs/sandbox.md."""
        return dict(self._pool.layers())

    def close(self) -> None:
        """Ends all processes; a later trial starts them anew."""
        self._pool.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
