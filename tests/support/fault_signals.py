"""Ctrl-C and SIGTERM at every system call of an operation, from the kernel, as a person or a scheduler sends them.

After Ctrl-C the program goes on: nothing temporary is left, no lock is held, and the operation ends well in this very
process. After SIGTERM the process ends by that signal, with its run record, and leaves what a killed one may leave.
"""

from __future__ import annotations

import os
import signal
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import fault_trace
from tests.support.fault_kills import prepare
from tests.support.fault_operation import Operation
from tests.support.fault_operations import Publish
from tests.support.fault_store import key, litter, opened
from tests.support.fault_trace import Stop
from tritonstore.journal import Journal
from tritonstore.maintenance import runs
from tritonstore.settings import Settings

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Result:
    """`sent` signals, `interrupted` operations (the others had ended), and what went wrong, in words."""

    operation: str
    sent: int = 0
    interrupted: int = 0
    wrong: list[str] = field(default_factory=list)


def signal_everywhere(operation: Operation, folder: Path, *, every: bool = True) -> Result:
    """Try both signals at each call on files; without `every` only at one that changes something, of many at 12."""
    only = fault_trace.FILES if every else fault_trace.CHANGES
    prepare(operation, folder)
    _interrupted(operation, str(folder))  # imports what is imported late
    prepare(operation, folder)
    stops = fault_trace.count(lambda: operation.work(str(folder)), only=only)
    result = Result(operation.name)
    if not every:
        stops = [stop for stop in stops if stop.changes]
        stops = stops[:: max(1, len(stops) // 12)]
    for stop in stops:
        for sent in SIGNALS:
            _send(sent, operation, folder, stop, only, result)
    return result


def _send(
    sent: signal.Signals, operation: Operation, folder: Path, moment: Stop, only: frozenset[str], result: Result
) -> None:
    prepare(operation, folder)
    before = len(litter(str(folder)))
    act = _interrupted if sent == signal.SIGINT else _terminated
    done = fault_trace.run(
        lambda: act(operation, str(folder)), lambda stop: sent if stop.number == moment.number else None, only=only
    )
    result.sent += 1
    result.interrupted += done.code == -sent or done.said == b"interrupted"
    try:
        if sent == signal.SIGINT:
            assert done.code == 0, " ".join(done.said.decode().splitlines()[-4:])
            assert len(litter(str(folder))) <= before, litter(str(folder))
        else:
            assert done.code == -sent, f"exit code {done.code}: {' '.join(done.said.decode().splitlines()[-4:])}"
            (record,) = runs.load(Settings.load(cache_folder=folder / "terminated"))
            assert record.ending == "SIGTERM"
            for path in (folder / "terminated" / "runs").iterdir():
                path.unlink()
        operation.check(str(folder))
    except Exception as error:
        where = f"{operation.name}, {sent.name} at {moment.call} (call {moment.number})"
        frames = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
        result.wrong.append(f"{where}: {type(error).__name__}: {error} at {frames}")


def _interrupted(operation: Operation, folder: str) -> bytes:
    """The operation, interrupted somewhere, and then once more, in this process and at the same store."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background starts without
    store = opened(operation.url(folder), **operation.settings) if isinstance(operation, Publish) else None
    ended = b"interrupted"
    for turn in range(2):
        try:
            if isinstance(operation, Publish) and store is not None:
                operation.ask(store)
            else:
                operation.work(folder)
            if not turn:
                ended = b"finished"
        except KeyboardInterrupt:
            assert not turn
    if isinstance(operation, Publish) and store is not None:
        with store.claim(key(operation.new)):
            pass
        assert store.counters.snapshot()["lease_timeouts"] == 0
    return ended


def _terminated(operation: Operation, folder: str) -> bytes:
    """The operation in a process that leaves a run record; SIGTERM finds it somewhere in there."""
    journal = Journal(os.path.join(folder, "terminated", "runs"), "run-1")
    journal.miss(key(0))
    operation.work(folder)
    os.kill(os.getpid(), signal.SIGTERM)  # where it had ended
    return b""
