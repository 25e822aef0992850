"""Checkpoints of a run: complete or absent, checked when read, resumed only into a run that fits.

A checkpoint is a folder `checkpoint-00000012`: shards and `tree.json` (`serialization.py`), `metadata.json`, and `manifest.json`
with the run, an increasing sequence number and the SHA-256 of every other file. It is written under a hidden name and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from learners.compatibility import redact
from learners.json_files import JSON, dump_json, sync_directory, write_file
from learners.serialization import CheckpointError, load_json, load_tree, plain_node, plain_value, save_tree

METADATA_FILE, MANIFEST_FILE = "metadata.json", "manifest.json"
_FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d{8,})")
# Hidden names tell what they are and whose: .checkpoint-00000012@host@pid@process.kind
_HIDDEN = re.compile(r"\.(checkpoint-\d{8,})@([^@]*)@(\d{1,9})@([0-9a-f]+)\.(writing|replaced|removed)")
# Process numbers are used again (in containers nearly always), so every process adds a token of its own.
_PROCESS = secrets.token_hex(4)


@dataclass(frozen=True)
class _Manifest:
    """What a complete checkpoint says about itself.

    Attributes:
        run_id: the run that owns it.
        sequence: grows with every save into the directory, whatever the step.
        files: name → (SHA-256, bytes).
    """

    run_id: str
    sequence: int
    files: Mapping[str, tuple[str, int]]


class CheckpointStore:
    """The checkpoints in one directory. Building it clears what dead processes left half done there.

    The newest checkpoint is the one saved last, not the one of the highest step: a run that goes back to step 8 and saves step 10
    continues from 10, although a step 12 of its abandoned future is still there.

    Args:
        directory: need not exist yet.
        total_limit: this run's newest checkpoints to keep; None keeps all. The one resumed from is kept beside them, those of
            other runs are neither counted nor deleted.
    """

    def __init__(self, directory: str | Path, total_limit: int | None = None) -> None:
        if total_limit is not None and (type(total_limit) is not int or total_limit < 1):
            raise ValueError(f"checkpoint_total_limit must be a positive integer or None, got {total_limit!r}")
        self.directory = Path(directory)
        self.total_limit = total_limit
        self.resumed_from: Path | None = None
        self._clear_leftovers()

    def save(self, step: int, tree: Mapping, metadata: Mapping) -> Path:
        """The new checkpoint's folder, complete and on the disk. An earlier one of the same step and run is replaced.

        Args:
            step: names the folder.
            tree: the training state, as `save_tree` takes it; it is only read.
            metadata: plain values that can be read without the tensors. `run_id` is required and says who may replace or delete the
                checkpoint. Secrets are redacted.

        Raises:
            CheckpointError: the disk refused (full, for instance), or the folder belongs to another run. Earlier checkpoints are
                untouched and nothing of the new one remains.
            TypeError: the tree or the metadata hold something that cannot be stored.
        """
        if type(step) is not int or step < 0:
            raise ValueError(f"the step of a checkpoint must be a non-negative integer, got {step!r}")
        run_id = metadata.get("run_id")
        if not isinstance(run_id, str) or not run_id:
            raise ValueError(f"the metadata of a checkpoint need a text 'run_id', got {run_id!r}")
        final = self.directory / f"checkpoint-{step:08d}"
        self._check_replaceable(final, run_id)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write(final, tree, metadata, run_id)
        except OSError as error:
            message = f"checkpoint {final} could not be written: {error.strerror or error}; earlier ones are untouched"
            raise CheckpointError(message) from error
        self._retain(run_id)
        return final

    def latest(self) -> Path | None:
        """The complete checkpoint saved last, None if there is none. A warning names folders that are not complete."""
        if not self.directory.is_dir():
            return None
        newest: tuple[int, Path] | None = None
        for path in _checkpoint_folders(self.directory):
            try:
                manifest = _read_manifest(path)
            except CheckpointError as error:
                warnings.warn(f"skipping an incomplete checkpoint: {error}", stacklevel=2)
                continue
            newest = max(newest, (manifest.sequence, path)) if newest else (manifest.sequence, path)
        return newest[1] if newest else None

    def load(self, path: str | Path | Literal["latest"] = "latest") -> tuple[dict, dict]:
        """Tree and metadata of a checkpoint, after its files were checked. It is kept from then on.

        Raises:
            CheckpointError: no such checkpoint, or a damaged one; the message names the file.
        """
        path = self._resolve(path)
        for name, (digest, _) in _read_manifest(path).files.items():
            _check_digest(path / name, digest)
        loaded = load_tree(path), _read_metadata(path)
        self.resumed_from = path.resolve()
        return loaded

    def read_metadata(self, path: str | Path | Literal["latest"] = "latest") -> dict:
        """Metadata alone, without reading any tensor: for checks before anything is built.

        Raises:
            CheckpointError: no such checkpoint, or a damaged one.
        """
        path = self._resolve(path)
        digest, _ = _read_manifest(path).files[METADATA_FILE]
        _check_digest(path / METADATA_FILE, digest)
        return _read_metadata(path)

    def _resolve(self, path: str | Path) -> Path:
        if path != "latest":
            return Path(path)
        newest = self.latest()
        if newest is None:
            raise CheckpointError(f"there is no complete checkpoint in {self.directory}")
        return newest

    def _check_replaceable(self, final: Path, run_id: str) -> None:
        if not final.exists() and not final.is_symlink():
            return
        try:
            owner = _read_manifest(final).run_id
        except CheckpointError as error:
            raise CheckpointError(f"{final} exists and is not a complete checkpoint of this run, so it stays: {error}") from error
        if owner != run_id:
            raise CheckpointError(f"{final} belongs to run {owner!r}, so run {run_id!r} does not overwrite it")

    def _write(self, final: Path, tree: Mapping, metadata: Mapping, run_id: str) -> None:
        temporary = self._vacant(final, "writing")
        temporary.mkdir()
        try:
            digests = save_tree(temporary, tree)
            digests[METADATA_FILE] = write_file(temporary / METADATA_FILE, dump_json(plain_node(redact(metadata))))
            manifest = {
                "format": _FORMAT,
                "run_id": run_id,
                "sequence": 1 + max((manifest.sequence for _, manifest in self._complete()), default=0),
                "files": {name: [digest, (temporary / name).stat().st_size] for name, digest in digests.items()},
            }
            write_file(temporary / MANIFEST_FILE, dump_json(plain_node(manifest)))
            sync_directory(temporary)
            self._publish(temporary, final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _publish(self, temporary: Path, final: Path) -> None:
        if not final.exists():
            temporary.rename(final)
            sync_directory(self.directory)
            return
        # A folder cannot be renamed onto a full one. If this process dies between the two renames, the next store moves it back.
        replaced = self._vacant(final, "replaced")
        final.rename(replaced)
        try:
            temporary.rename(final)
        except BaseException:
            replaced.rename(final)
            raise
        sync_directory(self.directory)
        shutil.rmtree(replaced)

    def _retain(self, run_id: str) -> None:
        if self.total_limit is None:
            return
        own = sorted((manifest.sequence, path) for path, manifest in self._complete() if manifest.run_id == run_id)
        for _, path in own[: -self.total_limit]:
            if path.resolve() != self.resumed_from:
                # Renamed first: a process killed while deleting must not leave half a checkpoint under a good name.
                removed = self._vacant(path, "removed")
                path.rename(removed)
                shutil.rmtree(removed)

    def _complete(self) -> Iterator[tuple[Path, _Manifest]]:
        for path in _checkpoint_folders(self.directory):
            # An incomplete folder is not ours to count or to delete; `latest` reports it.
            with contextlib.suppress(CheckpointError):
                yield path, _read_manifest(path)

    def _vacant(self, final: Path, kind: str) -> Path:
        """A hidden name of this process; what an earlier failure may have left under it is gone."""
        hidden = self.directory / f".{final.name}@{_host()}@{os.getpid()}@{_PROCESS}.{kind}"
        shutil.rmtree(hidden, ignore_errors=True)
        return hidden

    def _clear_leftovers(self) -> None:
        if not self.directory.is_dir():
            return
        for path in sorted(self.directory.iterdir()):
            match = _HIDDEN.fullmatch(path.name)
            if match is None or _is_alive(host=match[2], pid=int(match[3]), process=match[4]):
                continue
            final = self.directory / match[1]
            with contextlib.suppress(FileNotFoundError):  # another process clears the same
                if match[5] == "replaced" and not final.exists():
                    path.rename(final)
                else:
                    shutil.rmtree(path)


def _checkpoint_folders(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if _NAME.fullmatch(path.name)]


def _read_manifest(path: Path) -> _Manifest:
    """What a folder says it holds, once every file is there in full length."""
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a checkpoint: no such folder")
    document = load_json(path / MANIFEST_FILE)
    try:
        manifest = _parse_manifest(document)
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path / MANIFEST_FILE} is not the manifest of a checkpoint of format {_FORMAT}: {error!r}"
        ) from error
    for name, (_, size) in manifest.files.items():
        try:
            found = (path / name).stat().st_size
        except OSError as error:
            raise CheckpointError(f"{path / name} is missing: {error.strerror}") from error
        if found != size:
            raise CheckpointError(f"{path / name} is damaged: {found} bytes instead of {size}")
    return manifest


def _parse_manifest(document: JSON) -> _Manifest:
    if not isinstance(document, dict) or document["format"] != _FORMAT:
        raise ValueError("unknown format")
    run_id, sequence, files = document["run_id"], document["sequence"], document["files"]
    if not isinstance(run_id, str) or not isinstance(sequence, int) or not isinstance(files, dict) or METADATA_FILE not in files:
        raise ValueError("fields are missing")
    entries: dict[str, tuple[str, int]] = {}
    for name, entry in files.items():
        if not isinstance(entry, list) or not isinstance(entry[0], str) or not isinstance(entry[1], int):
            raise ValueError(f"no checksum for {name}")
        entries[name] = (entry[0], entry[1])
    return _Manifest(run_id, sequence, entries)


def _read_metadata(path: Path) -> dict:
    metadata = plain_value(load_json(path / METADATA_FILE))
    if not isinstance(metadata, dict):
        raise CheckpointError(f"{path / METADATA_FILE} does not hold the metadata of a checkpoint")
    return metadata


def _check_digest(path: Path, expected: str) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise CheckpointError(f"{path} is damaged: its checksum is not the one in {MANIFEST_FILE}")


def _host() -> str:
    return socket.gethostname().replace("@", "").replace("/", "")


def _is_alive(host: str, pid: int, process: str) -> bool:
    """Whether the process that left a hidden folder may still be at work; of other machines nothing is known."""
    if host != _host():
        return True
    if pid == os.getpid():
        return process == _PROCESS
    try:
        os.kill(pid, 0)  # signal 0 only asks
    except OSError as error:
        return error.errno != errno.ESRCH
    return True
