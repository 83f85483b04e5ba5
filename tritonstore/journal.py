"""What happens in this process, kernel by kernel and question by question, for people to look at afterwards.

A journal is told every event by the counters (`Counters.observer`). It keeps bounded plain data, and leaves it as one
small file when the process ends: see `runrecord` and `leaving`. It is an extra, so nothing of it may fail or slow an
export: a fault is swallowed and counted, and what has no room is dropped and counted. A process that asked nothing
leaves nothing; a forked child starts with nothing.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from tritonstore import leaving, runrecord
from tritonstore.counters import Counters
from tritonstore.forks import reset_in_children
from tritonstore.journal_parts import Kernel, Miss, add_counts, command, drop_oldest, facts_of, file_name, versions
from tritonstore.journal_timeline import ANALYSED, BYPASSED, HITS, SHARED, Buckets
from tritonstore.runrecord import BypassFacts, FileName, MissFacts, RunRecord

__all__ = ["Bypassed", "Journal"]

MAX_KERNELS, MAX_DIGESTS, MAX_MISSES, MAX_BYPASSES = 2_000, 50_000, 2_000, 2_000
MAX_DESCRIBED = 4 << 20  # bytes of descriptions of misses
MAX_FILES = 4_000  # in the folder; past that the oldest go
FLUSH_EVERY = 15.0  # seconds at least between two writes of a process that goes on

_TEXT = 400  # characters of a reason's detail
_T = TypeVar("_T")


class Bypassed(NamedTuple):
    """A call without a key: what stands for it in place of one."""

    kernel: tuple[str, str]
    reason: str
    detail: str


class Journal:
    """The events of this process that belong to one folder of run records. `run` names the run."""

    def __init__(self, folder: str, run: str, urls: tuple[str, ...] = (), mode: str = "") -> None:
        self.folder = folder
        self._run = run
        self._urls = list(urls)
        self._mode = mode
        self._counters: list[Counters] = []
        self.faults = 0
        self._start()
        reset_in_children(self)

    def _start(self) -> None:
        # Re-entrant: a signal's handler may write while this very thread is in here.
        self._lock = threading.RLock()
        self._started = time.time()
        self._origin = perf_counter()
        self._kernels: dict[tuple[str, str], Kernel] = {}
        self._digests: dict[str, Kernel] = {}
        self._misses: dict[str, Miss] = {}
        self._bypasses: dict[Bypassed, list[Any]] = {}
        self._described: dict[str, Any] = {}
        self._described_size = 0
        self._dropped: dict[str, int] = {}
        self._ended: dict[str, Any] = {}  # counters of stores that were closed
        self._buckets = Buckets()
        self._name: FileName | None = None
        self._ending = ""
        self._armed = self._changed = False
        self._next_flush = FLUSH_EVERY

    def _after_fork(self) -> None:
        self._start()

    # What counters tell. The first event of a kernel or key goes through `_kernel_of`, which does what is rare.

    def hit(self, key: Any, tier: str, seconds: float) -> bool:
        """Whether this is the first that is heard of the key's answer."""
        with self._lock:
            kernel = known = self._digests.get(key.digest)
            if kernel is None:
                kernel = self._digest(key)
            try:
                kernel.hits[tier] += 1
            except KeyError:
                kernel.hits[tier] = 1
            kernel.saved += seconds
            self._buckets.add(perf_counter() - self._origin, HITS)
            self._changed = True
        return known is None

    def miss(self, key: Any) -> None:
        with self._lock:
            self._kernel_of(key.kernel).misses += 1
            known = self._misses.get(key.digest)
            if known is None:
                known = self._room(self._misses, MAX_MISSES, "misses", key.digest, lambda: Miss(key, time.time()))
            if known is not None:
                known.count += 1
            self._changed = True

    def share(self, key: Any, seconds: float) -> None:
        with self._lock:
            kernel = self._digest(key)
            kernel.shared += 1
            kernel.saved += seconds
            self._outcome(key, "shared")
            self._happened(SHARED)

    def bypass(self, what: Bypassed) -> None:
        with self._lock:
            reasons = self._kernel_of(what.kernel).bypasses
            reasons[what.reason] = reasons.get(what.reason, 0) + 1
            what = what._replace(detail=what.detail[:_TEXT])
            known = self._bypasses.get(what)
            if known is None:
                known = self._room(self._bypasses, MAX_BYPASSES, "bypasses", what, lambda: [0, time.time(), 0.0])
            if known is not None:
                known[0] += 1
            self._changed = True

    def analysis(self, subject: Any, seconds: float) -> None:
        with self._lock:
            kernel = self._kernel_of(subject.kernel)
            kernel.analyses += 1
            kernel.analysing += seconds
            if isinstance(subject, Bypassed):
                known = self._bypasses.get(subject._replace(detail=subject.detail[:_TEXT]))
                if known is not None:
                    known[2] += seconds
                self._happened(BYPASSED, seconds)
            else:
                self._outcome(subject, "analysed", seconds)
                self._happened(ANALYSED, seconds)
        self._flush_now_and_then()

    def unproven(self, key: Any, reason: str) -> None:
        with self._lock:
            kernel = self._kernel_of(key.kernel)
            kernel.unproven[reason] = kernel.unproven.get(reason, 0) + 1
            self._outcome(key, f"unproven: {reason}")

    def publish(self, key: Any) -> None:
        with self._lock:
            self._digest(key)
            self._outcome(key, "published")

    # What sessions tell.

    def attach(self, counters: Counters) -> None:
        """Add these counters to the totals, from now on and for what they hold already."""
        with self._lock:
            if not any(known is counters for known in self._counters):
                self._counters.append(counters)

    def detach(self, counters: Counters) -> None:
        """Keep what these counters say, and let go of them: their store is closed."""
        with self._lock:
            if any(known is counters for known in self._counters):
                self._counters = [known for known in self._counters if known is not counters]
                add_counts(self._ended, counters.snapshot())

    # Leaving.

    def write(self, ending: str = "running") -> None:
        """Leave what is known by now; a later write takes its place. Never raises, and does nothing without news."""
        try:
            with self._lock:
                # The end is news as well: a record that says "running" is never merged with those of its run.
                if not self._changed and (self._name is None or ending == self._ending):
                    return
                self._changed = False
                self._ending = ending
                record = self.record(ending)
                name = self._name = self._name or file_name(record)
            runrecord.write(self.folder, name, runrecord.encode(record))
            if ending != "running" and os.urandom(1)[0] < 16:  # one process in sixteen looks after the folder
                drop_oldest(self.folder, MAX_FILES)
        except Exception:
            self.fault()

    def fault(self) -> None:
        """Something of the journal failed: counted where people look, and said nowhere."""
        self.faults += 1
        for counters in self._counters[-1:]:
            counters.fault("run-record", "", quiet=True)

    def record(self, ending: str = "running") -> RunRecord:
        """What is known by now, as plain data."""
        with self._lock:
            counters: dict[str, Any] = {}
            add_counts(counters, self._ended)
            for each in self._counters:
                add_counts(counters, each.snapshot())
            return RunRecord(
                run=self._run,
                started=self._started,
                ended=time.time(),
                command=command(),
                host=socket.gethostname()[:64],
                pid=os.getpid(),
                ending=ending,
                mode=self._mode,
                versions=versions(),
                urls=list(self._urls),
                counters=counters,
                kernels=[facts_of(name, kernel) for name, kernel in self._kernels.items()],
                misses=[self._miss_facts(digest, miss) for digest, miss in self._misses.items()],
                bypasses=[BypassFacts(*what.kernel, *what[1:], *known) for what, known in self._bypasses.items()],
                used=list(self._digests),
                timeline=[self._buckets.timeline(self._started)] if self._buckets else [],
                dropped=dict(self._dropped),
            )

    def _digest(self, key: Any) -> Kernel:
        """The kernel of a key that is answered or published, and the digest remembered as used."""
        kernel = self._kernel_of(key.kernel)
        if key.digest not in self._digests:
            self._room(self._digests, MAX_DIGESTS, "digests", key.digest, lambda: kernel)
        return kernel

    def _kernel_of(self, name: tuple[str, str]) -> Kernel:
        if not self._armed:
            self._armed = True
            leaving.at_end(self.write)
        kernel = self._kernels.get(name)
        if kernel is None:
            if len(self._kernels) >= MAX_KERNELS:
                self._dropped["kernels"] = self._dropped.get("kernels", 0) + 1
                name = ("", "(other kernels)")
            kernel = self._kernels.setdefault(name, Kernel())
        return kernel

    def _room(self, table: dict[Any, _T], limit: int, what: str, name: Any, make: Callable[[], _T]) -> _T | None:
        if len(table) >= limit:
            self._dropped[what] = self._dropped.get(what, 0) + 1
            return None
        made = table[name] = make()
        return made

    def _outcome(self, key: Any, outcome: str, seconds: float = 0.0) -> None:
        known = self._misses.get(key.digest)
        if known is not None:
            known.outcome = outcome
            known.seconds += seconds
        self._changed = True

    def _happened(self, column: int, seconds: float = 0.0) -> None:
        self._buckets.add(perf_counter() - self._origin, column, seconds)
        self._changed = True

    def _flush_now_and_then(self) -> None:
        # So that a process that is killed outright leaves most of its record; never more than a hundredth of its time.
        now = perf_counter() - self._origin
        if now >= self._next_flush:
            self.write()
            spent = perf_counter() - self._origin - now
            self._next_flush = now + max(FLUSH_EVERY, 100 * spent)

    def _miss_facts(self, digest: str, miss: Miss) -> MissFacts:
        key = miss.key
        parts = dict(key.parts)
        missing = [part for part, held in parts.items() if f"{part} {held}" not in self._described]
        if missing and self._described_size < MAX_DESCRIBED:
            self._describe(key, missing)
        told = {part: self._described.get(f"{part} {held}") for part, held in parts.items()}
        detail = {part: said for part, said in told.items() if said is not None}
        module, name = key.kernel
        return MissFacts(digest, module, name, miss.at, miss.count, miss.seconds, miss.outcome, parts, detail)

    def _describe(self, key: Any, missing: list[str]) -> None:
        import msgpack

        said = key.describe(missing)
        for part in missing:
            if part in said:
                self._described[f"{part} {key.parts[part]}"] = said[part]
                self._described_size += len(msgpack.packb(said[part], unicode_errors="replace"))
