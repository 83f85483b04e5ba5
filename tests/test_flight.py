from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from tests.backends.contract import digest
from tests.support.flights import OneLease, flight, nothing, run
from tritonstore.backends.files import FilesBackend
from tritonstore.counters import Counters
from tritonstore.errors import StoreError
from tritonstore.flight import Flight


def test_without_a_lease_source_the_caller_analyses() -> None:
    it, counters, _ = flight(None)
    with it.claim(digest(1), nothing) as outcome:
        assert outcome == ("analyse", None)
    assert counters.snapshot()["lease_waits"] == 0


def test_the_winner_looks_once_more_before_it_analyses() -> None:
    source = OneLease(True)
    it, counters, _ = flight(source)
    with it.claim(digest(1), lambda: "came just now") as outcome:
        assert outcome == ("answer", "came just now")
    assert (source.attempts, source.released) == (1, 1)
    assert counters.snapshot()["lease_waits"] == 0


def test_so_it_does_without_a_lease() -> None:
    it, _, _ = flight(None)
    with it.claim(digest(1), lambda: "came just now") as outcome:
        assert outcome == ("answer", "came just now")
    assert it._flying == {}


def test_an_answer_that_appears_ends_the_wait() -> None:
    source = OneLease(False)
    it, counters, pauses = flight(source)
    answers = iter([None, None, None, "there"])
    with it.claim(digest(1), lambda: next(answers)) as outcome:
        assert outcome == ("answer", "there")
    assert len(pauses) == 3
    assert source.released == 1
    snapshot = counters.snapshot()
    assert (snapshot["lease_waits"], snapshot["lease_timeouts"]) == (1, 0)


def test_a_lease_that_becomes_free_means_analyse() -> None:
    source = OneLease(False, False, True)
    it, _, pauses = flight(source)
    with it.claim(digest(1), nothing) as outcome:
        assert outcome == ("analyse", None)
        assert source.released == 0
    assert source.released == 1
    assert len(pauses) == 2


def test_pauses_grow_from_2_to_50_ms() -> None:
    it, _, pauses = flight(OneLease(*[False] * 30, True))
    with it.claim(digest(1), nothing):
        pass
    assert pauses[0] == pytest.approx(0.002)
    assert pauses[-1] == pytest.approx(0.05)
    assert pauses == sorted(pauses)


def test_the_wait_is_bounded() -> None:
    source = OneLease(False)
    it, counters, _ = flight(source, wait=0.0)
    with it.claim(digest(1), nothing) as outcome:
        assert outcome == ("analyse", None)
    snapshot = counters.snapshot()
    assert (snapshot["lease_waits"], snapshot["lease_timeouts"]) == (1, 1)


def test_a_lease_that_cannot_work_holds_nobody_up() -> None:
    source = OneLease(StoreError("no locks here", "file:///x", "lease"))
    it, counters, pauses = flight(source)
    for _ in range(2):
        with it.claim(digest(1), nothing) as outcome:
            assert outcome == ("analyse", None)
    assert counters.snapshot()["faults"] == {"lease": 2}
    assert pauses == []


def test_unless_strict() -> None:
    source = OneLease(StoreError("no locks here", "file:///x", "lease"))
    it, counters, _ = flight(source, strict=True)
    for _ in range(2):  # twice: the first one must have landed
        with pytest.raises(StoreError), it.claim(digest(1), nothing):
            pass
    assert counters.snapshot()["faults"] == {"lease": 2}
    assert source.released == 2


@pytest.mark.parametrize("error", [RuntimeError("analysis failed"), KeyboardInterrupt()])
def test_a_failed_analysis_lets_the_next_one_try(error: BaseException) -> None:
    source = OneLease(True)
    it, _, _ = flight(source)
    with pytest.raises(type(error)), it.claim(digest(1), nothing):
        raise error
    assert source.released == 1
    with it.claim(digest(1), nothing) as outcome:
        assert outcome == ("analyse", None)


def test_a_thread_that_holds_a_claim_never_waits_for_another(tmp_path: Path) -> None:
    it = Flight(FilesBackend(str(tmp_path)), 600.0)
    with (
        it.claim(digest(1), nothing),
        it.claim(digest(1), nothing) as again,
        it.claim(digest(2), nothing) as other,
    ):
        assert again == other == ("analyse", None)
    assert it._flying == {}


@pytest.mark.parametrize("leased", [False, True])
def test_threads_of_one_process_analyse_once(tmp_path: Path, leased: bool) -> None:
    counters = Counters()
    it = Flight(FilesBackend(str(tmp_path)) if leased else None, 600.0, counters)
    known: dict[str, str] = {}
    outcomes: list[str] = []
    start, waiting = threading.Barrier(8), threading.Event()

    def work() -> None:
        start.wait()
        with it.claim(digest(1), lambda: known.get("answer")) as (kind, answer):
            outcomes.append(kind)
            if kind == "analyse":
                waiting.wait(timeout=60)
                known["answer"] = "x"
            else:
                assert answer == "x"

    def release_when_the_others_wait() -> None:
        start.wait()
        while counters.snapshot()["lease_waits"] < 6:
            waiting.wait(timeout=0.001)
        waiting.set()

    run([work] * 7 + [release_when_the_others_wait])
    assert sorted(outcomes) == ["analyse"] + ["answer"] * 6
    assert it._flying == {}


def test_another_digest_does_not_wait() -> None:
    it = Flight(None, 600.0)
    inside = threading.Event()
    release = threading.Event()

    def first() -> None:
        with it.claim(digest(1), nothing):
            inside.set()
            assert release.wait(timeout=60)

    def second() -> None:
        assert inside.wait(timeout=60)
        with it.claim(digest(2), nothing) as outcome:
            assert outcome == ("analyse", None)
        release.set()

    run([first, second])


def test_after_a_failed_analysis_one_waiter_takes_over() -> None:
    counters = Counters()
    it = Flight(None, 600.0, counters)
    inside = threading.Event()
    outcomes: list[str] = []

    def first() -> None:
        with contextlib.suppress(ZeroDivisionError), it.claim(digest(1), nothing):
            inside.set()
            while counters.snapshot()["lease_waits"] < 1:
                threading.Event().wait(0.001)
            raise ZeroDivisionError

    def second() -> None:
        assert inside.wait(timeout=60)
        with it.claim(digest(1), nothing) as outcome:
            outcomes.append(outcome[0])

    run([first, second])
    assert outcomes == ["analyse"]


def test_a_thread_does_not_wait_for_a_thread_beyond_the_bound() -> None:
    source = OneLease(True)
    it, counters, _ = flight(source, wait=0.0)
    outcomes: list[str] = []

    def second() -> None:
        with it.claim(digest(1), nothing) as outcome:
            outcomes.append(outcome[0])

    with it.claim(digest(1), nothing):
        run([second])
    assert outcomes == ["analyse"]
    snapshot = counters.snapshot()
    assert (snapshot["lease_waits"], snapshot["lease_timeouts"]) == (1, 1)
    assert source.attempts == 1, "the one that is late does not wait for a lease as well"
    assert it._flying == {}
