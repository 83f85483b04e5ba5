"""What happened in this process, in plain numbers, and one warning for each kind of fault."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Protocol

from tritonstore.forks import reset_in_children
from tritonstore.speak import speak

__all__ = ["Counters", "Observer"]

# One spelling for the fields, used to make, to copy and to reset them.
_TABLES = ("hits", "bypasses", "unproven", "faults")
_COUNTS = ("misses", "shared", "analyses", "publishes", "lease_waits", "lease_timeouts")
_SECONDS = ("seconds_saved", "seconds_analysing", "seconds_key", "seconds_store")


class Observer(Protocol):
    """Hears what was counted, and about what: a key, or what stands for a call without one. Raises nothing."""

    def hit(self, key: Any, tier: str, seconds: float) -> None: ...
    def miss(self, key: Any) -> None: ...
    def share(self, key: Any, seconds: float) -> None: ...
    def bypass(self, what: Any) -> None: ...
    def analysis(self, subject: Any, seconds: float) -> None: ...
    def unproven(self, key: Any, reason: str) -> None: ...
    def publish(self, key: Any) -> None: ...


class Counters:
    """Counts of one process. Safe in threads; a forked child starts from zero, so that nothing is counted
    twice.

    hits[tier]          lookups answered, by where the answer stood
    misses              lookups not answered; `shared` of them were answered while waiting for another worker
    bypasses[reason]    calls that could not be keyed
    calls               hits + misses + bypasses; worked out, never counted apart, so that it cannot drift
    analyses            questions put to PyTorch; unproven[reason] of them had an answer that was not stored
    publishes           answers stored
    faults[kind]        what went wrong in a store: each a miss, or an answer that is not stored
    lease_waits         claims that waited for another worker; lease_timeouts of them gave up and analysed
    seconds_saved       the recorded cost of the analyses that hits spared; other seconds_* were spent
    """

    def __init__(self) -> None:
        self.observer: Observer | None = None
        self._start()
        reset_in_children(self)

    def _start(self) -> None:
        # Re-entrant, because a signal's handler may ask for a snapshot while this very thread counts.
        self._lock = threading.RLock()
        self._tables: dict[str, Counter[str]] = {name: Counter() for name in _TABLES}
        self._counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self._seconds: dict[str, float] = dict.fromkeys(_SECONDS, 0.0)
        self._warned: set[str] = set()

    def _after_fork(self) -> None:
        self._start()

    # The last argument of each is what the event is about; the observer hears of those that name it.

    def hit(self, tier: str, seconds_saved: float = 0.0, key: Any = None) -> None:
        """A lookup was answered by `tier`; asking PyTorch had cost `seconds_saved`."""
        with self._lock:
            self._tables["hits"][tier] += 1
            self._seconds["seconds_saved"] += seconds_saved
        if key is not None and self.observer is not None:
            self.observer.hit(key, tier, seconds_saved)

    def miss(self, key: Any = None) -> None:
        """A lookup was not answered."""
        self._count("misses")
        if key is not None and self.observer is not None:
            self.observer.miss(key)

    def share(self, seconds_saved: float = 0.0, key: Any = None) -> None:
        """A lookup that had missed was answered while it waited for another worker."""
        with self._lock:
            self._counts["shared"] += 1
            self._seconds["seconds_saved"] += seconds_saved
        if key is not None and self.observer is not None:
            self.observer.share(key, seconds_saved)

    def bypass(self, reason: str, what: Any = None) -> None:
        """A call could not be keyed."""
        with self._lock:
            self._tables["bypasses"][reason] += 1
        if what is not None and self.observer is not None:
            self.observer.bypass(what)

    def analysis(self, seconds: float, subject: Any = None) -> None:
        """PyTorch was asked, and took `seconds`."""
        with self._lock:
            self._counts["analyses"] += 1
            self._seconds["seconds_analysing"] += seconds
        if subject is not None and self.observer is not None:
            self.observer.analysis(subject, seconds)

    def unproven(self, reason: str, key: Any = None) -> None:
        """An answer of PyTorch was not stored, because it could not be shown to be a success."""
        with self._lock:
            self._tables["unproven"][reason] += 1
        if key is not None and self.observer is not None:
            self.observer.unproven(key, reason)

    def publish(self, key: Any = None) -> None:
        """An answer was stored in at least one tier."""
        self._count("publishes")
        if key is not None and self.observer is not None:
            self.observer.publish(key)

    def lease_wait(self) -> None:
        """A claim had to wait for another worker."""
        self._count("lease_waits")

    def lease_timeout(self) -> None:
        """A claim waited as long as it may, and analyses."""
        self._count("lease_timeouts")

    def spend(self, step: str, seconds: float) -> None:
        """Add `seconds` to the step ``key`` or ``store``. Raises KeyError for another step."""
        with self._lock:
            self._seconds[f"seconds_{step}"] += seconds

    def fault(self, kind: str, message: str, topic: str = "", quiet: bool = False) -> None:
        """A store's fault was swallowed: count it under `kind`, and log the first one of its `topic`
        (default: `kind`) unless `quiet`.

        Logged, not `warnings.warn`: under ``-W error`` a warning is an exception, which would fail the
        export.
        """
        with self._lock:
            self._tables["faults"][kind] += 1
            first = (topic or kind) not in self._warned
            self._warned.add(topic or kind)
        if first and not quiet:
            speak(f"{message} (further faults of this kind are only counted)")

    def snapshot(self) -> dict[str, Any]:
        """All counts at one moment, as plain JSON-able data."""
        with self._lock:
            tables = {name: dict(sorted(table.items())) for name, table in self._tables.items()}
            counts, seconds = dict(self._counts), dict(self._seconds)
        calls = sum(tables["hits"].values()) + counts["misses"] + sum(tables["bypasses"].values())
        return {"calls": calls, **tables, **counts, **seconds}

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1
