"""The demo: a small real run with its JSON, the verdict, a wrong store, Ctrl-C and bad options."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from demo_lib.methods import METHODS
from demo_lib.report import Progress, table
from demo_lib.runs import RUNS, Options, differences, run, verdict

FIELDS = {
    "name": str,
    "workers": int,
    "calls": int,
    "analyses": int,
    "distinct_keys": (int, type(None)),
    "analysis_seconds": float,
    "export_seconds": float,
    "identical": bool,
}
SMALL = "decode,prefill_2,prefill_dynamic"


def start(root: Path, temporary: Path, *arguments: str) -> subprocess.Popen[str]:
    """scripts/demo in this environment, with `temporary` for its temporary files."""
    return subprocess.Popen(
        [sys.executable, "-m", "demo_lib", *arguments],
        env=os.environ | {"PYTHONPATH": f"{root / 'scripts'}{os.pathsep}{root}", "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=temporary,
    )


def processes_that_name(text: str) -> list[str]:
    """Command lines of running processes that hold `text`."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if text in line:
            lines.append(line)
    return lines


def line(name: str, **changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "name": name,
        "workers": 2,
        "calls": 100,
        "analyses": {"pytorch": 100, "exact-dict": 40, "cold": 10}.get(name, 0),
        "distinct_keys": {"pytorch": None, "exact-dict": 30}.get(name, 10),
        "analysis_seconds": 1.5,
        "export_seconds": 10.25,
        "identical": True,
    }
    return usual | changes


def test_there_are_enough_methods() -> None:
    names = [method.name for method in METHODS]
    assert len(set(names)) == len(names) >= 10
    assert {method.length for method in METHODS if method.name.startswith("prefill")} >= {2, 128}
    assert {method.batch for method in METHODS} == {1, 2}
    assert sum(method.dynamic for method in METHODS) == 1


def test_small_run(root: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    figures = tmp_path / "figures.json"
    demo = start(root, temporary, "--layers", "1", "--methods", SMALL, "--json", str(figures))
    out, talk = demo.communicate()
    assert demo.returncode == 0, talk
    data = json.loads(figures.read_text())
    assert list(data) == ["runs"]
    assert [entry["name"] for entry in data["runs"]] == list(RUNS)
    for entry in data["runs"]:
        assert list(entry) == list(FIELDS)
        assert all(isinstance(entry[field], kind) for field, kind in FIELDS.items())
        assert entry["identical"]
        assert entry["workers"] == 2
        assert entry["calls"] == data["runs"][0]["calls"] > 0
    alone, exact, cold, warm, moved = data["runs"]
    assert alone["analyses"] == alone["calls"]
    assert alone["distinct_keys"] is None
    assert exact["distinct_keys"] <= exact["analyses"] < alone["analyses"]
    assert cold["analyses"] == cold["distinct_keys"] < exact["analyses"]
    assert warm["analyses"] == moved["analyses"] == 0
    assert warm["distinct_keys"] == moved["distinct_keys"] == cold["distinct_keys"]
    assert all(name in out for name in RUNS)
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in talk
    assert "warm-moved: 3 methods" in talk
    assert list(temporary.iterdir()) == []


def test_plain_model_with_kernels_brought_in(tmp_path: Path) -> None:
    """The pass puts kernels where the model has ATen ops, and its own questions go through the store, too."""
    options = Options(1, 1, ("decode",), (tmp_path / "store").as_uri(), tmp_path, plain=True)
    progress = Progress(io.StringIO())
    alone, cold = run("pytorch", options, progress), run("cold", options, progress)
    assert alone.line["analyses"] == alone.line["calls"] == cold.line["calls"] > 0
    assert 0 < cold.line["analyses"] == cold.line["distinct_keys"] < alone.line["analyses"]
    assert cold.line["identical"]
    text = (tmp_path / "cold" / "decode.txt").read_text()
    for kernel in ("rms_norm_kernel", "sdpa_kernel", "topk_kernel"):
        assert f"tritonstore.replacement.kernels.{kernel.removesuffix('_kernel')}.{kernel}" in text
    assert "aten.scaled_dot_product_attention" not in text


def test_a_wrong_answer_in_the_store_is_seen(tmp_path: Path) -> None:
    """`identical` must be able to be false: here every stored answer says that nothing is written."""
    from tritonstore import entry

    options = Options(1, 1, ("decode",), (tmp_path / "store").as_uri(), tmp_path)
    progress = Progress(io.StringIO())
    assert run("pytorch", options, progress).line["identical"]
    cold = run("cold", options, progress)
    assert cold.line["identical"]
    stored = [path for path in (tmp_path / "store").rglob("*") if path.is_file() and len(path.name) == 64]
    assert len(stored) == cold.line["analyses"] > 0
    for path in stored:
        good = entry.decode(path.read_bytes())
        bad = good.access._replace(writes=(), can_fuse_epilogue=False)
        path.write_bytes(entry.encode(good._replace(access=bad)))
    warm = run("warm", options, progress)
    assert warm.line["analyses"] == 0
    assert not warm.line["identical"]
    (sentence,) = differences(tmp_path / "pytorch", warm.texts, ("decode",))
    assert sentence.startswith("decode differs at line ")


def test_interrupt(root: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    demo = start(root, temporary, "--methods", "decode,decode_batch2")
    assert demo.stderr is not None
    assert demo.stderr.readline() == "pytorch: 2 methods\n"
    # Once a worker has written its log file, there is something to clean up.
    while not list(temporary.glob("*/pytorch/worker-1.log")):
        with pytest.raises(subprocess.TimeoutExpired):
            demo.wait(0.02)
    assert processes_that_name(str(temporary))
    demo.send_signal(signal.SIGINT)
    _, talk = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert talk == "demo: interrupted; its processes and temporary files are gone\n"
    assert list(temporary.iterdir()) == []
    assert processes_that_name(str(temporary)) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "'0' is not a whole number of at least 1"),
        (["--workers", "two"], "'two' is not a whole number of at least 1"),
        (["--methods", "decode,prefill_3"], "no method 'prefill_3'; there are decode, "),
        (["--json", "no-folder/figures.json"], "is not a file in a folder that exists"),
        (["--store", "nowhere://x", "--methods", "decode", "--layers", "1"], "nowhere"),
    ],
)
def test_bad_options(root: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    demo = start(root, tmp_path, *arguments)
    _, talk = demo.communicate()
    assert demo.returncode == 2
    assert message in talk
    assert "Traceback" not in talk


def test_aoti_needs_a_gpu(root: Path, tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        return  # there it runs; it takes minutes, and has no place in a test
    demo = start(root, tmp_path, "--aoti")
    _, talk = demo.communicate()
    assert demo.returncode == 2
    assert talk == "demo: --aoti: AOTInductor compiles for a GPU, and PyTorch sees none here; leave --aoti out\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"cold": {"identical": False}}, "cold: the graphs are not those of PyTorch alone"),
        ({"warm": {"analyses": 1}}, "warm: 1 analyses, not 0"),
        ({"warm-moved": {"analyses": 2}}, "warm-moved: 2 analyses, not 0"),
        ({"cold": {"analyses": 11}}, "cold: 11 analyses for 10 distinct keys"),
        ({"cold": {"analyses": 0}}, "cold: 0 analyses for 10 distinct keys (was the store empty at first?)"),
        ({"exact-dict": {"analyses": 10}}, "cold: 10 analyses, no fewer than the exact dict's 10"),
    ],
)
def test_verdict(changes: dict[str, Any], message: str | None) -> None:
    wrong = verdict([line(name, **changes.get(name, {})) for name in RUNS])
    assert len(wrong) == (message is not None)
    assert message is None or wrong[0].startswith(message)


def test_table_fits_eighty_columns() -> None:
    rows = table([line(name, calls=10**6, export_seconds=12345.678) for name in RUNS]).splitlines()
    assert len(rows) == 2 + len(RUNS)
    assert max(map(len, rows)) <= 80


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_colour", [False, True])
def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, no_colour: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    progress = Progress(stream)
    progress.begin("cold", 12)
    progress.at(0, "decode")
    progress.step()
    progress.end(line("cold"))
    text = stream.getvalue()
    assert "1/12 decode" in text
    assert ("\x1b[32m" in text) is not no_colour
