"""The benchmarks: each section runs in a tiny form and gives its figures, and the tables show them. No timing here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_lib import __main__ as command
from bench_lib import calls, child, export, growth, proxy, reach, scale, start, timing
from bench_lib.tables import MARKS, placed, tables
from demo_lib.measure import seam_name, wrapper_module
from demo_lib.target import TARGET

from tests.support.servers import redis_server

FIGURE = {"median_us", "p99_us", "max_us", "samples", "calls_a_sample"}


@pytest.fixture(autouse=True)
def kept_environment() -> Iterator[None]:
    """Sections set variables for what they measure."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def shown(name: str, section: dict[str, Any]) -> str:
    """The tables of one section, from what a JSON file would hold of it."""
    figures = {"environment": {"cpu_count": "2"}, "scale": 1.0, "seconds": {name: 1.0}, "sections": {name: section}}
    return tables(json.loads(json.dumps(figures)))


def test_calls(tmp_path: Path) -> None:
    from torch._inductor.runtime.caching import config

    caching, seam = config.IS_CACHING_MODULE_ENABLED, getattr(wrapper_module(), seam_name())
    try:
        with redis_server(tmp_path / "redis") as server:
            section = calls.section(tmp_path, 0.005, server.port)
    finally:
        config.IS_CACHING_MODULE_ENABLED = caching
    assert getattr(wrapper_module(), seam_name()) is seam
    assert list(section) == ["4", "16", "40"]
    for told in section.values():
        assert list(told) == ["hits", "stored", "publishes", "miss", "entry_bytes"]
        hits = ["exact dict", "key", "memory", "torch memoizer", "files", "diskcache", "redis"]
        assert list(told["hits"]) == hits
        assert "bare open, read, SHA-256" in told["stored"]
        assert "bare write, rename" in told["publishes"]
        for part in ("hits", "stored", "publishes"):
            assert all(set(figure) == FIGURE and figure["median_us"] > 0 for figure in told[part].values())
        assert told["miss"]["analysis_us"] > 0 < told["miss"]["overhead_us"]
    assert "| memory hit / exact dict |" in shown("calls", section)


def test_start(tmp_path: Path) -> None:
    store = {"TRITONSTORE_URL": (tmp_path / "store").as_uri(), "TRITONSTORE_TARGET": TARGET}
    env = child.environment(tmp_path / "cache", TRITONSTORE="1", **store)
    steps = start.steps_of(tmp_path, env, 1)
    assert list(steps)[-3:] == ["first call", "second call", "third call"]
    assert start.added(steps) > 0
    cli = start.commands(env, 1)
    assert list(cli) == ["--help", "stats", start.NOTHING]
    one = timing.summary([0.001])
    section = {"activate": {"off": one, "on": one}, "steps": {"warm": steps}, "cli": cli, "added_ms": 7.0}
    assert "| added to the first call, warm | 7.0 ms | 20 ms | met |" in shown("start", section)


def test_export(tmp_path: Path) -> None:
    os.environ["TRITONSTORE_CACHE_FOLDER"] = str(tmp_path / "cache")
    seam = getattr(wrapper_module(), seam_name())
    section = export.warm(tmp_path, 1, 1)
    assert getattr(wrapper_module(), seam_name()) is seam
    assert list(section["seconds"]) == ["PyTorch alone", "warm", "floor"]
    assert section["hits"] > 0
    assert set(section["in_export"]) == {"exact dict", "warm"}
    line = {"name": "cold", "workers": 2, "analyses": 7, "analysis_seconds": 1.0, "export_seconds": 2.0}
    section["cold"] = [{**line, "wall_seconds": 3.0, "identical": True}]
    assert "| cold | 2 | 7 | 1.00 | 2.00 | 3.0 | yes |" in shown("export", section)


def test_scale(tmp_path: Path) -> None:
    section = scale.section(tmp_path, 0.002, False)
    assert list(section) == ["20", "200", "writers"]
    for size in ("20", "200"):
        assert list(section[size]["commands"]) == ["stats", "ls", "verify", "prune --dry-run"]
        assert section[size]["commands"]["ls"]["peak_mib"] > 1
        assert section[size]["prune"]["left"] < int(size)
    assert [figure["samples"] for figure in section["writers"].values()] == [10, 80, 10, 80]
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}  # the stores are gone
    assert "| look-up, 200 / 20 |" in shown("scale", section)


def test_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "LATENCIES", (0.0001,))
    section = reach.section(tmp_path, 0.04)
    steps = ["cold", "warm-shared", "warm-local", "all in get_many"]
    for kind in ("redis", "s3"):
        assert list(section[kind]["0.0001"]) == steps
    assert "| redis | 0.1 ms |" in shown("reach", section)


def test_growth(tmp_path: Path) -> None:
    section = growth.section(tmp_path, 0.0005)
    assert section["hits"] == 500 + 10
    assert len(section["resident_mib"]) == 11
    assert section["answers_held"] == section["answers_made"] == 60
    assert "| answers made, answers held | 60, 60 |" in shown("growth", section)


def test_the_proxy_passes_everything_on_in_order() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def echo() -> None:
            near, _ = listener.accept()
            with near:
                while data := near.recv(1 << 16):
                    near.sendall(data)

        threading.Thread(target=echo, daemon=True).start()
        sent = os.urandom(300_000)
        with (
            proxy.delayed(listener.getsockname()[1], 0.002) as port,
            socket.create_connection(("127.0.0.1", port)) as near,
        ):
            threading.Thread(target=lambda: (near.sendall(sent), near.shutdown(socket.SHUT_WR)), daemon=True).start()
            received = b""
            while data := near.recv(1 << 16):
                received += data
    assert received == sent


def test_contestants_take_turns() -> None:
    seen: list[str] = []
    told = timing.once_each({name: lambda number, name=name: seen.append(f"{name}{number}") for name in "abc"}, 3)
    assert seen == ["a0", "b0", "c0", "b1", "c1", "a1", "c2", "a2", "b2"]
    assert all(figure["samples"] == 3 for figure in told.values())
    assert set(timing.interleaved({"a": list, "b": dict}, 0.0)) == {"a", "b"}


TOLD = {
    "hits": 7, "digests": 2, "resident_mib": [1.0] * 11, "answers_made": 3, "answers_held": 2,
    "tier_values": 2, "tier_bytes": 1 << 20, "resident_after_more_mib": 2.0,
}  # fmt: skip

LEAVES_LATE = f"""
import os, sys
from bench_lib import __main__ as command, growth
from pathlib import Path

def section(folder, scale):
    from tritonstore.leaving import at_end
    late = Path(folder, "cache", "runs")
    at_end(lambda ending: (os.makedirs(late), print("left", late, file=sys.stderr)))
    return {TOLD}

growth.section = section
sys.exit(command.main(["growth", "--folder", sys.argv[1]]))
"""


def test_what_a_process_leaves_at_its_end_goes_too(root: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_LATE, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": f"{root / 'scripts'}{os.pathsep}{root}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"left {tmp_path}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_json_and_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(growth, "section", lambda folder, scale: TOLD)
    figures = tmp_path / "figures.json"
    assert command.main(["growth", "--json", str(figures), "--folder", str(tmp_path)]) == 0
    first = capsys.readouterr().out
    assert json.loads(figures.read_text())["sections"] == {"growth": TOLD}
    assert command.main(["--table", str(figures)]) == 0
    assert capsys.readouterr().out == first
    assert "| hits | 7 over 2 digests |" in first
    assert list(tmp_path.iterdir()) == [figures]
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    for _ in range(2):
        assert command.main(["--table", str(figures), "--into", str(document)]) == 0
        assert document.read_text() == f"before\n{MARKS[0]}\n\n{first}\n{MARKS[1]}\nafter\n"
    document.write_text("no marks")
    with pytest.raises(ValueError, match="needs the lines"):
        command.main(["--table", str(figures), "--into", str(document)])
    assert document.read_text() == "no marks"


def test_a_section_that_fails_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(folder: Path, scale: float) -> dict[str, Any]:
        raise OSError("the disk is full")

    monkeypatch.setattr(growth, "section", fails)
    figures = tmp_path / "figures.json"
    assert command.main(["growth", "--json", str(figures)]) == 1
    assert json.loads(figures.read_text())["failed"] == {"growth": "OSError: the disk is full"}
    assert "bench: growth: OSError: the disk is full" in capsys.readouterr().err


def test_the_document_has_the_marks(root: Path) -> None:
    assert placed("", (root / "docs" / "performance.md").read_text())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no section nothing"),
        (["--json", "/nowhere/at/all.json"], "there is no folder /nowhere/at"),
        (["--folder", "/nowhere/at"], "--folder: there is no folder /nowhere/at"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(arguments)
    assert message in capsys.readouterr().err


def test_a_failing_child_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no such thing"):
        child.run(["-c", "raise SystemExit('no such thing')"], child.environment(tmp_path))


def test_help(root: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(root / "scripts" / "bench"), "--help"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in command.SECTIONS)
