"""Clearing up after a trial: processes and files that a solution has left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import time
from pathlib import Path

from llm_envs.sandbox.processes import descendants


def kill_group(leader: int) -> None:
    """Ends a process, which may be gone, and those of its group."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(leader, signal.SIGKILL)


def end_children(spared: int = 0) -> None:
    """Ends every descendant of this process but one child, and waits for them.

    Orphans come to this process (`kernel.adopt_orphans`), so that one which has left its session and its parent is found as well.
    """
    while True:
        members = [pid for pid in descendants(os.getpid()) if pid != spared]
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not _reap(spared) and not members:
            return
        time.sleep(0.0005)


def _reap(spared: int) -> bool:
    """Waits for the children that have ended; whether there were any."""
    some = False
    for pid in [pid for pid in descendants(os.getpid()) if pid != spared]:
        with contextlib.suppress(ChildProcessError):  # a child's child
            some |= os.waitpid(pid, os.WNOHANG)[0] != 0
    return some


def empty_folder(folder: str) -> None:
    """Removes what is in a folder, whatever rights it was given."""
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            remove_folder(entry.path)
        else:
            Path(entry.path).unlink()


def remove_folder(folder: str) -> None:
    """Removes a folder that may hold some without rights."""
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            Path(path).chmod(stat.S_IRWXU)
        waiting += [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    shutil.rmtree(folder)
