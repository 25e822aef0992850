"""Seccomp: system calls that a solution cannot make; a filter that the kernel asks before each.

Refused: sockets (so no network, whatever the namespaces), looking into or signalling other processes, new namespaces and mounts,
memory files and System V objects (which no limit counts), and calls that only widen the kernel's surface. They fail with EPERM.
"""

from __future__ import annotations

import ctypes
import errno
import platform

from llm_envs.sandbox import kernel

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NEW_NAMESPACES = 0x7E020080  # user, pid, net, ipc, uts, cgroup, mount, time

_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Name: number on x86_64 and on aarch64.
_REFUSED = {
    "socket": (41, 198),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "syslog": (103, 116),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
}
# Signals to others; harmless among processes that have a process-id namespace of their own.
_SIGNALS = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
_CLONE, _CLONE3, _PRLIMIT, _TGKILL = (56, 220), 435, (302, 261), (234, 131)


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction))]


def available() -> bool:
    """Whether the machine's numbers are known and its kernel has filters."""
    if platform.machine() not in _ARCHITECTURE:
        return False
    try:
        # EFAULT for the missing program says that filters exist; EINVAL that they do not.
        kernel.prctl(22, 2)
    except OSError as refusal:
        return refusal.errno == errno.EFAULT
    return False


def restrict(signals: bool, own_pid: int) -> None:
    """Installs the filter in this process, for its future children too.

    Args:
        signals: whether the process may send signals.
        own_pid: to which `tgkill` (that is, `abort`) stays allowed without.
    """
    program = _instructions(signals, own_pid)
    array = (_Instruction * len(program))(*[_Instruction(*line) for line in program])
    described = _Program(len(program), array)  # named, or its memory would be given away before the call
    kernel.prctl(22, 2, ctypes.addressof(described))


def _instructions(signals: bool, own_pid: int) -> list[tuple[int, int, int, int]]:
    column = list(_ARCHITECTURE).index(platform.machine())
    refused = [numbers[column] for numbers in _REFUSED.values()]
    if not signals:
        refused += [numbers[column] for numbers in _SIGNALS.values()]
    deny, allow = (_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ALLOW)
    program = [
        (_LOAD, 0, 0, 4),  # architecture
        (_EQUAL, 1, 0, _ARCHITECTURE[platform.machine()]),
        deny,
        (_LOAD, 0, 0, 0),  # number of the call
        (_ABOVE, 0, 1, 0x40000000),  # the other calling convention of x86_64
        deny,
        # ENOSYS makes the C library fall back to clone, whose flags can be read.
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for number in refused:
        program += [(_EQUAL, 0, 1, number), deny]
    program += [(_EQUAL, 0, 4, _CLONE[column]), (_LOAD, 0, 0, 16), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), deny, allow]
    program += [(_EQUAL, 0, 4, _PRLIMIT[column]), (_LOAD, 0, 0, 16), (_EQUAL, 1, 0, 0), deny, allow]
    if not signals:
        program += [(_EQUAL, 0, 4, _TGKILL[column]), (_LOAD, 0, 0, 16), (_EQUAL, 1, 0, own_pid), deny, allow]
    return [*program, allow]
