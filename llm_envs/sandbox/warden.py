"""The warden: a process that starts the judge and the solution of one trial after the other, watches them and clears up.

It is started once and forks, so that a trial costs no interpreter start. It never reads a trial: that goes from the host to the
judge, so no memory that a solution is forked from has held a test.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import socket
import time
from pathlib import Path
from typing import Any

from llm_envs.sandbox import isolation, kernel, landlock, wire
from llm_envs.sandbox.children import Guest, fork_guest, fork_judge, judge_seconds
from llm_envs.sandbox.clearing import empty_folder, end_children, kill_group, remove_folder
from llm_envs.sandbox.layers import Layers
from llm_envs.sandbox.outcomes import steady
from llm_envs.sandbox.processes import cpu_clock, delayed, usage
from llm_envs.sandbox.trial import Limits

TICK_SECONDS = 0.05
"""How often limits are looked at."""
TRIAL_FACTOR = 4
"""A trial may take that many times the waiting time of a step."""
PATIENCE_SECONDS = 0.5
"""For which a solution's process that no longer talks may still end by itself, so that it is known how."""
IDLE_SECONDS = 2.0
"""How often an idle warden looks whether its host is still there."""


def main(control: int) -> None:
    """Serves the host on this descriptor until it is gone."""
    host = socket.socket(fileno=control)
    order, _ = wire.receive_order(host)
    folder = order["folder"]
    work = str(Path(folder) / "work")
    if kernel.on_linux():
        kernel.adopt_orphans()
    Path(work).mkdir(mode=0o777)
    Path(work).chmod(0o777)  # the folder around it is closed; root's warden becomes somebody else
    try:
        layers = isolation.take_layers(order["uid"], work, order["without"])
        rules = landlock.make_rules(folder) if layers.landlock else None
    except OSError as error:
        wire.send_order(host, {"fault": str(error)})
        return
    if kernel.on_linux():
        kernel.set_readable(False)  # the solution may have the same user id
    preload()
    gc.collect()
    gc.freeze()
    wire.send_order(host, {"layers": vars(layers)})
    parent = os.getppid()
    with contextlib.suppress(wire.ClosedError):
        while os.getppid() == parent:
            if select.select([host], [], [], IDLE_SECONDS)[0]:
                order, (trial,) = wire.receive_order(host)
                wire.send_order(host, Watch(Limits(**order["limits"]), layers, rules, work, host).run(trial))
    # The host does so as well, unless it was killed.
    remove_folder(folder)


def preload() -> None:
    """Loads what tests and solutions often need, so that no trial pays for it."""
    for name in _PRELOADED:
        # numpy is not needed to run programs that do without.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from llm_envs.sandbox.guest import our_modules

    our_modules()


_PRELOADED = (
    *("array", "bisect", "calendar", "cmath", "collections", "copy", "csv", "dataclasses", "datetime", "decimal", "enum"),
    *("fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "logging", "math", "operator", "os", "pathlib"),
    *("queue", "random", "re", "shutil", "sqlite3", "statistics", "string", "subprocess", "tempfile", "textwrap", "threading"),
    *("time", "traceback", "types", "typing", "unittest", "unittest.mock", "uuid", "numpy", "numpy.random"),
    *("llm_envs.sandbox.judge", "llm_envs.sandbox.guest", "xml.etree.ElementTree", "zipfile"),
)


class Watch:
    """One trial.

    Args:
        limits: of the trial.
        layers, rules: of isolation.
        work: the trial's folder.
        host: who asked; a trial ends when it is gone.
    """

    def __init__(self, limits: Limits, layers: Layers, rules: int | None, work: str, host: socket.socket) -> None:
        self._limits = limits
        self._layers = layers
        self._rules = rules
        self._work = work
        self._host = host
        self._guest: Guest | None = None
        self._judge = 0
        self._used = 0.0  # CPU seconds of solutions that have ended
        self._began = self._step_began = self._looked = time.monotonic()
        self._step_waited = self._step_cpu = self._judge_cpu = 0.0
        self._output = os.open(os.devnull, os.O_RDONLY)

    def run(self, trial: int) -> dict[str, Any]:
        """Lets the judge work with the trial on this descriptor; what the host has to know beside the judge's words."""
        try:
            return self._watched(trial)
        finally:
            os.close(self._output)

    def _watched(self, trial: int) -> dict[str, Any]:
        self._prepare()
        try:
            self._judge, orders = fork_judge(self._host, trial, self._limits, self._layers, self._rules, self._work)
            os.close(trial)
            with orders:
                reason = self._serve(orders)
            self._end_guest()
            return {"reason": reason, "cpu_seconds": self._used, "output": self._kept_output()}
        finally:
            self._clear()

    def _prepare(self) -> None:
        os.close(self._output)
        self._output = output_file()
        if self._layers.mounts:
            kernel.mount_memory(self._work, 4 * self._limits.file_mb)

    def _clear(self) -> None:
        self._end_guest()
        if self._judge:
            kill_group(self._judge)
            os.waitpid(self._judge, 0)
        end_children()
        if self._layers.mounts:
            kernel.unmount(self._work)
        else:
            empty_folder(self._work)

    def _serve(self, orders: socket.socket) -> str:
        """Does what the judge asks for until it is gone; why it is: "ended", "timeout" or how it died."""
        while True:
            ready = select.select([orders, self._host], [], [], TICK_SECONDS)[0]
            if self._host in ready:
                return "host"
            if orders in ready:
                try:
                    order, _ = wire.receive_order(orders)
                except wire.ClosedError:
                    return self._judge_ended()
                self._obey(order["order"], orders)
            if time.monotonic() - self._looked >= TICK_SECONDS and (reason := self._look()):
                return reason

    def _obey(self, order: str, orders: socket.socket) -> None:
        if order == "step":
            self._begin_step()
        elif order == "spawn":
            self._end_guest()
            fault, descriptors = "", []
            try:
                self._guest, channel = fork_guest(
                    self._host, self._output, self._limits, self._layers, self._rules, self._work, orders
                )
                descriptors = [channel]
            except OSError as error:
                fault = str(error)
            self._begin_step()  # the clock of the step before would end the new process as well
            wire.send_order(orders, {"fault": fault}, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        elif order == "end":
            status, message = self._end_guest(PATIENCE_SECONDS)
            wire.send_order(orders, {"status": status, "message": message})

    def _begin_step(self) -> None:
        self._step_began = time.monotonic()
        self._step_waited = self._delay()
        self._judge_cpu = cpu_clock(self._judge)
        self._step_cpu = usage(self._guest.pid).cpu_seconds if self._guest else 0.0

    def _delay(self) -> float:
        return delayed(self._judge) + (delayed(self._guest.pid) if self._guest else 0.0)

    def _look(self) -> str:
        """Ends what is over its limits; a reason if that is the judge."""
        limits, now = self._limits, time.monotonic()
        self._looked = now
        if self._guest is not None and not self._guest.cause:
            used = usage(self._guest.pid)
            step = used.cpu_seconds - self._step_cpu
            if step > limits.cpu_seconds:
                self._stop_guest("timeout", f"more than {limits.cpu_seconds:g} s of CPU time")
            elif self._used + used.cpu_seconds > limits.total_cpu_seconds:
                self._stop_guest("timeout", f"more than {limits.total_cpu_seconds:g} s of CPU time in all")
            elif now - self._step_began - (self._delay() - self._step_waited) > limits.wall_seconds:
                self._stop_guest("timeout", f"more than {limits.wall_seconds:g} s")
            elif used.resident_bytes > (limits.memory_mb << 20) + self._guest.base_bytes * used.processes:
                self._stop_guest("memory", f"more than {limits.memory_mb} MiB in all")
            elif used.processes > limits.processes:
                self._stop_guest("exited", f"ended for more than {limits.processes} processes")
        late = now - self._step_began - (self._delay() - self._step_waited) > limits.wall_seconds + 10
        over = now - self._began - self._delay() > TRIAL_FACTOR * limits.wall_seconds + 10
        # A large answer costs the judge time as well: each step may be in its limits and all of them not.
        spent = cpu_clock(self._judge)
        busy = spent - self._judge_cpu > judge_seconds(limits.cpu_seconds) or spent > judge_seconds(limits.total_cpu_seconds)
        return "timeout" if late or over or busy else ""

    def _stop_guest(self, cause: str, message: str) -> None:
        assert self._guest is not None
        self._guest.cause = (cause, message)
        # Counted before it is gone.
        self._guest.used = usage(self._guest.pid).cpu_seconds
        kill_group(self._guest.pid)

    def _end_guest(self, patience: float = 0.0) -> tuple[str, str]:
        """Ends the solution's process if there is one, after seconds in which it may end by itself; how it ended, and why."""
        guest, self._guest = self._guest, None
        if guest is None:
            return "exited", "the solution has no process"
        status, message = guest.end(patience)
        self._used += guest.used
        end_children(spared=self._judge)
        return status, message

    def _judge_ended(self) -> str:
        status = os.waitpid(self._judge, 0)[1]
        self._judge = 0
        return "ended" if status == 0 else f"the judge's process ended with status {os.waitstatus_to_exitcode(status)}"

    def _kept_output(self) -> str:
        size = self._limits.output_kb << 10
        return steady(os.pread(self._output, size, 0).decode("utf-8", "replace"), self._work)


def output_file() -> int:
    """A descriptor of a nameless file that standard output and error go to."""
    if kernel.on_linux():
        descriptor = os.memfd_create("output")
    else:
        import tempfile

        descriptor, name = tempfile.mkstemp()
        Path(name).unlink()
    import fcntl

    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    return descriptor
