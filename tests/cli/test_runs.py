"""stats, explain and report: what they print, on runs and stores in every state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.records import STARTED, bypass, kernel, miss, put, record
from tests.support.synthetic import entry, fill
from tests.support.terminal import COLUMNS, environment, on_terminal, piped
from tritonstore.keys.encoding import key_digest
from tritonstore.maintenance.runs import MERGE_AFTER, compact
from tritonstore.settings import Settings


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, an hour after the runs on record started."""
    monkeypatch.setenv("TRITONSTORE_CACHE_FOLDER", str(tmp_path / "cache"))
    monkeypatch.setattr(time, "time", lambda: STARTED + 3600.0)
    return tmp_path / "cache"


@pytest.fixture
def folder(cache: Path) -> Path:
    return cache / "runs"


@pytest.fixture
def told(folder: Path, root: Path) -> None:
    """A run of two processes after an upgrade of triton, and an entry from before it."""
    before = entry(3, kernel="_rms", triton="3.7.1")
    fill(str(root), [before])
    detail = {**before.detail, "toolchain": {**before.detail["toolchain"], "triton": "3.8.0"}}
    parts = {**before.parts, "toolchain": "ab" * 32}
    one = miss(1, at=STARTED + 10, parts=parts, detail=detail, digest=key_digest(parts))
    put(folder, record("run-0", started=STARTED - 500, ended=STARTED - 400), "host-0-aa")
    put(folder, record(misses=[one], kernels=[kernel(misses=1)]), "host-1-aa")
    put(
        folder,
        record(misses=[one], kernels=[kernel("_swiglu", seconds_saved=9.0)], bypasses=[bypass(times=3)]),
        "h-2-b",
    )


STATS = """\
Run run-1  export.py, 2 processes, 60 min ago, 40.0 s long
torch 2.13.0, triton 3.7.1
calls         20
hits          14   70.0 %  memory 12, file 2
misses         4   20.0 %
bypasses       2   10.0 %  tma 2
analyses       6
saved      1.4 s
spent     548 ms           analyses 500 ms, keys 40 ms, store 8 ms

kernel   calls  hits  misses  bypasses  analyses   saved   spent
_swiglu     10     7       2         1         3     9 s  250 ms
_rms         9     7       1         1         3  700 ms  250 ms

Store file://{root}: 1 entry, 928 B
toolchain                   entries   size  oldest  newest
torch 2.13.0, triton 3.7.1        1  928 B  60 min  60 min
"""


@pytest.mark.usefixtures("told")
def test_stats_of_the_last_run(cli: Cli, root: Path) -> None:
    done = cli("stats", "--by-kernel")
    assert (done.code, done.err) == (0, "")
    assert done.out == STATS.format(root=root)


@pytest.mark.usefixtures("told")
def test_which_run(cli: Cli) -> None:
    assert cli("stats").out == cli("stats", "--last").out
    assert cli("stats", "--run", "run-0").out.startswith("Run run-0  export.py, 1 process, 68 min ago, 1 min 40 s long")
    every = cli("stats", "--all")
    assert every.out.startswith("All runs  3 processes, 68 min ago\ncalls         30\n")
    unknown = cli("stats", "--run", "run-9")
    assert (unknown.code, unknown.out) == (1, "")
    assert "no run run-9 is on record" in unknown.err
    both = cli("stats", "--last", "--all")
    assert (both.code, "exclude one another" in both.err) == (2, True)


@pytest.mark.usefixtures("told")
def test_stats_as_json(cli: Cli) -> None:
    found = json.loads(cli("stats", "--json", "--by-kernel").out)
    assert found["run"]["hit_rate"] == 0.7
    assert found["run"]["counters"]["hits"] == {"memory": 12, "file": 2}
    assert [each["name"] for each in found["run"]["kernels"]] == ["_swiglu", "_rms"]
    (store,) = found["stores"]
    assert (store["entries"], store["exact"], store["damaged"]) == (1, True, 0)
    assert store["toolchains"]["torch 2.13.0, triton 3.7.1"]["entries"] == 1


EXPLAIN = """\
Run run-1  export.py, 2 processes, 60 min ago, 40.0 s long
torch 2.13.0, triton 3.7.1

_rms  model.kernels
  2 misses: triton 3.7.1 → 3.8.0  200 ms
    nearest entry {digest}, made 60 min ago

tma  4 bypasses, 100 ms
  _rms: x is a host-side TMA descriptor
  cacheable with: device-side descriptors
"""


@pytest.mark.usefixtures("told")
def test_explain(cli: Cli) -> None:
    done = cli("explain")
    near = entry(3, kernel="_rms", triton="3.7.1").digest[:16]
    assert (done.code, done.err) == (0, "")
    assert done.out == EXPLAIN.format(digest=near)
    assert cli("explain", "_r?s", "--last").out == done.out
    assert cli("explain", "model.kernels._rms").out == done.out
    assert "no call missed, and none bypassed the store" in cli("explain", "_swiglu").out
    unknown = cli("explain", "_none")
    assert (unknown.code, "no kernel _none was asked about" in unknown.err) == (1, True)


@pytest.mark.usefixtures("told")
def test_explain_as_json(cli: Cli) -> None:
    lines = [json.loads(line) for line in cli("explain", "--json").out.splitlines()]
    assert [line["event"] for line in lines] == ["miss", "bypass"]
    assert lines[0]["differences"] == [{"part": "toolchain", "field": "triton", "text": "triton 3.7.1 → 3.8.0"}]
    assert (lines[0]["kind"], lines[0]["times"], lines[1]["remedy"]) == ("differs", 2, "device-side descriptors")


@pytest.mark.usefixtures("told")
def test_report(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("older")
    done = cli("report", str(file))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{file}: ")
    assert "triton 3.7.1 → 3.8.0" in file.read_text()
    assert not list(tmp_path.glob("*.tmp"))
    nowhere = cli("report", str(tmp_path / "none" / "report.html"))
    assert (nowhere.code, "Could not open file" in nowhere.err) == (2, True)
    assert cli("report", str(tmp_path)).code == 2


def test_nothing_on_record_and_no_store(cli: Cli, folder: Path, tmp_path: Path) -> None:
    for command, code in ((["stats"], 0), (["explain"], 0), (["report", str(tmp_path / "r.html")], 1)):
        done = cli(*command)
        assert done.code == code
        assert f"no run has left a record in {folder}" in done.err
    assert "0 entries, 0 B" in cli("stats").out
    assert json.loads(cli("stats", "--json").out)["run"] is None
    assert not (tmp_path / "r.html").exists()
    assert not folder.exists()


@pytest.mark.usefixtures("told")
def test_damaged_records_and_entries(cli: Cli, folder: Path, root: Path) -> None:
    (folder / "1780000000000@run-1@torn.run").write_bytes(b"half")
    (path,) = [p for p in root.rglob("*") if p.is_file() and len(p.name) == 64]
    path.write_bytes(b"damaged")
    done = cli("stats")
    assert done.code == 0
    assert "1 run record cannot be read and is left out" in done.err
    assert "1 damaged entry; tritonstore verify --fix removes what is damaged" in done.err
    assert "3.7.1 →" not in cli("explain").out


@pytest.mark.usefixtures("told")
def test_a_store_that_is_not_one(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cli("explain", "--store", f"file://{tmp_path}/file")
    assert (done.code, "_rms" in done.out) in ((0, True), (3, False))


def test_many_entries_are_estimated(cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonstore.cli.stats.SAMPLE", 40)
    fill(str(root), [entry(number, torch=("2.11.0", "2.13.0")[number % 2]) for number in range(200)])
    done = cli("stats")
    assert ": 200 entries, " in done.out
    assert "by toolchain: estimated from 40 entries" in done.err
    (store,) = json.loads(cli("stats", "--json").out)["stores"]
    assert (store["entries"], store["exact"]) == (200, False)
    assert sum(group["entries"] for group in store["toolchains"].values()) in range(199, 201)


@pytest.mark.usefixtures("told")
def test_what_compaction_leaves_is_explained_alike(cli: Cli, cache: Path) -> None:
    before = cli("stats", "--by-kernel").out, cli("explain").out
    assert compact(Settings.load(cache_folder=cache), STARTED + MERGE_AFTER + 1_000).merged == 2
    assert (cli("stats", "--by-kernel").out, cli("explain").out) == before


@pytest.mark.usefixtures("told")
def test_on_a_terminal_of_80_columns_piped_and_without_colour(tmp_path: Path) -> None:
    environ = {name: os.environ[name] for name in ("TRITONSTORE_CACHE_FOLDER",)}
    environ["TRITONSTORE_URL"] = f"file://{tmp_path}/store"
    for command in (["stats", "--by-kernel", "--all"], ["explain"]):
        code, seen = on_terminal(*command, environ=environ)
        assert (code, "\x1b[" in seen) == (0, True)
        code, bare = on_terminal(*command, environ={**environ, "NO_COLOR": "1"})
        assert (code, "\x1b" in bare) == (0, False)
        assert max(map(len, bare.splitlines())) <= COLUMNS
        done = piped(*command, environ=environ)
        assert (done.returncode, done.stderr, "\x1b" in done.stdout) == (0, "", False)
        assert not any(line != line.rstrip() for line in done.stdout.splitlines())


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("command", [["stats"], ["stats", "--all", "--by-kernel"], ["explain"], ["report", "r.html"]])
def test_neither_torch_nor_triton_is_imported(command: list[str], tmp_path: Path) -> None:
    program = (
        f"import sys; from tritonstore.cli.main import main; code = main({command!r});"
        "print(code, sorted({'torch', 'triton'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(TRITONSTORE_URL=f"file://{tmp_path}/store"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == "0 []"


@pytest.mark.usefixtures("told")
def test_another_command_changes_nothing_on_disk(cli: Cli, tmp_path: Path) -> None:
    """Reading is reading: no record moves, no entry looks used."""

    def state() -> dict[str, tuple[int, int, float]]:
        found = {}
        for path in sorted(tmp_path.rglob("*")):
            seen = path.stat()
            found[str(path)] = (seen.st_ino, seen.st_size, seen.st_mtime)
        return found

    before = state()
    for command in (["stats"], ["stats", "--all", "--json"], ["explain"], ["explain", "--json"]):
        assert cli(*command).code == 0
    assert state() == before
