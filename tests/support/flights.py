"""Claims to test: a scripted lease, a flight that never sleeps, and threads that are joined."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tritonstore.backends.base import Lease
from tritonstore.counters import Counters
from tritonstore.errors import StoreError
from tritonstore.flight import Flight


class OneLease:
    """A lease source with one scripted lease: `grants` says what each attempt answers, the last one repeats."""

    def __init__(self, *grants: bool | StoreError) -> None:
        self.grants = list(grants)
        self.attempts = self.released = 0

    def lease(self, digest: str) -> Lease:
        return self

    def try_acquire(self) -> bool:
        self.attempts += 1
        grant = self.grants.pop(0) if len(self.grants) > 1 else self.grants[0]
        if isinstance(grant, StoreError):
            raise grant
        return grant

    def release(self) -> None:
        self.released += 1


def nothing() -> str | None:
    return None


def flight(source: OneLease | None, wait: float = 600.0, **options: object) -> tuple[Flight, Counters, list[float]]:
    counters = Counters()
    pauses: list[float] = []
    return Flight(source, wait, counters, pause=pauses.append, **options), counters, pauses  # type: ignore[arg-type]


def run(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
