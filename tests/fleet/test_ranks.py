"""Four ranks on one cold store, then another host on the warm one: real kernels, by the demo's own runs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from demo_lib.report import Progress
from demo_lib.runs import Options, Result, run

from tests.support.servers import s3_url

# Some thirty processes that import torch, on a machine that may be busy.
pytestmark = pytest.mark.timeout(1500)

RANKS = 4
METHODS = ("decode", "decode_batch2", "prefill_2", "prefill_16_batch2")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what PyTorch alone exports."""
    folder = tmp_path_factory.mktemp("alone")
    start("pytorch", Options(RANKS, 1, METHODS, "", folder))
    return folder / "pytorch"


def start(name: str, options: Options) -> Result:
    talk = io.StringIO()
    result = run(name, options, Progress(talk))
    assert "a worker's store says" not in talk.getvalue(), talk.getvalue()
    return result


def fleet(alone: Path, folder: Path, shared: str) -> tuple[Result, Result]:
    """A cold run of four ranks on one host, and one on another host: another home, checkout and local tier."""
    (folder / "pytorch").symlink_to(alone)
    options = Options(RANKS, 1, METHODS, f"file://{folder}/host-1,{shared}", folder)
    cold = start("cold", options)
    moved = start("warm-moved", replace(options, store=f"file://{folder}/host-2,{shared}"))
    for result in (cold, moved):
        assert result.line["identical"]
        assert result.keys == cold.keys
    assert moved.line["analyses"] == 0
    entries = {path.name for path in (folder / "host-2").rglob("*") if len(path.name) == 64}
    assert entries == cold.keys, "the shared store has filled the local tier"
    return cold, moved


def test_files(alone: Path, tmp_path: Path) -> None:
    cold, _ = fleet(alone, tmp_path, f"file://{tmp_path}/shared?shared=true")
    assert cold.line["analyses"] == cold.line["distinct_keys"] > 0


def test_redis(alone: Path, tmp_path: Path, redis_port: int, redis_client: object) -> None:
    cold, _ = fleet(alone, tmp_path, f"redis://127.0.0.1:{redis_port}?request_timeout=60&lease_duration=60s")
    assert cold.line["analyses"] == cold.line["distinct_keys"] > 0


@pytest.mark.usefixtures("s3_credentials")
def test_s3(alone: Path, tmp_path: Path, s3_port: int) -> None:
    """Hosts share no lease over S3, but ranks of one host do in their local tier."""
    cold, _ = fleet(alone, tmp_path, s3_url(s3_port, tmp_path.name) + "&request_timeout=60")
    assert cold.line["analyses"] == cold.line["distinct_keys"] > 0


@pytest.mark.usefixtures("s3_credentials")
def test_s3_alone_has_no_leases_and_its_excess_is_bounded(
    alone: Path, tmp_path: Path, s3_port: int, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "pytorch").symlink_to(alone)
    options = Options(RANKS, 1, METHODS, s3_url(s3_port, tmp_path.name) + "&request_timeout=60", tmp_path)
    cold, moved = start("cold", options), start("warm-moved", options)
    assert (cold.line["identical"], moved.line["identical"], moved.line["analyses"]) == (True, True, 0)
    excess = cold.line["analyses"] - cold.line["distinct_keys"]
    record_property("excess", excess)
    print(f"S3 without leases: {excess} analyses more than {cold.line['distinct_keys']} distinct keys")
    assert 0 <= excess <= (RANKS - 1) * cold.line["distinct_keys"]


def test_torchrun(root: Path, tmp_path: Path, redis_port: int, redis_client: object) -> None:
    figures = tmp_path / "figures.json"
    arguments = ["--methods", "decode,decode_batch2", "--layers", "1", "--json", str(figures)]
    url = f"redis://127.0.0.1:{redis_port}?request_timeout=60&lease_duration=60s"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(root / "scripts" / "demo")]
    done = subprocess.run(
        [*command, "--store", url, *arguments],
        env={**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = json.loads(figures.read_text())["runs"]
    assert [line["name"] for line in lines] == ["pytorch", "cold", "warm-moved"]
    assert all(line["identical"] and line["workers"] == 2 for line in lines)
    assert lines[1]["analyses"] == lines[1]["distinct_keys"] > 0
    assert lines[2]["analyses"] == 0
    assert done.stdout.count("distinct keys") == 1, "one rank prints the table"
