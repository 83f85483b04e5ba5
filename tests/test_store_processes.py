"""Real processes on one store. Every order is made with messages over pipes, every death is a SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.flights import ask_all
from tests.test_store import ANSWER, entry_path, key
from tritonstore.entry import decode
from tritonstore.store import open_store

ROOT = Path(__file__).parents[1]

# Runs the statements it is sent, one JSON string a line; `say(x)` sends x back.
WORKER = """
import json, sys
def say(value):
    print(json.dumps(value), flush=True)
scope = {"say": say}
exec(json.loads(sys.stdin.readline()), scope)
for line in sys.stdin:
    exec(json.loads(line), scope)
"""

PRELUDE = """
import os, tritonstore.store as module
from tests.test_store import ANSWER, OTHER, key, forget
store = module.open_store(%r)
pause = store._flight._pause
def waiting(seconds):
    if scope_said.setdefault("waiting", True) is True:
        scope_said["waiting"] = False
        say("waiting")
    pause(seconds)
scope_said = {}
store._flight._pause = waiting
"""


class Worker:
    def __init__(self, root: Path, prelude: str = "") -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITONSTORE_STRICT": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.send(PRELUDE % str(root) + prelude + "\nsay('ready')")

    def send(self, code: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the worker has died"
        return json.loads(line)

    def ask(self, code: str) -> Any:
        self.send(code)
        return self.hear()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=60)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=60)
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            return


Start = Callable[..., Worker]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def start(root: Path) -> Iterator[Start]:
    workers: list[Worker] = []

    def start(prelude: str = "") -> Worker:
        workers.append(Worker(root, prelude))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def temporaries(root: Path) -> list[Path]:
    return list(root.rglob("*.tmp"))


CLAIM = """
claim = store.claim(key(1))
say(claim.__enter__()[0])
"""
PUBLISH = """
store.publish(key(1), ANSWER, 0.5)
claim.__exit__(None, None, None)
say("published")
"""
SOFT = """
import tritonstore.backends.leases as leases
leases.is_remote = lambda folder: True
"""


def test_eight_writers_publish_the_same_and_different_answers(root: Path, start: Start) -> None:
    workers = [start() for _ in range(8)]
    for worker in workers:
        assert worker.hear() == "ready"
    for me, worker in enumerate(workers):
        worker.send(f"""
wrong = 0
for n in range(60):
    store.publish(key(n), ANSWER, 0.5)
    store.publish(key(f"{me}-{{n}}"), ANSWER, 0.5)
    forget(store)
    wrong += store.lookup(key(n)) != ANSWER
say([wrong, store.counters.snapshot()])
""")
    for worker in workers:
        wrong, snapshot = worker.hear()
        assert wrong == 0
        assert (snapshot["publishes"], snapshot["hits"], snapshot["faults"]) == (120, {"file": 60}, {})
    store = open_store(str(root))
    records = list(store.tiers.backends[0].scan())
    assert len(records) == 60 + 8 * 60
    for record in records:
        assert decode(store.tiers.backends[0].get(record.digest) or b"").access == ANSWER
    assert temporaries(root) == []


@pytest.mark.parametrize("kind", ["", SOFT], ids=["flock", "soft lease"])
def test_a_waiter_gets_the_answer_of_the_holder(start: Start, kind: str) -> None:
    holder, waiter = start(kind), start(kind)
    assert (holder.hear(), waiter.hear()) == ("ready", "ready")
    assert holder.ask(CLAIM) == "analyse"
    assert waiter.ask(CLAIM) == "waiting"
    assert holder.ask(PUBLISH) == "published"
    assert waiter.hear() == "answer"
    counts = waiter.ask("say(store.counters.snapshot())")
    assert (counts["lease_waits"], counts["lease_timeouts"], counts["shared"]) == (1, 0, 1)


@pytest.mark.parametrize("kind", ["", SOFT], ids=["flock", "soft lease"])
def test_a_waiter_goes_on_when_the_holder_is_killed(start: Start, kind: str) -> None:
    holder, waiter = start(kind), start(kind)
    assert (holder.hear(), waiter.hear()) == ("ready", "ready")
    assert holder.ask(CLAIM) == "analyse"
    assert waiter.ask(CLAIM) == "waiting"
    holder.kill()
    assert waiter.hear() == "analyse"
    assert waiter.ask(PUBLISH) == "published"
    assert waiter.ask("say(store.counters.snapshot()['lease_timeouts'])") == 0


def test_a_waiter_goes_on_when_the_holder_hangs_longer_than_the_bound(start: Start) -> None:
    holder, waiter = start(), start("import filelock\nstore._flight._wait = 0.5")
    assert (holder.hear(), waiter.hear()) == ("ready", "ready")
    assert holder.ask(CLAIM) == "analyse"
    assert waiter.ask(CLAIM) == "waiting"
    assert waiter.hear() == "analyse"
    assert waiter.ask("say(store.counters.snapshot()['lease_timeouts'])") == 1


@pytest.mark.parametrize("kind", ["", SOFT], ids=["flock", "soft lease"])
def test_one_analysis_for_each_digest_over_all_processes(root: Path, start: Start, kind: str) -> None:
    workers = [start(kind + "\nstore._flight._pause = pause") for _ in range(5)]
    for worker in workers:
        assert worker.hear() == "ready"
    for me, worker in enumerate(workers):
        worker.send(ask_all(2 * me + 1))
    analysed: list[int] = []
    for worker in workers:
        mine, counts = worker.hear()
        analysed += mine
        assert counts["calls"] == 32
        assert counts["misses"] == len(mine) + counts["shared"]
        assert counts["publishes"] == len(mine)
        assert (counts["lease_timeouts"], counts["faults"]) == (0, {})
    assert sorted(analysed) == list(range(32))


def test_a_writer_killed_before_the_rename_leaves_no_entry_and_stops_nobody(root: Path, start: Start) -> None:
    writer = start("""
def stand_still(source, target, **folders):
    say("about to rename")
    input()
os.replace = stand_still
""")
    assert writer.hear() == "ready"
    assert writer.ask("store.publish(key(1), OTHER, 0.5)") == "about to rename"
    writer.kill()
    assert len(temporaries(root)) == 1
    store = open_store(str(root), max_size=1)  # so small that every put cleans
    assert store.lookup(key(1)) is None
    assert list(store.tiers.backends[0].scan()) == []
    store.publish(key(1), ANSWER, 0.5)
    assert open_store(str(root)).lookup(key(1)) == ANSWER
    assert len(temporaries(root)) == 1, "it may belong to a live writer"
    for path in temporaries(root):
        os.utime(path, (time.time() - 3700, time.time() - 3700))
    store.publish(key(1), ANSWER, 0.5)
    assert temporaries(root) == []
    assert entry_path(root, key(1)).exists()


def test_a_forked_child_uses_the_store_although_a_thread_held_every_lock(start: Start) -> None:
    worker = start("import threading")
    assert worker.hear() == "ready"
    # The fork happens inside a claim, and with every lock taken as by a thread that the child does not have.
    outcome = worker.ask("""
store.publish(key(2), ANSWER, 0.5)
with store.claim(key(1)), store._lock, store._flight._lock, store.counters._lock, store.tiers._lock:
    child = os.fork()
    if child == 0:
        fine = store.lookup(key(2)) == ANSWER
        with store.claim(key(3)) as (outcome, _):
            fine = fine and outcome == "analyse"
            store.publish(key(3), ANSWER, 0.5)
        snapshot = store.counters.snapshot()
        fine = fine and (snapshot["calls"], snapshot["publishes"]) == (1, 1)
        os._exit(0 if fine else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
forget(store)
say([status, store.lookup(key(3)) == ANSWER])
""")
    assert outcome == [0, True]


def test_a_forked_child_does_not_give_back_its_parents_lease(start: Start) -> None:
    holder, waiter = start(), start("store._flight._wait = 0.0")
    assert (holder.hear(), waiter.hear()) == ("ready", "ready")
    assert holder.ask(CLAIM) == "analyse"
    assert (
        holder.ask("""
child = os.fork()
if child == 0:
    claim.__exit__(None, None, None)
    os._exit(0)
say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
        == 0
    )
    assert waiter.ask(CLAIM) == "analyse"
    assert waiter.ask("say(store.counters.snapshot()['lease_timeouts'])") == 1


def test_readers_of_a_store_in_use_see_whole_entries_only(root: Path, start: Start) -> None:
    writer, reader = start(), start()
    assert (writer.hear(), reader.hear()) == ("ready", "ready")
    store = open_store(str(root))
    store.publish(key(1), ANSWER, 0.5)
    writer.send("""
for n in range(400):
    store.publish(key(1), (ANSWER, OTHER)[n % 2], 0.5)
say("done")
""")
    seen = reader.ask("""
seen = set()
for _ in range(400):
    forget(store)
    seen.add(store.lookup(key(1)))
say([seen <= {ANSWER, OTHER}, store.counters.snapshot()["faults"]])
""")
    assert seen == [True, {}]
    assert writer.hear() == "done"
