"""The layers of isolation that a system may offer, by name."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Layers:
    """What holds for a solution.

    Attributes:
        user: it has another user id than root.
        namespaces: it lives in user, network and IPC namespaces of the warden.
        pids: it sees and signals no process but its own.
        mounts: its folder is a file system of its own, of limited size.
        landlock: it reads the system and the interpreter alone, and writes in its folder.
        seccomp: system calls are filtered.
        processes: the kernel counts its processes apart from others.
    """

    user: bool = False
    namespaces: bool = False
    pids: bool = False
    mounts: bool = False
    landlock: bool = False
    seccomp: bool = False
    processes: bool = False


LAYERS = tuple(layer.name for layer in fields(Layers))
