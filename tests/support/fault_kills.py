"""Kill an operation with SIGKILL before and after each of its system calls, and check what is left. See fault_trace."""

from __future__ import annotations

import shutil
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import fault_trace
from tests.support.fault_operation import Operation
from tests.support.fault_trace import Stop


@dataclass
class Result:
    """`calls` system calls of the operation; `kills` by the call's name, `missed` of them as it had ended before;
    `litter` how often there was some; what went `wrong`, in words."""

    operation: str
    calls: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    litter: int = 0
    missed: int = 0
    wrong: list[str] = field(default_factory=list)


def kill_everywhere(operation: Operation, folder: Path, *, every: bool = True) -> Result:
    """Try each moment: before and after every system call. Without `every` only before a call that changes something.

    Between two such calls nothing happens on disk or to a lock, so these moments show all that a death can leave.
    """
    only = None if every else fault_trace.CHANGES
    prepare(operation, folder)
    operation.work(str(folder))  # imports what is imported late, which is no part of the operation
    prepare(operation, folder)
    stops = fault_trace.count(lambda: operation.work(str(folder)), only=only)
    operation.check(str(folder))
    result = Result(operation.name, calls=sum(not stop.after for stop in stops))
    for stop in stops:
        if every or stop.changes:
            _kill(operation, folder, stop, only, result)
    return result


def _kill(operation: Operation, folder: Path, moment: Stop, only: frozenset[str] | None, result: Result) -> None:
    prepare(operation, folder)
    place = moment.number, moment.after
    done = fault_trace.run(
        lambda: operation.work(str(folder)),
        lambda stop: "kill" if (stop.number, stop.after) == place else None,
        only=only,
    )
    result.kills[moment.call] += 1
    where = f"{operation.name}, killed {'after' if moment.after else 'before'} {moment.call} (call {moment.number})"
    if done.code == 0:  # this time it made fewer calls
        result.missed += 1
        return
    if done.code != -9:
        result.wrong.append(f"{where}: not killed, exit code {done.code}: {done.said.decode()}")
        return
    result.litter += bool(list(folder.rglob("*.tmp")))
    try:
        operation.check(str(folder))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        result.wrong.append(f"{where}: {type(error).__name__}: {error} at {[f'{f.name}:{f.lineno}' for f in frames]}")


def prepare(operation: Operation, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    operation.prepare(str(folder))


def _check(operation: Operation, folder: Path) -> None:
    operation.check(str(folder))


def all_of(operations: Iterable[Operation], folder: Path, *, every: bool = True) -> list[Result]:
    return [kill_everywhere(operation, folder / operation.name, every=every) for operation in operations]
