"""What is killed and made to fail at every step: one operation on a prepared folder, and what must hold after it.

`work` runs in a child that may die at any moment. `check` then opens everything afresh: every reader gets the right
answer or none, `verify` finds nothing, what lies there besides is litter that the sweep removes once it is an hour old,
and the same operation run again ends well.
"""

from __future__ import annotations

import os
from typing import ClassVar

import pytest

from tests.support.fault_operation import Operation, leave_litter
from tests.support.fault_records import Compact, Fingerprint, FirstRecord, RunRecord
from tests.support.fault_store import (
    HOUR,
    answer,
    ask,
    data,
    fill,
    in_shard,
    key,
    litter,
    opened,
    place,
    sound,
    swept,
    work_on,
)  # fmt: skip
from tritonstore.backends import leases
from tritonstore.backends.files import FilesBackend
from tritonstore.maintenance import bundle, prune
from tritonstore.store import AnalysisStore

HELD = range(6)
NEW = 100


class Publish(Operation):
    """A new answer into a store that is there, or over a damaged entry."""

    name = "publish"
    options = ""
    held: range = HELD
    new = NEW
    settings: ClassVar[dict[str, object]] = {}

    def root(self, folder: str) -> str:
        return os.path.join(folder, "store")

    def url(self, folder: str) -> str:
        return f"file://{self.root(folder)}{self.options}"

    def prepare(self, folder: str) -> None:
        fill(self.root(folder), self.held)

    def work(self, folder: str) -> bytes | None:
        self.ask(opened(self.url(folder), **{"strict": False, **self.settings}))
        return None

    def ask(self, store: AnalysisStore) -> None:
        """The operation at a store that is open."""
        ask(store, self.new)
        assert store.lookup(key(self.new)) == answer(self.new)

    def check(self, folder: str) -> None:
        root = self.root(folder)
        sound(root, self.held, [NEW])
        store = work_on(self.url(folder), self.new, strict=True, **self.settings)  # no lock is held by the dead
        assert store.counters.snapshot()["lease_timeouts"] == 0
        sound(root, [*self.held, NEW])
        swept(root)


class PublishFirst(Publish):
    """The first answer of all, which makes the folders."""

    name = "publish-first"
    held = range(0)

    def prepare(self, folder: str) -> None:
        pass


class PublishOver(Publish):
    name = "publish-over-damage"

    def prepare(self, folder: str) -> None:
        super().prepare(folder)
        os.makedirs(os.path.dirname(place(self.root(folder), NEW)), exist_ok=True)
        with open(place(self.root(folder), NEW), "wb") as file:
            file.write(data(NEW)[:-1])

    def check(self, folder: str) -> None:
        root = self.root(folder)
        store = opened(self.url(folder))
        assert store.lookup(key(NEW)) in (None, answer(NEW))  # which also deletes what is damaged still
        super().check(folder)
        assert os.path.getsize(place(root, NEW)) == len(data(NEW))


class PublishShared(Publish):
    """Into a folder of a group, from nothing, waiting for the disk: every folder is the group's, or not there."""

    name = "publish-shared-durable"
    options = "?shared=true&durable=true"
    held = range(0)

    def prepare(self, folder: str) -> None:
        pass

    def check(self, folder: str) -> None:
        if os.path.isdir(self.root(folder)):
            for path, _, files in os.walk(self.root(folder)):
                if not os.path.basename(path).startswith("."):
                    assert os.stat(path).st_mode & 0o2070 == 0o2070, f"{path} is closed to the group"
                for name in files:
                    if not name.endswith(".tmp") and os.path.basename(path) != "locks":  # see leases
                        assert os.stat(os.path.join(path, name)).st_mode & 0o060 == 0o060, f"{name} is closed"
        super().check(folder)


class PublishSoft(Publish):
    """With a marker in place of flock, which the dead leave behind: it is taken over when it has stood still."""

    name = "publish-soft-lease"

    def ask(self, store: AnalysisStore) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(leases, "is_remote", lambda *_: True)
            super().ask(store)

    def check(self, folder: str) -> None:
        sound(self.root(folder), HELD, [NEW])
        swept_markers(os.path.join(self.root(folder), "v1", "locks"))
        super().check(folder)


def swept_markers(folder: str) -> None:
    """The dead one's marker, if there is one, is one small file; a live worker takes it over after 30 seconds."""
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        assert os.path.getsize(path) < 4096
        os.unlink(path)


class PublishFull(Publish):
    """Into a shard that is beyond its part of the limits: old entries and old litter go, what was just put stays."""

    name = "publish-evicting"
    numbers: ClassVar[list[int]] = [number for _, number in zip(range(7), in_shard("ab"), strict=False)]
    new = numbers[-1]
    settings: ClassVar[dict[str, object]] = {"max_size": 256 * 3 * len(data(numbers[0]))}

    def prepare(self, folder: str) -> None:
        fill(self.root(folder), self.numbers[:-1], age=HOUR)
        leave_litter(os.path.dirname(place(self.root(folder), self.numbers[0])))

    def check(self, folder: str) -> None:
        root = self.root(folder)
        sound(root, may=self.numbers)
        work_on(self.url(folder), self.new, strict=True, **self.settings)
        sound(root, [self.new], self.numbers)
        prune.sweep(FilesBackend(root))  # the litter that was there before
        swept(root)


class Backfill(Operation):
    """An answer found in the far tier fills the near one."""

    name = "backfill"

    def urls(self, folder: str) -> str:
        return f"file://{folder}/near,file://{folder}/far"

    def prepare(self, folder: str) -> None:
        fill(f"{folder}/near", range(2))
        fill(f"{folder}/far", HELD)

    def work(self, folder: str) -> bytes | None:
        store = opened(self.urls(folder), strict=False)
        for number in HELD:
            assert store.lookup(key(number)) == answer(number)
        return None

    def check(self, folder: str) -> None:
        sound(f"{folder}/near", range(2), HELD)
        sound(f"{folder}/far", HELD)
        self.work(folder)
        sound(f"{folder}/near", HELD)
        swept(f"{folder}/near")
        assert litter(f"{folder}/far") == []


class Prune(Operation):
    """`tritonstore prune` to a size: the oldest go."""

    name = "prune"
    held = range(12)

    def prepare(self, folder: str) -> None:
        fill(folder, self.held, age=40 * HOUR, apart=2 * HOUR)  # the first is the oldest

    def work(self, folder: str) -> bytes | None:
        limit = 4 * len(data(0)) + 200
        prune.prune(FilesBackend(folder), prune.Plan(max_size=limit))
        return None

    def check(self, folder: str) -> None:
        sound(folder, self.held[8:], self.held)
        self.work(folder)
        assert len(sound(folder, self.held[8:], self.held)) == 4
        assert not litter(folder), litter(folder)


class PruneAge(Prune):
    """By age and, one by one, by what the entries say."""

    name = "prune-by-age"

    def work(self, folder: str) -> bytes | None:
        made = prune.Installed("2.13.0", "3.7.1")  # which the entries do not say, so none is stale
        prune.prune(FilesBackend(folder, touch=False), prune.Plan(max_age=25 * HOUR, stale=made))
        return None


class Sweep(Operation):
    """Old litter goes, young litter stays, and entries are not touched."""

    name = "sweep"

    def prepare(self, folder: str) -> None:
        fill(folder, HELD)
        for number in range(3):
            leave_litter(os.path.dirname(place(folder, number)))
        leave_litter(os.path.dirname(place(folder, 0)), age=0.0)

    def work(self, folder: str) -> bytes | None:
        prune.sweep(FilesBackend(folder))
        return None

    def check(self, folder: str) -> None:
        sound(folder, HELD)
        self.work(folder)
        assert len(litter(folder)) == 1
        assert swept(folder) == 1


class Load(Operation):
    """A bundle into two tiers, one of which holds some of it, one of those damaged."""

    name = "bundle-load"
    numbers = range(5)

    def prepare(self, folder: str) -> None:
        bundle.write(os.path.join(folder, "made.tsb"), ((key(n).digest, data(n)) for n in self.numbers), "test")
        fill(f"{folder}/near", [0, 10])
        fill(f"{folder}/far", [1])
        with open(place(f"{folder}/far", 1), "r+b") as file:
            file.truncate(100)

    def work(self, folder: str) -> bytes | None:
        with open(os.path.join(folder, "made.tsb"), "rb") as file:
            backends = [FilesBackend(f"{folder}/near"), FilesBackend(f"{folder}/far")]
            bundle.load(bundle.Bundle(file), backends)
        return None

    def check(self, folder: str) -> None:
        far = opened(f"file://{folder}/far")
        assert far.lookup(key(1)) in (None, answer(1))  # which deletes the damaged one
        sound(f"{folder}/near", [0, 10], self.numbers)
        sound(f"{folder}/far", may=self.numbers)
        self.work(folder)
        for root, there in (("near", [*self.numbers, 10]), ("far", self.numbers)):
            sound(f"{folder}/{root}", there)
            swept(f"{folder}/{root}")


OPERATIONS: dict[str, Operation] = {
    kind.name: kind()
    for kind in (
        Publish, PublishFirst, PublishOver, PublishShared, PublishSoft, PublishFull, Backfill, Prune, PruneAge, Sweep,
        RunRecord, FirstRecord, Compact, Load, Fingerprint,
    )
}  # fmt: skip
