"""Processes with real kernels that end in the middle: Ctrl-C and SIGTERM inside an analysis, `os._exit`, exit, threads.

Run as a program it warms up once and forks one child for each ending, with the child's standard error in a file. It
prints a line of JSON for each: how the child ended, what it said, and how the next process fared with the same store.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.fault_exports import KERNELS, Exporter, environment


class Ending:
    """What the children share: the exporter, the place of the store, and a way to act inside PyTorch's analysis."""

    def __init__(self, exporter: Exporter, folder: Path) -> None:
        self.exporter = exporter
        self.url = f"file://{folder}/store"

    def export(self, inside: Callable[[], None] | None = None) -> Any:
        """An export; `inside` is called in the middle of the second analysis, where PyTorch makes TTIR."""
        import pytest
        import torch._higher_order_ops.triton_kernel_wrap as wrap

        from tritonstore.pytorch import call
        from tritonstore.pytorch.lock import analysis_lock

        code, calls = inspect.unwrap(wrap.generate_ttir).__code__, iter(range(1000))

        def watch(frame: FrameType, event: str, argument: object) -> None:
            if event == "call" and frame.f_code is code and inside is not None and next(calls) == 1:
                inside()

        @contextmanager
        def watched(lock: Any = analysis_lock) -> Iterator[None]:
            with lock():
                sys.setprofile(watch)  # a patch of PyTorch the store would notice
                try:
                    yield
                finally:
                    sys.setprofile(None)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(call, "analysis_lock", watched)
            return self.exporter.export("", self.url)

    def ask(self, count: int) -> list[str]:
        """The answers to questions that the export asks as well."""
        import torch
        import torch._higher_order_ops.triton_kernel_wrap as wrap

        from tests.fleet.workload import scale
        from tests.support.analysis import SEAM

        answers = []
        for turn in range(count):
            arguments = {"x": torch.zeros(64), "y": torch.zeros(64), "n": 64, "BLOCK": 16 << turn % KERNELS}
            answers.append(str(getattr(wrap, SEAM)(scale, arguments, {})))
        return answers


def ctrl_c(it: Ending) -> None:
    """KeyboardInterrupt comes out as it is, and the program can go on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background starts without
    try:
        it.export(lambda: os.kill(os.getpid(), signal.SIGINT))
    except KeyboardInterrupt:
        again = it.export()
        assert again.identical
        assert (again.faults, again.warnings) == ({}, [])
        return
    raise AssertionError("it was swallowed")


def terminated(it: Ending) -> None:
    it.export(lambda: os.kill(os.getpid(), signal.SIGTERM))


def killed(it: Ending) -> None:
    it.export(lambda: os.kill(os.getpid(), signal.SIGKILL))


def left(it: Ending) -> None:
    it.export(lambda: os._exit(3))


def exited(it: Ending) -> None:
    it.export(lambda: sys.exit(4))


def forked(it: Ending) -> None:
    """A fork while another thread analyses, and holds the lease and the locks: the child asks, too, and is answered."""
    inside, go, texts = threading.Event(), threading.Event(), []

    def wait() -> None:
        inside.set()
        go.wait(60)

    thread = threading.Thread(target=lambda: texts.append(it.export(wait).identical))
    thread.start()
    assert inside.wait(60)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        with suppress(BaseException):
            os._exit(0 if len(set(it.ask(2 * KERNELS))) == 1 else 1)
        os._exit(2)
    go.set()  # the child waits for the lease, and gets the answer
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    thread.join()
    assert texts == [True]


def threads(it: Ending) -> None:
    """An export while other threads ask for the same kernels. (Two exports at once PyTorch itself does not bear.)"""
    import tritonstore

    answers: list[str] = []

    with tritonstore.installed(url=it.url, target="cuda:90:32", strict=False):
        others = [threading.Thread(target=lambda: answers.extend(it.ask(12))) for _ in range(3)]
        for thread in others:
            thread.start()
        text = it.exporter.text()
        for thread in others:
            thread.join()
        stats = tritonstore.stats()
    assert text == it.exporter.alone
    assert (len(answers), len(set(answers))) == (36, 1)
    assert stats["faults"] == {}


def exit_while_a_thread_exports(it: Ending) -> None:
    """The main thread returns; Python ends daemon threads wherever they are."""
    inside = threading.Event()

    def wait() -> None:
        inside.set()
        threading.Event().wait()

    threading.Thread(target=lambda: it.export(wait), daemon=True).start()
    assert inside.wait(60)
    sys.exit(5)


ENDINGS: dict[str, tuple[Callable[[Ending], None], int]] = {
    each.__name__: (each, code)
    for each, code in (
        (ctrl_c, 0), (terminated, -15), (killed, -9), (left, 3), (exited, 4), (forked, 0), (threads, 0),
        (exit_while_a_thread_exports, 5),
    )
}  # fmt: skip


def try_all(folder: Path) -> None:
    exporter = Exporter()
    for name, (ending, code) in ENDINGS.items():
        here = folder / name
        here.mkdir(parents=True)
        with environment(TRITONSTORE_CACHE_FOLDER=str(here / "cache")):
            started = time.monotonic()
            found = _in_child(ending, Ending(exporter, here), here / "stderr")
            seconds = time.monotonic() - started
            after = exporter.export(name, f"file://{here}/store")
        said = (here / "stderr").read_text()
        left_over = [str(path) for path in here.rglob(".*.tmp")]
        records = len(list((here / "cache" / "runs").glob("*.run"))) if (here / "cache" / "runs").is_dir() else 0
        told = {"name": name, "code": found, "expected": code, "said": said, "litter": left_over, "records": records,
                "next": after._asdict(), "seconds": seconds}  # fmt: skip
        print(json.dumps(told), flush=True)


def _in_child(work: Callable[[Ending], None], it: Ending, stderr: Path) -> int:
    """A child that ends as its work says: by `sys.exit` as a program does, exit handlers included."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.alarm(100)  # one that hangs is an error
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT, 0o600), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        work(it)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # at once: torch takes seconds to leave


if __name__ == "__main__":
    try_all(Path(sys.argv[1]))
