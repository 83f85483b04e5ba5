"""Every command on every kind of store: missing, empty, damaged, read-only, foreign, and in several tiers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.support.synthetic import entry, fill, place
from tests.support.terminal import environment
from tritonstore.backends.base import MAX_SIZE
from tritonstore.entry import Entry, decode

READING = (["ls"], ["ls", "--json"], ["verify"], ["prune", "-n"], ["stats"])
WRITING = (["prune"], ["prune", "--max-size", "1"], ["clear", "-y"], ["verify", "--fix"])


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("arguments", [*READING, *WRITING], ids=" ".join)
def test_missing(cli: Cli, root: Path, arguments: list[str]) -> None:
    done = cli(*arguments)
    assert done.code == 0, done.err
    assert not root.exists()  # nothing is made by looking


@pytest.mark.parametrize("arguments", [*READING, *WRITING], ids=" ".join)
def test_empty(cli: Cli, root: Path, arguments: list[str]) -> None:
    (root / "v1" / "ab").mkdir(parents=True)
    (root / "v1" / "locks").mkdir()
    done = cli(*arguments)
    assert done.code == 0, done.err


def test_what_is_said_of_nothing(cli: Cli, root: Path) -> None:
    assert "holds nothing yet" in cli("ls").err
    root.mkdir()
    assert "holds no entries" in cli("ls").err
    (root / "photo.jpg").write_text("mine")
    assert "holds other things, and no entries" in cli("ls").err
    for arguments in (["ls"], ["verify"]):
        assert cli(*arguments).out == ""
    assert cli("show", "12345678").code == 1
    done = cli("save", str(root.parent / "none.tsb"))
    assert (done.code, "nothing to save" in done.err) == (1, True)
    assert not (root.parent / "none.tsb").exists()


def damage(root: Path, store: list[str]) -> list[str]:
    """Four kinds of damage in a store of four; one more entry is sound. The digests of the bad ones."""
    (sound,) = fill(str(root), [entry(9, kernel="sound")])
    paths = [Path(place(str(root), digest)) for digest in store]
    paths[0].write_bytes(b"")
    paths[1].write_bytes(paths[1].read_bytes()[:-3])
    flipped = bytearray(paths[2].read_bytes())
    flipped[60] ^= 4
    paths[2].write_bytes(flipped)
    with open(paths[3], "wb") as file:
        file.truncate(MAX_SIZE + 1)
    assert sound not in store
    return store


def test_damaged(cli: Cli, root: Path, store: list[str]) -> None:
    bad = damage(root, store)
    listed = cli("ls", "--json")
    assert [json.loads(line)["kernel"] for line in listed.out.splitlines()] == ["sound"]
    assert "4 damaged entries left out; tritonstore verify names them" in listed.err
    assert cli("show", bad[1][:12]).code == 1
    verified = cli("verify")
    assert verified.code == 1
    assert {line.split(" ")[0] for line in verified.out.splitlines()[:-1]} == set(bad)
    saved = cli("save", str(root.parent / "rest.tsb"))
    assert saved.code == 0
    assert "4 damaged entries left out" in saved.err or "3 damaged entries left out" in saved.err
    assert cli("verify", "--fix").code == 0
    assert cli("verify").code == 0
    assert len(cli("ls", "--json").out.splitlines()) == 1


@pytest.mark.parametrize("arguments", [*READING, *WRITING], ids=" ".join)
def test_foreign_files_are_never_touched(cli: Cli, root: Path, store: list[str], arguments: list[str]) -> None:
    others = {
        "photo.jpg": b"mine",
        "v0/ab/" + "ab" * 32: b"an older format",
        "v2/ab/" + "ab" * 32: b"a newer format",
        "v1/README": b"mine",
        "v1/ab/note": b"mine",
        f"v1/{store[0][:2]}/{'F' * 64}": b"mine",
        "v1/zz/" + "ab" * 32: b"mine",
        "v1/cd/" + "ab" * 32: b"in the wrong shard",
    }
    for name, data in others.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "v1" / "ab" / ("ab" * 32)).mkdir()
    os.mkfifo(root / "v1" / "ab" / ("ab" * 31 + "cd"))
    done = cli(*arguments)
    assert done.code == 0, done.err
    left = {str(path.relative_to(root)): path for path in root.rglob("*")}
    assert all(left[name].read_bytes() == data for name, data in others.items())


# As a user who may only read. Root may everything, so these commands run as somebody else.

DROP = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n" if os.geteuid() == 0 else ""

AsReader = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def as_reader(root: Path, store: list[str]) -> Any:
    """Run a command as a user who may read the store at `root` and not change it."""
    for path in [root, *root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    opened = []
    for folder in [root, *root.parents]:
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            opened.append((folder, folder.stat().st_mode))
            folder.chmod(folder.stat().st_mode | 0o055)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        # Imported before the user changes: the interpreter may lie where that user may not look.
        program = (
            "import sys, difflib, click, rich.console, zstandard, msgpack, filelock\n"
            "from tritonstore.cli import ls, verify, prune, clear, save, load, show, doctor, stats, main, console\n"
            "from tritonstore.maintenance import runs, fetch, doctor as _\n"
            f"from tritonstore.backends import files, leases\n{DROP}sys.exit(main.main(sys.argv[1:]))"
        )
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=environment(TRITONSTORE_URL=f"file://{root}"),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    yield run
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for folder, mode in opened:
        folder.chmod(mode)


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_read_only_may_be_read(as_reader: AsReader, root: Path, arguments: list[str]) -> None:
    before = files(root)
    done = as_reader(*arguments)
    assert done.returncode == 0, done.stderr
    assert files(root) == before


@pytest.mark.parametrize("arguments", [["prune", "--max-age", "1"], ["clear", "-y"]], ids=" ".join)
def test_read_only_is_not_changed_and_says_why(as_reader: AsReader, root: Path, arguments: list[str]) -> None:
    before = files(root)
    done = as_reader(*arguments)
    assert done.returncode == 3
    assert f"Permission denied; make {root} writable for this user" in done.stderr
    assert "Traceback" not in done.stderr
    assert files(root) == before


def test_doctor_finds_a_read_only_store(as_reader: AsReader, root: Path) -> None:
    done = as_reader("doctor", "--quick", "--json")
    assert done.returncode == 1, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"] if str(root) in check["section"]}
    assert checks["readable"]["verdict"] == "ok"
    assert checks["writable"]["verdict"] == "problem"


# Several tiers


@pytest.fixture
def tiers(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: list[Entry]) -> list[Path]:
    folders = [tmp_path / "near", tmp_path / "far"]
    fill(str(folders[0]), entries[:2])
    fill(str(folders[1]), entries[1:])
    monkeypatch.setenv("TRITONSTORE_URL", f"memory:,file://{folders[0]},file://{folders[1]}")
    return folders


def test_tiers_are_one_list(cli: Cli, tiers: list[Path], entries: list[Entry]) -> None:
    listed = [json.loads(line)["digest"] for line in cli("ls", "--json").out.splitlines()]
    assert sorted(listed) == sorted(each.digest for each in entries)
    shown = json.loads(cli("show", entries[1].digest, "--json").out)
    assert shown["stores"] == [f"file://{folder}" for folder in tiers]


def test_tiers_are_each_looked_after(cli: Cli, tiers: list[Path], entries: list[Entry], tmp_path: Path) -> None:
    assert len(cli("verify").out.splitlines()) == 2
    bundle = tmp_path / "all.tsb"
    assert json.loads(cli("save", str(bundle), "--json").out)["entries"] == 4
    loaded = json.loads(cli("load", str(bundle), "--json").out)
    assert (loaded["new"], loaded["known"]) == (3, 1)
    for folder in tiers:
        assert {path.name for path in folder.rglob("*") if len(path.name) == 64} == {e.digest for e in entries}
        assert all(decode(path.read_bytes()) for path in folder.rglob("*") if len(path.name) == 64)
    assert cli("clear", "--yes").out.count("removed 4 entries") == 2
