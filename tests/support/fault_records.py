"""Operations on what a process leaves beside a store: its run record, and the digests of Triton's files."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace

from tests.support import records
from tests.support.fault_operation import Operation, leave_litter
from tests.support.fault_store import HOUR, key, litter, set_age
from tritonstore.counters import Counters
from tritonstore.journal import Journal
from tritonstore.journal_parts import drop_oldest
from tritonstore.keys.filestat import FileDigests
from tritonstore.maintenance import runs
from tritonstore.settings import Settings


class RunRecord(Operation):
    """A process leaves its record, and once more with more in it."""

    name = "run-record"

    def prepare(self, folder: str) -> None:
        records.put(os.path.join(folder, "runs"), records.record("run-0"))

    def work(self, folder: str) -> bytes | None:
        journal = Journal(os.path.join(folder, "runs"), "run-1")
        counters = Counters()
        journal.attach(counters)
        for number in range(2):
            counters.miss()
            journal.miss(key(number))
            journal.write()
        with contextlib.suppress(OSError):
            drop_oldest(journal.folder, 1000)  # as one process in sixteen does at its exit, whose faults are swallowed
        return b"" if not journal.faults else b"fault"

    def check(self, folder: str) -> None:
        settings = Settings.load(cache_folder=folder)
        damaged: list[str] = []
        found = {record.run: record for record in runs.load(settings, damaged=damaged)}
        assert damaged == []
        assert found["run-0"] == records.record("run-0")
        if "run-1" in found:
            told = found["run-1"]
            assert (told.counters["misses"], len(told.misses)) in [(1, 1), (2, 2)]
        self.work(folder)
        for path in litter(folder):
            set_age(path, 2 * HOUR)
        runs.compact(settings)
        assert not litter(folder), litter(folder)


class FirstRecord(RunRecord):
    """The first one of all makes the folder."""

    name = "run-record-first"

    def prepare(self, folder: str) -> None:
        pass

    def check(self, folder: str) -> None:
        records.put(os.path.join(folder, "runs"), records.record("run-0"))
        super().check(folder)


class Compact(Operation):
    """Records of runs that ended long ago are merged, and older ones only counted: no call is lost or counted twice."""

    name = "compact-records"
    now = records.STARTED + 100 * 86400.0

    def prepare(self, folder: str) -> None:
        day = 86400.0
        for run, ended in (("old", 2 * day), ("older", 3 * day), ("recent", 99 * day)):
            for owner in range(3):
                made = replace(records.record(run), started=records.STARTED + ended, ended=records.STARTED + ended + 9)
                records.put(os.path.join(folder, "runs"), made, f"host-{owner}-0a0b0c0d")
        leave_litter(os.path.join(folder, "runs"), name=".host-1-0a0b0c0d.0a0b0c0d0e0f.tmp")

    def work(self, folder: str) -> bytes | None:
        runs.compact(Settings.load(cache_folder=folder), self.now)
        return None

    def check(self, folder: str) -> None:
        self.totals(folder)
        self.work(folder)
        self.totals(folder)
        for path in litter(folder):
            set_age(path, 2 * HOUR)
        runs.compact(Settings.load(cache_folder=folder))
        self.totals(folder)
        assert not litter(folder), litter(folder)

    @staticmethod
    def totals(folder: str) -> None:
        damaged: list[str] = []
        found = list(runs.load(Settings.load(cache_folder=folder), damaged=damaged))
        assert damaged == []
        assert sum(record.counters["calls"] for record in found) == 9 * 10
        assert sum(record.processes for record in found) == 9


class Fingerprint(Operation):
    """The digests of Triton's files are remembered for the next process."""

    name = "fingerprint"

    def prepare(self, folder: str) -> None:
        for name in ("one.py", "two.py"):
            with open(os.path.join(folder, name), "w") as file:
                file.write(f"text of {name}")

    def work(self, folder: str) -> bytes | None:
        digests = FileDigests.load(os.path.join(folder, "cache"))
        said = "".join(digests.sha256(os.path.join(folder, name)) for name in ("one.py", "two.py"))
        digests.save()
        return said.encode()

    def check(self, folder: str) -> None:
        assert self.work(folder) == "".join(records.sha(f"text of {name}") for name in ("one.py", "two.py")).encode()
        for path in litter(os.path.join(folder, "cache")):
            set_age(path, 2 * HOUR)
        with open(os.path.join(folder, "two.py"), "a") as file:  # so that there is something to save
            file.write("!")
        self.work(folder)
        assert litter(os.path.join(folder, "cache")) == []
