"""Landlock: which files a process and its children may read and write, decided by the process itself.

Source: https://docs.kernel.org/userspace-api/landlock.html. Works for ordinary users from Linux 5.13 on.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from llm_envs.sandbox import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on all machines
_EXECUTE, _WRITE, _READ, _LIST, _REFER, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1  # all rights of version 1
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_SCOPES = 3  # abstract sockets, signals
_TCP = 3  # bind, connect

OWN_PACKAGES = ("llm_envs", "learners")
"""What a solution has no business to read: rows with their tests lie there."""

SYSTEM = ("/bin", "/lib", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/usr/share/mime")
SYSTEM_FILES = (
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/passwd", "/etc/group"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
)


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """Of the kernel's Landlock; 0 without it."""
    return max(0, kernel.libc().syscall(_CREATE, None, ctypes.c_size_t(0), 1))


def make_rules(writable: str) -> int:
    """A descriptor of rules: read the system and the interpreter, write in one folder alone, no TCP, no signals outside."""
    known = version()
    handled = _FIRST | (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0) | (_IOCTL if known >= 5 else 0)
    attributes = _Ruleset(handled, _TCP if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    rules = kernel.check(kernel.libc().syscall(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), 0), "landlock")
    _allow(rules, writable, handled & ~_EXECUTE)
    _allow(rules, "/dev/null", handled & (_READ | _WRITE | _TRUNCATE))
    for path in readable_paths():
        _allow(rules, path, _EXECUTE | _READ | _LIST)
    for path in package_folders():
        _allow(rules, path, _LIST)  # without which the import system finds nothing in it
    return rules


def restrict(rules: int) -> None:
    """Puts this process and its future children under the rules, for good."""
    kernel.check(kernel.libc().syscall(_RESTRICT, rules, 0), "landlock_restrict_self")


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not there, or not for us: nobody may read it then
    try:
        allowed = rights if Path(path).is_dir() else rights & _OF_FILES
        kernel.check(kernel.libc().syscall(_ADD, rules, 1, ctypes.byref(_Beneath(allowed, descriptor)), 0), f"landlock {path}")
    finally:
        os.close(descriptor)


def readable_paths() -> Iterator[str]:
    """Files and folders of the system and of the interpreter with its packages, without our own."""
    yield from SYSTEM
    yield from SYSTEM_FILES
    for prefix in {sys.prefix, sys.base_prefix}:
        yield str(Path(prefix) / "bin")
        yield str(Path(prefix) / "pyvenv.cfg")
    folders = package_folders()
    for folder in sorted(folders):
        yield from _entries(folder, folders)


def package_folders() -> set[str]:
    """Folders of libraries and packages: those of the interpreter that modules are looked for in, and what those lie in.

    What is elsewhere was put there for development: tests and data sets lie beside the packages.
    """
    prefixes = (sys.prefix, sys.base_prefix)
    folders = {str(Path(entry).resolve()) for entry in sys.path if entry.startswith(prefixes) and Path(entry).is_dir()}
    libraries = {Path(prefix) / "lib" for prefix in prefixes if Path(prefix).resolve() not in (Path("/"), Path("/usr"))}
    return folders | {str(library.resolve()) for library in libraries}


def _entries(folder: str, packages: Iterable[str]) -> Iterator[str]:
    """What lies in a folder, one by one, without our packages; folders that hold some of `packages` are entered."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = os.path.realpath(entry.path)
        if entry.name.split("-")[0].split(".")[0] in OWN_PACKAGES or entry.name.endswith((".pth", ".egg-link")):
            continue
        if any(other == path or other.startswith(path + os.sep) for other in packages):
            if path not in packages:
                yield from _entries(path, packages)
        else:
            yield path
