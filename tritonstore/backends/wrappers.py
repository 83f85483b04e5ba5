"""Backends around a backend: each adds one thing, and keeps the contract."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator

from tritonstore.backends.base import Backend, Lease, Record, check_digest
from tritonstore.errors import StoreError
from tritonstore.forks import reset_in_children

__all__ = ["Counting", "ReadOnly", "Wrapper"]


class Wrapper(Backend):
    """Passes everything on to `inner`. Subclasses change one thing."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.url = inner.url
        self.writes = inner.writes

    def get(self, digest: str) -> bytes | None:
        return self.inner.get(digest)

    def get_many(self, digests: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        return self.inner.get_many(digests)

    def put(self, digest: str, data: bytes) -> None:
        self.inner.put(digest, data)

    def delete(self, digest: str) -> bool:
        return self.inner.delete(digest)

    def scan(self) -> Iterator[Record]:
        return self.inner.scan()

    def lease(self, digest: str) -> Lease | None:
        return self.inner.lease(digest)

    def close(self) -> None:
        self.inner.close()


class ReadOnly(Wrapper):
    """Never changes `inner`: `put` and `delete` are a StoreError, and there are no leases, which would write."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.writes = "none"

    def put(self, digest: str, data: bytes) -> None:
        check_digest(digest)
        raise StoreError(f"{self.url}: put failed: this store is only read here", self.url, "put")

    def delete(self, digest: str) -> bool:
        check_digest(digest)
        raise StoreError(f"{self.url}: delete failed: this store is only read here", self.url, "delete")

    def lease(self, digest: str) -> Lease | None:
        check_digest(digest)
        return None


class Counting(Wrapper):
    """Counts the operations that reach `inner` in `counts`, by name; `get_many` counts each digest as a get, attempts
    at a lease count as `lease`. A forked child starts from zero.
    """

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self._after_fork()
        reset_in_children(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def count(self, operation: str) -> None:
        with self._lock:
            self.counts[operation] += 1

    def get(self, digest: str) -> bytes | None:
        self.count("get")
        return self.inner.get(digest)

    def get_many(self, digests: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        def counted() -> Iterator[str]:
            for digest in digests:
                self.count("get")
                yield digest

        return self.inner.get_many(counted())

    def put(self, digest: str, data: bytes) -> None:
        self.count("put")
        self.inner.put(digest, data)

    def delete(self, digest: str) -> bool:
        self.count("delete")
        return self.inner.delete(digest)

    def scan(self) -> Iterator[Record]:
        self.count("scan")
        return self.inner.scan()

    def lease(self, digest: str) -> Lease | None:
        lease = self.inner.lease(digest)
        return None if lease is None else _CountedLease(self, lease)


class _CountedLease:
    def __init__(self, owner: Counting, inner: Lease) -> None:
        self._owner = owner
        self._inner = inner

    def try_acquire(self) -> bool:
        self._owner.count("lease")
        return self._inner.try_acquire()

    def release(self) -> None:
        self._inner.release()
