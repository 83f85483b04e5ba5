"""TRITONSTORE_PREWARM: the last run's questions are answered beside the export, and never in its way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tritonstore
from tests.recipes.conftest import KERNELS, write
from tests.recipes.test_prewarm import calls_of, reloaded
from tests.support.elsewhere import ROOT, run_python
from tests.support.flights import OneLease, flight, nothing
from tritonstore.recipes import ahead
from tritonstore.settings import Settings

Ask = Callable[..., dict[str, Any]]

A_RUN_OF_ITS_OWN = {"TRITONSTORE_RUN": ""}

EXPORT = """
import os, sys, json
from tests.recipes.test_prewarm import calls_of
from tests.support.analysis import SEAM
import torch._higher_order_ops.triton_kernel_wrap as wrap
import tritonstore
tritonstore.install(url=sys.argv[1], target="cuda:90:32")
from tritonstore.recipes import ahead
first = ahead._ahead
tritonstore.install(url=sys.argv[1], target="cuda:90:32")  # the same again does nothing
tritonstore.install(url=sys.argv[1], target="cuda:90:32", prewarm=3)
assert ahead._ahead is first
ahead._ahead.thread.join(100)
assert not ahead._ahead.thread.is_alive()
assert ahead.patience(("soon", "scale")) is None, "nobody is at it any more"
import soon
for kernel, arguments in calls_of(soon):
    getattr(wrap, SEAM)(kernel, dict(arguments), {})
print(json.dumps(tritonstore.stats()["analyses"]), json.dumps(tritonstore.stats()["hits"]))
"""


@pytest.fixture
def edited(folder: Path, url: str, ask: Ask) -> Path:
    """A run on record whose kernels were edited since."""
    write(folder, "soon", KERNELS)
    ask(*calls_of(reloaded("soon")))
    write(folder, "soon", KERNELS.replace("+ offsets, tl.load(x", "+ offsets, 1 + tl.load(x"))
    return folder


def test_the_export_finds_the_answers(edited: Path, url: str) -> None:
    said = run_python(EXPORT, url, environ={**A_RUN_OF_ITS_OWN, "TRITONSTORE_PREWARM": "2"}, path=[edited])
    assert said == '0 {"file": 2}'


ENDS = """
import os, sys
import tritonstore
tritonstore.install(url=sys.argv[1], target="cuda:90:32", prewarm=1)
with open(sys.argv[2]) as told:
    print(told.read())
"""


def test_it_ends_with_the_program(edited: Path, url: str) -> None:
    """Also where a worker is in the middle of a module that never comes back."""
    told = edited / "told"
    os.mkfifo(told)
    text = f"import os, threading\nopen({str(told)!r}, 'w').write(str(os.getpid()))\nthreading.Event().wait()\n"
    write(edited, "soon", text)
    pid = int(run_python(ENDS, url, str(told), path=[edited], environ=A_RUN_OF_ITS_OWN))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_workers_end_with_a_killed_parent(edited: Path, url: str) -> None:
    told, ended = edited / "told", edited / "ended"
    os.mkfifo(told)
    os.mkfifo(ended)
    # The worker holds `ended` open for writing until it is gone, which a reader sees.
    text = f"import os, threading\nkept = os.open({str(ended)!r}, os.O_WRONLY)\n"
    text += f"open({str(told)!r}, 'w').close()\nthreading.Event().wait()\n"
    write(edited, "soon", text)
    environ = {**os.environ, **A_RUN_OF_ITS_OWN, "PYTHONPATH": f"{edited}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    parent = subprocess.Popen([sys.executable, "-c", ENDS, url, str(told)], env=environ, stderr=subprocess.DEVNULL)
    with open(ended, "rb") as until:
        parent.kill()
        parent.wait()
        assert until.read() == b""


def test_nothing_is_started_where_nothing_is_asked_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONSTORE_PREWARM", "5")
    monkeypatch.delenv("TRITONSTORE_PREWARMING", raising=False)
    for settings in ({"prewarm": 0}, {"mode": "readonly"}, {"mode": "off"}):
        ahead.start(Settings.load(url=url, **settings))
    assert ahead._ahead is None
    assert "TRITONSTORE_PREWARMING" not in os.environ


def test_a_process_of_one_that_prewarms_does_not(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by an argument either: a worker imports modules that call install(prewarm=2)."""
    monkeypatch.setenv("TRITONSTORE_PREWARMING", "1")
    ahead.start(Settings.load(url=url, prewarm=2))
    assert ahead._ahead is None


def test_a_thread_that_cannot_start_costs_a_word(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONSTORE_PREWARMING", "")  # which is as good as none, and comes back afterwards

    def refuse(thread: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    said: list[str] = []
    monkeypatch.setattr(ahead, "speak", said.append)
    monkeypatch.setattr(ahead, "_ahead", None)
    ahead.start(Settings.load(url=url, prewarm=1))
    assert said == ["prewarm does not start: RuntimeError: can't start new thread"]


def test_without_a_run_on_record_nothing_happens(url: str) -> None:
    pool = ahead._Ahead(Settings.load(url=url, prewarm=1), [])
    pool.thread.start()
    pool.thread.join(60)
    assert pool.patience(("soon", "scale")) is None


def test_a_wait_is_cut_short_and_says_nothing_about_the_holder() -> None:
    class Held(OneLease):
        def overdue(self) -> None:
            raise AssertionError("one short wait must not end all waiting for this store")

    waiting, counters, _ = flight(Held(False))
    with waiting.claim("0" * 64, nothing, 0.01) as outcome:
        assert outcome == ("analyse", None)
    assert counters.snapshot()["lease_timeouts"] == 1


def test_an_export_waits_for_a_worker_as_long_as_the_analysis_once_took(
    folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a call asks of its claim, with the pool at work and without."""
    waits: list[float | None] = []
    store = tritonstore.open_store(url)
    claim = store.claim
    monkeypatch.setattr(store, "claim", lambda key, wait=None: (waits.append(wait), claim(key, wait))[1])
    pool = ahead._Ahead(Settings.load(url=url, prewarm=1), [])
    pool._seconds = {("held", "scale"): 0.125}
    monkeypatch.setattr(ahead, "_ahead", pool)
    write(folder, "held", KERNELS)
    module = reloaded("held")
    import torch._higher_order_ops.triton_kernel_wrap as wrap

    from tests.support.analysis import SEAM

    with tritonstore.installed(store):
        for kernel, arguments in calls_of(module):
            getattr(wrap, SEAM)(kernel, dict(arguments), {})
        pool.stop()
        getattr(wrap, SEAM)(module.copy, {**calls_of(module)[1][1], "SIZE": 32}, {})
    assert waits == [0.125, None, None]
