"""Exceptions that no backend should raise: faults like any other, told without their texts, which may hold secrets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.contract import digest
from tests.test_store import ANSWER, key
from tritonstore.backends.base import Lease
from tritonstore.backends.memory import MemoryBackend
from tritonstore.backends.wrappers import ReadOnly
from tritonstore.counters import Counters
from tritonstore.errors import StoreError
from tritonstore.flight import Flight
from tritonstore.settings import Settings
from tritonstore.store import AnalysisStore
from tritonstore.tiers import SET_ASIDE_AFTER, Tiers


class Odd(MemoryBackend):
    """Raises what a library may raise: here the UnicodeError of a host name."""

    asked = 0

    def fail(self, *_: Any) -> Any:
        self.asked += 1
        raise UnicodeError("label of s3cret too long")

    get = put = delete = lease = close = fail


def test_any_exception_is_a_fault_and_costs_the_other_tiers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    odd, far, counters = Odd(), MemoryBackend(), Counters()
    tiers = Tiers([odd, far], counters)
    for n in range(SET_ASIDE_AFTER + 2):
        assert tiers.put(digest(n), b"x") == 1
        assert tiers.get(digest(n)) == (b"x", 1)
        assert tiers.lease(digest(n)) is None
    assert tiers.set_aside("read") == tiers.set_aside("write") == (odd.url,)
    tiers.close()
    assert counters.snapshot()["faults"]["memory-get"] == SET_ASIDE_AFTER
    assert "UnicodeError" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("call", ["get", "lease"])
def test_strict_raises_it_as_a_store_error_without_its_text(call: str) -> None:
    with pytest.raises(StoreError, match=r"memory:: .* failed: UnicodeError$") as raised:
        getattr(Tiers([Odd()], strict=True), call)(digest(1))
    assert (raised.value.url, raised.value.operation) == ("memory:", call)


def test_no_exception_leaves_a_store_that_is_not_strict() -> None:
    class OddKey:
        digest, parts = key(1).digest, key(1).parts

        def describe(self) -> dict[str, Any]:
            raise RuntimeError("s3cret")

    counters = Counters()
    store = AnalysisStore(Settings.load({"HOME": "/h"}), Tiers([Odd()], counters), counters)
    store.publish(OddKey(), ANSWER, 0.1)
    assert store.lookup(key(1)) is None
    with store.claim(key(1)) as outcome:
        assert outcome == ("analyse", None)
        store.publish(key(1), ANSWER, 0.1)

    def broken(digest: str, data: bytes) -> None:
        raise RuntimeError("s3cret")

    store.on_entry = broken
    store.publish(key(2), ANSWER, 0.1)
    assert counters.snapshot()["faults"]["publish"] == 2


def test_delete_reaches_every_tier_that_is_written() -> None:
    near, only_read, odd, far, counters = MemoryBackend(), MemoryBackend(), Odd(), MemoryBackend(), Counters()
    for backend in (near, only_read, far):
        backend.put(digest(1), b"wrong")
    tiers = Tiers([near, ReadOnly(only_read), odd, far], counters, strict=True)
    assert tiers.delete(digest(1)) == 2
    assert [backend.get(digest(1)) for backend in (near, only_read, far)] == [None, b"wrong", None]
    assert counters.snapshot()["faults"] == {"memory-3-delete": 1}
    assert Tiers([only_read], writable=False).delete(digest(1)) == 0
    assert only_read.get(digest(1)) == b"wrong"


class Stuck(MemoryBackend):
    """Somebody holds each of its leases for ever."""

    asked = 0

    def lease(self, digest: str) -> Lease:  # type: ignore[override]
        stuck = self

        class Held:
            def try_acquire(self) -> bool:
                stuck.asked += 1
                return False

            def release(self) -> None:
                pass

        return Held()


def test_a_stuck_holder_costs_one_wait_and_not_one_a_digest() -> None:
    counters, stuck = Counters(), Stuck()
    tiers = Tiers([stuck], counters)
    flight = Flight(tiers, 0.0, counters)
    for n in range(5):
        with flight.claim(digest(n), lambda: None) as outcome:
            assert outcome == ("analyse", None)
    assert stuck.asked == 1
    assert counters.snapshot()["lease_timeouts"] == 1
    assert (tiers.set_aside("lease"), tiers.set_aside("read")) == ((stuck.url,), ())
