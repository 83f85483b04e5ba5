"""Worker processes for recipes: they import kernels' modules, and may die of it without harm to anybody.

Each worker is a fresh Python that gets frames on its standard input and answers on its standard output: four bytes of
length, big-endian, and msgpack. Not multiprocessing: its workers would run the caller's program again.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, NamedTuple

import msgpack

from tritonstore.errors import TritonStoreError
from tritonstore.recipes.recipe import Recipe

__all__ = ["LENGTH", "Result", "WorkerError", "Workers", "command", "frame"]

LENGTH = struct.Struct(">I")
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from tritonstore.recipes.worker import main; main()"
_CHUNK = 1 << 16
_LAST = 5.0  # seconds between the end of a worker's output and its own
_READY = 120.0  # seconds for a worker to import torch and triton
_MOST_TALK = 64 << 20  # bytes that a worker may write to standard error over one recipe
_LOOK = 1.0  # seconds between looks at how much that is


class Result(NamedTuple):
    """What became of one recipe: see `asking` for the words of `status`; `seconds` that PyTorch took."""

    recipe: Recipe
    status: str
    text: str = ""
    seconds: float = 0.0


class WorkerError(TritonStoreError):
    """Workers cannot be started here at all."""


def command(path: list[str]) -> list[str]:
    """How a worker is started. With -O as here: what Python compiles away is part of a key."""
    optimised = [f"-{'O' * sys.flags.optimize}"] if sys.flags.optimize else []
    return [sys.executable, *optimised, "-c", _START, json.dumps([each for each in path if isinstance(each, str)])]


def frame(message: Any) -> bytes:
    """One message as it goes through a pipe."""
    data: bytes = msgpack.packb(message, use_bin_type=True)
    return LENGTH.pack(len(data)) + data


class _Worker:
    def __init__(self, order: bytes, path: list[str]) -> None:
        environ = {name: value for name, value in os.environ.items() if name not in ("TRITONSTORE", "TRITONSTORE_RUN")}
        environ["TRITONSTORE_PREWARMING"] = "1"
        self.talk: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, closed by `end`
        try:
            self.process = subprocess.Popen(
                command(path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.talk,
                env=environ,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends its workers
            )
        except OSError:
            self.talk.close()
            raise
        self.recipe: Recipe | None = None
        self.number = 0
        self.ready = False
        self.deadline = time.monotonic() + _READY
        self._buffer = b""
        self.send(order)

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died, which its standard output will tell
            left = memoryview(data)
            while left:
                left = left[self.process.stdin.write(left) or 0 :]

    def ask(self, recipe: Recipe, patience: float) -> None:
        self.recipe = recipe
        self.number += 1
        self.deadline = time.monotonic() + patience
        os.lseek(self.talk.fileno(), 0, os.SEEK_SET)  # a place that the worker shares: what it said before may go
        os.ftruncate(self.talk.fileno(), 0)
        self.send(frame([self.number, list(recipe)]))

    def fileno(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def read(self) -> list[Any] | None:
        """The messages that have come; None at its end."""
        data = os.read(self.fileno(), _CHUNK)
        if not data:
            return None
        self._buffer += data
        messages = []
        while len(self._buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                break
            messages.append(msgpack.unpackb(self._buffer[LENGTH.size : end], raw=False))
            self._buffer = self._buffer[end:]
        return messages

    def talks_without_end(self) -> bool:
        """Whether it would fill the disk with what it writes to standard error."""
        return os.fstat(self.talk.fileno()).st_size > _MOST_TALK

    def kill(self) -> None:
        """End it and whatever a kernel's module has started in it: the session is its own."""
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self, *, ended: bool = False) -> str:
        """End it, unless it has `ended` by itself, and say how it ended."""
        if ended:  # its output has; the process is on its way
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_LAST)
        killed = self.process.poll() is None
        self.kill()
        code = self.process.wait()
        size = self.talk.seek(0, os.SEEK_END)
        self.talk.seek(max(0, size - _CHUNK))
        last = self.talk.read(_CHUNK).decode(errors="replace").strip().rpartition("\n")[2][:200]
        for file in (self.process.stdin, self.process.stdout, self.talk):
            if file is not None:
                with suppress(OSError):
                    file.close()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the process ended with {how}{f': {last}' if last and not killed else ''}"


class Workers:
    """`jobs` processes that do what `order` says (see worker.py), each one recipe at a time.

    A worker that dies, or takes longer than `patience` seconds over one recipe, costs that recipe; another takes its
    place. One that cannot start, or takes too long over it, costs its place: the others go on. `path` is their
    sys.path.
    """

    def __init__(self, order: Mapping[str, Any], jobs: int, path: list[str], patience: float) -> None:
        self._order = frame(dict(order))
        self._jobs = jobs
        self._path = path
        self._patience = patience
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._stopped = False

    def results(self, recipes: Iterable[Recipe]) -> Iterator[Result]:
        """What became of each recipe, as it is known. Raises WorkerError where no worker can be started."""
        left = iter(recipes)
        waiting = next(left, None)
        try:
            while not self._stopped and (waiting is not None or any(each.recipe for each in self._workers)):
                while waiting is not None and len(self._workers) < self._jobs:
                    self._start()
                for worker in self._workers:
                    if worker.ready and worker.recipe is None and waiting is not None:
                        worker.ask(waiting, self._patience)
                        waiting = next(left, None)
                yield from self._await()
        finally:
            self.close()

    def stop(self) -> None:
        """`results` ends soon; may be called from another thread."""
        self._stopped = True
        for worker in list(self._workers):
            with suppress(OSError):
                worker.kill()

    def close(self) -> None:
        """End all workers, at once."""
        while self._workers:
            self._drop(self._workers[-1])
        self._selector.close()

    def _start(self) -> None:
        try:
            worker = _Worker(self._order, self._path)
        except OSError as error:
            if not self._workers:
                raise WorkerError(f"no worker process can be started with {sys.executable!r}: {error}") from error
            self._jobs = len(self._workers)
            return
        self._workers.append(worker)
        self._selector.register(worker, selectors.EVENT_READ)

    def _drop(self, worker: _Worker, *, ended: bool = False) -> str:
        self._workers.remove(worker)
        with suppress(KeyError):
            self._selector.unregister(worker)
        return worker.end(ended=ended)

    def _await(self) -> Iterator[Result]:
        """Wait until a worker says something, ends, or has had its time."""
        now = time.monotonic()
        busy = [each.deadline for each in self._workers if each.recipe is not None or not each.ready]
        for key, _ in self._selector.select(min(_LOOK, max(0.0, min(busy, default=now) - now))):
            worker = key.fileobj
            assert isinstance(worker, _Worker)
            messages = worker.read()
            if messages is None:
                yield from self._ended(worker, "")
                continue
            for message in messages:
                number, *said = message
                worker.ready = True
                # What a module forked may speak up later; its answer is to no question of now.
                if worker.recipe is not None and number == worker.number:
                    recipe, worker.recipe = worker.recipe, None
                    yield Result(recipe, *said)
        now = time.monotonic()
        for worker in list(self._workers):
            if now >= worker.deadline and (worker.recipe is not None or not worker.ready):
                patience = self._patience if worker.ready else _READY
                yield from self._ended(worker, f"nothing came within {patience:.0f} s; ")
            elif worker.talks_without_end():
                yield from self._ended(worker, f"it wrote {_MOST_TALK >> 20} MB to standard error; ")

    def _ended(self, worker: _Worker, before: str) -> Iterator[Result]:
        how = before + self._drop(worker, ended=not before)
        if not worker.ready and not self._stopped:
            # A machine that is short of memory or time fails at as many as these, and may manage fewer.
            self._jobs -= 1
            if not self._jobs:
                raise WorkerError(f"a worker process cannot work: {how}")
        if worker.recipe is not None:
            yield Result(worker.recipe, "died", how)
