"""Ctrl-C and other exceptions on the way into and out of a claim: nobody may wait for a flight that nobody lands."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest

from tests.backends.contract import digest
from tests.support.flights import OneLease, flight, nothing, run
from tritonstore.counters import Counters
from tritonstore.flight import Flight


class InterruptedLock:
    """A lock that the `victim` (a thread) is interrupted in, just after it has let go of it; once."""

    def __init__(self) -> None:
        self.inner = threading.Lock()
        self.victim: int | None = None

    def __enter__(self) -> None:
        self.inner.acquire()

    def __exit__(self, *details: object) -> None:
        self.inner.release()
        if self.victim == threading.get_ident():
            self.victim = None
            raise KeyboardInterrupt


@pytest.mark.parametrize("leased", [False, True])
def test_an_interrupt_between_taking_the_turn_and_using_it_gives_the_turn_back(leased: bool) -> None:
    it, counters, _ = flight(OneLease(True) if leased else None)
    lock = it._lock = InterruptedLock()  # type: ignore[assignment]
    lock.victim = threading.get_ident()
    with pytest.raises(KeyboardInterrupt), it.claim(digest(1), nothing):
        pytest.fail("the block was entered")
    assert it._flying == {}
    with it.claim(digest(1), nothing) as outcome:
        assert outcome == ("analyse", None)
    assert counters.snapshot()["lease_waits"] == 0


def second_worker(it: Flight, counters: Counters, inside: threading.Event) -> Callable[[], None]:
    """Claims the digest once another thread is inside, and tells by the counters whether it had to wait for ever."""

    def work() -> None:
        assert inside.wait(timeout=60)
        with it.claim(digest(1), nothing) as outcome:
            assert outcome == ("analyse", None)

    return work


def interrupted_worker(it: Flight, counters: Counters, inside: threading.Event) -> Callable[[], None]:
    """Holds the claim until the other waits for it, and is interrupted on the way out."""

    def work() -> None:
        with contextlib.suppress(KeyboardInterrupt), it.claim(digest(1), nothing):
            inside.set()
            while counters.snapshot()["lease_waits"] < 1:
                threading.Event().wait(0.001)
            it._lock.victim = threading.get_ident()  # type: ignore[attr-defined]

    return work


def test_an_interrupt_on_the_way_out_wakes_the_others() -> None:
    counters, inside = Counters(), threading.Event()
    it = Flight(None, 50.0, counters)
    it._lock = InterruptedLock()  # type: ignore[assignment]
    run([make(it, counters, inside) for make in (interrupted_worker, second_worker)])
    assert counters.snapshot()["lease_timeouts"] == 0
    assert it._flying == {}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a fault that no lease may have")])
def test_a_release_that_raises_still_ends_the_flight(error: BaseException) -> None:
    class Stuck(OneLease):
        def release(self) -> None:
            raise error

    it, _, _ = flight(Stuck(True))
    with pytest.raises(type(error)), it.claim(digest(1), nothing):
        pass
    assert it._flying == {}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the store is gone")])
def test_a_look_for_the_answer_that_raises_ends_the_flight(error: BaseException) -> None:
    def ready() -> str | None:
        raise error

    source = OneLease(True)
    it, _, _ = flight(source)
    with pytest.raises(type(error)), it.claim(digest(1), ready):
        pytest.fail("the block was entered")
    assert it._flying == {}
    assert source.released == 1


def test_an_interrupted_waiter_leaves_the_flight_it_waited_for() -> None:
    it, _, _ = flight(None)
    theirs = threading.Event()
    it._flying[digest(1)] = theirs

    def interrupted(timeout: float) -> bool:
        raise KeyboardInterrupt

    theirs.wait = interrupted  # type: ignore[assignment,method-assign]
    with pytest.raises(KeyboardInterrupt), it.claim(digest(1), nothing):
        pytest.fail("the block was entered")
    assert it._flying == {digest(1): theirs}
    assert not theirs.is_set()
