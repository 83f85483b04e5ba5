from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.backends.contract import BackendContract, digest
from tests.backends.wrapped import AsBackend
from tritonstore.backends.base import Backend
from tritonstore.backends.files import FilesBackend
from tritonstore.backends.memory import MemoryBackend
from tritonstore.counters import Counters
from tritonstore.errors import StoreUnavailable, StoreUnreachable
from tritonstore.tiers import SET_ASIDE_AFTER, Tiers


class Faulty(MemoryBackend):
    """Raises as long as `down`; counts what it was asked."""

    def __init__(self, url: str = "faulty://host") -> None:
        super().__init__()
        self.url = url
        self.down = True
        self.asked = 0

    def _maybe(self, operation: str) -> None:
        self.asked += 1
        if self.down:
            raise StoreUnavailable(f"{self.url}: {operation} failed", self.url, operation)

    def get(self, digest: str) -> bytes | None:
        self._maybe("get")
        return super().get(digest)

    def put(self, digest: str, data: bytes) -> None:
        self._maybe("put")
        super().put(digest, data)

    def delete(self, digest: str) -> bool:
        self._maybe("delete")
        return super().delete(digest)

    def lease(self, digest: str) -> None:
        self._maybe("lease")

    def close(self) -> None:
        self._maybe("close")


class TestTiersKeepTheContract(BackendContract):
    @pytest.fixture
    def bare(self, tmp_path: Path) -> Backend:
        return AsBackend(Tiers([MemoryBackend(), FilesBackend(str(tmp_path / "store"))], strict=True))

    def raw_read(self, backend: Backend, digest: str) -> bytes | None:
        assert isinstance(backend, AsBackend)
        return backend.tiers.backends[1].get(digest)

    def raw_write(self, backend: Backend, digest: str, data: bytes) -> None:
        assert isinstance(backend, AsBackend)
        path = Path(backend.tiers.backends[1].root) / "v1" / digest[:2] / digest  # type: ignore[attr-defined]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def test_a_hit_lower_down_fills_the_tiers_above_and_only_those() -> None:
    near, middle, far, farther = backends = [MemoryBackend() for _ in range(4)]
    tiers = Tiers(backends)
    far.put(digest(1), b"x")
    assert tiers.get(digest(1)) == (b"x", 2)
    assert near.get(digest(1)) == middle.get(digest(1)) == b"x"
    assert farther.get(digest(1)) is None
    assert tiers.get(digest(1)) == (b"x", 0)


def test_empty_bytes_are_a_hit() -> None:
    near, far = MemoryBackend(), MemoryBackend()
    far.put(digest(1), b"")
    assert Tiers([near, far]).get(digest(1)) == (b"", 1)
    assert near.get(digest(1)) == b""


def test_put_goes_to_all_and_says_to_how_many() -> None:
    near, broken, far = MemoryBackend(), Faulty(), MemoryBackend()
    assert Tiers([near, broken, far]).put(digest(1), b"x") == 2
    assert near.get(digest(1)) == far.get(digest(1)) == b"x"


def test_what_is_not_accepted_is_deleted_does_not_spread_and_the_next_tier_is_asked() -> None:
    near, middle, far = MemoryBackend(), MemoryBackend(), MemoryBackend()
    middle.put(digest(1), b"bad")
    far.put(digest(1), b"good")
    assert Tiers([near, middle, far]).get(digest(1), lambda data: data == b"good") == (b"good", 2)
    assert near.get(digest(1)) == middle.get(digest(1)) == b"good"
    near.put(digest(2), b"bad")
    assert Tiers([near]).get(digest(2), lambda data: False) is None
    assert near.get(digest(2)) is None


def test_bytes_that_another_worker_has_healed_meanwhile_are_not_deleted() -> None:
    backend = MemoryBackend()
    backend.put(digest(1), b"bad")

    def accept(data: bytes) -> bool:
        backend.put(digest(1), b"healed")
        return False

    assert Tiers([backend]).get(digest(1), accept) is None
    assert backend.get(digest(1)) == b"healed"


def test_not_writable_writes_nothing() -> None:
    near, far = MemoryBackend(), MemoryBackend()
    far.put(digest(1), b"x")
    far.put(digest(2), b"bad")
    tiers = Tiers([near, far], writable=False)
    assert tiers.get(digest(1)) == (b"x", 1)
    assert tiers.get(digest(2), lambda data: False) is None
    assert tiers.put(digest(3), b"x") == 0
    assert tiers.lease(digest(1)) is None
    assert list(near.scan()) == []
    assert far.get(digest(2)) == b"bad"


def test_a_fault_is_counted_and_warned_of_once_and_three_in_a_row_set_the_tier_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters, broken, far = Counters(), Faulty(), MemoryBackend()
    tiers = Tiers([broken, far], counters)
    far.put(digest(1), b"x")
    with caplog.at_level(logging.WARNING, "tritonstore"):
        assert tiers.get(digest(2)) is None
        assert tiers.put(digest(2), b"y") == 1
        assert tiers.get(digest(3)) is None
        assert (tiers.set_aside("read"), tiers.set_aside("write")) == ((), (broken.url,))
        assert tiers.get(digest(3)) is None
        assert tiers.set_aside("read") == (broken.url,)
        for n in range(5):
            assert tiers.get(digest(1)) == (b"x", 1)
            assert tiers.put(digest(n + 10), b"z") == 1
    assert broken.asked == SET_ASIDE_AFTER + 1
    assert tiers.set_aside("lease") == (broken.url,)
    assert counters.snapshot()["faults"] == {
        "faulty-get": 3,
        "faulty-put": 1,
        "set-aside-lease": 1,
        "set-aside-read": 1,
        "set-aside-write": 1,
    }
    assert len(caplog.records) == 1


def test_a_success_in_between_starts_the_row_anew() -> None:
    broken = Faulty()
    tiers = Tiers([broken])
    for _ in range(5):
        broken.down = True
        tiers.get(digest(1))
        tiers.get(digest(1))
        broken.down = False
        tiers.get(digest(1))
        tiers.put(digest(1), b"x")
    assert (tiers.set_aside("read"), tiers.set_aside("write")) == ((), ())
    assert broken.asked == 20


def test_a_store_that_cannot_be_written_is_still_read(tmp_path: Path) -> None:
    class Full(Faulty):
        def get(self, digest: str) -> bytes | None:
            return b"x"

    full = Full()
    tiers = Tiers([full])
    for _ in range(5):
        assert tiers.put(digest(1), b"x") == 0
        assert tiers.lease(digest(1)) is None
        assert tiers.get(digest(1)) == (b"x", 0)
    assert full.asked == SET_ASIDE_AFTER + 2, "leases are no longer asked for where nothing can be written"
    assert (tiers.set_aside("read"), tiers.set_aside("write")) == ((), (full.url,))


class Clock:
    """Stands still but when a backend takes its time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Hanging(Faulty):
    """Answers nothing, after `seconds`."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__("hanging://host")
        self.clock, self.seconds = clock, seconds

    def _maybe(self, operation: str) -> None:
        self.asked += 1
        self.clock.now += self.seconds
        raise StoreUnreachable(f"{self.url}: {operation} failed", self.url, operation)


@pytest.mark.parametrize("first", ["get", "put", "lease"])
@pytest.mark.parametrize(("seconds", "times"), [(0.0, 3), (1.0, 3), (2.0, 2), (60.0, 1)])
def test_a_dead_or_hanging_server_costs_two_or_three_timeouts_in_all(
    caplog: pytest.LogCaptureFixture, first: str, seconds: float, times: int
) -> None:
    clock = Clock()
    hanging, counters = Hanging(clock, seconds), Counters()
    tiers = Tiers([MemoryBackend(), hanging], counters, clock=clock)
    calls = [lambda: tiers.get(digest(1)), lambda: tiers.put(digest(2), b"x"), lambda: tiers.lease(digest(1))]
    names = ["get", "put", "lease"]
    while names[0] != first:
        names.append(names.pop(0))
        calls.append(calls.pop(0))
    for _ in range(10):
        for call in calls:
            call()
    assert hanging.asked == times
    assert clock.now == 1000.0 + seconds * times
    assert [tiers.set_aside(direction) for direction in ("read", "write", "lease")] == [(hanging.url,)] * 3
    assert len(caplog.records) == 1
    faults = counters.snapshot()["faults"]
    assert sum(count for name, count in faults.items() if name.startswith("hanging-")) == times


def test_a_lease_that_hangs_is_taken_for_granted_and_then_not_asked_for() -> None:
    clock = Clock()

    class Lease:
        asked = released = 0

        def try_acquire(self) -> bool:
            Lease.asked += 1
            clock.now += 2.0
            raise StoreUnreachable("x://h: lease failed", "x://h", "lease")

        def release(self) -> None:
            Lease.released += 1

    class Leasing(MemoryBackend):
        def lease(self, digest: str) -> Lease:  # type: ignore[override]
            return Lease()

    tiers = Tiers([Leasing()], clock=clock)
    held = []
    for _ in range(5):
        lease = tiers.lease(digest(1))
        held.append(lease)
        if lease is not None:
            assert lease.try_acquire() is True
            lease.release()
    assert (Lease.asked, Lease.released) == (2, 2)
    assert held[2:] == [None] * 3


def test_leases_that_fail_do_not_stop_the_writing() -> None:
    class Leaseless(MemoryBackend):
        def lease(self, digest: str) -> None:
            raise StoreUnavailable("x", self.url, "lease")

    tiers = Tiers([Leaseless()])
    for n in range(5):
        assert tiers.lease(digest(n)) is None
    assert (tiers.set_aside("lease"), tiers.set_aside("write")) == (("memory:",), ())
    assert tiers.put(digest(1), b"x") == 1


def test_a_tier_that_cannot_be_filled_does_not_spoil_the_hit() -> None:
    class Full(Faulty):
        def get(self, digest: str) -> bytes | None:
            return None

    far = MemoryBackend()
    far.put(digest(1), b"x")
    assert Tiers([Full(), far]).get(digest(1)) == (b"x", 1)


def test_strict_counts_and_raises() -> None:
    counters = Counters()
    tiers = Tiers([Faulty()], counters, strict=True)
    with pytest.raises(StoreUnavailable):
        tiers.get(digest(1))
    with pytest.raises(StoreUnavailable):
        tiers.put(digest(1), b"x")
    assert counters.snapshot()["faults"] == {"faulty-get": 1, "faulty-put": 1}


def test_closing_never_raises() -> None:
    counters = Counters()
    Tiers([Faulty(), MemoryBackend()], counters, strict=True).close()
    assert counters.snapshot()["faults"] == {"faulty-close": 1}


def test_the_lease_comes_from_the_last_tier_that_has_one(tmp_path: Path) -> None:
    near, far = FilesBackend(str(tmp_path / "near")), FilesBackend(str(tmp_path / "far"))
    lease = Tiers([near, far, MemoryBackend()]).lease(digest(1))
    assert lease is not None
    assert lease.try_acquire()
    lease.release()
    assert sorted(os.listdir(tmp_path)) == ["far"]
    assert Tiers([MemoryBackend()]).lease(digest(1)) is None


def test_names_are_schemes_and_tell_tiers_apart(tmp_path: Path) -> None:
    tiers = Tiers([MemoryBackend(), FilesBackend("/a"), FilesBackend("/b"), Faulty()])
    assert tiers.names == ("memory", "file", "file-2", "faulty")
