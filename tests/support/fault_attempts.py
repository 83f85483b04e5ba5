"""What a process does with a store, a lock, a run record or the fingerprint of Triton, and what it may see of a fault.

A backend raises StoreError and nothing else, a store answers as if nothing were stored, a run record is silent. What
lies on disk afterwards is the same for all: sound, or not there.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from tests.support import records
from tests.support.fault_operation import Operation
from tests.support.fault_operations import Backfill, Load, PublishFull
from tests.support.fault_records import Compact, Fingerprint, FirstRecord, RunRecord
from tests.support.fault_store import HOUR, answer, data, fill, key, place, set_age, sound, work_on
from tritonstore.backends.files import FilesBackend
from tritonstore.errors import StoreError, TritonStoreError
from tritonstore.keys.filestat import FileDigests


@contextmanager
def heard() -> Iterator[list[str]]:
    """What the logger `tritonstore` says at WARNING or above; off the terminal."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tritonstore")
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


class Attempt:
    """`act` runs in the child and gives what it saw, as JSON. `judge` gets that, and the folder."""

    name: ClassVar[str]
    raises: ClassVar[tuple[type[BaseException], ...]] = ()

    def prepare(self, folder: str) -> None:
        fill(os.path.join(folder, "store"), range(4))

    def act(self, folder: str) -> Any:
        raise NotImplementedError

    def judge(self, folder: str, saw: Any) -> None:
        """Raises AssertionError. `saw` is None where `act` raised one of `raises`."""
        raise NotImplementedError

    def work(self, folder: str) -> bytes:
        with heard() as said:
            try:
                saw = self.act(folder)
            except self.raises:
                saw = None
        return json.dumps([saw, said]).encode()


class BackendCall(Attempt):
    """One call of the files backend: right, or a StoreError, and the store is sound."""

    raises = (StoreError,)
    options: ClassVar[dict[str, Any]] = {}
    may = range(100, 101)

    def backend(self, folder: str) -> FilesBackend:
        return FilesBackend(os.path.join(folder, "store"), **self.options)

    def judge(self, folder: str, saw: Any) -> None:
        sound(os.path.join(folder, "store"), range(4), self.may)


class Get(BackendCall):
    name = "get"

    def prepare(self, folder: str) -> None:
        super().prepare(folder)
        set_age(place(os.path.join(folder, "store"), 0), 2 * HOUR)  # so that it is noted as used

    def act(self, folder: str) -> Any:
        found = [self.backend(folder).get(key(number).digest) for number in (0, 9)]
        return [None if each is None else each.hex() for each in found]

    def judge(self, folder: str, saw: Any) -> None:
        super().judge(folder, saw)
        assert saw is None or (saw[0] in (None, data(0).hex()) and saw[1] is None), saw


class Put(BackendCall):
    name = "put"

    def act(self, folder: str) -> Any:
        for number in (100, 0):
            self.backend(folder).put(key(number).digest, data(number))
        return "stored"

    def judge(self, folder: str, saw: Any) -> None:
        super().judge(folder, saw)
        if saw is not None:
            sound(os.path.join(folder, "store"), [*range(4), 100])


class PutShared(Put):
    name = "put-shared-durable"
    options: ClassVar[dict[str, Any]] = {"shared": True, "durable": True}


class Delete(BackendCall):
    name = "delete"

    def act(self, folder: str) -> Any:
        return [self.backend(folder).delete(key(number).digest) for number in (3, 9)]

    def judge(self, folder: str, saw: Any) -> None:
        there = sound(os.path.join(folder, "store"), range(3), [3])
        assert saw in (None, [3 not in there, False], [False, False]), saw  # the last: ENOENT at a close


class Scan(BackendCall):
    name = "scan"

    def act(self, folder: str) -> Any:
        return sorted(record.digest for record in self.backend(folder).scan())

    def judge(self, folder: str, saw: Any) -> None:
        super().judge(folder, saw)
        assert saw is None or set(saw) <= {key(number).digest for number in range(4)}


class Lock(BackendCall):
    """Whatever happens to one attempt, the next one of another process gets the lock."""

    name = "lock"

    def act(self, folder: str) -> Any:
        lease = self.backend(folder).lease(key(0).digest)
        if lease is None:  # nothing can be written there: every worker analyses by itself
            return None
        taken = lease.try_acquire()
        lease.release()
        return taken

    def judge(self, folder: str, saw: Any) -> None:
        super().judge(folder, saw)
        lease = self.backend(folder).lease(key(0).digest)
        assert lease is not None
        assert lease.try_acquire()
        lease.release()


class Work(Attempt):
    """A worker answers questions from the store and others: no exception, and one warning if there was a fault."""

    name = "worker"
    numbers: tuple[int, ...] = (0, 100)
    settings: ClassVar[dict[str, Any]] = {}

    def urls(self, folder: str) -> str:
        return f"file://{folder}/store"

    def act(self, folder: str) -> Any:
        store = work_on(self.urls(folder), *self.numbers, **self.settings)
        answers = [store.lookup(key(number)) == answer(number) for number in self.numbers]
        counts = store.counters.snapshot()
        return [answers, counts["faults"], counts["lease_timeouts"]]

    def judge(self, folder: str, saw: Any) -> None:
        answers, _, timeouts = saw
        assert answers == [True] * len(answers), "an answer is kept in memory, whatever the store does"
        # filelock takes ENOENT at its open and EACCES at flock for a lock that somebody holds, and asks again later.
        assert timeouts <= 1
        self.sound(folder)

    def sound(self, folder: str) -> None:
        sound(os.path.join(folder, "store"), range(4), [100])


class WorkFull(Work):
    """Beyond the limits, so that each publishing evicts."""

    name = "worker-evicting"
    numbers = (PublishFull.numbers[-1],)
    settings = PublishFull.settings

    def prepare(self, folder: str) -> None:
        PublishFull().prepare(folder)

    def sound(self, folder: str) -> None:
        sound(os.path.join(folder, "store"), may=PublishFull.numbers)


class WorkTiers(Work):
    """Two tiers, the near one filled from the far one."""

    name = "worker-two-tiers"
    numbers = (1, 3, 100)

    def urls(self, folder: str) -> str:
        return Backfill().urls(folder)

    def prepare(self, folder: str) -> None:
        Backfill().prepare(folder)

    def sound(self, folder: str) -> None:
        sound(f"{folder}/near", range(2), [3, 100])
        sound(f"{folder}/far", range(6), [100])


class Record(Attempt):
    """A run record is left whole or not at all, in silence."""

    name = "run-record"
    operation: Operation = RunRecord()

    def prepare(self, folder: str) -> None:
        self.operation.prepare(folder)

    def act(self, folder: str) -> Any:
        return (self.operation.work(folder) or b"").decode()

    def judge(self, folder: str, saw: Any) -> None:
        self.operation.check(folder)


class RecordFirst(Record):
    name = "run-record-first"
    operation = FirstRecord()


class CompactRecords(Record):
    """Merging records loses and doubles none; what cannot be done now is a StoreError, or done later."""

    name = "compact-records"
    operation = Compact()
    raises = (StoreError,)


class LoadBundle(Record):
    name = "bundle-load"
    operation = Load()
    raises = (TritonStoreError, OSError)  # OSError: of the bundle's own file


class Digests(Attempt):
    """The digest of each file is right or an OSError, and whatever becomes of the file of digests is no matter."""

    name = "fingerprint-files"
    raises = (OSError,)
    operation = Fingerprint()

    def prepare(self, folder: str) -> None:
        self.operation.prepare(folder)
        self.operation.work(folder)
        for name in ("one.py", "two.py"):
            with open(os.path.join(folder, name), "a") as file:
                file.write(" and more")

    def act(self, folder: str) -> Any:
        FileDigests.load(os.path.join(folder, "cache"))
        return (self.operation.work(folder) or b"").decode()

    def judge(self, folder: str, saw: Any) -> None:
        right = "".join(records.sha(f"text of {name} and more") for name in ("one.py", "two.py"))
        assert saw in (None, right)
        assert (self.operation.work(folder) or b"").decode() == right


ATTEMPTS: dict[str, Attempt] = {
    kind.name: kind()
    for kind in (
        Get, Put, PutShared, Delete, Scan, Lock, Work, WorkFull, WorkTiers, Record, RecordFirst, CompactRecords,
        LoadBundle, Digests,
    )
}  # fmt: skip
