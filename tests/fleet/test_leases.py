"""One analysis for each digest over processes that share a Redis; a holder that dies holds nobody up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.flights import ask_all
from tests.test_store_processes import CLAIM, PUBLISH, Start, Worker


@pytest.fixture
def start(redis_port: int, redis_client: Any) -> Iterator[Start]:
    workers: list[Worker] = []

    def start(prelude: str = "", options: str = "", near: str = "") -> Worker:
        workers.append(Worker(f"{near}redis://127.0.0.1:{redis_port}?request_timeout=60{options}", prelude))  # type: ignore[arg-type]
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def test_a_waiter_gets_the_answer_as_soon_as_it_is_published(start: Start) -> None:
    holder, waiter = start(), start()
    assert (holder.hear(), waiter.hear()) == ("ready", "ready")
    assert holder.ask(CLAIM) == "analyse"
    assert waiter.ask(CLAIM) == "waiting"
    # Not given back: the waiter looks for the answer, not only for the lease.
    assert holder.ask("store.publish(key(1), ANSWER, 0.5)\nsay('published')") == "published"
    assert waiter.hear() == "answer"
    counts = waiter.ask("say(store.counters.snapshot())")
    assert (counts["lease_waits"], counts["lease_timeouts"], counts["shared"]) == (1, 0, 1)


def test_a_waiter_goes_on_when_the_holder_is_killed(start: Start) -> None:
    holder, waiter = start(options="&lease_duration=3s"), start(options="&lease_duration=3s")
    assert (holder.hear(), waiter.hear()) == ("ready", "ready")
    assert holder.ask(CLAIM) == "analyse"
    assert waiter.ask(CLAIM) == "waiting"
    holder.kill()
    assert waiter.hear() == "analyse"
    assert waiter.ask(PUBLISH) == "published"
    assert waiter.ask("say(store.counters.snapshot()['lease_timeouts'])") == 0


def test_a_waiter_goes_on_when_the_holder_hangs_longer_than_the_bound(start: Start) -> None:
    holder, waiter = start(), start("store._flight._wait = 0.5")
    assert (holder.hear(), waiter.hear()) == ("ready", "ready")
    assert holder.ask(CLAIM) == "analyse"
    assert waiter.ask(CLAIM) == "waiting"
    assert waiter.hear() == "analyse"
    assert waiter.ask("say(store.counters.snapshot()['lease_timeouts'])") == 1


def test_one_analysis_for_each_digest_over_all_processes(start: Start, tmp_path: Any) -> None:
    """Each process has a local tier of its own, with locks that the others do not see."""
    workers = [
        start("store._flight._pause = pause", options="&lease_duration=60s", near=f"file://{tmp_path}/{me},")
        for me in range(4)
    ]
    for worker in workers:
        assert worker.hear() == "ready"
    for me, worker in enumerate(workers):
        worker.send(ask_all(2 * me + 1))
    analysed: list[int] = []
    for worker in workers:
        mine, counts = worker.hear()
        analysed += mine
        assert (counts["lease_timeouts"], counts["faults"]) == (0, {})
    assert sorted(analysed) == list(range(32))
