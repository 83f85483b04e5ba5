"""Let each system call of an attempt fail with each error, once or from then on, or do a part only; and judge it."""

from __future__ import annotations

import errno
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import fault_trace
from tests.support.fault_attempts import Attempt, Work
from tests.support.fault_trace import ERRORS, Stop

SHORT = frozenset({"read", "write"})


@dataclass(frozen=True)
class Fault:
    """Which call fails, how, and whether all after it do."""

    number: int
    error: str
    lasting: bool

    def __call__(self, stop: Stop) -> int | str | None:
        if stop.number != self.number and not (self.lasting and stop.number > self.number):
            return None
        if self.error == "short" and stop.call not in SHORT:  # what else would be halved is no count of bytes
            return None
        return "short" if self.error == "short" else int(getattr(errno, self.error))


@dataclass
class Result:
    """How many calls an attempt makes, how many faults were tried by error, and what went wrong, in words."""

    attempt: str
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seen: int = 0
    wrong: list[str] = field(default_factory=list)


def some(calls: list[Stop]) -> Iterator[Fault]:
    """For each call (of many, for 30) one error once and one that lasts, in turn; and a part of each read and write."""
    for stop in calls[:: max(1, len(calls) // 30)]:
        for lasting in (False, True):
            error = ERRORS[(stop.number + 5 * lasting) % len(ERRORS)]
            yield Fault(stop.number, error, lasting and error != "EINTR")  # which is tried for ever
    for stop in calls:
        if stop.call in SHORT:
            yield Fault(stop.number, "short", True)


def every(calls: list[Stop]) -> Iterator[Fault]:
    """Each error at each call, once and lasting."""
    for stop in calls:
        for error in ERRORS:
            for lasting in (False, True):
                if not lasting or error != "EINTR":
                    yield Fault(stop.number, error, lasting)
        for lasting in (False, True):
            if stop.call in SHORT:
                yield Fault(stop.number, "short", lasting)


def fail_everywhere(attempt: Attempt, folder: Path, choose: Callable[[list[Stop]], Iterator[Fault]] = some) -> Result:
    """Try the faults that `choose` makes of the calls of an attempt without faults."""
    prepare(attempt, folder)
    attempt.work(str(folder))  # imports what is imported late
    prepare(attempt, folder)
    calls = fault_trace.count(lambda: attempt.work(str(folder)), only=fault_trace.FILES)
    result = Result(attempt.name, calls=len(calls))
    for fault in choose(calls):
        result.faults[fault.error] += 1
        prepare(attempt, folder)
        done = fault_trace.run(lambda: attempt.work(str(folder)), fault, only=fault_trace.FILES)
        try:
            _judge(attempt, folder, done, result)
        except Exception as error:
            call = done.changed[0].call if done.changed else "no call"
            how = "from then on" if fault.lasting else "once"
            where = f"{attempt.name}: {fault.error} at {call} (call {fault.number}), {how}"
            result.wrong.append(f"{where}: {type(error).__name__}: {error}")
    return result


def _judge(attempt: Attempt, folder: Path, done: fault_trace.Traced, result: Result) -> None:
    assert done.code == 0, f"exit code {done.code}: {' '.join(done.said.decode().splitlines()[-6:])}"
    saw, said = json.loads(done.said)
    attempt.judge(str(folder), saw)
    faults = saw[1] if isinstance(attempt, Work) else {}
    result.seen += bool(faults) or saw is None
    stores = {name[: name.rindex("-")] for name in faults if not name.startswith("set-aside")}
    if isinstance(attempt, Work) and saw[2] and not stores:
        stores |= {"a lease that was waited for in vain"}
    assert len(said) == len(stores), f"{len(said)} warnings for {faults}: {said}"  # one for each tier


def prepare(attempt: Attempt, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    attempt.prepare(str(folder))
