"""One analysis per digest, in this process and (through a lease) among all workers that share a store.

A lease is an optimisation. Whoever cannot get one, or has waited as long as it may, analyses by itself: equal
questions have equal answers, so double work is waste and never damage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, TypeVar

from tritonstore.backends.base import Lease
from tritonstore.counters import Counters
from tritonstore.errors import StoreError
from tritonstore.forks import reset_in_children

__all__ = ["Flight", "LeaseSource"]

_T = TypeVar("_T")
_FIRST_DELAY, _LAST_DELAY = 0.002, 0.05  # seconds between looks: an analysis takes 5 to 500 ms


class LeaseSource(Protocol):
    """Where leases come from: a Backend, or Tiers."""

    def lease(self, digest: str) -> Lease | None: ...


class Flight:
    """Claims on digests. `wait` is the longest time, in seconds, that one claim waits for other workers."""

    def __init__(
        self,
        lease_source: LeaseSource | None,
        wait: float,
        counters: Counters | None = None,
        *,
        strict: bool = False,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = lease_source
        self._wait = wait
        self._counters = counters or Counters()
        self._strict = strict
        self._pause = pause
        self._start()
        reset_in_children(self)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._flying: dict[str, threading.Event] = {}
        self._mine = threading.local()

    def _after_fork(self) -> None:
        # The parent's threads, which would land these flights, are not in the child.
        self._start()

    @contextmanager
    def claim(
        self, digest: str, ready: Callable[[], _T | None], wait: float | None = None
    ) -> Iterator[tuple[Literal["answer"], _T] | tuple[Literal["analyse"], None]]:
        """Yield ``("answer", x)`` if `ready` gave x while another worker was at it, else ``("analyse",
        None)``.

        In the second case the caller is the one worker that should analyse and publish, before it leaves the
        block. `ready` is called at least once after each wait, and once by the winner, as the answer may have
        come just before. A thread that holds a claim never waits for a second one, because two such threads
        could wait for each other. `wait` shortens the longest time of waiting, in seconds.
        """
        if getattr(self._mine, "held", 0):
            yield "analyse", None
            return
        deadline = time.monotonic() + (self._wait if wait is None else min(wait, self._wait))
        mine = threading.Event()
        lease: Lease | None = None
        try:
            # Inside the block: an interrupt just after our event went into the table must take it out again.
            turn, answer = self._await_turn(digest, mine, ready, deadline)
            if turn:  # else there is an answer, or the time is up and no lease is waited for as well
                lease = self._new_lease(digest)
                # A wait cut short says nothing about the holder.
                overdue = getattr(lease, "overdue", None) if wait is None else None
                answer = ready() if lease is None else self._await_lease(lease, ready, deadline, overdue)
            if answer is not None:
                yield "answer", answer
                return
            self._mine.held = 1
            try:
                yield "analyse", None
            finally:
                self._mine.held = 0
        finally:
            try:
                if lease is not None:
                    lease.release()
            finally:  # or the other threads would wait for this flight until their time is up
                self._land(digest, mine)

    def _await_turn(
        self, digest: str, mine: threading.Event, ready: Callable[[], _T | None], deadline: float
    ) -> tuple[bool, _T | None]:
        """Wait to be the only thread of this process at `digest`; without the turn there is an answer, or no
        time.
        """
        waited = False
        while True:
            with self._lock:
                landed = self._flying.get(digest)
                if landed is None:
                    self._flying[digest] = mine
                    return True, None
            if not waited:
                waited = True
                self._counters.lease_wait()
            if not landed.wait(max(0.0, deadline - time.monotonic())):
                self._counters.lease_timeout()
                return False, None
            answer = ready()
            if answer is not None:
                return False, answer

    def _land(self, digest: str, mine: threading.Event) -> None:
        try:
            with self._lock:
                # After a fork the table is the child's own, and may hold another thread's flight under this
                # digest.
                if self._flying.get(digest) is mine:
                    del self._flying[digest]
        finally:  # an interrupt here must not leave the others waiting
            mine.set()

    def _await_lease(
        self, lease: Lease, ready: Callable[[], _T | None], deadline: float, overdue: Callable[[], None] | None
    ) -> _T | None:
        delay = _FIRST_DELAY
        waited = False
        while True:
            acquired = self._try(lease)
            # Asked after the attempt: the holder publishes before it lets go, so whoever gets the lease sees
            # its answer.
            answer = ready()
            if answer is not None or acquired:
                return answer
            if not waited:
                waited = True
                self._counters.lease_wait()
            left = deadline - time.monotonic()
            if left <= 0:
                self._counters.lease_timeout()
                if overdue is not None:  # of Tiers: one stuck holder costs one wait, not one a digest
                    overdue()
                return None
            self._pause(min(delay, left))
            delay = min(delay * 1.5, _LAST_DELAY)

    def _new_lease(self, digest: str) -> Lease | None:
        try:
            return self._source.lease(digest) if self._source is not None else None
        except Exception as error:
            self._fault(error)
            return None

    def _try(self, lease: Lease) -> bool:
        try:
            return lease.try_acquire()
        except Exception as error:
            self._fault(error)
            return True  # a lease that cannot work must not hold anybody up

    def _fault(self, error: Exception) -> None:
        known = isinstance(error, StoreError)
        text = str(error) if known else f"a lease failed: {type(error).__name__}"  # its own text may hold secrets
        self._counters.fault("lease", text, topic=error.url if isinstance(error, StoreError) else "")
        if self._strict:
            raise error
