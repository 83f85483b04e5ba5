"""The command `scripts/faults`: kills, errors, exports, stress, as many as there are; the tests try a part of them."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.fault_attempts import ATTEMPTS
from tests.support.fault_errors import every, fail_everywhere, some
from tests.support.fault_kills import kill_everywhere
from tests.support.fault_operations import OPERATIONS
from tests.support.fault_signals import signal_everywhere

Line = dict[str, Any]
"""One line of the result: `name`, `wrong` (what did not hold, in words), and figures."""


def kill(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """SIGKILL before and after every system call of each operation; the store must be sound after each."""
    one_processor()
    for name in chosen(arguments, list(OPERATIONS)):
        found = kill_everywhere(OPERATIONS[name], folder / name, every=not arguments.short)
        yield {"name": name, "calls": found.calls, "kills": sum(found.kills.values()), "left litter": found.litter,
               "ended before": found.missed, "wrong": found.wrong}  # fmt: skip


def interrupt(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Ctrl-C and SIGTERM at every system call of each operation."""
    one_processor()
    for name in chosen(arguments, list(OPERATIONS)):
        found = signal_everywhere(OPERATIONS[name], folder / name, every=not arguments.short)
        yield {"name": name, "signals": found.sent, "interrupted": found.interrupted, "wrong": found.wrong}


def errors(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Each error at every system call on files, once and lasting, and short reads and writes."""
    one_processor()
    for name in chosen(arguments, list(ATTEMPTS)):
        found = fail_everywhere(ATTEMPTS[name], folder / name, some if arguments.short else every)
        yield {"name": name, "calls": found.calls, "injected": sum(found.faults.values()),
               "noticed": found.seen, "by error": dict(found.faults), "wrong": found.wrong}  # fmt: skip


def exports(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Whole exports with real kernels: on full, read-only and missing places, and with errors at system calls."""
    from tests.support import fault_places

    yield from fault_places.lines(folder, short=arguments.short, seconds=60 * arguments.minutes)


def stress(arguments: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Many processes on two stores at once, and a count at the end."""
    from tests.support.fault_stress import stress as run

    found = run(folder, processes=arguments.processes, minutes=0.0 if arguments.short else arguments.minutes)
    yield {"name": "stress", **vars(found), "did": dict(found.did)}


COMMANDS: dict[str, Callable[[argparse.Namespace, Path], Iterator[Line]]] = {
    "kill": kill, "interrupt": interrupt, "errors": errors, "exports": exports, "stress": stress,
}  # fmt: skip


def one_processor() -> None:
    """The tracer and its child take turns, which is twice as fast on one processor."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def chosen(arguments: argparse.Namespace, names: list[str]) -> list[str]:
    wanted = arguments.only.split(",") if arguments.only else names
    if unknown := sorted(set(wanted) - set(names)):
        raise SystemExit(f"scripts/faults: there is no {unknown[0]}; there are {', '.join(names)}")
    return wanted


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="scripts/faults",
        description="Try the store under faults: " + " ".join(f"{n}: {c.__doc__}" for n, c in COMMANDS.items()),
        epilog="Linux on x86-64. Exit code: 0 if all held, 1 if not.",
    )
    result.add_argument("what", choices=COMMANDS)
    result.add_argument("--short", action="store_true", help="only as much as the tests do")
    result.add_argument(
        "--only", default="", metavar="NAMES", help="comma-separated operations of kill, interrupt, errors"
    )
    result.add_argument("--minutes", type=float, default=10.0, metavar="N", help="of stress or exports (default 10)")
    result.add_argument("--processes", type=int, default=8, metavar="N", help="of stress (default 8)")
    result.add_argument("--folder", metavar="FOLDER", help="where to work (default: /dev/shm, where there is one)")
    result.add_argument("--json", type=Path, metavar="FILE", help="write the lines to FILE, too")
    return result


def main() -> int:
    arguments = parser().parse_args()
    above = arguments.folder or ("/dev/shm" if os.path.isdir("/dev/shm") else None)
    folder = Path(tempfile.mkdtemp(prefix="tritonstore-faults-", dir=above))
    for name in [name for name in os.environ if name.startswith("TRITONSTORE")]:
        del os.environ[name]
    os.environ |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "xdg")}
    total: Counter[str] = Counter()
    lines, started = [], time.monotonic()
    try:
        for line in COMMANDS[arguments.what](arguments, folder / "work"):
            lines.append(line)
            show(line)
            total.update({name: value for name, value in line.items() if type(value) is int})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    wrong = sum(len(line["wrong"]) for line in lines)
    print(f"{', '.join(f'{value:,} {name}' for name, value in total.items())}; {wrong} wrong; "
          f"{time.monotonic() - started:.0f} s")  # fmt: skip
    if arguments.json:
        with open(arguments.json, "w") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
    return 1 if wrong or not lines else 0


def show(line: Line) -> None:
    figures = [f"{value} {name}" for name, value in line.items() if name not in ("name", "wrong") and value]
    print(f"{line['name']}: {', '.join(figures)}", flush=True)
    for sentence in line["wrong"]:
        print(f"  wrong: {sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
