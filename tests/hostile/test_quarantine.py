"""Digests that are set aside: by the store that found them, and for whoever shares its cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.synthetic import entry
from tests.test_store import SimpleKey, without_seconds
from tritonstore.backends.memory import MemoryBackend
from tritonstore.backends.wrappers import ReadOnly
from tritonstore.counters import Counters
from tritonstore.entry import encode
from tritonstore.errors import StoreError, StoreUnavailable
from tritonstore.quarantine import Quarantine
from tritonstore.settings import Settings
from tritonstore.store import AnalysisStore, open_store
from tritonstore.tiers import Tiers

MADE = entry(1)
KEY = SimpleKey(MADE.digest, MADE.parts, MADE.detail)


def test_neither_memory_nor_tiers_answer_any_more(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/s")
    store.publish(KEY, MADE.access, 1.0)
    assert store.lookup(KEY) == MADE.access
    kept = store.quarantine(MADE.digest)
    assert store.lookup(KEY) is None
    assert not store.adopt(MADE.digest, encode(MADE))
    store.publish(KEY, MADE.access, 1.0)
    assert store.lookup(KEY) is None
    assert list(store.tiers.backends[0].scan()) == []
    assert without_seconds(store)["faults"] == {"quarantined": 1}
    os.unlink(kept)  # whoever removes the file trusts it again
    store = open_store(f"file://{tmp_path}/s")
    store.publish(KEY, MADE.access, 1.0)
    assert store.lookup(KEY) == MADE.access


def test_every_tier_that_may_be_written_loses_it_and_faults_stop_nothing() -> None:
    class Broken(MemoryBackend):
        def get(self, digest: str) -> bytes | None:
            raise StoreUnavailable("no server", self.url, "get")

        def delete(self, digest: str) -> bool:
            raise StoreError("no server", self.url, "delete")

    class Kept(ReadOnly):
        pass

    near, far, fixed = MemoryBackend(), MemoryBackend(), MemoryBackend()
    for backend in (near, far, fixed):
        backend.put(MADE.digest, encode(MADE))
    counters = Counters()
    tiers = Tiers([near, Broken(), Kept(fixed), far], counters, strict=True)
    store = AnalysisStore(Settings.load(strict=True), tiers, counters)
    store.quarantine(MADE.digest)
    assert [len(list(backend.scan())) for backend in (near, fixed, far)] == [0, 1, 0]
    assert store.lookup(KEY) is None


def test_a_folder_that_holds_other_things(tmp_path: Path) -> None:
    for name in ("notes.txt", ".1.ff.tmp", "ab" * 31):
        (tmp_path / name).touch()
    (tmp_path / MADE.digest).touch()
    assert Quarantine(str(tmp_path)).digests() == {MADE.digest}
    assert Quarantine(str(tmp_path / "missing")).digests() == set()
    assert Quarantine(str(tmp_path / "notes.txt")).digests() == set()


def test_a_write_that_fails_leaves_nothing_and_holds_for_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    quarantine = Quarantine(str(tmp_path / "quarantine"))
    with pytest.raises(OSError, match="No space"):
        quarantine.put(MADE.digest, b"x")
    assert quarantine.digests() == {MADE.digest}
    assert os.listdir(quarantine.folder) == []
