from __future__ import annotations

import json
import logging
import os
import threading

import pytest

from tritonstore.counters import Counters


def test_a_snapshot_is_plain_and_complete() -> None:
    counters = Counters()
    counters.hit("file", 0.5)
    counters.hit("memory", 0.25)
    counters.hit("memory", 0.25)
    counters.miss()
    counters.share(2.0)
    counters.bypass("heuristics")
    counters.analysis(0.125)
    counters.unproven("failed")
    counters.publish()
    counters.lease_wait()
    counters.lease_timeout()
    counters.spend("key", 0.5)
    counters.spend("store", 0.75)
    expected = {
        "calls": 5,
        "hits": {"file": 1, "memory": 2},
        "misses": 1,
        "shared": 1,
        "bypasses": {"heuristics": 1},
        "analyses": 1,
        "unproven": {"failed": 1},
        "publishes": 1,
        "faults": {},
        "lease_waits": 1,
        "lease_timeouts": 1,
        "seconds_saved": 3.0,
        "seconds_analysing": 0.125,
        "seconds_key": 0.5,
        "seconds_store": 0.75,
    }
    assert counters.snapshot() == expected
    assert json.loads(json.dumps(counters.snapshot())) == expected
    counters.snapshot()["hits"]["file"] = 99
    assert counters.snapshot() == expected


def test_threads_lose_no_count() -> None:
    counters = Counters()

    def work() -> None:
        for _ in range(2000):
            counters.hit("file", 1.0)
            counters.miss()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = counters.snapshot()
    assert (snapshot["hits"], snapshot["misses"], snapshot["calls"]) == ({"file": 16000}, 16000, 32000)
    assert snapshot["seconds_saved"] == 16000.0


def test_one_warning_a_topic_and_every_fault_counted(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    with caplog.at_level(logging.WARNING, "tritonstore"):
        for _ in range(3):
            counters.fault("file-get", "cannot read")
            counters.fault("file-put", "cannot write", topic="file:///x")
            counters.fault("file-lease", "cannot lock", topic="file:///x")
    assert counters.snapshot()["faults"] == {"file-get": 3, "file-put": 3, "file-lease": 3}
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "tritonstore: cannot read",
        "tritonstore: cannot write",
    ]


def test_a_forked_child_starts_from_zero_even_if_a_thread_held_the_lock() -> None:
    counters = Counters()
    counters.miss()
    with counters._lock:
        child = os.fork()
        if child == 0:
            counters.miss()
            os._exit(counters.snapshot()["misses"])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert counters.snapshot()["misses"] == 1


def test_an_unknown_step_is_an_error() -> None:
    with pytest.raises(KeyError):
        Counters().spend("lunch", 1.0)
