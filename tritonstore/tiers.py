"""Several backends as one: nearest first.

A hit lower down fills the tiers above it; a put goes to all, as far as a tier's `writes` says. A tier's fault is
counted and costs the caller nothing but that tier. After three in a row, or as soon as a row has cost three seconds,
the tier is set aside for this process: a dead or hanging server costs two or three timeouts once, and not one a call.
Reading, writing and leases are set aside apart: a store on a full disk can still answer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from tritonstore.backends.base import Backend, Lease, check_digest
from tritonstore.counters import Counters
from tritonstore.errors import StoreError, StoreUnreachable
from tritonstore.forks import reset_in_children

__all__ = ["SET_ASIDE_AFTER", "SET_ASIDE_SECONDS", "Tiers"]

SET_ASIDE_AFTER = 3  # faults in a row
SET_ASIDE_SECONDS = 3.0  # that faults in a row have cost: one timeout may be a stall, two are not waited for again

_T = TypeVar("_T")
_Direction = Literal["read", "write", "lease"]

# What a fault of an operation says: what cannot be read cannot be written, but not the other way round.
_SPOILS: dict[str, tuple[_Direction, ...]] = {"get": ("read", "write", "lease"), "lease": ("lease",)}
_ALL: tuple[_Direction, ...] = ("read", "write", "lease")


def _anything(data: bytes) -> bool:
    return True


class _Row:
    """Faults in a row of one tier in one direction."""

    __slots__ = ("faults", "seconds")

    def __init__(self) -> None:
        self.faults = 0
        self.seconds = 0.0

    @property
    def ended(self) -> bool:
        return self.faults >= SET_ASIDE_AFTER or self.seconds >= SET_ASIDE_SECONDS


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.backends = tuple(backends)
        self.names = _names(self.backends)
        self.writable = writable
        self._counters = counters or Counters()
        self._strict = strict
        self._clock = clock
        self._rows: dict[_Direction, list[_Row]] = {direction: [_Row() for _ in self.backends] for direction in _ALL}
        self._lock = threading.Lock()
        reset_in_children(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def get(self, digest: str, accept: Callable[[bytes], bool | None] = _anything) -> tuple[bytes, int] | None:
        """The first bytes that `accept` takes, and the index of their tier.

        `accept` is asked before anything is filled from them, so that damaged bytes do not spread; where it
        says no they are deleted and the next tier is asked; where it says None they stay for others, and the
        next tier is asked. Raises StoreError only if strict.
        """
        check_digest(digest)
        for index, backend in enumerate(self.backends):
            data = self._guard(index, "get", lambda backend: backend.get(digest))
            if data is None:
                continue
            verdict = accept(data)
            if verdict:
                if self.writable:
                    for above in range(index):
                        if self.backends[above].writes == "all":
                            self._put(above, digest, data)
                return data, index
            if verdict is not None and self.writable and backend.writes != "none":
                self._delete_same(index, digest, data)
        return None

    def put(self, digest: str, data: bytes) -> int:
        """Put to every tier that is written; the number of tiers that took it. Raises StoreError only if strict."""
        check_digest(digest)
        if not self.writable:
            return 0
        written = [index for index, backend in enumerate(self.backends) if backend.writes != "none"]
        return sum([self._put(index, digest, data) for index in written])

    def delete(self, digest: str) -> int:
        """Delete from every tier that is written, also from those set aside; in how many it was. Never raises
        StoreError.
        """
        check_digest(digest)
        deleted = 0
        for index, backend in enumerate(self.backends):
            if self.writable and backend.writes != "none":
                with contextlib.suppress(StoreError):  # counted; the other tiers must be reached all the same
                    deleted += bool(self._guard(index, "delete", lambda backend: backend.delete(digest), always=True))
        return deleted

    def lease(self, digest: str) -> Lease | None:
        """A lease from the tier that is shared the widest: the last one that is written and has leases.

        A lease that turns out not to work holds nobody up: its `try_acquire` says yes.
        """
        check_digest(digest)
        if self.writable:  # a lease writes
            for index in reversed(range(len(self.backends))):
                # Who waits for a lease waits for an answer, which does not come where nothing can be written.
                if self.backends[index].writes == "none" or self._rows["write"][index].ended:
                    continue
                lease = self._guard(index, "lease", lambda backend: backend.lease(digest), proves=False)
                if lease is not None:
                    return _TierLease(self, index, lease)
        return None

    def set_aside(self, direction: _Direction) -> tuple[str, ...]:
        """The URLs of the tiers that are no longer read (written, asked for leases) in this process."""
        rows = zip(self.backends, self._rows[direction], strict=True)
        return tuple(backend.url for backend, row in rows if row.ended)

    def close(self) -> None:
        """Close every backend. Never raises."""
        for index, backend in enumerate(self.backends):
            try:
                backend.close()
            except Exception as error:
                self._note(index, "close", _store_error(error, backend.url, "close"), 0.0)

    def try_lease(self, index: int, lease: Lease) -> bool:
        """Take `lease` of tier `index`; True as well if that is a fault. Raises StoreError only if strict."""
        return self._guard(index, "lease", lambda _: lease.try_acquire()) is not False

    def release_lease(self, index: int, lease: Lease) -> None:
        """Give `lease` of tier `index` back. Never raises."""
        started = self._clock()
        try:
            lease.release()
        except Exception as error:
            fault = _store_error(error, self.backends[index].url, "lease")
            self._note(index, "lease", fault, self._clock() - started)

    def lease_overdue(self, index: int) -> None:
        """A lease of tier `index` was not given in the longest time to wait: wait for none there again.

        Its holder may be stuck, and would cost that time for every digest.
        """
        row, url = self._rows["lease"][index], self.backends[index].url
        with self._lock:
            before = row.ended
            row.faults = max(row.faults, SET_ASIDE_AFTER)
        if not before:
            message = (
                f"{url}: another worker kept a lease longer than the longest wait; leases there are not waited for"
            )
            self._counters.fault("set-aside-lease", message, topic=url)

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

    def _guard(
        self, index: int, operation: str, call: Callable[[Backend], _T], *, proves: bool = True, always: bool = False
    ) -> _T | None:
        direction: _Direction = "read" if operation == "get" else "lease" if operation == "lease" else "write"
        row = self._rows[direction][index]
        if row.ended and not always:
            return None
        started = self._clock()
        try:
            result = call(self.backends[index])
        except Exception as error:  # also what a backend should not raise: one broken tier must not cost the others
            fault = _store_error(error, self.backends[index].url, operation)
            self._note(index, operation, fault, self._clock() - started)
            if self._strict:
                raise fault from None
            return None
        # Making a lease object proves nothing, so it must not end a row of failed attempts.
        if row.faults and proves and not row.ended:
            with self._lock:
                row.faults, row.seconds = 0, 0.0
        return result

    def _note(self, index: int, operation: str, error: StoreError, seconds: float) -> None:
        # One topic a tier: a folder that cannot be used fails at get, put and lease, which is one thing to be
        # told.
        self._counters.fault(f"{self.names[index]}-{operation}", str(error), topic=error.url)
        spoiled = _ALL if isinstance(error, StoreUnreachable) else _SPOILS.get(operation, ("write",))
        for direction in spoiled:
            row = self._rows[direction][index]
            with self._lock:
                before = row.ended
                row.faults += 1
                row.seconds += seconds
                ends = row.ended and not before
            if ends:
                message = f"{error.url} is no longer used to {direction}, after {row.faults} faults in a row"
                self._counters.fault(f"set-aside-{direction}", message, topic=error.url)


class _TierLease:
    """A lease of one tier, whose faults count against that tier."""

    def __init__(self, tiers: Tiers, index: int, lease: Lease) -> None:
        self._tiers = tiers
        self._index = index
        self._lease = lease

    def try_acquire(self) -> bool:
        return self._tiers.try_lease(self._index, self._lease)

    def release(self) -> None:
        self._tiers.release_lease(self._index, self._lease)

    def overdue(self) -> None:
        """It was waited for as long as anybody may wait."""
        self._tiers.lease_overdue(self._index)


def _store_error(error: Exception, url: str, operation: str) -> StoreError:
    """`error` itself, or what stands for an exception that no backend should raise; its text may hold secrets."""
    if isinstance(error, StoreError):
        return error
    return StoreError(f"{url}: {operation} failed: {type(error).__name__}", url, operation)


def _names(backends: Sequence[Backend]) -> tuple[str, ...]:
    names: list[str] = []
    for backend in backends:
        scheme = backend.url.partition(":")[0]
        same = sum(name.partition("-")[0] == scheme for name in names)
        names.append(f"{scheme}-{same + 1}" if same else scheme)
    return tuple(names)
