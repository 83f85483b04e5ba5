"""Each process that asked something leaves one record, however it ends; one that asked nothing leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.records import PROGRAM
from tests.support.terminal import ROOT
from tritonstore.maintenance.runs import folder_of, load
from tritonstore.runrecord import RunRecord
from tritonstore.settings import Settings

MAIN = PROGRAM.replace("    install()\n", "")


def run(tmp_path: Path, body: str, code: int = 0, *, cache: Path | None = None, **environ: str) -> str:
    """Run the program with this body in its main part; stderr."""
    script = tmp_path / "export.py"
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    script.write_text(f"{MAIN}    pass\n{lines}\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**_environment(cache or tmp_path / "cache"), **environ},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def _environment(cache: Path) -> dict[str, str]:
    changes = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "TRITONSTORE_CACHE_FOLDER": str(cache)}
    return {name: value for name, value in os.environ.items() if name != "TRITONSTORE_RUN"} | changes


def records(tmp_path: Path) -> list[RunRecord]:
    """What was left; nothing damaged, and no temporary file."""
    settings = Settings.load(cache_folder=tmp_path / "cache")
    damaged: list[str] = []
    found = list(load(settings, damaged=damaged))
    assert not damaged
    if os.path.isdir(folder_of(settings)):
        assert len(os.listdir(folder_of(settings))) == len(found)
    return found


def counts(record: RunRecord) -> tuple[int, int, int]:
    """Calls, hits, misses, by the counters and by the kernels alike."""
    by_counters = (record.counters["calls"], sum(record.counters["hits"].values()), record.counters["misses"])
    hits = sum(sum(kernel.hits.values()) for kernel in record.kernels)
    by_kernel = (sum(kernel.calls for kernel in record.kernels), hits, sum(kernel.misses for kernel in record.kernels))
    assert by_counters == by_kernel
    assert sum(sum(line.hits) for line in record.timeline) == hits
    return by_counters


def test_a_process_that_exits(tmp_path: Path) -> None:
    run(tmp_path, "install()\nask(5)\nask(2, kernel='heuristic')")
    (record,) = records(tmp_path)
    assert counts(record) == (7, 4, 1)
    assert (record.ending, record.command, record.processes) == ("exit", "export.py", 1)
    assert record.urls == ["memory:"]
    assert set(record.versions) == {"torch", "triton", "tritonstore", "python"}
    (kernel,) = record.kernels
    assert (kernel.module, kernel.name) == ("model.kernels", "copy")
    assert (kernel.hits, kernel.bypasses, kernel.analyses) == ({"memory": 4}, {"kernel-type": 2}, 3)
    (miss,) = record.misses
    assert (miss.outcome, miss.times, [miss.digest]) == ("published", 1, record.used)
    assert {"code", "arguments", "target", "toolchain", "kernel"} <= set(miss.detail)
    assert miss.seconds > 0
    (bypass,) = record.bypasses
    assert (bypass.reason, bypass.times) == ("kernel-type", 2)
    assert "Heuristics" in bypass.detail
    assert not record.dropped


@pytest.mark.parametrize("body", ["", "install()", "ask(3)", "tritonstore.install(mode='off')\nask(3)"])
def test_a_process_that_asked_nothing_leaves_nothing(tmp_path: Path, body: str) -> None:
    run(tmp_path, body, TRITONSTORE_TARGET="cuda:90:32")
    assert records(tmp_path) == []


def test_an_exception(tmp_path: Path) -> None:
    run(tmp_path, "install()\nask(2)\nraise LookupError('mine')", code=1)
    (record,) = records(tmp_path)
    assert (counts(record), record.ending) == ((2, 1, 1), "LookupError")


def test_sys_exit_and_uninstall(tmp_path: Path) -> None:
    run(tmp_path, "install()\nask(2)\ntritonstore.uninstall()\ninstall()\nask(3)\nsys.exit(7)", code=7)
    (record,) = records(tmp_path)
    assert (counts(record), record.ending) == ((5, 3, 2), "exit")


TERMINATE = "import signal\ninstall()\nask(3)\nos.kill(os.getpid(), signal.SIGTERM)\nsignal.pause()"


def test_sigterm_ends_the_process_as_ever(tmp_path: Path) -> None:
    run(tmp_path, TERMINATE, code=-signal.SIGTERM)
    (record,) = records(tmp_path)
    assert (counts(record), record.ending) == ((3, 2, 1), "SIGTERM")


def test_a_program_with_a_handler_of_its_own_keeps_it(tmp_path: Path) -> None:
    body = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n" + TERMINATE
    run(tmp_path, body, code=9)
    (record,) = records(tmp_path)
    assert (counts(record), record.ending) == ((3, 2, 1), "exit")


def test_sigterm_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    body = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ninstall()\nask(1)\n"
    run(tmp_path, body + "os.kill(os.getpid(), signal.SIGTERM)")
    assert [record.ending for record in records(tmp_path)] == ["exit"]


WORKERS = """
import multiprocessing
install()
ask(2)
context = multiprocessing.get_context({method!r})
workers = [context.Process(target={target}, args=(n,)) for n in (3, 4)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
assert [worker.exitcode for worker in workers] == [0, 0]
"""
WORK = "\ndef work(n):\n    install()\n    ask(n)\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing_skip_atexit_and_leave_theirs(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "MAIN", MAIN.replace("\nif __name__", f"{WORK}\nif __name__"))
    run(tmp_path, WORKERS.format(method=method, target="work"))
    found = records(tmp_path)
    assert sorted(counts(record)[0] for record in found) == [2, 3, 4]
    assert len({record.run for record in found}) == 1
    assert {record.ending for record in found} == {"exit"}
    # A forked worker finds the parent's answer in memory; the others have a memory of their own.
    assert sum(counts(record)[2] for record in found) == (1 if method == "fork" else 3)


def test_forked_children(tmp_path: Path) -> None:
    """One that asks leaves a record of its own calls alone, one that does not leaves nothing, and so does os._exit."""
    body = """
install()
ask(2)
for times, leave in ((5, sys.exit), (0, sys.exit), (3, os._exit)):
    if not os.fork():
        ask(times)
        leave(0)
for _ in range(3):
    os.wait()
"""
    run(tmp_path, body)
    assert sorted(counts(record) for record in records(tmp_path)) == [(2, 1, 1), (5, 5, 0)]


def test_a_forked_worker_that_is_terminated(tmp_path: Path) -> None:
    body = """
import signal
install()
ask(2)
read, write = os.pipe()
child = os.fork()
if not child:
    ask(4)
    os.write(write, b"x")
    signal.pause()
os.read(read, 1)
os.kill(child, signal.SIGTERM)
assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
"""
    run(tmp_path, body)
    found = {record.ending: counts(record) for record in records(tmp_path)}
    assert found == {"SIGTERM": (4, 4, 0), "exit": (2, 1, 1)}


def test_threads(tmp_path: Path) -> None:
    body = """
import threading
install()
threads = [threading.Thread(target=ask, args=(50,)) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    run(tmp_path, body)
    (record,) = records(tmp_path)
    assert counts(record)[0] == 200


FAULTY = """
install()
ask(2)
tritonstore.uninstall()
install()
ask(1)
from tritonstore.pytorch.install import _installer
_installer.session._observer.journal.write()
assert tritonstore.stats()["faults"] == {"run-record": 1}, tritonstore.stats()
"""


def test_a_fault_is_silent_and_counted(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "runs").write_text("a file where the folder should be")
    said = run(tmp_path, FAULTY, TRITONSTORE_STRICT="1")
    assert "tritonstore" not in said.replace(str(tmp_path), "")
    assert "run" not in said


def test_what_a_run_is_named(tmp_path: Path) -> None:
    run(tmp_path, "install()\nask(1)", TRITONSTORE_RUN="nightly-42")
    assert [record.run for record in records(tmp_path)] == ["nightly-42"]
    run(tmp_path, "install()\nask(1)", TRITONSTORE_RUN="../../evil name")
    names = {record.run for record in records(tmp_path)}
    assert len(names) == 2
    assert not any("/" in name or " " in name for name in names)


def test_activation_names_the_run_for_workers_that_start_before_the_first_question(tmp_path: Path) -> None:
    code = (
        "from tritonstore.pytorch.autoload import activate; import os; activate(); print(os.environ['TRITONSTORE_RUN'])"
    )
    environ = {**_environment(tmp_path / "cache"), "TRITONSTORE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, timeout=280, check=True)
    assert done.stdout.strip()


def test_a_signal_in_the_middle_of_counting_does_not_hang(tmp_path: Path) -> None:
    """The handler runs in the thread that counts, which holds these very locks."""
    body = """
import signal
install()
ask(3)
from tritonstore.pytorch.install import _installer
session = _installer.session
with session.counters._lock, session._observer.journal._lock:
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""
    run(tmp_path, body, code=-signal.SIGTERM)
    assert [record.ending for record in records(tmp_path)] == ["SIGTERM"]
