from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.synthetic import entry, fill, place
from tritonstore.backends.base import Record
from tritonstore.backends.files import FilesBackend
from tritonstore.backends.memory import MemoryBackend
from tritonstore.entry import encode
from tritonstore.errors import StoreError
from tritonstore.maintenance.inventory import Filter
from tritonstore.maintenance.prune import Installed, Plan, clear, installed_toolchain, prune, sweep

HOUR, DAY = 3600.0, 86400.0


def left(root: Path) -> set[str]:
    return {record.digest for record in FilesBackend(str(root)).scan()}


@pytest.fixture
def digests(tmp_path: Path) -> list[str]:
    """Ten entries of about equal size, one a day, the youngest first."""
    made = [entry(number, torch="2.13.0" if number < 5 else "2.11.0", arch=90 - number) for number in range(10)]
    return fill(str(tmp_path), made, used=time.time() - HOUR, apart=DAY)


def test_by_age(tmp_path: Path, digests: list[str]) -> None:
    outcome = prune(FilesBackend(str(tmp_path)), Plan(max_age=3.5 * DAY))
    assert left(tmp_path) == set(digests[:4])
    assert (outcome.entries, outcome.removed, outcome.old, outcome.surplus, outcome.stale) == (10, 6, 6, 0, 0)


def test_by_size_the_least_recently_used_first(tmp_path: Path, digests: list[str]) -> None:
    sizes = [os.path.getsize(place(str(tmp_path), digest)) for digest in digests]
    outcome = prune(FilesBackend(str(tmp_path)), Plan(max_size=sum(sizes[:3]) + 10))
    assert left(tmp_path) == set(digests[:3])
    assert outcome.surplus == 7
    assert (outcome.size, outcome.removed_size) == (sum(sizes), sum(sizes[3:]))


def test_by_size_within_one_hour(tmp_path: Path) -> None:
    """Last use is only known to the hour, so within one any will do; but no more than needed."""
    digests = fill(str(tmp_path), [entry(number) for number in range(50)], used=1_700_000_000)
    size = os.path.getsize(place(str(tmp_path), digests[0]))
    prune(FilesBackend(str(tmp_path)), Plan(max_size=20 * size))
    assert 15 <= len(left(tmp_path)) <= 21
    assert sum(record.size for record in FilesBackend(str(tmp_path)).scan()) <= 20 * size


def test_nothing_goes_where_all_fits(tmp_path: Path, digests: list[str]) -> None:
    assert prune(FilesBackend(str(tmp_path)), Plan(max_size=1 << 30, max_age=90 * DAY)).removed == 0
    assert prune(FilesBackend(str(tmp_path)), Plan()).removed == 0
    assert left(tmp_path) == set(digests)


def test_one_dated_far_ahead_is_old(tmp_path: Path) -> None:
    fill(str(tmp_path), [entry(1)], used=time.time() + 30 * DAY)
    assert prune(FilesBackend(str(tmp_path)), Plan(max_age=DAY)).old == 1


def test_stale_toolchains(tmp_path: Path, digests: list[str]) -> None:
    outcome = prune(FilesBackend(str(tmp_path)), Plan(stale=Installed("2.13.0", "3.7.1")))
    assert left(tmp_path) == set(digests[:5])
    assert outcome.stale == 5


def test_a_filter_narrows_the_limits(tmp_path: Path, digests: list[str]) -> None:
    outcome = prune(FilesBackend(str(tmp_path)), Plan(max_age=6.5 * DAY, only=Filter(toolchains=["torch 2.11*"])))
    assert left(tmp_path) == set(digests[:7])
    assert outcome.entries == 5


def test_a_filter_alone_takes_all_it_names(tmp_path: Path, digests: list[str]) -> None:
    prune(FilesBackend(str(tmp_path)), Plan(only=Filter(kernels=["_kernel_3", "_kernel_4"])))
    assert left(tmp_path) == set(digests) - set(digests[3:5])


def test_damage_is_taken_by_no_filter_and_by_age_as_all(tmp_path: Path, digests: list[str]) -> None:
    Path(place(str(tmp_path), digests[0])).write_bytes(b"damage")
    prune(FilesBackend(str(tmp_path)), Plan(only=Filter(kernels=["*"])))
    assert left(tmp_path) == {digests[0]}
    os.utime(place(str(tmp_path), digests[0]), (1, 1))
    assert prune(FilesBackend(str(tmp_path)), Plan(max_age=DAY)).removed == 1


def test_a_dry_run_says_the_same_and_removes_nothing(tmp_path: Path, digests: list[str]) -> None:
    backend = FilesBackend(str(tmp_path))
    for plan in (Plan(max_age=8.5 * DAY), Plan(max_size=5000), Plan(only=Filter(kernels=["_kernel_1"]))):
        tried = prune(backend, plan, dry_run=True)
        assert left(tmp_path) == set(digests)
        assert tried.removed
        assert prune(backend, plan) == tried
        digests = sorted(left(tmp_path))


def test_clear_removes_entries_and_nothing_else(tmp_path: Path, digests: list[str]) -> None:
    others = [
        tmp_path / "README",
        tmp_path / "v1" / "notes",
        tmp_path / "v1" / digests[0][:2] / "letter",
        tmp_path / "v1" / "locks" / "00",
        tmp_path / "v0" / "ab" / ("ab" * 32),
    ]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    Path(place(str(tmp_path), digests[1])).write_bytes(b"damage")
    outcome = clear(FilesBackend(str(tmp_path)))
    assert outcome.removed == 10
    assert left(tmp_path) == set()
    assert all(path.read_text() == "mine" for path in others)


def test_what_killed_processes_left(tmp_path: Path, digests: list[str]) -> None:
    shard = tmp_path / "v1" / digests[0][:2]
    old, young = shard / ".host.1.00000000000000ab.tmp", shard / ".host.2.00000000000000cd.tmp"
    other = tmp_path / ".host.3.00000000000000ef.tmp"
    for path in (old, young, other):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))
    assert sweep(FilesBackend(str(tmp_path))) == 1
    assert not old.exists()
    assert young.exists()
    assert other.exists()
    assert sweep(MemoryBackend()) == 0
    assert sweep(FilesBackend(str(tmp_path / "missing"))) == 0


def test_a_store_that_fails_is_an_error() -> None:
    class Broken(MemoryBackend):
        def delete(self, digest: str) -> bool:
            raise StoreError("read-only", self.url, "delete")

    backend = Broken()
    backend.put(entry(1).digest, encode(entry(1)))
    with pytest.raises(StoreError, match="read-only"):
        clear(backend)


def test_constant_memory(tmp_path: Path) -> None:
    """Only sums by the hour are held, however many entries there are."""

    class Many(MemoryBackend):
        def scan(self) -> Iterator[Record]:
            for number in range(200_000):
                yield Record(f"{number:064x}", 10, 1_700_000_000.0 + number % 7200)

        def delete(self, digest: str) -> bool:
            return True

    import tracemalloc

    tracemalloc.start()
    try:
        outcome = prune(Many(), Plan(max_size=1_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.removed == 100_000
    assert peak < 1 << 20


def test_the_installed_toolchain_is_read_and_not_imported() -> None:
    import torch
    import triton

    assert installed_toolchain() == Installed(str(torch.__version__), triton.__version__)


def test_an_entry_that_does_not_say_is_not_called_stale() -> None:
    made = entry(1)
    made.detail.clear()
    assert not Installed("2.13.0", "3.7.1").is_stale(made)
