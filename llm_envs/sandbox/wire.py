"""Messages on a stream socket: a length in four bytes, then a text."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

MOST_BYTES = 32 * 2**20
"""Of one message; a solution that answers more has failed."""


class ClosedError(ConnectionError):
    """The other side is gone."""


class TooLargeError(ValueError):
    """A message of more than `MOST_BYTES`."""


def send(channel: socket.socket, text: str) -> None:
    """Sends one message.

    Raises:
        TooLargeError: and nothing was sent.
        ClosedError: nobody reads.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MOST_BYTES:
        raise TooLargeError(f"a message of {len(data)} bytes; at most {MOST_BYTES}")
    try:
        channel.sendall(len(data).to_bytes(4, "big") + data)
    except OSError as error:
        raise ClosedError(str(error)) from error


def receive(channel: socket.socket) -> str:
    """The next message.

    Raises:
        TooLargeError: it says that it is too long.
        ClosedError: there is none.
        UnicodeDecodeError: it is no text.
    """
    size = int.from_bytes(_exactly(channel, 4), "big")
    if size > MOST_BYTES:
        raise TooLargeError(f"a message of {size} bytes; at most {MOST_BYTES}")
    return _exactly(channel, size).decode("utf-8", "surrogatepass")


def _exactly(channel: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        try:
            part = channel.recv(min(size, 1 << 20))
        except TimeoutError:
            raise
        except OSError as error:
            raise ClosedError(str(error)) from error
        if not part:
            raise ClosedError("the other side closed the channel")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send_order(channel: socket.socket, order: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Sends a small mapping, and descriptors with it, to a trusted process."""
    data = json.dumps(order).encode()
    try:
        socket.send_fds(channel, [len(data).to_bytes(4, "big")], list(descriptors))
        channel.sendall(data)
    except OSError as error:
        raise ClosedError(str(error)) from error


def receive_order(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next mapping with its descriptors.

    Raises:
        ClosedError: there is none.
    """
    try:
        head, descriptors, _, _ = socket.recv_fds(channel, 4, 4)
    except TimeoutError:
        raise
    except OSError as error:
        raise ClosedError(str(error)) from error
    if not head:
        raise ClosedError("the other side closed the channel")
    head += _exactly(channel, 4 - len(head))
    return json.loads(_exactly(channel, int.from_bytes(head, "big"))), descriptors
