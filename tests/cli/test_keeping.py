"""prune, clear, verify, save and load as commands; what they do to a store is tested in tests/maintenance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.synthetic import entry, place
from tests.support.terminal import environment, on_terminal


def left(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if len(path.name) == 64}


def test_prune_without_options_takes_the_configured_limits(
    cli: Cli, root: Path, store: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "removed 0 of 4 entries" in cli("prune").out
    monkeypatch.setenv("TRITONSTORE_MAX_AGE", "36h")
    assert "removed 2 of 4 entries (2 old)" in cli("prune").out
    monkeypatch.setenv("TRITONSTORE_MAX_AGE", "none")
    monkeypatch.setenv("TRITONSTORE_MAX_SIZE", "none")
    assert "removed 0 of 2 entries" in cli("prune").out
    assert left(root) == set(store[:2])


def test_prune_says_it_in_json(cli: Cli, root: Path, store: list[str]) -> None:
    found = json.loads(cli("prune", "--max-age", "36h", "--dry-run", "--json").out)
    sizes = [os.path.getsize(place(str(root), digest)) for digest in store]
    assert found == {
        "store": f"file://{root}",
        "dry_run": True,
        "entries": 4,
        "size": sum(sizes),
        "removed": 2,
        "removed_size": sum(sizes[2:]),
        "old": 2,
        "stale": 0,
        "surplus": 0,
        "recipes": 0,
    }
    assert left(root) == set(store)


def test_prune_sweeps_and_compacts(cli: Cli, root: Path, store: list[str]) -> None:
    half = root / "v1" / store[0][:2] / ".host.1.00000000000000ab.tmp"
    half.write_bytes(b"half")
    os.utime(half, (1, 1))
    assert "removed 1 temporary file of killed processes" in cli("prune").err
    assert not half.exists()


def test_stale_toolchains(cli: Cli, root: Path, store: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tritonstore.cli import prune
    from tritonstore.maintenance.prune import Installed

    monkeypatch.setattr(prune, "installed_toolchain", lambda: Installed("2.13.0", "3.7.1"))
    assert "removed 1 of 4 entries (1 stale)" in cli("prune", "--stale-toolchains").out
    monkeypatch.setattr(prune, "installed_toolchain", lambda: Installed(None, "3.7.1"))
    done = cli("prune", "--stale-toolchains")
    assert (done.code, "there is no torch here" in done.err) == (2, True)


@pytest.mark.parametrize(("typed", "code", "there"), [("y\n", 0, 0), ("n\n", 1, 4), ("\n", 1, 4)])
def test_clear_asks_a_person(root: Path, store: list[str], typed: str, code: int, there: int) -> None:
    done, seen = on_terminal("clear", "--store", f"file://{root}", typed=typed, prompt="[y/N]")
    assert done == code, seen
    assert "Remove every entry of" in seen
    assert len(left(root)) == there


def test_ctrl_c_at_the_question(root: Path, store: list[str]) -> None:
    code, seen = on_terminal("clear", "--store", f"file://{root}", typed="\x03", prompt="[y/N]", insist=True)
    assert code == 130
    assert "Traceback" not in seen
    assert len(left(root)) == 4


def test_verify_in_json(cli: Cli, root: Path, store: list[str]) -> None:
    Path(place(str(root), store[2])).write_bytes(b"")
    done = cli("verify", "--json")
    assert done.code == 1
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"store": f"file://{root}", "digest": store[2], "size": 0, "problem": "shorter than a header", "removed": False}
    ]
    assert cli("verify", "--sample", "4").code == 1
    assert cli("verify", "--fix", "--json").code == 0


def test_to_another_place_and_back(cli: Cli, root: Path, store: list[str], tmp_path: Path) -> None:
    bundle, other = tmp_path / "deep", tmp_path / "other store"
    bundle.mkdir()
    assert cli("save", str(bundle / "all.tsb")).out == (
        f"{bundle}/all.tsb: 4 entries, {(bundle / 'all.tsb').stat().st_size / 1024:.1f} KiB\n"
    )
    url = f"file://{tmp_path}/other%20store"
    done = cli("load", str(bundle / "all.tsb"), "--store", url, "--dry-run")
    assert done.out.startswith("4 new would be stored")
    assert not other.exists()
    assert cli("load", str(bundle / "all.tsb"), "--store", url).out.startswith("4 new stored (3.7 KiB), 0 known")
    for digest in store:
        assert Path(place(str(other), digest)).read_bytes() == Path(place(str(root), digest)).read_bytes()
    again = json.loads(cli("load", (bundle / "all.tsb").as_uri(), "--store", url, "--json").out)
    assert (again["new"], again["known"], again["refused"]) == (0, 4, 0)


def test_save_a_part(cli: Cli, store: list[str], tmp_path: Path) -> None:
    bundle = str(tmp_path / "part.tsb")
    for arguments, number in (
        (["--kernel", "_rms_norm"], 2),
        (["--toolchain", "triton 3.6*"], 1),
        (["--target", "cuda:90:*"], 3),
        (["--kernel", "*", "--target", "cuda:80:32"], 1),
    ):
        assert json.loads(cli("save", bundle, *arguments, "--json").out)["entries"] == number
    before = Path(bundle).read_bytes()
    done = cli("save", bundle, "--kernel", "nothing")
    assert (done.code, Path(bundle).read_bytes()) == (1, before)


def test_save_where_nothing_can_be_written(cli: Cli, store: list[str], tmp_path: Path) -> None:
    for path in (str(tmp_path), str(tmp_path / "missing" / "x.tsb"), "/proc/x.tsb"):
        done = cli("save", path)
        assert done.code == 2, done.err
        assert path in done.err
        assert "Traceback" not in done.err


def test_save_what_a_run_used(cli: Cli, store: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tritonstore.maintenance import runs

    used = {"20260101-a": set(store[:2]), "20260102-b": {store[3], "ab" * 32}}
    monkeypatch.setattr(runs, "digests_of", lambda settings, run: used.get(run, set()))
    monkeypatch.setattr(runs, "last_run", lambda settings: "20260102-b")
    bundle, other = str(tmp_path / "run.tsb"), f"file://{tmp_path}/other"
    assert json.loads(cli("save", bundle, "--run", "20260101-a", "--json").out)["entries"] == 2
    assert json.loads(cli("save", bundle, "--run", "last", "--json").out)["entries"] == 1
    assert cli("load", bundle, "--store", other).code == 0
    assert [json.loads(line)["digest"] for line in cli("ls", "--store", other, "--json").out.splitlines()] == [store[3]]
    done = cli("save", bundle, "--run", "nothing")
    assert (done.code, "no record of a run nothing" in done.err) == (1, True)


def test_a_bundle_beyond_the_stores_limit(cli: Cli, store: list[str], tmp_path: Path) -> None:
    bundle, other = str(tmp_path / "all.tsb"), tmp_path / "other"
    assert cli("save", bundle).code == 0
    done = cli("load", bundle, "--store", f"file://{other}", "--max-size", "2KiB")
    assert done.code == 4
    assert "beyond the limit of 2,048" in done.err
    assert not other.exists()


def test_load_in_part(cli: Cli, tmp_path: Path) -> None:
    from tritonstore.entry import encode
    from tritonstore.maintenance.bundle import write

    good, bad = entry(1), entry(2)._replace(digest="ab" * 32)
    bundle = str(tmp_path / "mixed.tsb")
    write(bundle, [(each.digest, encode(each)) for each in (good, bad)], "test")
    done = cli("load", bundle)
    assert done.code == 4
    assert not (tmp_path / "store").exists()
    done = cli("load", bundle, "--partial")
    assert done.code == 1
    assert "1 new stored (937 B), 0 known, 1 refused" in done.out
    assert "abababababababab… has a digest that is not that of its parts" in done.err


PROGRESS = """
from tritonstore.cli import console
console._SLOW, console._EVERY = %s, 0.0
with console.progress("counting", %s) as step:
    for _ in range(3):
        step()
print("data")
"""


@pytest.mark.parametrize(("slow", "total", "shown"), [(0.0, 3, "3/3"), (0.0, None, "3"), (3600.0, 3, "")])
def test_a_bar_only_for_people_and_only_after_a_while(slow: float, total: int | None, shown: str) -> None:
    program = (sys.executable, "-c", PROGRESS % (slow, total))
    code, seen = on_terminal(command=program)
    assert code == 0, seen
    assert ("counting" in seen) is bool(shown)
    assert shown in seen
    done = subprocess.run(program, env=environment(), capture_output=True, text=True, timeout=240, check=True)
    assert (done.stdout, done.stderr) == ("data\n", "")
