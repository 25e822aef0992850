"""JSON on the disk, complete or absent. Knows nothing of tensors, so that whatever is plain data needs no torch to be stored."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TypeAlias

JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None


def dump_json(document: JSON) -> bytes:
    """UTF-8 JSON. Lone surrogates, which a text may hold and strict UTF-8 may not, are written as they are.

    Escaped, two of them in a row would be read back as one character.
    """
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def parse_json(data: bytes) -> JSON:
    """The document that `dump_json` wrote.

    Raises:
        ValueError: not JSON (cut off, for instance).
    """
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"))
    except RecursionError as error:
        raise ValueError(str(error)) from error


def write_file(path: Path, data: bytes) -> str:
    """SHA-256 of the data, once it is on the disk and not only in a cache. Refuses to overwrite."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


def replace_file(path: Path, data: bytes) -> str:
    """SHA-256 of the data, once the file holds all of it. Until then, and if it fails, the file is what it was, or is not there.

    Missing folders are made. A process that is killed meanwhile leaves a hidden file, which the next attempt replaces.

    Raises:
        OSError: the disk refused.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.writing")
    temporary.unlink(missing_ok=True)
    try:
        digest = write_file(temporary, data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
    return digest


def sync_directory(path: Path) -> None:
    """Returns once the names in a folder are on the disk and not only in a cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
