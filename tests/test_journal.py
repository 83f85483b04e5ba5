"""The journal of one process: what it keeps, what it bounds, and that nothing of it can fail the caller."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import tritonstore.journal as module
from tests.support.records import sha
from tritonstore.counters import Counters
from tritonstore.journal import Bypassed, Journal
from tritonstore.journal_timeline import ANALYSED, BUCKETS, HITS, Buckets
from tritonstore.runrecord import FileName, decode


class Key:
    """What a journal needs of a CallKey."""

    def __init__(self, number: int, kernel: tuple[str, str] = ("model.kernels", "_rms")) -> None:
        self.digest = sha(number)
        self.kernel = kernel
        self.parts = {"arguments": sha(f"arguments {number}"), "code": sha("code")}
        self.number = number
        self.asked: list[str] = []

    def describe(self, parts: Any) -> dict[str, Any]:
        self.asked += parts
        said: dict[str, Any] = {"arguments": [["n", ["int", self.number], False]], "code": [["kernel", "x"]]}
        return {"kernel": list(self.kernel), **{part: said[part] for part in parts}}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(str(tmp_path / "runs"), "run-1", ("memory:",))


def test_events_by_kernel_and_by_key(journal: Journal) -> None:
    first, second, third = Key(1), Key(2), Key(3, ("other", "_rms"))
    journal.miss(first)
    journal.analysis(first, 0.5)
    journal.publish(first)
    for _ in range(3):
        journal.hit(first, "memory", 0.5)
    journal.miss(second)
    journal.share(second, 0.25)
    journal.miss(third)
    journal.analysis(third, 0.125)
    journal.unproven(third, "failure-path")
    for _ in range(2):
        what = Bypassed(("model.kernels", "_rms"), "tma", "x is a descriptor")
        journal.bypass(what)
        journal.analysis(what, 0.25)
    record = journal.record()
    rms, other = record.kernels
    assert rms[:7] == ("model.kernels", "_rms", {"memory": 3}, 2, 1, {"tma": 2}, 3)
    assert (rms.seconds_saved, rms.seconds_analysing, rms.calls) == (1.75, 1.0, 7)
    assert (other.module, other.misses, other.unproven) == ("other", 1, {"failure-path": 1})
    assert [miss.outcome for miss in record.misses] == ["published", "shared", "unproven: failure-path"]
    assert [miss.seconds for miss in record.misses] == [0.5, 0.0, 0.125]
    assert record.misses[0].detail == {"arguments": [["n", ["int", 1], False]], "code": [["kernel", "x"]]}
    assert [tuple(each)[:5] for each in record.bypasses] == [("model.kernels", "_rms", "tma", "x is a descriptor", 2)]
    assert record.used == [first.digest, second.digest]
    (timeline,) = record.timeline
    assert (sum(timeline.hits), sum(timeline.analysed), sum(timeline.shared), sum(timeline.bypassed)) == (3, 2, 1, 2)
    assert sum(timeline.seconds) == pytest.approx(1.125)


def test_each_part_is_described_once_and_only_when_written(journal: Journal) -> None:
    first, second = Key(1), Key(2)
    journal.miss(first)
    journal.miss(second)
    assert first.asked == second.asked == []
    journal.record()
    journal.record()
    assert (first.asked, second.asked) == (["arguments", "code"], ["arguments"])


def test_everything_is_bounded_and_what_has_no_room_is_counted(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_KERNELS", "MAX_DIGESTS", "MAX_MISSES", "MAX_BYPASSES"):
        monkeypatch.setattr(module, name, 3)
    for number in range(5):
        key = Key(number, ("model", f"kernel_{number}"))
        journal.miss(key)
        journal.publish(key)
        journal.hit(key, "memory", 1.0)
        journal.bypass(Bypassed(("model", "kernel_0"), "tma", f"argument {number}"))
    record = journal.record()
    assert [kernel.name for kernel in record.kernels] == ["kernel_0", "kernel_1", "kernel_2", "(other kernels)"]
    assert sum(kernel.calls for kernel in record.kernels) == 15
    assert (len(record.misses), len(record.bypasses), len(record.used)) == (3, 3, 3)
    assert set(record.dropped) == {"kernels", "misses", "bypasses", "digests"}
    assert (record.dropped["misses"], record.dropped["bypasses"]) == (2, 2)


def test_descriptions_stop_where_they_would_get_too_large(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DESCRIBED", 10)
    for number in range(3):
        journal.miss(Key(number))
    told = [sorted(miss.detail) for miss in journal.record().misses]
    assert told == [["arguments", "code"], ["code"], ["code"]]


def test_a_long_reason_is_cut(journal: Journal) -> None:
    what = Bypassed(("m", "k"), "error", "x" * 10_000)
    journal.bypass(what)
    journal.analysis(what, 0.5)
    (bypass,) = journal.record().bypasses
    assert (len(bypass.detail), bypass.seconds) == (400, 0.5)


def test_totals_are_those_of_all_counters(journal: Journal) -> None:
    ended, live = Counters(), Counters()
    for counters in (ended, live, live):
        journal.attach(counters)
        counters.hit("memory", 1.0)
        counters.fault("file-get", "no", quiet=True)
    journal.detach(ended)
    ended.hit("memory", 1.0)
    assert journal.record().counters["hits"] == {"memory": 3}
    assert journal.record().counters["faults"] == {"file-get": 3}


def test_a_later_write_takes_the_place_of_an_earlier_one(journal: Journal) -> None:
    journal.write("exit")
    assert not os.path.exists(journal.folder)  # nothing was asked
    journal.hit(Key(1), "memory", 1.0)
    journal.write()
    journal.hit(Key(1), "memory", 1.0)
    journal.write("exit")
    (name,) = os.listdir(journal.folder)
    parsed = FileName.parse(name)
    assert parsed is not None
    assert parsed.run == "run-1"
    record = decode((Path(journal.folder) / name).read_bytes())
    assert (record.ending, record.kernels[0].hits) == ("exit", {"memory": 2})


def test_a_process_that_goes_on_writes_now_and_then(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module, "perf_counter", lambda: now)
    journal._start()
    journal.analysis(Key(1), 0.5)
    assert not os.path.exists(journal.folder)
    now += module.FLUSH_EVERY
    journal.analysis(Key(1), 0.5)
    (name,) = os.listdir(journal.folder)
    before = os.stat(os.path.join(journal.folder, name)).st_ino
    journal.analysis(Key(1), 0.5)
    assert os.stat(os.path.join(journal.folder, name)).st_ino == before


def test_the_oldest_go_where_nobody_prunes(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 3)
    monkeypatch.setattr(os, "urandom", lambda count: bytes(count))
    os.makedirs(journal.folder)
    others = [str(FileName(number, "old", "host-1-ab")) for number in range(5)] + ["notes.txt"]
    for name in others:
        (Path(journal.folder) / name).write_text("")
    journal.hit(Key(1), "memory", 1.0)
    journal.write("exit")
    left = sorted(os.listdir(journal.folder))
    assert [name for name in left if name in others] == [others[3], others[4], "notes.txt"]
    assert len(left) == 4


class Broken:
    digest, kernel = sha("broken"), ("m", "k")

    @property
    def parts(self) -> dict[str, str]:
        raise RuntimeError("mine")


def test_a_fault_is_counted_and_says_nothing(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    journal.attach(counters)
    journal.miss(Broken())
    journal.write("exit")
    assert counters.snapshot()["faults"] == {"run-record": 1}
    assert (journal.faults, caplog.records) == (1, [])


def test_threads_lose_nothing(journal: Journal) -> None:
    def work(number: int) -> None:
        for each in range(2_000):
            journal.hit(Key(each % 7), "memory", 1.0)
            journal.miss(Key(number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (kernel,) = journal.record().kernels
    assert (kernel.hits, kernel.misses, kernel.seconds_saved) == ({"memory": 8_000}, 8_000, 8_000.0)


def test_a_forked_child_starts_with_nothing(journal: Journal) -> None:
    counters = Counters()
    journal.attach(counters)
    journal.hit(Key(1), "memory", 1.0)
    counters.hit("memory", 1.0)
    with journal._lock:
        child = os.fork()
        if not child:
            record = journal.record()
            os._exit(len(record.kernels) + len(record.used) + sum(record.counters.get("hits", {}).values()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_buckets_widen_and_lose_nothing() -> None:
    buckets = Buckets()
    assert not buckets
    for second in range(10_000):
        buckets.add(float(second), HITS)
        if second % 10 == 0:
            buckets.add(float(second), ANALYSED, 0.5)
    line = buckets.timeline(1_000.0)
    assert (sum(line.hits), sum(line.analysed), sum(line.seconds)) == (10_000, 1_000, 500.0)
    assert (line.start, line.width) == (1_000.0, 128.0)
    assert 10_000 / line.width <= len(line.hits) <= BUCKETS
    assert set(line.hits[:-1]) == {128}
