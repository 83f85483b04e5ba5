"""The five runs of the demo: each starts fresh workers that share the methods and, if there is one, a store."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .report import Progress

ROOT = Path(__file__).resolve().parents[2]
RUNS = ("pytorch", "exact-dict", "cold", "warm", "warm-moved")
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


@dataclass(frozen=True)
class Options:
    """What every run of one demo has in common. `store` is a URL, `folder` a temporary folder of the demo's own."""

    workers: int
    layers: int
    methods: tuple[str, ...]
    store: str
    folder: Path
    aoti: bool = False
    device: str = "cpu"
    plain: bool = False


@dataclass(frozen=True)
class Result:
    """One run: its line for the JSON file, the folder with the text of each exported method, and if there was a GPU.

    `keys` are the distinct keys of all workers, None for PyTorch alone.
    """

    line: dict[str, Any]
    texts: Path
    gpu: bool
    keys: frozenset[str] | None = None


def run(name: str, options: Options, progress: Progress) -> Result:
    """Do one run. Raises DemoError if a worker fails; leaves no process behind, whatever happens."""
    folder = options.folder / name
    folder.mkdir()
    root = ROOT
    if name == "warm-moved":
        root = options.folder / "another place" / "copy"
        shutil.copytree(ROOT, root, ignore=NOT_COPIED)
    progress.begin(name, len(options.methods))
    export_seconds = 0.0
    results: dict[int, dict[str, Any]] = {}
    with _workers(name, options, folder, root) as (workers, events):
        while len(results) < len(workers):
            index, event = events.get()
            if event is None:
                if index not in results:
                    raise DemoError(_failure(name, index, workers[index], folder))
            elif event["event"] == "start":
                progress.at(index, event["method"])
            elif event["event"] == "method":
                export_seconds += event["seconds"]
                progress.step()
            else:
                results[index] = event
    done = list(results.values())
    failures = [failure for event in done for failure in event["failures"]]
    if failures:
        what = f"PyTorch's own analysis failed {len(failures)} times: {failures[0]}"
        raise DemoError(f"{name}: {what}; constraints.txt names a Liger-Kernel that suits torch 2.11 and 2.13")
    for event in done:
        if event["trouble"]:
            progress.say(f"{name}: a worker's store says {event['trouble']}")
        if event["tritonstore"] and not Path(event["tritonstore"]).is_relative_to(root):
            raise DemoError(f"{name}: tritonstore was loaded from {event['tritonstore']}, not from {root}")
    keys = _distinct(done)
    line = {
        "name": name,
        "workers": len(workers),
        "calls": sum(event["calls"] for event in done),
        "analyses": sum(event["analyses"] for event in done),
        "distinct_keys": None if keys is None else len(keys),
        "analysis_seconds": round(sum(event["analysis_seconds"] for event in done), 3),
        "export_seconds": round(export_seconds, 3),
        "identical": not differences(options.folder / "pytorch", folder, options.methods),
    }
    progress.end(line)
    return Result(line, folder, any(event["gpu"] for event in done), keys)


def differences(expected: Path, found: Path, methods: tuple[str, ...]) -> list[str]:
    """One sentence for each method whose text is not the expected one, with the first line that differs."""
    sentences = []
    for method in methods:
        texts = [(folder / f"{method}.txt").read_text().splitlines() for folder in (expected, found)]
        if texts[0] != texts[1]:
            pairs = zip([*texts[0], "(end)"], [*texts[1], "(end)"], strict=False)
            number, (left, right) = next((n, pair) for n, pair in enumerate(pairs, 1) if pair[0] != pair[1])
            sentences.append(f"{method} differs at line {number}: PyTorch {left.strip()!r}, here {right.strip()!r}")
    return sentences


def verdict(lines: list[dict[str, Any]], leases: bool = True) -> list[str]:
    """What the runs were to show and did not; empty if all is well. Without leases, see `excess`."""
    by_name = {line["name"]: line for line in lines}
    cold, exact = by_name["cold"], by_name["exact-dict"]
    wrong = [f"{line['name']}: the graphs are not those of PyTorch alone" for line in lines if not line["identical"]]
    if cold["analyses"] != cold["distinct_keys"] and (leases or cold["analyses"] < cold["distinct_keys"]):
        found = f"{cold['analyses']} analyses for {cold['distinct_keys']} distinct keys"
        wrong.append(f"cold: {found} (was the store empty at first?)")
    if cold["analyses"] >= exact["analyses"]:
        wrong.append(f"cold: {cold['analyses']} analyses, no fewer than the exact dict's {exact['analyses']}")
    wrong += [f"{n}: {by_name[n]['analyses']} analyses, not 0" for n in RUNS[3:] if by_name[n]["analyses"]]
    return wrong


def excess(lines: list[dict[str, Any]]) -> str:
    """What it cost that the store has no leases."""
    cold = next(line for line in lines if line["name"] == "cold")
    more = cold["analyses"] - cold["distinct_keys"]
    return f"this store has no leases: workers made {more} more analyses than there are distinct keys"


def _distinct(done: list[dict[str, Any]]) -> frozenset[str] | None:
    """Distinct keys over all workers together; None for PyTorch alone, which has none."""
    if any(event["keys"] is None for event in done):
        return None
    return frozenset(key for event in done for key in event["keys"])


def _failure(name: str, index: int, worker: subprocess.Popen[str], folder: Path) -> str:
    code = worker.wait()
    talk = (folder / f"worker-{index}.log").read_text(errors="replace").strip().splitlines()
    return "\n".join([f"{name}: worker {index + 1} ended with exit code {code}", *talk[-15:]])


@contextlib.contextmanager
def _workers(name: str, options: Options, folder: Path, root: Path) -> Iterator[tuple[list[Any], queue.Queue[Any]]]:
    """Start the workers; yield them and the queue of (worker, event or None at its end). Kills what still runs."""
    events: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
    workers: list[subprocess.Popen[str]] = []
    listeners: list[threading.Thread] = []

    def listen(index: int, worker: subprocess.Popen[str]) -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            events.put((index, json.loads(line)))
        events.put((index, None))

    count = min(options.workers, len(options.methods))
    try:
        for index in range(count):
            job = {
                "run": name,
                "root": str(root),
                "folder": str(folder),
                "store": name in RUNS[2:],
                "methods": options.methods[index::count],
                "layers": options.layers,
                "aoti": options.aoti,
                "device": options.device,
                "plain": options.plain,
            }
            with open(folder / f"worker-{index}.log", "w") as log, _uninterrupted():
                worker = subprocess.Popen(
                    [sys.executable, "-m", "demo_lib.worker", json.dumps(job)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    cwd=folder,
                    env=_environment(name, options, folder, root),
                    start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends its workers in order
                )
                workers.append(worker)
            listeners.append(threading.Thread(target=listen, args=(index, worker), daemon=True))
            listeners[-1].start()
        yield workers, events
        for worker in workers:
            worker.wait()
    finally:
        with _uninterrupted():
            for worker in workers:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
            for listener in listeners:
                listener.join()  # its worker has ended, so that it comes to the end of the pipe
            for pipe in (pipe for worker in workers for pipe in (worker.stdin, worker.stdout)):
                if pipe is not None:
                    pipe.close()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off to the end of the block: between a process's start and its entry in the list, it would be lost."""
    pending: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: pending.append(number)) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
    if pending:
        raise KeyboardInterrupt


def _environment(name: str, options: Options, folder: Path, root: Path) -> dict[str, str]:
    """A worker's environment: the checkout at `root` comes first, and every cache lies in the demo's folder.

    The store's URL stands here, not in the command line, which every user of the machine can read. The moved run is
    another host, with a cache folder of its own.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TRITONSTORE") or k == "TRITONSTORE_STRICT"}
    paths = [str(root / "scripts"), str(root), kept.get("PYTHONPATH", "")]
    return kept | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        **({"TRITONSTORE_URL": options.store} if name in RUNS[2:] else {}),
        "TRITONSTORE_CACHE_FOLDER": str((folder if name == "warm-moved" else options.folder) / "cache"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
