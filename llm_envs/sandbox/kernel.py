"""Calls to the Linux kernel that Python has no name for."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys

NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
_CAPSET = {"x86_64": 126, "aarch64": 91}
_MS_BIND, _MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV, _MNT_DETACH = 0x1000, 0x4000, 0x40000, 2, 4, 2


@functools.cache
def libc() -> ctypes.CDLL:
    """The C library of this process and of those forked from it."""
    return ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """The result, or OSError if it says that the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, first: int = 0, second: int = 0) -> None:
    """Sets an attribute of this process."""
    zero = ctypes.c_ulong(0)
    check(libc().prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), zero, zero), f"prctl {option}")


def die_with_parent() -> None:
    """SIGKILL for this process when its parent's thread ends."""
    prctl(_PR_SET_PDEATHSIG, 9)


def adopt_orphans() -> None:
    """Descendants whose parent has died become children of this process."""
    prctl(_PR_SET_SUBREAPER, 1)


def set_readable(readable: bool) -> None:
    """Whether other processes of this user may read and trace this one."""
    prctl(_PR_SET_DUMPABLE, int(readable))


def gain_nothing() -> None:
    """No program that is started from here on has more rights than this process."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def unshare(flags: int) -> None:
    """Moves this process (its children, for process ids) into namespaces of their own."""
    check(libc().unshare(flags), "unshare")


def can_drop_capabilities() -> bool:
    """Whether the call is known for this machine."""
    return platform.machine() in _CAPSET


def drop_capabilities() -> None:
    """Gives up every capability, for good; where the call is not known, no namespace was entered that gives any."""
    if not can_drop_capabilities():
        return
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    check(libc().syscall(_CAPSET[platform.machine()], header, (ctypes.c_uint32 * 6)()), "capset")


def mount_memory(folder: str, megabytes: int, mode: str = "0700") -> None:
    """Mounts an empty file system of limited size on a folder."""
    options = f"size={megabytes}m,mode={mode},nr_inodes=4096".encode()
    check(libc().mount(b"tmpfs", folder.encode(), b"tmpfs", ctypes.c_ulong(_MS_NOSUID | _MS_NODEV), options), "mount")


def mount_again(descriptor: int, folder: str) -> None:
    """Shows the folder of a descriptor, with what is mounted in it, at another place."""
    source = f"/proc/self/fd/{descriptor}".encode()
    check(libc().mount(source, folder.encode(), None, ctypes.c_ulong(_MS_BIND | _MS_REC), None), "mount")


def unmount(folder: str) -> None:
    """Takes it away, with its files, even while somebody has them open."""
    check(libc().umount2(folder.encode(), _MNT_DETACH), "umount")


def keep_mounts_private() -> None:
    """Mounts made here are seen nowhere else."""
    check(libc().mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "mount")


def on_linux() -> bool:
    """Whether these calls exist."""
    return sys.platform == "linux"
