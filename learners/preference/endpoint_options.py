"""Options of a comparator behind an HTTP endpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from learners.compatibility import redact
from learners.config import require_int, require_number, require_text
from learners.preference.endpoint_formats import canonical_format
from learners.preference.endpoint_secrets import check_headers, check_url, check_variable, read_variable, variables


@dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    """How a comparator is asked over HTTP. Secrets come from the environment alone.

    Attributes:
        comparator_api_url: address that requests are posted to; `${NAME}` in its path or query stands for an environment variable.
        comparator_api_format: "generic", "openai" (also "openai_chat", "chat"), "anthropic" ("anthropic_messages", "messages") or
            "openai_responses" ("responses", "codex").
        comparator_api_model: sent as `model`.
        comparator_api_timeout: seconds for an answer, at each attempt.
        comparator_api_headers: further headers; `${NAME}` in a value stands for an environment variable.
        comparator_api_key: refused, so that no key is written anywhere: use `comparator_api_key_env`.
        comparator_api_key_env: environment variable with the key.
        comparator_api_key_header: header that carries the key; "anthropic" makes the default `x-api-key` without a prefix.
        comparator_api_key_prefix: stands before the key in the header, with a space; "" or None for the key alone.
        comparator_api_response_field: where "generic" finds the completions: keys and positions joined with dots.
        comparator_api_extra_body: fields merged into each request last, so that they replace others; except with "generic", None
            removes a field: `{"top_p": None}` for a model that takes no `top_p`.
        comparator_api_max_n_per_request: most completions asked for at once with "generic" and "openai"; None asks for all.
        comparator_api_concurrency: prompts that are asked about at once.
        comparator_api_max_attempts: times a request is sent at most; what has then no answer is dropped.
        comparator_api_retry_wait: seconds before the second attempt, doubled each time; a server's `Retry-After` can lengthen it.
        comparator_api_max_retry_wait: most seconds between two attempts.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset(
        {
            f"comparator_api_{name}"
            for name in (
                *("url", "timeout", "headers", "key_env", "key_header", "key_prefix"),
                *("max_n_per_request", "concurrency", "max_attempts", "retry_wait", "max_retry_wait"),
            )
        }
    )

    comparator_api_url: str | None = None
    comparator_api_format: str = "generic"
    comparator_api_model: str | None = None
    comparator_api_timeout: float = 120.0
    comparator_api_headers: Mapping[str, str] | None = field(default=None, repr=False)
    comparator_api_key: str | None = field(default=None, repr=False)
    comparator_api_key_env: str | None = None
    comparator_api_key_header: str = "Authorization"
    comparator_api_key_prefix: str | None = "Bearer"
    comparator_api_response_field: str = "completions"
    comparator_api_extra_body: Mapping[str, Any] | None = None
    comparator_api_max_n_per_request: int | None = None
    comparator_api_concurrency: int = 8
    comparator_api_max_attempts: int = 3
    comparator_api_retry_wait: float = 1.0
    comparator_api_max_retry_wait: float = 60.0

    def check_endpoint_options(self) -> None:
        """Refuse options that cannot work. Environment variables are read later, when the policy is built.

        Raises:
            ValueError: naming the option, its value if it can be no secret, and what is expected.
        """
        if self.comparator_api_key is not None:
            raise ValueError(
                "comparator_api_key must not be given: put the key into an environment variable and its name into "
                "comparator_api_key_env, so that the key is not written into configs and checkpoints"
            )
        canonical_format(self.comparator_api_format)
        require_text("comparator_api_model", self.comparator_api_model, optional=True)
        require_number("comparator_api_timeout", self.comparator_api_timeout, above=0)
        require_number("comparator_api_retry_wait", self.comparator_api_retry_wait, at_least=0)
        require_number("comparator_api_max_retry_wait", self.comparator_api_max_retry_wait, at_least=0)
        require_int("comparator_api_max_n_per_request", self.comparator_api_max_n_per_request, 1, optional=True)
        require_int("comparator_api_concurrency", self.comparator_api_concurrency, 1)
        require_int("comparator_api_max_attempts", self.comparator_api_max_attempts, 1)
        if not isinstance(self.comparator_api_response_field, str) or not self.comparator_api_response_field:
            raise ValueError(
                f"comparator_api_response_field must be keys joined with dots, got {self.comparator_api_response_field!r}"
            )
        if self.comparator_api_url is not None:
            check_url("comparator_api_url", self.comparator_api_url)
        self._check_headers()
        self._check_extra_body()

    def _check_headers(self) -> None:
        if self.comparator_api_headers is not None:
            check_headers("comparator_api_headers", self.comparator_api_headers)
        require_text("comparator_api_key_header", self.comparator_api_key_header)
        check_headers("comparator_api_key_header", {self.comparator_api_key_header: "${KEY}"})
        if self.comparator_api_key_prefix is not None:
            check_headers("comparator_api_key_prefix", {"prefix": self.comparator_api_key_prefix})
        if self.comparator_api_key_env is not None:
            check_variable("comparator_api_key_env", self.comparator_api_key_env)
            name = self.key_header[0]
            if name.lower() in {other.lower() for other in self.comparator_api_headers or {}}:
                raise ValueError(
                    f"comparator_api_headers must not hold {name!r} beside comparator_api_key_env, which is sent there"
                )

    def _check_extra_body(self) -> None:
        extra = self.comparator_api_extra_body
        if extra is None:
            return
        if not isinstance(extra, Mapping):
            raise ValueError(f"comparator_api_extra_body must be a mapping, got {type(extra).__name__}")
        try:
            json.dumps(dict(extra), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"comparator_api_extra_body must consist of what JSON has: {error}") from error
        if redact(extra) != dict(extra):
            raise ValueError(
                "comparator_api_extra_body must hold no key or password: send it as a header, see comparator_api_key_env"
            )

    @property
    def endpoint_format(self) -> str:
        """The format under its own name, whichever of its names was given."""
        return canonical_format(self.comparator_api_format)

    @property
    def key_header(self) -> tuple[str, str]:
        """Name of the header that carries the key, and what stands before the key in it."""
        name, prefix = self.comparator_api_key_header, self.comparator_api_key_prefix
        if self.endpoint_format == "anthropic" and name.lower() == "authorization" and prefix == "Bearer":
            return "x-api-key", ""
        return name, f"{prefix} " if prefix else ""

    def endpoint_secrets(self) -> list[str]:
        """Values of the environment variables that the options name.

        Raises:
            ValueError: naming a variable that is missing.
        """
        named = [self.comparator_api_key_env] if self.comparator_api_key_env is not None else []
        texts = [self.comparator_api_url or "", *(self.comparator_api_headers or {}).values()]
        return [read_variable(name) for name in [*named, *variables(texts)]]
