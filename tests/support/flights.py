"""Claims to test: a scripted lease, a flight that never sleeps, and threads that are joined."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tritonstore.backends.base import Lease
from tritonstore.counters import Counters
from tritonstore.errors import StoreError
from tritonstore.flight import Flight


def ask_all(stride: int) -> str:
    """A program for a process with a `store`: 32 questions, in an order that `stride` gives, each answered or analysed.

    It says which it has analysed, and its counters."""
    return f"""
analysed = []
for n in [(n * {stride}) % 32 for n in range(32)]:
    if store.lookup(key(n)) is None:
        with store.claim(key(n)) as (outcome, answer):
            if outcome == "analyse":
                analysed.append(n)
                store.publish(key(n), ANSWER, 0.5)
            elif answer != ANSWER:
                raise SystemExit("a wrong answer")
say([analysed, store.counters.snapshot()])
"""


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
