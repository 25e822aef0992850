"""Files of lines that only grow, such as `metrics.jsonl` and the recorded stream, and how a resumed run continues them exactly.

A checkpoint stores the position of each file. What a killed run wrote after its last checkpoint is cut off on resume and written
again, so that the file equals that of a run that was never interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from learners.serialization import CheckpointError

# Enough to tell one run's file from another's without reading all of it.
_TAIL_BYTES = 4096


class LogPosition(TypedDict):
    """Where a file ended.

    Attributes:
        bytes: its length.
        tail: SHA-256 of its last 4,096 bytes.
    """

    bytes: int
    tail: str


def append_position(path: str | Path) -> LogPosition:
    """The end of the file, which is on the disk by then; 0 bytes for a file that does not exist yet.

    Whoever writes the file must have flushed whole lines.
    """
    path = Path(path)
    if not path.exists():
        return {"bytes": 0, "tail": _tail_digest(b"")}
    with path.open("rb") as file:
        # Otherwise a power cut could leave a checkpoint that points behind the end of its log.
        os.fsync(file.fileno())
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        return {"bytes": size, "tail": _tail_digest(file.read())}


def check_position(path: str | Path, position: LogPosition) -> None:
    """Makes sure that `truncate_to` would succeed, and changes nothing.

    Raises:
        CheckpointError: the file is missing, shorter than the position or not the one the position was taken of.
    """
    path, size = Path(path), position["bytes"]
    if not path.exists():
        if size:
            raise CheckpointError(f"{path} is missing, but the checkpoint continues it after {size} bytes")
        return
    with path.open("rb") as file:
        found = file.seek(0, os.SEEK_END)
        if found < size:
            raise CheckpointError(f"{path} has {found} bytes, but the checkpoint continues it after {size}")
        file.seek(max(0, size - _TAIL_BYTES))
        if _tail_digest(file.read(min(size, _TAIL_BYTES))) != position["tail"]:
            raise CheckpointError(f"{path} is not the file that the checkpoint continues: its text before byte {size} differs")


def truncate_to(path: str | Path, position: LogPosition) -> None:
    """Cuts off what was written after the position.

    Raises:
        CheckpointError: as `check_position`.
    """
    check_position(path, position)
    if Path(path).exists():
        with Path(path).open("rb+") as file:
            file.truncate(position["bytes"])
            os.fsync(file.fileno())


def drop_cut_line(path: str | Path) -> None:
    """Removes the end of a file that was cut off while a line was being written, so that the next line starts on its own."""
    path = Path(path)
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = size = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _TAIL_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            end = start if newline < 0 else start + newline + 1
            if newline >= 0:
                break
        if end < size:
            file.truncate(end)


def read_lines(path: str | Path) -> Iterator[dict]:
    """Objects of a file of JSON lines, in order. A last line that was cut off while being written is left out.

    Raises:
        ValueError: another line is not a JSON object, with its number.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                value = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} of {path} is not JSON: {error}") from error
            if not isinstance(value, dict):
                raise ValueError(f"line {number} of {path} is not a JSON object: {line[:80]!r}")
            yield value


def _tail_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
