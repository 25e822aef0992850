"""One HTTP endpoint, asked with time-outs and retries. Secrets are put into a request where it leaves, nowhere before.

What can pass (a busy or failing server, a lost connection, an answer that cannot be read) is tried again and ends as
`NoAnswerError`; what another attempt cannot mend (a wrong key, address or field) is an `EndpointError` at once.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import tenacity

from learners.preference.endpoint_errors import EndpointError, NoAnswerError, UnreadableAnswerError
from learners.preference.endpoint_options import EndpointOptions
from learners.preference.endpoint_secrets import expanded, expanded_url, masked, read_variable, shown_url

_T = TypeVar("_T")
_EXCERPT = 300
_DOUBLINGS = 60
_ANTHROPIC_VERSION = "2023-06-01"
_OK = range(200, 300)
_REDIRECTS = range(300, 400)
_SERVER_ERRORS = range(500, 600)
_PASSING = (408, 425, 429)  # time-out, too early, too many requests
_REDIRECTED = "redirects are not followed: give comparator_api_url the address it leads to"
_HINTS = {
    400: "a field that the endpoint does not take can be replaced, or removed with None, in comparator_api_extra_body",
    401: "the key was not accepted",
    402: "the account has to pay first",
    404: "check comparator_api_url and comparator_api_model",
    422: "a field that the endpoint does not take can be replaced, or removed with None, in comparator_api_extra_body",
}


@dataclass(frozen=True)
class _Answer:
    status: int
    retry_after: str | None
    content: bytes


class _Sealed(httpx.BaseTransport):
    """Puts address and headers with their secrets into a request that neither the client's log nor its exceptions hold."""

    def __init__(self, inner: httpx.BaseTransport, options: EndpointOptions) -> None:
        self._inner, self._options = inner, options

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer to the request with the secrets added."""
        headers = request.headers.copy()
        headers.update({name: expanded(value) for name, value in (self._options.comparator_api_headers or {}).items()})
        if self._options.comparator_api_key_env is not None:
            name, prefix = self._options.key_header
            headers[name] = prefix + read_variable(self._options.comparator_api_key_env)
        url = expanded_url(self._options.comparator_api_url or "")
        return self._inner.handle_request(
            httpx.Request(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)
        )

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class Endpoint:
    """Asks one endpoint, from several threads if wanted; a context manager that holds the connections.

    Args:
        options: with a URL.
        stop: once set, nothing is sent again and waits end.

    Raises:
        ValueError: an environment variable that the options name is missing.
    """

    def __init__(self, options: EndpointOptions, stop: threading.Event) -> None:
        self._options, self._stop = options, stop
        url = options.comparator_api_url or ""
        self._shown = shown_url(url)
        self._secrets = options.endpoint_secrets()
        transport = httpx.HTTPTransport(proxy=_proxy(url), limits=httpx.Limits(max_connections=options.comparator_api_concurrency))
        self._client = httpx.Client(transport=_Sealed(transport, options), timeout=options.comparator_api_timeout)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def ask(self, body: Mapping[str, Any], read: Callable[[object], _T]) -> _T:
        """What `read` makes of the endpoint's answer.

        Args:
            body: of the request, in JSON's types.
            read: takes the parsed answer and raises `UnreadableAnswerError` if there is nothing in it.

        Raises:
            NoAnswerError: no attempt got a usable answer.
            EndpointError: another attempt cannot help.
        """
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(NoAnswerError),
            stop=tenacity.stop_any(
                tenacity.stop_after_attempt(self._options.comparator_api_max_attempts), tenacity.stop_when_event_set(self._stop)
            ),
            wait=self._wait,
            sleep=tenacity.sleep_using_event(self._stop),
            reraise=True,
        )
        # ASCII with escapes holds every text there is, lone surrogates included.
        return attempts(self._attempt, json.dumps(body, allow_nan=False).encode("ascii"), read)

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """Seconds until the next attempt: doubled each time, and no less than the server asked for, up to the limit."""
        wait = self._options.comparator_api_retry_wait * 2.0 ** min(state.attempt_number - 1, _DOUBLINGS)
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, NoAnswerError):
            wait = max(wait, error.retry_after)
        return min(wait, self._options.comparator_api_max_retry_wait)

    def _attempt(self, content: bytes, read: Callable[[object], _T]) -> _T:
        answer = self._post(content)
        if answer.status not in _OK:
            raise self._refusal(answer)
        try:
            return read(_parsed(answer.content))
        except UnreadableAnswerError as error:
            problem = str(error)
        raise NoAnswerError("unreadable", f"{problem}: {self._excerpt(answer.content)}")

    def _post(self, content: bytes) -> _Answer:
        deadline = time.monotonic() + self._options.comparator_api_timeout
        headers = {"Content-Type": "application/json"}
        if self._options.endpoint_format == "anthropic":
            headers["anthropic-version"] = _ANTHROPIC_VERSION
        try:
            with self._client.stream("POST", self._shown, content=content, headers=headers) as response:
                return _Answer(response.status_code, response.headers.get("Retry-After"), _read_until(response, deadline))
        except httpx.HTTPError as error:
            failure = self._connection_failure(error)
        raise failure  # outside of the block: the exceptions of other libraries are not its context

    def _connection_failure(self, error: httpx.HTTPError) -> NoAnswerError | EndpointError:
        if isinstance(error, httpx.TimeoutException):
            return NoAnswerError("timeout", f"no answer within {self._options.comparator_api_timeout:g} s")
        text = masked(str(error), self._secrets)
        causes = list(_causes(error))
        if any(isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME for cause in causes):
            return EndpointError(f"the comparator's endpoint {self._shown} has an unknown host: check comparator_api_url ({text})")
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            return EndpointError(f"the certificate of the comparator's endpoint {self._shown} is not trusted ({text})")
        if isinstance(error, (httpx.LocalProtocolError, httpx.UnsupportedProtocol)):
            return EndpointError(f"a request to the comparator's endpoint {self._shown} cannot be sent: {type(error).__name__}")
        return NoAnswerError("connection", f"{type(error).__name__}: {text}")

    def _refusal(self, answer: _Answer) -> NoAnswerError | EndpointError:
        status, said = answer.status, self._excerpt(answer.content)
        if (status in _PASSING or status in _SERVER_ERRORS) and not _out_of_credit(answer):
            return NoAnswerError(f"http_{status}", f"HTTP {status}: {said}", retry_after_seconds(answer.retry_after))
        hint = _HINTS.get(status, _REDIRECTED if status in _REDIRECTS else "another attempt would not help")
        if status == 401:
            # Servers quote keys in part here, in forms that cannot be masked.
            variable = self._options.comparator_api_key_env
            said = f"the key comes from {variable}" if variable else "comparator_api_key_env names no variable"
        return EndpointError(f"the comparator's endpoint {self._shown} refused the request with HTTP {status} ({hint}): {said}")

    def _excerpt(self, content: bytes) -> str:
        return masked(_message(content), self._secrets)[:_EXCERPT] or "nothing more was said"


def retry_after_seconds(value: str | None, now: datetime | None = None) -> float:
    """Seconds that a `Retry-After` header asks to wait, given as seconds or as a date; 0 if it asks for nothing sensible.

    Args:
        value: of the header; None if there is none.
        now: the present, with a time zone; None reads the clock.
    """
    if value is None:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return 0.0
        if date.tzinfo is None:  # "-0000" says that it is UTC without a place
            date = date.replace(tzinfo=timezone.utc)
        seconds = (date - (now or datetime.now(timezone.utc))).total_seconds()
    return seconds if 0 < seconds < float("inf") else 0.0


def _parsed(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        raise UnreadableAnswerError("the answer is not JSON") from None


def _read_until(response: httpx.Response, deadline: float) -> bytes:
    """The body. The client's time-out is for each part, so a server that sends little by little would never meet it."""
    parts = []
    for part in response.iter_bytes():
        parts.append(part)
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("the answer took too long")
    return b"".join(parts)


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for an address."""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _causes(error: BaseException | None):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _message(content: bytes) -> str:
    """What the body of an error says, in one line."""
    text = content.decode("utf-8", errors="replace")
    try:
        node = json.loads(text)
    except ValueError:
        node = None
    if isinstance(node, dict):
        inner = node.get("error") or node
        found = inner.get("message") if isinstance(inner, dict) else inner
        # Written anew, so that a secret with escapes in it can be found.
        text = found if isinstance(found, str) else json.dumps(node, ensure_ascii=False)
    return " ".join(text.split())


def _out_of_credit(answer: _Answer) -> bool:
    """Whether "too many requests" means an account without credit, as OpenAI says it."""
    return answer.status == 429 and b'"insufficient_quota"' in answer.content
