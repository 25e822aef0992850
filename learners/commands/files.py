"""Configs on disk: YAML with a section for each prefix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from learners.commands.errors import UsageError


def read_yaml(path: str) -> dict[str, Any]:
    """A config file.

    Raises:
        UsageError: if it cannot be read or holds no mapping.
    """
    try:
        content = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path} is no YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"--config {path} must hold options by name, got {type(content).__name__}")
    return content


def to_yaml(values: Mapping[str, Any]) -> str:
    """Values by full names, as YAML with a section for each prefix, in their order."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[last] = _plain(value)
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)


def is_plain(value: Any) -> bool:
    """Whether YAML can hold the value."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(entry) for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (str, int, float))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
