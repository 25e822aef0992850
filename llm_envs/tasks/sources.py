"""Where the rows of a task family come from: bundled, from a package, a file or a hub; and which are kept for evaluation."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from llm_envs.types import Item

Source: TypeAlias = Literal["builtin", "path", "hub"]
"""Where the rows of a family come from that no package has."""

PackageSource: TypeAlias = Literal["builtin", "package", "path", "hub"]
"""Where the rows of a family come from that a package has too."""

EVAL_SHARE = 0.25
"""Share of rows for evaluation where nothing else is said."""

TABLES = {".csv": "csv", ".parquet": "parquet"}
"""Suffixes that the package datasets reads, with its names for them."""


@dataclass(frozen=True)
class HubData:
    """A data set on the Hugging Face hub.

    Attributes:
        name: `owner/name`.
        config: of the data set, None if it has one only.
        split: rows of which split.
    """

    name: str
    config: str | None = None
    split: str = "train"


@dataclass(frozen=True)
class Sources:
    """Every way to get a family's rows. Nothing is read or fetched before `rows` is called.

    Attributes:
        family: for messages.
        builtin: gives the rows that come with this package.
        fields: that a row needs.
        package: gives the rows of an installed package, and raises an ImportError with the `pip install` line without it.
        hub: the family's data set on the hub.
        convert: row as read → row of the task; the same by default. Applied to rows from everywhere but `builtin`.
    """

    family: str
    builtin: Callable[[], Sequence[Item]]
    fields: Sequence[str]
    package: Callable[[], Sequence[Item]] | None = None
    hub: HubData | None = None
    convert: Callable[[Item], Item] | None = None

    @property
    def choices(self) -> tuple[str, ...]:
        """The sources there are."""
        return get_args(Source if self.package is None else PackageSource)

    def rows(self, source: PackageSource, path: str | None = None) -> list[Item]:
        """All rows, in order; none is left out.

        Args:
            source: one of the `choices`.
            path: of the file or folder (`read_rows`) for `path`; for `hub` another data set, `owner/name` for all rows of its split
                `train`, `owner/name:split` for another one; for the others None.

        Raises:
            ValueError: for a source there is none of, a path too many or too few, no rows, or a row without a field.
            ImportError, OSError: from reading.
        """
        if source not in self.choices:
            raise ValueError(f"{self.family}: source must be one of {', '.join(self.choices)}, got {source!r}")
        if path is not None and source in ("builtin", "package"):
            raise ValueError(f"path={path!r} goes with source='path' or source='hub', not with source={source!r}")
        where = f"{self.family}, source {source!r}" + ("" if path is None else f", {path}")
        read = list(self._read(source, path))
        if not read:
            raise ValueError(f"{where}: no rows")
        return [self._checked(row, f"{where}, row {index}", source) for index, row in enumerate(read)]

    def _read(self, source: PackageSource, path: str | None) -> Iterable[Item]:
        if source == "builtin":
            return self.builtin()
        if source == "path":
            if path is None:
                raise ValueError(f"{self.family}: source='path' needs path, a file or folder of rows")
            return read_rows(path)
        if source == "package" and self.package is not None:
            return self.package()
        if self.hub is None and path is None:
            raise ValueError(f"{self.family}: source='hub' needs path, the name of a data set on the hub")
        return _hub_rows(self.hub if path is None and self.hub is not None else _named(str(path)))

    def _checked(self, row: Item, where: str, source: PackageSource) -> Item:
        if not isinstance(row, Mapping):
            raise ValueError(f"{where}: expected a mapping, got {type(row).__name__}: {row!r:.200}")
        if self.convert is not None and source != "builtin":
            try:
                row = self.convert(row)
            except (LookupError, ValueError, TypeError, AttributeError, SyntaxError) as error:
                raise ValueError(
                    f"{where}: {type(error).__name__}: {error}; it has the fields {', '.join(map(str, row))}"
                ) from error
        missing = [field for field in self.fields if row.get(field) is None]
        if missing:
            raise ValueError(f"{where} has no {missing[0]!r}; it has the fields {', '.join(map(str, row))}")
        return row


def read_rows(path: str | Path) -> list[Item]:
    """The rows of a file: JSON (a list of objects), JSON lines, either compressed with gzip, CSV, Parquet; or of a saved `Dataset`.

    Raises:
        FileNotFoundError: without the file.
        ValueError: for another kind of file, or one that cannot be read, naming the line.
    """
    file = Path(path).expanduser()
    if not file.exists():
        raise FileNotFoundError(f"there is no file or folder of rows at {file}")
    suffixes = [suffix.lower() for suffix in file.suffixes]
    kind = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else (suffixes or [""])[-1]
    if file.is_dir():
        return _saved_rows(file)
    if kind in TABLES:
        return list(_datasets().load_dataset(TABLES[kind], data_files=str(file), split="train"))
    if kind not in (".json", ".jsonl"):
        raise ValueError(f"rows come from .json, .jsonl, .json.gz, .jsonl.gz, .csv, .parquet or a saved Dataset, got {file}")
    try:
        text = (gzip.decompress(file.read_bytes()) if suffixes[-1] == ".gz" else file.read_bytes()).decode("utf-8")
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: {error}") from error
    return _json_lines(text, file) if kind == ".jsonl" else _json_list(text, file)


def split_rows(
    rows: Sequence[Item],
    id_field: str,
    *,
    eval_ids: Sequence[str] | None = None,
    eval_share: float | None = None,
) -> tuple[list[Item], list[Item] | None]:
    """Training and evaluation rows, by id: the same rows whatever order they come in, and every row in one of the two.

    Args:
        rows: all of them.
        id_field: name of the field with a row's id.
        eval_ids: ids of the evaluation rows.
        eval_share: share of rows for evaluation, in [0, 1): those whose ids have the lowest SHA-256. 0 keeps none. Without both
            options `EVAL_SHARE`.

    Raises:
        ValueError: for both options, ids that rows share, evaluation ids that no row has, or a part that would be empty.
    """
    if isinstance(eval_ids, str) or not (eval_ids is None or isinstance(eval_ids, Iterable)):
        raise ValueError(f"eval_ids must be a list of ids, got {eval_ids!r}")
    if eval_share is not None and (isinstance(eval_share, bool) or not isinstance(eval_share, (int, float))):
        raise ValueError(f"eval_share must be a number, got {eval_share!r}")
    if eval_ids is not None and eval_share is not None:
        raise ValueError(f"give eval_ids or eval_share, not both; got {list(eval_ids)!r:.100} and {eval_share!r}")
    eval_share = EVAL_SHARE if eval_share is None else eval_share
    ids = [str(row[id_field]) for row in rows]
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise ValueError(f"rows need ids of their own to be split, but {id_field}={twice!r} stands in several")
    if eval_ids is not None:
        kept = {str(one) for one in eval_ids}
        unknown = sorted(kept - set(ids))
        if unknown:
            raise ValueError(f"eval_ids names {unknown[0]!r}, which no row has as its {id_field}")
    elif not 0 <= eval_share < 1:
        raise ValueError(f"eval_share must be at least 0 and below 1, got {eval_share!r}")
    else:
        count = round(eval_share * len(ids)) if eval_share == 0 else max(1, round(eval_share * len(ids)))
        kept = set(sorted(ids, key=lambda one: hashlib.sha256(one.encode()).hexdigest())[:count])
    if len(kept) == len(ids):
        raise ValueError(f"all {len(ids)} rows would be kept for evaluation, none is left to train on; eval_share=0 keeps none")
    train = [row for row, one in zip(rows, ids, strict=True) if one not in kept]
    held = [row for row, one in zip(rows, ids, strict=True) if one in kept]
    return train, held or None


def _json_lines(text: str, file: Path) -> list[Item]:
    rows = []
    # Not splitlines(): that also splits at characters which may stand inside a JSON text.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise ValueError(f"{file}, line {number}: {error}") from error
    return rows


def _json_list(text: str, file: Path) -> list[Item]:
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: {error}") from error
    if not isinstance(rows, list):
        raise ValueError(f"{file} must hold a list of rows, got {type(rows).__name__}")
    return rows


def _saved_rows(folder: Path) -> list[Item]:
    data = _datasets().load_from_disk(str(folder))
    if isinstance(data, Mapping):
        raise ValueError(f"{folder} holds the splits {', '.join(map(str, data))}: name the folder of one of them")
    return list(data)


def _named(path: str) -> HubData:
    name, _, split = path.partition(":")
    return HubData(name, split=split or "train")


def _hub_rows(hub: HubData) -> list[Item]:
    return list(_datasets().load_dataset(hub.name, hub.config, split=hub.split))


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ImportError("this source needs the package datasets: pip install datasets") from error
    return datasets
