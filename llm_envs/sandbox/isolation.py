"""Layers of isolation: what this system offers, taken once for a warden, and what each process of a trial is put under.

Every layer is tried before it is relied on.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Container
from pathlib import Path

from llm_envs.sandbox import kernel, landlock, seccomp
from llm_envs.sandbox.layers import Layers
from llm_envs.sandbox.trial import Limits

_UIDS = (61184, 65519)
"""Numbers that systemd gives to short-lived users, so that no account has them."""
_PROBE_PROCESSES = 8


def unprivileged_id(slot: int) -> int:
    """A user id that nobody has, for a warden that was started by root."""
    return _UIDS[0] + slot % (_UIDS[1] - _UIDS[0] + 1)


def succeeds(act: Callable[[], None]) -> bool:
    """Whether something can be done here, tried in a child that is thrown away."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def become(uid: int) -> None:
    """Makes this process, root's, one of an unprivileged user."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    # Otherwise /proc/self would not be ours, which maps of ids are written to.
    if kernel.on_linux():
        kernel.set_readable(True)


def take_layers(uid: int | None, folder: str, without: Container[str] = ()) -> Layers:
    """Puts this process, a warden, into what the system offers; children inherit it.

    Args:
        uid: to become, for root.
        folder: of the trials.
        without: layers not to take.

    Raises:
        OSError: this is root, whose interpreter nobody else can read, and nothing else would confine a solution that stays root.
    """
    user = uid is not None and "user" not in without and _leave_root(uid, folder)
    if not kernel.on_linux():
        return Layers(user=os.geteuid() != 0)
    spaces = 0
    if "namespaces" not in without and kernel.can_drop_capabilities():
        choices = [flags for flags in _COMBINATIONS if "mounts" not in without or not flags & kernel.NEW_MOUNTS]
        spaces = next((flags for flags in choices if succeeds(lambda flags=flags: _try_spaces(flags, folder))), 0)
    has_landlock = "landlock" not in without and landlock.version() > 0
    if os.geteuid() == 0 and not (spaces and has_landlock):
        raise OSError(f"root alone can read {sys.prefix} and there is no Landlock or no namespace: run as a user, or move Python")
    if spaces:
        enter_spaces(spaces)
    return Layers(
        user=os.geteuid() != 0,
        namespaces=bool(spaces & kernel.NEW_NET),
        pids=bool(spaces) and "pids" not in without,
        mounts=bool(spaces & kernel.NEW_MOUNTS),
        landlock=has_landlock,
        seccomp="seccomp" not in without and seccomp.available(),
        processes="processes" not in without and (user or bool(spaces)) and os.geteuid() != 0 and succeeds(_try_processes),
    )


def _leave_root(uid: int, folder: str) -> bool:
    """Makes this process, root's, another user's if that user can read the interpreter; whether it is now."""
    if not succeeds(lambda: _try_user(uid)):
        if not (kernel.on_linux() and succeeds(lambda: (show_interpreter(folder), _try_user(uid))[0])):
            return False
        show_interpreter(folder)
    os.chown(Path(folder).parent, uid, uid)
    become(uid)
    return True


def show_interpreter(folder: str) -> None:
    """Lets other users reach an interpreter in a closed folder, such as /root: here, and for this process and its children alone.

    The closed folder is covered by an empty one, and what is needed of it is shown in that again.
    """
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.keep_mounts_private()
    needed = {sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix), str(Path(folder).parent)}
    opened = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in sorted(needed)}
    closed = {path: _closed_ancestor(path) for path in opened}
    for ancestor in sorted({found for found in closed.values() if found}):
        kernel.mount_memory(ancestor, 1, mode="0755")
    for path, ancestor in closed.items():
        if ancestor:
            Path(path).mkdir(parents=True, exist_ok=True)
            kernel.mount_again(opened[path], path)
    for descriptor in opened.values():
        os.close(descriptor)


def _closed_ancestor(path: str) -> str | None:
    """The highest folder above a path that others may not pass through."""
    above = reversed(Path(path).parents)
    return next((str(parent) for parent in above if not parent.stat().st_mode & 0o001), None)


_ALL = kernel.NEW_USER | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_UTS
_COMBINATIONS = (_ALL | kernel.NEW_MOUNTS, _ALL, kernel.NEW_USER)


def enter_spaces(flags: int) -> None:
    """Moves this process into namespaces, in which it keeps its user id."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(flags)
    for name, text in (("uid_map", f"{uid} {uid} 1"), ("setgroups", "deny"), ("gid_map", f"{gid} {gid} 1")):
        Path("/proc/self", name).write_text(text)
    if flags & kernel.NEW_MOUNTS:
        kernel.keep_mounts_private()


def _try_user(uid: int) -> None:
    become(uid)
    for path in (os.__file__, sys.executable):
        with open(path, "rb"):  # noqa: PTH123
            pass


def _try_spaces(flags: int, folder: str) -> None:
    enter_spaces(flags)
    if flags & kernel.NEW_MOUNTS:
        kernel.mount_memory(folder, 1)
        kernel.unmount(folder)
    kernel.unshare(kernel.NEW_PIDS)
    child = os.fork()
    if child == 0:
        os._exit(0 if os.getpid() == 1 else 1)
    if os.waitpid(child, 0)[1]:
        raise OSError("no process ids of its own")


def _try_processes() -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (_PROBE_PROCESSES, _PROBE_PROCESSES))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def limit(limits: Limits, layers: Layers, *, memory_mb: int, cpu_seconds: float, processes: int) -> None:
    """Sets the kernel's own limits for this process and its children."""
    size = limits.file_mb << 20
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: int(cpu_seconds) + 1,
        resource.RLIMIT_FSIZE: size,
        resource.RLIMIT_NOFILE: limits.open_files,
    }
    if kernel.on_linux():
        own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        wanted[resource.RLIMIT_AS] = own + (memory_mb << 20)
    if layers.processes:
        wanted[resource.RLIMIT_NPROC] = processes
    for what, most in wanted.items():
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def confine(layers: Layers, rules: int | None, *, signals: bool) -> None:
    """Gives up what this process could still do to others.

    Args:
        layers: that hold.
        rules: of Landlock.
        signals: whether it sees only processes that it may signal.
    """
    if not kernel.on_linux():
        return
    kernel.gain_nothing()
    kernel.drop_capabilities()  # in its namespaces it has all of them
    if rules is not None:
        landlock.restrict(rules)
    if layers.seccomp:
        seccomp.restrict(signals, os.getpid())
