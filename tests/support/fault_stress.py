"""Many processes at once on two stores, doing all that is done to stores, and a count at the end.

One store has no limits: what was published there and never pruned is there at the end, and was published once. The
other has a limit that is far too small. Each worker draws its steps from a seed, keeps no answers between its sessions
(as new processes would), and has some of them in forked children, whose run records the others merge meanwhile.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.fault_store import ask, data, key, litter, sound
from tritonstore import journal
from tritonstore.backends.files import FilesBackend
from tritonstore.errors import StoreError
from tritonstore.journal import Journal
from tritonstore.maintenance import bundle, prune, runs, verify
from tritonstore.settings import Settings
from tritonstore.store import AnalysisStore, open_store

KEPT = range(0, 3_000)  # published, and never removed
CHURNED = range(10_000, 11_000)  # published, and pruned again and again
CARRIED = range(20_000, 20_040)  # put by loading a bundle
CROWD = [number for number in range(30_000, 36_000) if key(number).digest[0] == "a"]  # in 16 shards
PART = 1200  # bytes of a shard in the store with a limit: about three entries
LIMIT = 256 * PART
SESSION = 60  # steps


class Seen(NamedTuple):
    """What one process needs of the system."""

    descriptors: int
    resident: int

    @classmethod
    def now(cls) -> Seen:
        gc.collect()
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
        return cls(len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE"))


@dataclass
class Report:
    """All workers together, and what did not hold."""

    processes: int
    seconds: float
    did: Counter[str] = field(default_factory=Counter)
    entries: int = 0
    limited_bytes: int = 0
    growth: int = 0
    wrong: list[str] = field(default_factory=list)


class Worker:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.did: Counter[str] = Counter()
        self.published: set[int] = set()
        self.seed = seed
        self.settings = Settings.load(cache_folder=folder / "cache")
        self.journal = Journal(str(folder / "cache" / "runs"), f"run-{seed}")  # one for the whole process, as ever
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (600, self.ask_kept),
            (200, self.ask_crowd),
            (150, self.ask_churned),
            (10, self.prune),
            (10, self.verify),
            (10, self.load),
            (10, self.sweep),
            (10, self.compact),
        ]

    def session(self) -> None:
        """Some steps with stores of its own."""
        self.open = self.opened("open", max_size=0, max_age=0.0)
        self.limited = self.opened("limited", max_size=LIMIT)
        for store in (self.open, self.limited):
            self.journal.attach(store.counters)
        weights, acts = zip(*self.steps, strict=True)
        for act in self.random.choices(acts, weights, k=SESSION):
            act()
            self.did[act.__name__] += 1
        for store in (self.open, self.limited):
            counts = store.counters.snapshot()
            self.did["calls"] += counts["calls"]
            self.did["publishes"] += counts["publishes"]
            self.did["lease_timeouts"] += counts["lease_timeouts"]
            self.did["faults"] += sum(counts["faults"].values())
            self.journal.detach(store.counters)
            store.close()
        self.journal.write()

    def session_in_child(self, number: int) -> None:
        """A session in a forked child, which leaves a report and a record of its own."""
        pid = os.fork()
        if pid:
            if os.waitpid(pid, 0)[1]:
                raise AssertionError("a forked child failed; what it said stands above")
            return
        try:
            self.did, self.published = Counter(), set()
            self.random.seed(f"{self.seed} {number}")
            self.session()
            self.leave(f"{self.seed}{number:06}", None, None)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def leave(self, name: str, first: Seen | None, last: Seen | None) -> None:
        """The end of this process: its record, and a report in JSON."""
        self.journal.write("exit")
        self.did["journal_faults"] += self.journal.faults
        told = {"did": self.did, "published": sorted(self.published), "first": first, "last": last}
        (self.folder / f"report-{name}.json").write_text(json.dumps(told))

    def opened(self, name: str, **settings: Any) -> AnalysisStore:
        return open_store(f"file://{self.folder / name}", strict=True, lease_wait=60.0, **settings)

    def ask(self, store: AnalysisStore, number: int) -> bool:
        self.journal.miss(key(number))
        return ask(store, number)

    def ask_kept(self) -> None:
        number = min(self.random.choice(KEPT), self.random.choice(KEPT))  # some are asked for more than others
        if self.ask(self.open, number):
            self.published.add(number)
            self.did["published_kept"] += 1

    def ask_churned(self) -> None:
        self.ask(self.open, self.random.choice(CHURNED))

    def ask_crowd(self) -> None:
        self.ask(self.limited, self.random.choice(CROWD))

    def prune(self) -> None:
        """Remove all that is churned. What others are about to publish comes back, and nothing else goes."""
        backend = FilesBackend(str(self.folder / "open"), touch=False)
        for number in self.random.sample(CHURNED, 100):
            backend.delete(key(number).digest)
        prune.prune(FilesBackend(str(self.folder / "limited"), touch=False), prune.Plan(max_size=LIMIT))

    def verify(self) -> None:
        for name in ("open", "limited"):
            for found in verify.findings(FilesBackend(str(self.folder / name), touch=False), sample=50, fix=True):
                if found.problem:
                    raise AssertionError(f"{found.digest}: {found.problem}")

    def load(self) -> None:
        with open(self.folder / "made.tsb", "rb") as file:
            loaded = bundle.load(bundle.Bundle(file), [FilesBackend(str(self.folder / "open"))])
        self.did["carried"] += loaded.new

    def sweep(self) -> None:
        self.did["swept"] += prune.sweep(FilesBackend(str(self.folder / "open")))

    def compact(self) -> None:
        runs.MERGE_AFTER = 0.0  # six hours are not waited for
        runs.compact(self.settings)
        damaged: list[str] = []
        for record in runs.load(self.settings, damaged=damaged):  # as `stats` reads them
            assert record.counters
        if damaged:
            raise AssertionError(f"damaged records: {damaged}")


def work(folder: Path, seed: int, sessions: int, until: float) -> None:
    """One process: `sessions` of them, or as many as fit until that time, some of them in children."""
    for module in (journal, runs):
        vars(module)["MAX_MISSES"] = 100  # tables that are full early: what grows after that is a leak
    worker, first, count = Worker(folder, seed), None, 0
    while count < sessions or time.time() < until:
        worker.session()
        count += 1
        if count % 3 == 2:
            worker.session_in_child(count)
        if first is None and (time.time() > until - 0.8 * (until - STARTED) or count > sessions // 3):
            first = Seen.now()
    worker.leave(str(seed), first, Seen.now())


STARTED = time.time()


def stress(folder: Path, *, processes: int = 8, sessions: int = 3, minutes: float = 0.0) -> Report:
    """Let `processes` work at once, for `sessions` each and at least these minutes; then count. One thread only."""
    folder.mkdir(parents=True, exist_ok=True)
    for numbers in (KEPT, CHURNED):
        for number in numbers:
            key(number)  # kept from now on, and no growth of the workers
    bundle.write(str(folder / "made.tsb"), ((key(n).digest, data(n)) for n in CARRIED), "stress")
    started = time.monotonic()
    children = [_start(folder, seed, sessions, time.time() + 60 * minutes) for seed in range(processes)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    report = Report(processes, time.monotonic() - started)
    if any(codes):
        report.wrong.append(f"workers ended with {codes}; what they said stands above")
        return report
    _count(folder, report)
    return report


def _start(folder: Path, seed: int, sessions: int, until: float) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(int(until - time.time()) + 300)  # one that hangs is an error, not a wait
        work(folder, seed, sessions, until)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _count(folder: Path, report: Report) -> None:
    told = [json.loads(path.read_text()) for path in sorted(folder.glob("report-*.json"))]
    published = {number for each in told for number in each["published"]}
    for each in told:
        report.did.update(each["did"])
        if each["first"] is None:
            continue
        first, last = Seen(*each["first"]), Seen(*each["last"])
        report.growth = max(report.growth, last.resident - first.resident)
        if last.descriptors != first.descriptors:
            report.wrong.append(f"a worker had {first.descriptors} descriptors, and {last.descriptors} at the end")
    did = report.did
    carried = CARRIED if did["load"] else range(0)
    there = _tried(report, lambda: sound(str(folder / "open"), [*published, *carried], CHURNED)) or set()
    report.entries = len(there)
    _tried(report, lambda: sound(str(folder / "limited"), may=CROWD))
    shards: Counter[str] = Counter()
    for record in FilesBackend(str(folder / "limited")).scan():
        shards[record.digest[:2]] += record.size
    report.limited_bytes = sum(shards.values())
    most = PART + report.processes * len(data(CROWD[0]))  # what was just put stays, whoever has put it
    settings = Settings.load(cache_folder=folder / "cache")
    records = list(runs.load(settings))
    checks = {
        "each kept answer was published once": did["published_kept"] == len(published),
        "the limits hold": max(shards.values()) <= most,
        "there was something to evict": did["ask_crowd"] > 4 * report.limited_bytes // len(data(CROWD[0])),
        "the records hold every call": sum(each.counters["calls"] for each in records) == did["calls"],
        "the records hold every publishing": sum(each.counters["publishes"] for each in records) == did["publishes"],
        "no fault": not did["faults"] + did["journal_faults"],
        "no lease was waited for in vain": not did["lease_timeouts"],
        "no litter": not litter(str(folder)),
        "no growth of memory": report.growth < 16 << 20,
    }
    report.wrong += [f"not so: {what}" for what, holds in checks.items() if not holds]


def _tried(report: Report, check: Callable[[], set[int]]) -> set[int] | None:
    try:
        return check()
    except (AssertionError, StoreError) as error:
        report.wrong.append(str(error))
        return None
