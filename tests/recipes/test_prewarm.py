"""Prewarm, with real worker processes: recorded questions are answered under what is installed now."""

from __future__ import annotations

import ast
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tritonstore
from tests.recipes.conftest import KERNELS, tensors, write
from tests.support.elsewhere import ROOT, run_python
from tritonstore.backends.files import FilesBackend
from tritonstore.entry import decode
from tritonstore.errors import SettingsError, TritonStoreError
from tritonstore.maintenance.inventory import target_of
from tritonstore.recipes.prewarm import Prewarm, Summary, _order
from tritonstore.recipes.workers import WorkerError
from tritonstore.settings import Settings

Ask = Callable[..., dict[str, Any]]

PLAIN = "@triton.jit\ndef kernel(x, y):\n    tl.store(y, tl.load(x))\n"
TURNED = PLAIN.replace("tl.store(y", "tl.store(x")


def named(name: str, text: str = PLAIN) -> str:
    """As `text`, but no other module's kernel: equal kernels are one question, whatever modules they stand in."""
    return text.replace("tl.load(x)", f"tl.load(x) + {len(name)}.{sum(name.encode())}")


def calls_of(module: Any) -> list[tuple[Any, dict[str, Any]]]:
    wide, narrow = tensors("x", "y"), {"SIZE": 16}
    return [(module.scale, {**wide, "factor": 2.0, **narrow}), (module.copy, {**wide, **narrow})]


def reloaded(name: str) -> Any:
    import importlib

    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def command(url: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tritonstore", "prewarm", "--store", url, *arguments]


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


def test_kernels_that_were_edited(folder: Path, url: str, ask: Ask) -> None:
    """The questions of the old source, asked of the new one: the export after that asks PyTorch nothing."""
    write(folder, "edited", KERNELS)
    assert ask(*calls_of(reloaded("edited")))["publishes"] == 2
    write(folder, "edited", KERNELS.replace("tl.store(y", "tl.store(x").replace("tl.load(x", "tl.load(y"))
    summary = tritonstore.prewarm(url=url, jobs=2)
    assert (summary.total, summary.by_status, summary.trouble) == (2, {"answered": 2}, [])
    assert summary.seconds > 0
    after = ask(*calls_of(reloaded("edited")))
    assert (after["analyses"], after["hits"]) == (0, {"file": 2})
    again = tritonstore.prewarm(url=url, jobs=1)
    assert again.by_status == {"known": 2}


def test_an_answer_that_was_found_wrong_is_not_asked_for(folder: Path, url: str, ask: Ask) -> None:
    """Brought back by a backup, it would be asked for again and again, and never stored."""
    write(folder, "aside", named("aside"))
    ask((reloaded("aside").kernel, tensors("x", "y")))
    files = FilesBackend(url.removeprefix("file://"))
    ((digest, data),) = [(record.digest, files.get(record.digest)) for record in files.scan()]
    store = tritonstore.open_store(url)
    store.quarantine(digest)
    assert data is not None
    files.put(digest, data)
    summary = tritonstore.prewarm(url=url, jobs=1)
    assert summary.by_status == {"quarantined": 1}
    given = command(url, "--jobs", "1", "--path", str(folder))
    done = subprocess.run(given, env=environ(), capture_output=True, text=True, check=False)
    assert "aside.kernel: its answer was found to be wrong and is not used" in done.stderr
    assert tritonstore.open_store(url).set_aside(digest)
    assert not store.set_aside("0" * 64)


def test_what_cannot_be_asked_is_named_and_the_rest_goes_on(folder: Path, url: str, ask: Ask, tmp_path: Path) -> None:
    """Modules that raise, print, end the process or are gone; each costs its own kernel."""
    # As Triton's tutorials do: a module asks for the real driver, which no earlier question may have pushed aside.
    undeclared = "import triton\nassert not hasattr(triton.runtime.driver._active, 'declared_by_tritonstore')\n"
    # The child of a module that forks ends in the middle of the worker's own work.
    forks = "import os, sys\nif os.fork() == 0:\n    sys.exit()\nos.wait()\n"
    spoilt = {
        "raises": "raise ValueError('spoilt')\n",
        "leaves": "import os\nos._exit(7)\n",
        "prints": "import os\nprint('noise')\nos.write(1, b'noise' * 9)\n" + named("prints", TURNED),
        "reads": "import sys\nassert sys.stdin.read() == ''\n" + named("reads", TURNED),
        "dies": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        "whole": undeclared + named("whole", TURNED),
        "plain": undeclared + named("plain", TURNED),
        "forks": forks + named("forks", TURNED),
        "gone": "",
        "ends": "import sys\nsys.exit('enough')\n",
    }
    for name in spoilt:
        write(folder, name, named(name))
        ask((reloaded(name).kernel, tensors("x", "y")))
    for name, text in spoilt.items():
        write(folder, name, text)
    (folder / "gone.py").unlink()
    done = subprocess.run(
        command(url, "--jobs", "2", "--path", str(folder), "--json"),
        env=environ(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (1, "")
    said = json.loads(done.stdout)
    assert said["by_status"]["answered"] == 5
    assert said["total"] == len(spoilt)
    trouble = {each["kernel"]: (each["status"], each["text"]) for each in said["trouble"]}
    assert trouble["raises.kernel"] == ("lost: import", "ValueError: spoilt, importing raises")
    assert trouble["ends.kernel"] == ("lost: import", "SystemExit: enough, importing ends")
    assert trouble["gone.kernel"] == ("lost: gone", "there is no module gone")
    assert trouble["leaves.kernel"][0] == trouble["dies.kernel"][0] == "died"
    assert "exit code 7" in trouble["leaves.kernel"][1]
    assert "signal 9" in trouble["dies.kernel"][1]


def test_a_module_that_never_comes_back(folder: Path, url: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "stuck", PLAIN)
    ask((reloaded("stuck").kernel, tensors("x", "y")))
    write(folder, "stuck", "import threading\nthreading.Event().wait()\n")
    monkeypatch.setattr("tritonstore.recipes.prewarm.PATIENCE", 1.0)
    (result,) = tritonstore.prewarm(url=url, jobs=1).trouble
    assert result.status == "died"
    assert "nothing came within 1 s" in result.text


def test_a_module_that_writes_without_end(folder: Path, url: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs its own kernel, and no more of the disk than a worker may write."""
    for name in ("floods", "honest"):
        write(folder, name, named(name))
        ask((reloaded(name).kernel, tensors("x", "y")))
    flood = "import sys\nwhile True:\n    sys.stderr.write('x' * 99_999 + '\\n')\n"
    write(folder, "floods", flood + named("floods"))
    monkeypatch.setattr("tritonstore.recipes.workers._MOST_TALK", 1 << 20)
    write(folder, "honest", named("honest") + "\n# edited\n")
    summary = tritonstore.prewarm(url=url, jobs=1)
    assert summary.by_status == {"died": 1, "known": 1}
    ((recipe, status, text, _),) = summary.trouble
    assert (recipe.kernel, status) == ("floods.kernel", "died")
    assert text.startswith("it wrote 1 MB to standard error; the process ended with signal 9")


@pytest.fixture
def two(folder: Path, url: str, ask: Ask) -> Path:
    """A store with two old questions; importing the second kernel's module says so and waits for a file."""
    for name in ("first", "second"):
        write(folder, name, named(name))
        ask((reloaded(name).kernel, tensors("x", "y")))
    write(folder, "first", named("first", TURNED))
    gate = "import os\nfd = os.open({0!r}, os.O_WRONLY)\nos.write(fd, b'.')\nos.close(fd)\nopen({1!r}).read()\n"
    told, opened = folder / "told", folder / "opened"
    os.mkfifo(told)
    os.mkfifo(opened)
    write(folder, "second", gate.format(str(told), str(opened)) + named("second", TURNED))
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda each: each.name)
def test_ended_in_the_middle_it_goes_on_where_it_was(
    two: Path, url: str, tmp_path: Path, number: signal.Signals
) -> None:
    """One worker: the first question is answered or waits, the second is being asked when the signal comes."""
    child = subprocess.Popen(
        command(url, "--jobs", "1", "--path", str(two)),
        env=environ(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with open(two / "told") as told:  # a worker is at the second one
        assert told.read() == "."
    child.send_signal(number)
    _, talk = child.communicate(timeout=60)
    assert child.returncode == {signal.SIGINT: 130, signal.SIGKILL: -9}[number], talk
    if number == signal.SIGINT:
        assert "the same command goes on from here" in talk
    assert "Traceback" not in talk
    stored = {record.digest for record in FilesBackend(url.removeprefix("file://")).scan()}
    assert len(stored) in (2, 3)
    write(two, "second", named("second", TURNED))
    summary = tritonstore.prewarm(url=url, jobs=1, path=[str(two), str(ROOT), *sys.path])
    left = 4 - len(stored)
    assert summary.by_status == {"answered": left, **({"known": 1} if left == 1 else {})}


def _digests(url: str) -> list[str]:
    return [record.digest for record in FilesBackend(url.removeprefix("file://")).scan()]


def test_the_last_run_for_another_gpu_after_its_entries_have_gone(folder: Path, url: str, ask: Ask) -> None:
    """The record of the run holds the question of a miss."""
    write(folder, "pruned", PLAIN)
    ask((reloaded("pruned").kernel, tensors("x", "y")))
    store = FilesBackend(url.removeprefix("file://"))
    for digest in _digests(url):
        store.delete(digest)
    assert len(Prewarm(Settings.load(url=url)).plan) == 0
    assert tritonstore.prewarm(url=url, run="last", jobs=1, target="hip:gfx942:64").by_status == {"answered": 1}
    (digest,) = _digests(url)
    assert target_of(decode(store.get(digest) or b"")) == "hip:gfx942:64"


def test_workers_are_optimised_as_this_process_is() -> None:
    """What Python compiles away is part of a key. And Python ignores a Path on its path, which JSON cannot hold."""
    program = "from pathlib import Path; from tritonstore.recipes.workers import command; "
    program += "print(command([Path('/x'), '/y']))"
    for flags, expected in ((("-OO",), ["-OO", "-c"]), ((), ["-c"])):
        found = ast.literal_eval(run_python(program, flags=flags))
        assert found[1:-2] == expected
        assert found[-1] == '["/y"]'


def test_a_declared_target_is_not_asked_for_in_place_of_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONSTORE_TARGET", "cuda:75:32")
    asked = [_order(Settings.load(**more), "prewarm")["settings"]["target"] for more in ({}, {"prefer_target": True})]
    asked.append(_order(Settings.load(target="cuda:80:32"), "prewarm")["settings"]["target"])
    assert asked == [None, "cuda:75:32", "cuda:80:32"]


def test_bad_requests(url: str) -> None:
    with pytest.raises(TritonStoreError, match="no record of a run nowhere"):
        tritonstore.prewarm(url=url, run="nowhere")
    with pytest.raises(SettingsError, match="not from both"):
        tritonstore.prewarm(url=url, run="last", bundle="x")
    with pytest.raises(SettingsError, match="nothing could be stored"):
        tritonstore.prewarm(url=url, mode="readonly")
    with pytest.raises(FileNotFoundError):
        tritonstore.prewarm(url=url, bundle="/nowhere/x.tsb")
    assert tritonstore.prewarm(url=url) == Summary()


def test_a_worker_that_cannot_start_costs_its_place(
    folder: Path, url: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that runs short of memory: the first of two ends while it starts, the other does all."""
    write(folder, "narrow", KERNELS)
    ask(*calls_of(reloaded("narrow")))
    write(folder, "narrow", KERNELS.replace("tl.store(y", "tl.store(x").replace("tl.load(x", "tl.load(y"))
    starts = tmp_path / "starts"
    starts.mkdir()
    first = "import os\ntry:\n    os.mkdir('first')\nexcept FileExistsError:\n    pass\nelse:\n    os._exit(9)\n"
    (starts / "sitecustomize.py").write_text(first.replace("'first'", repr(str(tmp_path / "first"))))
    monkeypatch.setenv("PYTHONPATH", str(starts))
    assert tritonstore.prewarm(url=url, jobs=2).by_status == {"answered": 2}
    (tmp_path / "first").rmdir()
    with pytest.raises(WorkerError, match="a worker process cannot work: the process ended with exit code 9"):
        tritonstore.prewarm(url=url, jobs=1)


def test_a_process_that_cannot_be_made_costs_its_place(
    folder: Path, url: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "few", KERNELS)
    ask(*calls_of(reloaded("few")))
    write(folder, "few", KERNELS.replace("tl.store(y", "tl.store(x").replace("tl.load(x", "tl.load(y"))
    make, made = subprocess.Popen, []

    def limited(*given: Any, **others: Any) -> Any:
        if made:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        made.append(make(*given, **others))
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", limited)
    assert tritonstore.prewarm(url=url, jobs=2).by_status == {"answered": 2}
    with pytest.raises(WorkerError, match="no worker process can be started"):
        tritonstore.prewarm(url=url, jobs=2)


def test_workers_that_cannot_work(folder: Path, url: str, ask: Ask, tmp_path: Path) -> None:
    write(folder, "fine", PLAIN)
    ask((reloaded("fine").kernel, tensors("x", "y")))
    with pytest.raises(WorkerError, match="cannot work: the process ended with exit code 1: ModuleNotFoundError"):
        tritonstore.prewarm(url=url, jobs=1, path=[str(tmp_path)])
