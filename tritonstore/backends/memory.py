"""`memory:`: a bounded, least-recently-used table in this process."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator

from tritonstore.backends.base import MAX_SIZE, Backend, Record, check_digest
from tritonstore.errors import StoreError
from tritonstore.forks import reset_in_children

__all__ = ["MemoryBackend"]


class MemoryBackend(Backend):
    """Holds at most `max_size` bytes of values (0: unlimited) and `max_count` values. Does no I/O."""

    def __init__(self, max_size: int = 64 << 20, max_count: int = 65536) -> None:
        self.url = "memory:"
        self._max_size = max_size
        self._max_count = max_count
        self._values: OrderedDict[str, tuple[bytes, float]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        reset_in_children(self)

    def _after_fork(self) -> None:
        # The lock's holder may have been half-way through a change, so the child cannot use the table either.
        self._lock = threading.Lock()
        self._values = OrderedDict()
        self._size = 0

    def get(self, digest: str) -> bytes | None:
        check_digest(digest)
        with self._lock:
            found = self._values.get(digest)
            if found is None:
                return None
            self._values[digest] = (found[0], time.time())
            self._values.move_to_end(digest)
            return found[0]

    def put(self, digest: str, data: bytes) -> None:
        check_digest(digest)
        if len(data) > MAX_SIZE:
            raise StoreError(f"{self.url}: a value of {len(data)} bytes is beyond {MAX_SIZE}", self.url, "put")
        data = bytes(data)  # a caller's bytearray may change later
        with self._lock:
            self._drop(digest)
            self._values[digest] = (data, time.time())
            self._size += len(data)
            while len(self._values) > 1 and self._over():
                self._drop(next(iter(self._values)))

    def delete(self, digest: str) -> bool:
        check_digest(digest)
        with self._lock:
            return self._drop(digest)

    def scan(self) -> Iterator[Record]:
        with self._lock:
            records = [Record(digest, len(data), used) for digest, (data, used) in self._values.items()]
        return iter(records)

    def lease(self, digest: str) -> None:
        check_digest(digest)

    def close(self) -> None:
        with self._lock:
            self._values.clear()
            self._size = 0

    def _over(self) -> bool:
        return len(self._values) > self._max_count or 0 < self._max_size < self._size

    def _drop(self, digest: str) -> bool:
        found = self._values.pop(digest, None)
        if found is None:
            return False
        self._size -= len(found[0])
        return True
