"""What the processes of a solution use: read from /proc, for a process and all its descendants."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = resource.getpagesize()


@dataclass(frozen=True)
class Usage:
    """Of a tree of processes.

    Attributes:
        cpu_seconds: of those that live and those that were waited for.
        resident_bytes: memory.
        processes: processes and threads.
    """

    cpu_seconds: float
    resident_bytes: int
    processes: int


def cpu_clock(pid: int) -> float:
    """CPU seconds of one living process, exact; 0 if it is gone."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # how the kernel numbers the clocks of processes
    except OSError:
        return 0.0


def usage(pid: int) -> Usage:
    """What a process and its descendants use now."""
    cpu, resident, count = 0.0, 0, 0
    for member in [pid, *descendants(pid)]:
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            pages = int(Path(f"/proc/{member}/statm").read_text().split()[1])
        except OSError:
            continue  # it ended meanwhile
        own = max(cpu_clock(member), (int(fields[11]) + int(fields[12])) / _TICK)
        cpu += own + (int(fields[13]) + int(fields[14])) / _TICK
        resident += pages * _PAGE
        count += int(fields[17])
    return Usage(cpu, resident, count)


def descendants(pid: int) -> list[int]:
    """Children of a process, their children, and so on."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 (called many times a second)
            children += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except OSError:
        return children  # it ended meanwhile, or there is no /proc
    return children


def delayed(pid: int) -> float:
    """Seconds that a process was ready to run and had no processor; 0 if unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
