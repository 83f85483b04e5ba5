"""Records on disk: loading, merging, and a compaction that counts nothing twice whenever it is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.records import STARTED, bypass, kernel, miss, put, record, sha
from tests.support.terminal import ROOT
from tritonstore.errors import StoreError
from tritonstore.maintenance import runs
from tritonstore.maintenance.runs import FORGET_AFTER, MERGE_AFTER, OLDER, by_run, compact, digests_of, last_run, load
from tritonstore.settings import Settings

LATER = STARTED + MERGE_AFTER + 1_000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.load(cache_folder=tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def calls(settings: Settings) -> Counter[str]:
    """Calls by run, as they stand on disk."""
    found: Counter[str] = Counter()
    for each in load(settings):
        found[each.run] += each.counters["calls"]
    return found


def test_nothing_on_record(settings: Settings) -> None:
    assert list(load(settings)) == []
    assert last_run(settings) is None
    assert digests_of(settings, "run-1") == set()
    assert compact(settings) == (0, 0, 0, False)


def test_records_by_run_and_in_time(settings: Settings, folder: Path) -> None:
    put(folder, record("b", started=STARTED + 5), "host-3-cc")
    put(folder, record("a"), "host-1-aa")
    put(folder, record("a", started=STARTED + 1, used=[sha(9)]), "host-2-bb")
    assert [each.run for each in load(settings)] == ["a", "a", "b"]
    assert [each.processes for each in by_run(load(settings))] == [2, 1]
    assert last_run(settings) == "b"
    assert digests_of(settings, "a") == {sha(1), sha(2), sha(3), sha(9)}


def test_damage_and_strangers_are_left_out(settings: Settings, folder: Path) -> None:
    name = put(folder, record())
    torn = put(folder, record("torn"), "host-2-bb")
    (folder / torn).write_bytes((folder / torn).read_bytes()[:-5])
    folder_in_place = str(name).replace("@run-1@", "@dir@")
    (folder / folder_in_place).mkdir()
    (folder / "notes.txt").write_text("mine")
    os.mkfifo(folder / name.replace("@run-1@", "@fifo@"))
    damaged: list[str] = []
    assert [each.run for each in load(settings, damaged=damaged)] == ["run-1"]
    assert len(damaged) == 3
    assert torn in damaged
    compact(settings, LATER)
    assert {torn, "notes.txt"} < set(os.listdir(folder))


def test_a_folder_that_is_a_file(settings: Settings, folder: Path) -> None:
    folder.write_text("")
    with pytest.raises(StoreError):
        list(load(settings))


def test_merging_adds_up() -> None:
    other = record(
        started=STARTED + 10,
        ended=STARTED + 90,
        ending="SIGTERM",
        kernels=[kernel(), kernel("_swiglu")],
        misses=[miss(2, outcome="shared"), miss(3)],
        bypasses=[bypass(times=4), bypass("_swiglu")],
        used=[sha(3), sha(4)],
        urls=["file:///store", "redis://server"],
    )
    merged = runs.merge([record(), other])
    assert (merged.processes, merged.started, merged.ended, merged.ending) == (2, STARTED, STARTED + 90, "several")
    assert (merged.counters["calls"], merged.counters["hits"]) == (20, {"file": 2, "memory": 12})
    rms, swiglu = merged.kernels
    assert (rms.calls, rms.hits, rms.bypasses, rms.seconds_saved) == (20, {"memory": 12, "file": 2}, {"tma": 2}, 1.4)
    assert swiglu == kernel("_swiglu")
    assert [(each.digest, each.times, each.outcome) for each in merged.misses] == [
        (sha(1), 1, "published"),
        (sha(2), 2, "published"),
        (sha(3), 1, "published"),
    ]
    assert [(each.name, each.times) for each in merged.bypasses] == [("_rms", 5), ("_swiglu", 1)]
    assert merged.used == [sha(1), sha(2), sha(3), sha(4)]
    assert merged.urls == ["file:///store", "redis://server"]
    assert len(merged.timeline) == 2


def test_merging_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_MISSES", 3)
    merged = runs.merge([record(misses=[miss(n) for n in range(2)]), record(misses=[miss(n) for n in range(2, 6)])])
    assert (len(merged.misses), merged.dropped) == (3, {"misses": 3})


def test_the_processes_of_a_run_become_one_file(settings: Settings, folder: Path) -> None:
    for number in range(5):
        put(folder, record("a", started=STARTED + number), f"host-{number}-aa")
    put(folder, record("single"), "host-7-aa")
    put(folder, record("fresh", ended=LATER - 60), "host-8-aa")
    put(folder, record("fresh", ended=LATER - 60), "host-9-aa")
    before = calls(settings)
    done = compact(settings, LATER)
    assert (done.merged, done.into, done.forgotten) == (5, 1, 0)
    assert calls(settings) == before
    assert sorted(each.processes for each in load(settings)) == [1, 1, 1, 5]
    assert len([name for name in os.listdir(folder) if name.endswith(".run")]) == 4
    assert digests_of(settings, "a") == {sha(1), sha(2), sha(3)}
    assert compact(settings, LATER) == (0, 0, 0, False)


def test_a_process_that_may_still_write_is_left_alone(settings: Settings, folder: Path) -> None:
    for number, ending in enumerate(("exit", "exit", "running")):
        put(folder, record("a", ending=ending), f"host-{number}-aa")
    assert compact(settings, LATER).merged == 2
    put(folder, replace(record("a"), ending="exit"), "host-2-aa")
    assert calls(settings) == {"a": 30}


def test_old_runs_are_only_counted(settings: Settings, folder: Path) -> None:
    for run in ("a", "b", "c"):
        put(folder, record(run), f"host-{run}-aa")
    done = compact(settings, STARTED + FORGET_AFTER + 1_000)
    assert (done.merged, done.into, done.forgotten) == (3, 1, 3)
    (left,) = load(settings)
    assert (left.run, left.counters["calls"], left.processes) == (OLDER, 30, 3)
    assert (left.misses, left.used, left.timeline) == ([], [], [])
    put(folder, record("d"), "host-d-aa")
    compact(settings, STARTED + FORGET_AFTER + 1_000)
    assert calls(settings) == {OLDER: 40}
    assert last_run(settings) is None


def test_two_compactions_at_once(settings: Settings, folder: Path) -> None:
    put(folder, record())
    from tritonstore.backends.leases import FileLease

    lease = FileLease(str(folder), ".compacting", "", may_be_remote=True)
    assert lease.try_acquire()
    try:
        assert compact(settings, LATER).busy
    finally:
        lease.release()


def test_temporary_files_of_the_dead_go(settings: Settings, folder: Path) -> None:
    put(folder, record())
    for name, age in (("old", 7_200), ("new", 0)):
        (folder / f".host-1.{name}.tmp").write_text("half")
        os.utime(folder / f".host-1.{name}.tmp", (LATER - age, LATER - age))
    compact(settings, LATER)
    assert not (folder / ".host-1.old.tmp").exists()
    assert (folder / ".host-1.new.tmp").exists()


KILLED = """
import os, signal, sys
from tritonstore.maintenance import runs
from tritonstore.settings import Settings
steps = int(sys.argv[2])
def counted(real):
    def call(*args, **kwargs):
        global steps
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call
for name in ("unlink", "replace", "open"):
    setattr(os, name, counted(getattr(os, name)))
runs.compact(Settings.load(cache_folder=sys.argv[1]), float(sys.argv[3]))
"""


def test_killed_at_any_step_it_counts_each_process_once(tmp_path: Path) -> None:
    killed = 0
    for steps in range(0, 24):
        cache = tmp_path / str(steps)
        settings = Settings.load(cache_folder=cache)
        for number in range(4):
            put(cache / "runs", record("a", started=STARTED + number), f"host-{number}-aa")
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", KILLED, str(cache), str(steps), str(LATER)]
        done = subprocess.run(command, env=environ, timeout=240, check=False)
        killed += done.returncode != 0
        assert calls(settings) == {"a": 40}
        assert compact(settings, LATER).busy is False
        assert calls(settings) == {"a": 40}
        assert len([name for name in os.listdir(cache / "runs") if name.endswith(".run")]) == 1
    assert 8 < killed < 24
