"""What can go wrong with an HTTP endpoint. No message shows a secret."""

from __future__ import annotations


class EndpointError(RuntimeError):
    """The endpoint cannot be used as it is configured; asking again would not help."""


class NoAnswerError(Exception):
    """An attempt got no usable answer; another one may.

    Args:
        reason: a short name to count by: "timeout", "connection", "http_503", "unreadable".
        detail: for people.
        retry_after: seconds that the server asked to wait.
    """

    def __init__(self, reason: str, detail: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail, self.retry_after = reason, detail, retry_after


class UnreadableAnswerError(ValueError):
    """An answer without a completion in it."""
