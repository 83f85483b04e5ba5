"""Bounds that redis-py does not have: on the time of a whole command and operation, and on the size of an answer.

redis-py's timeout is for each wait at the socket. A server that sends a byte from time to time passes every one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from redis.exceptions import InvalidResponse

__all__ = ["Limits", "limited"]


class Limits(threading.local):
    """What this thread's operation may still take. `command` is the seconds of one command."""

    def __init__(self, command: float) -> None:
        self.command = command
        self.end = float("inf")
        self.most = 1 << 62

    @contextlib.contextmanager
    def within(self, seconds: float, most: int) -> Iterator[None]:
        """Nothing inside takes longer than `seconds`, and no command's answer is larger than `most` bytes."""
        self.end, self.most = time.monotonic() + seconds, most
        try:
            yield
        finally:
            self.end, self.most = float("inf"), 1 << 62


class _Socket:
    """`inner`, with the limits of the thread that uses it. A send begins a command."""

    def __init__(self, inner: Any, limits: Limits) -> None:
        self._inner = inner
        self._limits = limits
        self._timeout: float | None = inner.gettimeout()
        self._end = float("inf")
        self._read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds
        self._inner.settimeout(seconds)

    def sendall(self, data: Any) -> None:
        self._end = time.monotonic() + self._limits.command
        self._read = 0
        self._arm()
        self._inner.sendall(data)

    def recv(self, *arguments: Any) -> bytes:
        self._arm()
        data: bytes = self._inner.recv(*arguments)
        self._count(len(data))
        return data

    def recv_into(self, *arguments: Any) -> int:
        self._arm()
        size: int = self._inner.recv_into(*arguments)
        self._count(size)
        return size

    def _arm(self) -> None:
        if self._timeout == 0:  # only a look whether there is something to read
            return
        left = min(self._end, self._limits.end) - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        if left < float("inf"):
            self._inner.settimeout(left if self._timeout is None else min(left, self._timeout))

    def _count(self, size: int) -> None:
        self._read += size
        if self._read > self._limits.most:
            raise InvalidResponse(f"more than {self._limits.most} bytes")


def limited(kind: type[Any], limits: Limits) -> type[Any]:
    """The class of connections `kind`, with `limits`."""

    class Limited(kind):  # type: ignore[misc]
        def _connect(self) -> Any:
            return _Socket(super()._connect(), limits)

    return Limited
