"""Secrets of an HTTP endpoint: they stay in the environment, are read when a request leaves, and are masked in what is shown.

Options name them: `comparator_api_key_env`, and `${NAME}` in the URL and in header values. A secret in clear text is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, quote, urlsplit

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(r"(^|[-_])(authorization|auth|\w*key|token|secret|password|passwd|cookie|credentials?)$", re.IGNORECASE)
_SECRET_PARAMETER = re.compile(r"^(code|sig|signature)$", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_MASK = "<redacted>"


def check_variable(option: str, name: object) -> None:
    """Refuse what cannot name an environment variable, without showing it: it may be the key itself.

    Raises:
        ValueError: naming the option.
    """
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise ValueError(
            f"{option} must name an environment variable (letters, digits and _), got something else, not shown here since it may "
            "be a key"
        )


def check_url(option: str, url: object) -> None:
    """Refuse what is no HTTP address, and addresses with a secret in clear text.

    Raises:
        ValueError: naming the option.
    """
    if not isinstance(url, str):
        raise ValueError(f"{option} must be a text, got {type(url).__name__}")
    if "@" in url.partition("?")[0]:
        raise ValueError(f"{option} must hold no user or password: give a header with ${{NAME}} in comparator_api_headers")
    if not _is_address(url):
        # What is no address may be a key in the wrong place.
        raise ValueError(f"{option} must be the http:// or https:// address that requests are posted to, got something else")
    parts = urlsplit(url)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if (_SECRET_NAME.search(name) or _SECRET_PARAMETER.search(name)) and not _REFERENCE.search(value):
            raise ValueError(f"{option} has {name!r} in clear text: write {name}=${{NAME}}, where NAME is an environment variable")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is no number
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "$" not in parts.netloc


def check_headers(option: str, headers: object) -> None:
    """Refuse what cannot be sent as headers, and secrets in clear text. Values are not shown.

    Raises:
        ValueError: naming option and header.
    """
    if not isinstance(headers, Mapping):
        raise ValueError(f"{option} must map names to texts, got {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{option} has {name!r}, which is no name of a header")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"{option}: the value of {name!r} must be a text of printable ASCII characters")
        if _SECRET_NAME.search(name) and not _REFERENCE.search(value):
            raise ValueError(f"{option} has {name!r} in clear text: write ${{NAME}}, where NAME is an environment variable")


def read_variable(name: str) -> str:
    """What an environment variable holds, without white space around it.

    Raises:
        ValueError: naming the variable, if it is not set or holds what no header can carry; its value is not shown.
    """
    value = os.environ.get(name, "").strip()
    # A key that was given in place of its variable's name must not be shown either; names of variables are in capitals.
    shown = f"environment variable {name}" if name.isupper() else "environment variable that is named for a key"
    if not value:
        raise ValueError(f"the comparator's endpoint needs the {shown}, which is not set")
    if not _HEADER_VALUE.fullmatch(value):
        raise ValueError(f"the {shown} holds characters that a header cannot carry: only printable ASCII can be sent")
    return value


def expanded(text: str) -> str:
    """The text with the environment's value in place of every `${NAME}`.

    Raises:
        ValueError: a variable is missing.
    """
    return _REFERENCE.sub(lambda match: read_variable(match[1]), text)


def expanded_url(url: str) -> str:
    """The address with the environment's values, escaped, in place of every `${NAME}`.

    Raises:
        ValueError: a variable is missing.
    """
    return _REFERENCE.sub(lambda match: quote(read_variable(match[1]), safe=""), url)


def variables(texts: Iterable[str]) -> list[str]:
    """Names of the environment variables that texts refer to, in order."""
    return [match[1] for text in texts for match in _REFERENCE.finditer(text)]


def shown_url(url: str) -> str:
    """The address for messages: without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, also where they stand escaped as in an address."""
    found = {form for secret in secrets for form in (secret, quote(secret, safe=""), quote(secret))}
    for form in sorted(found, key=len, reverse=True):  # one may be part of another
        text = text.replace(form, _MASK)
    return text
