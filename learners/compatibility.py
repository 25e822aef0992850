"""Which options a checkpoint was made with: compared before a run is resumed, and without the secrets among them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping

from learners.json_files import JSON, dump_json
from learners.serialization import plain_node

_SECRET = re.compile(r"(^|_)(api_?key|secret|secret_key|private_key|password|passwd|(access|auth|hf|bearer)_token|authorization)$")
_SECRET_MAPPING = re.compile(r"(^|_)headers$")
_REDACTED = "<redacted>"


def redact(config: Mapping) -> dict:
    """A copy to be written to disk: values of options such as `comparator_api_key`, and all values of `…_headers`, are masked.

    None stays, and so do names of environment variables (`…_api_key_env`): they are no secrets.
    """
    return {key: _redacted(key, value) for key, value in config.items()}


def _is_secret(key: object) -> bool:
    return isinstance(key, str) and _SECRET.search(key.lower().replace("-", "_")) is not None


def _redacted(key: object, value: object) -> object:
    if value is None:
        return None
    if _is_secret(key):
        return _REDACTED
    if isinstance(value, Mapping):
        if isinstance(key, str) and _SECRET_MAPPING.search(key.lower()):
            return dict.fromkeys(value, _REDACTED)
        return redact(value)
    if isinstance(value, list | tuple):
        return type(value)(_redacted(None, part) for part in value)
    return value


def fingerprint(fields: Mapping) -> str:
    """SHA-256 of plain values, whatever the order of their names.

    Raises:
        TypeError: a value that is not plain.
    """
    return hashlib.sha256(dump_json(_sorted(plain_node(dict(fields))))).hexdigest()


def _sorted(node: JSON) -> JSON:
    if isinstance(node, dict):
        return {key: _sorted(node[key]) for key in sorted(node)}
    return [_sorted(part) for part in node] if isinstance(node, list) else node


def check_compatible(saved: Mapping, current: Mapping, may_change: Collection[str] = ()) -> None:
    """Makes sure that a run with the current options can continue one with the saved options.

    Nested options are named with dots. Secrets are never compared.

    Args:
        saved: options from the checkpoint's metadata.
        current: options of the run to resume.
        may_change: names that are allowed to differ; a name stands for everything below it too.

    Raises:
        ValueError: lists every other option that differs, with both values.
    """
    differences = [
        f"  {name}: {_shown(before)} in the checkpoint, {_shown(now)} now"
        for name, before, now in _differences(saved, current, "")
        if not any(name == free or name.startswith(f"{free}.") for free in may_change)
    ]
    if differences:
        raise ValueError("\n".join(["the checkpoint does not fit this run; these options differ:", *differences]))


class _Absent:
    """Stands for an option that one side does not have."""


def _differences(saved: Mapping, current: Mapping, prefix: str) -> Iterator[tuple[str, object, object]]:
    for key in dict.fromkeys([*saved, *current]):
        before, now = saved.get(key, _Absent), current.get(key, _Absent)
        name = f"{prefix}{key}"
        if _is_secret(key):
            continue
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from _differences(before, now, f"{name}.")
        elif not _same(before, now):
            yield name, before, now


def _same(before: object, now: object) -> bool:
    if isinstance(before, list | tuple) and isinstance(now, list | tuple):
        return len(before) == len(now) and all(map(_same, before, now))
    if isinstance(before, float) and isinstance(now, float) and math.isnan(before):
        return math.isnan(now)
    # True == 1, but as options they are not the same.
    return isinstance(before, bool) == isinstance(now, bool) and before == now


def _shown(value: object) -> str:
    return "absent" if value is _Absent else repr(redact({"": value})[""])
