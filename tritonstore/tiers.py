"""Several backends as one: nearest first.

A hit lower down fills the tiers above it; a put goes to all. A tier's fault is counted and costs the caller
nothing but that tier; after three in a row it is set aside for this process, so that a dead server costs
three time-outs and not one a call. Reading and writing are set aside apart: a store on a full disk can still
answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from tritonstore.backends.base import Backend, Lease
from tritonstore.counters import Counters
from tritonstore.errors import StoreError
from tritonstore.forks import reset_in_children

__all__ = ["SET_ASIDE_AFTER", "Tiers"]

SET_ASIDE_AFTER = 3  # faults in a row

_T = TypeVar("_T")
_Direction = Literal["read", "write"]
_READ_AND_WRITE: tuple[_Direction, ...] = ("read", "write")
_WRITE: tuple[_Direction, ...] = ("write",)


def _anything(data: bytes) -> bool:
    return True


class Tiers:
    """`backends`, nearest first. Only `get` with `writable=False`. With `strict`, faults are counted and then
    raised.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        counters: Counters | None = None,
        *,
        writable: bool = True,
        strict: bool = False,
    ) -> None:
        self.backends = tuple(backends)
        self.names = _names(self.backends)
        self.writable = writable
        self._counters = counters or Counters()
        self._strict = strict
        self._failures: dict[_Direction, list[int]] = {
            "read": [0] * len(self.backends),
            "write": [0] * len(self.backends),
        }
        self._lock = threading.Lock()
        reset_in_children(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def get(self, digest: str, accept: Callable[[bytes], bool] = _anything) -> tuple[bytes, int] | None:
        """The first bytes that `accept` takes, and the index of their tier.

        `accept` is asked before anything is filled from them, so that damaged bytes do not spread; where it
        says no they are deleted and the next tier is asked. Raises StoreError only if strict.
        """
        for index in range(len(self.backends)):
            data = self._guard(index, "get", lambda backend: backend.get(digest))
            if data is None:
                continue
            if accept(data):
                if self.writable:
                    for above in range(index):
                        self._put(above, digest, data)
                return data, index
            if self.writable:
                self._delete_same(index, digest, data)
        return None

    def put(self, digest: str, data: bytes) -> int:
        """Put to every tier; the number of tiers that took it. Raises StoreError only if strict."""
        if not self.writable:
            return 0
        return sum([self._put(index, digest, data) for index in range(len(self.backends))])

    def lease(self, digest: str) -> Lease | None:
        """A lease from the tier that is shared the widest: the last one that has leases."""
        if self.writable:  # a lease writes
            for index in reversed(range(len(self.backends))):
                lease = self._guard(index, "lease", lambda backend: backend.lease(digest))
                if lease is not None:
                    return lease
        return None

    def set_aside(self, direction: _Direction) -> tuple[str, ...]:
        """The URLs of the tiers that are no longer read (or written) in this process."""
        return tuple(
            backend.url
            for backend, failures in zip(self.backends, self._failures[direction], strict=True)
            if failures >= SET_ASIDE_AFTER
        )

    def close(self) -> None:
        """Close every backend. Never raises."""
        for index, backend in enumerate(self.backends):
            try:
                backend.close()
            except StoreError as error:
                self._note(index, "close", error)

    def _put(self, index: int, digest: str, data: bytes) -> bool:
        def put(backend: Backend) -> bool:
            backend.put(digest, data)
            return True

        return bool(self._guard(index, "put", put))

    def _delete_same(self, index: int, digest: str, data: bytes) -> None:
        # Another worker may have put good bytes since ours were read. The moment between the look and the
        # delete is left: what it can cost is one more analysis.
        def delete(backend: Backend) -> None:
            if backend.get(digest) == data:
                backend.delete(digest)

        self._guard(index, "delete", delete)

    def _guard(self, index: int, operation: str, call: Callable[[Backend], _T]) -> _T | None:
        direction: _Direction = "read" if operation == "get" else "write"
        failures = self._failures[direction]
        if failures[index] >= SET_ASIDE_AFTER:
            return None
        try:
            result = call(self.backends[index])
        except StoreError as error:
            self._note(index, operation, error)
            if self._strict:
                raise
            return None
        # Making a lease object proves nothing about writing, so it must not end a row of failed puts.
        if failures[index] and operation != "lease":
            with self._lock:
                failures[index] = 0
        return result

    def _note(self, index: int, operation: str, error: StoreError) -> None:
        # One topic a tier: a folder that cannot be used fails at get, put and lease, which is one thing to be
        # told.
        self._counters.fault(f"{self.names[index]}-{operation}", str(error), topic=error.url)
        # What cannot be read cannot be written, but not the other way round.
        for direction in _READ_AND_WRITE if operation == "get" else _WRITE:
            with self._lock:
                self._failures[direction][index] += 1
                failures = self._failures[direction][index]
            if failures == SET_ASIDE_AFTER:
                message = f"{error.url} is no longer used to {direction}, after {failures} faults in a row"
                self._counters.fault(f"set-aside-{direction}", message, topic=error.url)


def _names(backends: Sequence[Backend]) -> tuple[str, ...]:
    names: list[str] = []
    for backend in backends:
        scheme = backend.url.partition(":")[0]
        same = sum(name.partition("-")[0] == scheme for name in names)
        names.append(f"{scheme}-{same + 1}" if same else scheme)
    return tuple(names)
