"""Redis dies, hangs, refuses or is full while a real export runs: the export does not notice.

Every export has the graphs of PyTorch alone, gives one warning, and is held up for a bounded time: BOUND seconds with
the default timeouts (connect 1 s, request 2 s). A put, the lease's release and a look-up may each wait for one request;
then the tier is set aside for good. Measured is the time inside the backends, not that of the export, which depends on
the machine.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.fleet.workload import KERNELS, Outcome, alone, at_put, with_store
from tests.support.servers import black_hole, free_port, no_connection, redis_server, s3_url
from tritonstore.backends.objectstore import ObjectStoreBackend
from tritonstore.backends.redis import RedisBackend

BOUND = 6.0  # seconds, beyond what the export itself takes
BUSY = 3.0  # seconds more, for a machine that is busy; one more timeout for each kernel would be 16


@pytest.fixture(scope="module")
def expected() -> str:
    return alone()


@pytest.fixture(autouse=True)
def spent(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each request to a server, as they come."""
    SPENT.clear()
    for backend in (RedisBackend, ObjectStoreBackend):

        def timed(self: Any, *arguments: Any, call: Any = backend._call) -> Any:
            started = time.monotonic()
            try:
                return call(self, *arguments)
            finally:
                SPENT.append(time.monotonic() - started)

        monkeypatch.setattr(backend, "_call", timed)
    return SPENT


SPENT: list[float] = []


def check(outcome: Outcome, expected: str, *, analyses: int = KERNELS, warning: str) -> None:
    assert outcome.text == expected
    assert len(outcome.warnings) == 1, outcome.warnings
    assert warning in outcome.warnings[0]
    assert outcome.stats["analyses"] == analyses
    assert outcome.stats["lease_timeouts"] == 0
    assert 0 < sum(SPENT) < BOUND + BUSY
    SPENT.clear()
    faults = {name: count for name, count in outcome.stats["faults"].items() if not name.startswith("set-aside")}
    assert sum(faults.values()) <= 6, "a server that is dead is asked a few times, not at each call"


def set_aside(outcome: Outcome, *directions: str) -> bool:
    return {f"set-aside-{direction}" for direction in directions} <= set(outcome.stats["faults"])


def test_without_a_fault_there_is_no_warning(expected: str, tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        for analyses in (KERNELS, 0):
            outcome = with_store(f"redis://127.0.0.1:{server.port}?request_timeout=60")
            assert (outcome.text, outcome.warnings) == (expected, [])
            assert (outcome.stats["analyses"], outcome.stats["faults"]) == (analyses, {})


@pytest.mark.parametrize("below", [False, True], ids=["alone", "below a local tier"])
def test_killed_in_the_middle(expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: bool) -> None:
    with redis_server(tmp_path / "redis") as server:
        at_put(monkeypatch, RedisBackend, 3, server.kill)
        near = f"file://{tmp_path}/near," if below else ""
        outcome = with_store(f"{near}redis://127.0.0.1:{server.port}")
        check(outcome, expected, warning="no connection")
        assert set_aside(outcome, "read", "write", "lease")
        assert outcome.stats["publishes"] == (KERNELS if below else 3)


def test_paused_in_the_middle(expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server(tmp_path) as server:
        at_put(monkeypatch, RedisBackend, 3, server.pause)
        outcome = with_store(f"redis://127.0.0.1:{server.port}")
        check(outcome, expected, warning="no answer in time")
        assert set_aside(outcome, "read", "write", "lease")


def test_paused_while_it_answers_again_is_used_on(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One timeout is a stall, and costs nothing but itself."""
    with redis_server(tmp_path) as server:
        at_put(monkeypatch, RedisBackend, 3, server.pause)
        get = RedisBackend.get

        def resumed(self: RedisBackend, digest: str) -> bytes | None:
            try:
                return get(self, digest)
            finally:
                server.resume()

        monkeypatch.setattr(RedisBackend, "get", resumed)
        outcome = with_store(f"redis://127.0.0.1:{server.port}?request_timeout=1")
        check(outcome, expected, warning="no answer in time")
        assert not set_aside(outcome, "read")
        assert outcome.stats["publishes"] == KERNELS


@pytest.mark.parametrize("kind", ["silent", "unconnected", "refused"])
def test_a_black_hole(expected: str, kind: str) -> None:
    with contextlib.ExitStack() as stack:
        port = free_port() if kind == "refused" else stack.enter_context(
            black_hole() if kind == "silent" else no_connection()
        )  # fmt: skip
        outcome = with_store(f"redis://127.0.0.1:{port}")
    check(outcome, expected, warning="no connection" if kind == "refused" else "no answer in time")
    assert set_aside(outcome, "read", "write", "lease")


def test_a_wrong_password(expected: str, tmp_path: Path) -> None:
    with redis_server(tmp_path, "--requirepass", "right-s3cret") as server:
        outcome = with_store(f"redis://:wrong-s3cret@127.0.0.1:{server.port}")
    check(outcome, expected, warning="the server refuses the user or password")
    assert "s3cret" not in str(outcome)
    assert set_aside(outcome, "read", "write")


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[int]:
    with redis_server(tmp_path / "primary", "--repl-diskless-sync-delay", "0") as primary:
        arguments = ("--replicaof", "127.0.0.1", str(primary.port))
        with redis_server(tmp_path / "replica", *arguments) as server, redis.Redis(port=server.port) as client:
            while client.info("replication")["master_link_status"] != "up":
                pass
            yield server.port


def test_a_read_only_replica(expected: str, replica: int) -> None:
    outcome = with_store(f"redis://127.0.0.1:{replica}")
    check(outcome, expected, warning="a read-only replica; name its primary, or add write=none")
    assert set_aside(outcome, "write")
    assert not set_aside(outcome, "read")
    quiet = with_store(f"redis://127.0.0.1:{replica}?write=none&request_timeout=60")
    assert (quiet.text, quiet.warnings, quiet.stats["faults"]) == (expected, [], {})


def test_a_full_server_still_answers(expected: str, tmp_path: Path) -> None:
    with redis_server(tmp_path) as server, redis.Redis(port=server.port) as client:
        url = f"redis://127.0.0.1:{server.port}?request_timeout=60"
        with_store(url)
        kept = sorted(client.keys())[: KERNELS // 2]
        client.delete(*(set(client.keys()) - set(kept)))
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        outcome = with_store(url)
        check(outcome, expected, analyses=KERNELS // 2, warning="the server is full; raise its maxmemory")
        assert outcome.stats["hits"]["redis"] == KERNELS // 2
        assert set_aside(outcome, "write")
        assert not set_aside(outcome, "read")
        client.config_set("maxmemory", 0)


@pytest.mark.usefixtures("s3_credentials")
@pytest.mark.parametrize("kind", ["silent", "unconnected", "refused"])
def test_an_object_store_that_does_not_answer(expected: str, kind: str) -> None:
    with contextlib.ExitStack() as stack:
        silent = {"silent": black_hole, "unconnected": no_connection}.get(kind)
        port = stack.enter_context(silent()) if silent else free_port()
        outcome = with_store(s3_url(port, "x"))
    check(outcome, expected, warning="no answer in time")
    assert set_aside(outcome, "read", "write")
