"""Scale: stores of a thousand, a hundred thousand and a million entries, looked up, written, listed and cleaned."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import child
from .made import ENTRY_BYTES, Made, filled
from .timing import interleaved, summary

FEW, MANY, MILLION = 1_000, 100_000, 1_000_000
_SAMPLE = 2_000  # questions looked up in each store, over and over
_BYTES = 4_096  # of disk for one entry: a block

COMMANDS = {
    "stats": ["stats", "--json"],
    "ls": ["ls", "--json"],
    "verify": ["verify"],
    "prune --dry-run": ["prune", "--dry-run", "--max-age", "1d"],
}

# One of several writers at once: prints the seconds of each publish, or of a bare write and rename.
WRITER = """
import json, os, sys, time
from tritonstore import open_store
from tritonstore.access import AccessResult
from bench_lib.made import ENTRY_BYTES, Made
from bench_lib.rivals import write
first, count = int(sys.argv[2]), int(sys.argv[3])
store, access = open_store(sys.argv[1], max_size=int(sys.argv[4])), AccessResult(("x_ptr",), ("y_ptr",), True)
made = [Made(number) for number in range(first, first + count)]
print("ready", flush=True)
sys.stdin.readline()
taken = []
folder, data = sys.argv[1].removeprefix("file://"), os.urandom(ENTRY_BYTES)
for number, question in enumerate(made):
    started = time.perf_counter()
    if sys.argv[5] == "bare":
        write(f"{folder}/{question.digest}", data, number)
    else:
        store.publish(question, access, 0.1)
    taken.append(time.perf_counter() - started)
print(json.dumps(taken), flush=True)
"""


def section(folder: Path, scale: float, million: bool) -> dict[str, Any]:
    sizes = [max(20, int(FEW * scale)), max(40, int(MANY * scale)), *([MILLION] if million else [])]
    needed = sum(sizes) * _BYTES * 1.2
    if shutil.disk_usage(folder).free < 2 * needed:
        raise RuntimeError(f"{folder}: {needed / 1e9:.1f} GB are needed for the entries, and as much again for others")
    stores = {size: folder / f"store-{size}" for size in sizes}
    results: dict[str, Any] = {str(size): {"filled_s": filled(stores[size], size)} for size in sizes}
    lookups = interleaved({str(size): _lookups(stores[size], size) for size in sizes}, 6.0 * scale)
    for size in sizes:
        results[str(size)]["lookup"] = lookups[str(size)]
        results[str(size)]["publish"] = _publishes(stores[size], size, max(10, int(3000 * scale)))
        results[str(size)]["commands"] = _commands(folder, stores[size], size)
        results[str(size)]["prune"] = _pruned(folder, stores[size], size)
    for store in stores.values():
        shutil.rmtree(store)
    each = max(10, int(400 * scale))
    results["writers"] = {
        f"{what}, {count} at once": _writers(folder, count, each, what)
        for what in ("bare", "publish")
        for count in (1, 8)
    }
    return results


def _lookups(root: Path, size: int) -> Any:
    """One look-up of the next of a sample of questions, none of them in this process's memory."""
    from tritonstore import open_store

    store = open_store(root.as_uri())
    numbers = random.Random(7).sample(range(size), min(_SAMPLE, size))
    questions = [Made(number) for number in numbers]
    turn = 0

    def look() -> None:
        nonlocal turn
        turn = (turn + 1) % len(questions)
        store._memory.clear()
        if store.lookup(questions[turn]) is None:
            raise RuntimeError(f"{root}: entry {numbers[turn]} was not found")

    return look


def _publishes(root: Path, size: int, count: int) -> dict[str, Any]:
    """New entries into the store that is just full, so that automatic cleaning has to make room."""
    from tritonstore import open_store
    from tritonstore.access import AccessResult

    store = open_store(root.as_uri(), max_size=size * ENTRY_BYTES)
    access = AccessResult(("x_ptr",), ("y_ptr",), True)
    taken = []
    for number in range(count):
        question = Made(10_000_000 + number)
        started = time.perf_counter()
        store.publish(question, access, 0.1)
        taken.append(time.perf_counter() - started)
    return summary(taken)


def _commands(folder: Path, root: Path, size: int) -> dict[str, Any]:
    """Each command in a process of its own: seconds, entries a second, and peak memory."""
    env = child.environment(folder / "cache", TRITONSTORE_URL=root.as_uri())
    told = {}
    for name, arguments in COMMANDS.items():
        done = child.run(["-m", "tritonstore", *arguments], env, fine=(0, 1))
        told[name] = {"seconds": done.seconds, "per_second": size / done.seconds, "peak_mib": done.peak_mib}
    return told


def _pruned(folder: Path, root: Path, size: int) -> dict[str, Any]:
    """`prune` for real, down to half of the entries."""
    half = str(size * ENTRY_BYTES // 2)
    env = child.environment(folder / "cache", TRITONSTORE_URL=root.as_uri())
    done = child.run(["-m", "tritonstore", "prune", "--max-size", half], env, fine=(0, 1))
    left = sum(1 for _ in (root / "v1").glob("*/*"))
    return {"seconds": done.seconds, "per_second": size / done.seconds, "peak_mib": done.peak_mib, "left": left}


def _writers(folder: Path, writers: int, each: int, what: str) -> dict[str, Any]:
    """So many processes that write into one new store at once."""
    with tempfile.TemporaryDirectory(dir=folder) as root:
        command = [sys.executable, "-c", WRITER, Path(root).as_uri()]
        env = child.environment(folder / "cache")
        started = [
            subprocess.Popen(
                [*command, str(number * each), str(each), str(64 << 20), what],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=env,
            )
            for number in range(writers)
        ]
        try:
            for process in started:
                assert process.stdout is not None
                if process.stdout.readline() != "ready\n":
                    raise RuntimeError("a writer did not start")
            for process in started:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
            taken = [seconds for process in started for seconds in json.loads(process.communicate()[0])]
        finally:
            for process in started:
                process.kill()
                process.wait()
        return summary(taken)
