"""How a warden forks the two processes of a trial: the judge, and the solution's."""

from __future__ import annotations

import gc
import os
import select
import socket
import tempfile
import traceback
from collections.abc import Callable

from llm_envs.sandbox import isolation, kernel
from llm_envs.sandbox.clearing import kill_group
from llm_envs.sandbox.layers import Layers
from llm_envs.sandbox.outcomes import caught
from llm_envs.sandbox.processes import usage
from llm_envs.sandbox.trial import Limits

JUDGE_MEMORY_MB = 1024
JUDGE_FILES = 256
_MOST_DESCRIPTORS = 1 << 20
_SIGNAL_NAMES = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 24: "SIGXCPU", 25: "SIGXFSZ"}


class Guest:
    """A solution's process.

    Args:
        pid: of the process.
        keeper: of the one that waits for it.
        ending: descriptor on which the keeper says how it ended.
    """

    def __init__(self, pid: int, keeper: int, ending: int) -> None:
        self.pid = pid
        self.cause: tuple[str, str] | None = None
        self.used = 0.0
        self.base_bytes = usage(pid).resident_bytes
        self._keeper = keeper
        self._ending = ending

    def end(self, patience: float) -> tuple[str, str]:
        """Ends it, after so many seconds in which it may end by itself; status and reason."""
        own = self._own_ending(patience)
        if own is None:
            kill_group(self.pid)
            self._own_ending(10.0)
        os.close(self._ending)
        os.waitpid(self._keeper, 0)
        return self.cause or _ending_of(own)

    def _own_ending(self, seconds: float) -> int | None:
        if not select.select([self._ending], [], [], seconds)[0]:
            return None
        text = os.read(self._ending, 64)
        if not text:
            return None
        status, used = text.split()
        self.used = max(self.used, float(used))
        return int(status)


def _ending_of(status: int | None) -> tuple[str, str]:
    if status is None:
        return "exited", "the solution's process closed its channel"
    code = os.waitstatus_to_exitcode(status)
    if code in (-24, -9):
        return "timeout", f"the solution's process was ended by {_SIGNAL_NAMES[-code]}"
    if code < 0:
        return "exited", f"the solution's process was ended by {_SIGNAL_NAMES.get(-code, f'signal {-code}')}"
    return "exited", f"the solution's process ended with status {code}"


def judge_seconds(solution: float) -> float:
    """CPU time that the judge has where the solution has so much: it reads, compares and describes what the solution answers."""
    return 2 * solution + 5


def fork_judge(
    host: socket.socket, trial: int, limits: Limits, layers: Layers, rules: int | None, work: str
) -> tuple[int, socket.socket]:
    """The judge's process and the socket on which it gives orders."""
    ours, theirs = socket.socketpair()

    def prepare() -> None:
        settle(work, None)
        most = max(JUDGE_MEMORY_MB, 2 * limits.memory_mb)
        wide = Limits(**{**vars(limits), "open_files": JUDGE_FILES})
        # A backstop: the warden ends it before, and knows that as a verdict.
        seconds = 2 * judge_seconds(limits.total_cpu_seconds)
        isolation.limit(wide, Layers(), memory_mb=most, cpu_seconds=seconds, processes=0)
        isolation.confine(layers, rules, signals=False)

    def act() -> None:
        from llm_envs.sandbox.judge import judge

        host.close()
        ours.close()
        judge(socket.socket(fileno=trial), theirs, limits, prepare)

    pid = forked(act)
    theirs.close()
    return pid, ours


def fork_guest(
    host: socket.socket, output: int, limits: Limits, layers: Layers, rules: int | None, work: str, orders: socket.socket
) -> tuple[Guest, int]:
    """A solution's process and a descriptor of the judge's end of its channel.

    Between it and the warden is a keeper, because namespaces of process ids begin with a child.

    Raises:
        OSError: one of the layers that held before does not.
    """
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()

    def guest() -> None:
        settle(work, output, keep=(theirs.fileno(), writing, *([rules] if rules is not None else [])))
        try:
            most = limits.processes + 3  # the warden, the judge and the keeper count as well
            isolation.limit(limits, layers, memory_mb=limits.memory_mb, cpu_seconds=limits.total_cpu_seconds, processes=most)
            isolation.confine(layers, rules, signals=layers.pids)
        except OSError as error:
            os.write(writing, f"!{error}\n".encode())
            return
        os.write(writing, b"+\n")
        _close_others((theirs.fileno(),))
        from llm_envs.sandbox.guest import serve

        serve(theirs)

    def keeper() -> None:
        for channel in (host, orders, ours):
            channel.close()
        os.close(reading)
        if kernel.on_linux():
            kernel.die_with_parent()
        try:
            if layers.pids:
                kernel.unshare(kernel.NEW_PIDS)
            pid = forked(guest)
        except OSError as error:
            os.write(writing, f"!{error}\n".encode())
            return
        theirs.close()
        os.write(writing, f"{pid}\n".encode())
        _, status, used = os.wait4(pid, 0)
        os.write(writing, f"{status} {used.ru_utime + used.ru_stime}".encode())

    keeper_pid = forked(keeper)
    theirs.close()
    os.close(writing)
    lines = sorted((_line(reading), _line(reading)))  # "+", said by the process when it is confined, and its number
    if lines[0] != "+":
        ours.close()
        os.close(reading)
        os.waitpid(keeper_pid, 0)
        raise OSError(next((line[1:] for line in lines if line.startswith("!")), "the solution's process died before it began"))
    return Guest(int(lines[1]), keeper_pid, reading), ours.detach()


def _line(descriptor: int) -> str:
    text = b""
    while not text.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            return ""
        text += byte
    return text.decode().strip()


def forked(act: Callable[[], None]) -> int:
    """The process id of a child that does this and ends."""
    pid = os.fork()
    if pid:
        return pid
    # Nothing may get past here: the frames below are the parent's.
    error = caught(act)
    if error is not None:
        traceback.print_exception(error)
    os._exit(0 if error is None else 70)


def settle(work: str, output: int | None, keep: tuple[int, ...] = ()) -> None:
    """Makes this process one of a trial: a session of its own, the trial's folder, no input, no descriptor that it should not have.

    Args:
        work: the folder.
        output: where standard output and error go; None for nowhere.
        keep: the descriptors that stay open; without, all stay.
    """
    gc.enable()
    os.setsid()
    if kernel.on_linux():
        kernel.die_with_parent()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, source in (
        (0, nothing),
        (1, nothing if output is None else output),
        (2, nothing if output is None else output),
    ):
        os.dup2(source, descriptor)
    if keep:
        _close_others(keep)
    os.chdir(work)
    os.umask(0o077)
    os.environ.clear()
    os.environ.update(environment(work))
    tempfile.tempdir = None


def _close_others(keep: tuple[int, ...]) -> None:
    """Closes all descriptors but the standard ones and these."""
    low = 3
    for descriptor in sorted(keep):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, _MOST_DESCRIPTORS)


def environment(work: str) -> dict[str, str]:
    """All that the processes of a trial find in their environment."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": work,
        "TMPDIR": work,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
