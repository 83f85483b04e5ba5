"""What the runs of `scripts/faults` found beside what they try themselves, each for its whole kind."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.test_shared_folder import USERS, User, group_folder, run
from tests.support.fault_store import HOUR, data, fill, in_shard, key, litter, place, set_age
from tests.support.terminal import piped
from tritonstore.backends.files import FilesBackend
from tritonstore.backends.folders import make_folders, temporary_name
from tritonstore.journal import Journal
from tritonstore.keys.filestat import FileDigests
from tritonstore.maintenance import bundle, runs
from tritonstore.maintenance.prune import sweep
from tritonstore.settings import Settings

DAY = 24 * HOUR


@pytest.mark.parametrize(
    "command",
    [
        ("prune", "--kernel", "no_such_kernel"),
        ("prune", "--toolchain", "torch 9*"),
        ("prune", "--max-size", "1GiB", "--kernel", "*"),
        ("verify",),
        ("verify", "--fix"),
        ("load", "made.tsb"),
        ("ls",),
    ],
    ids=" ".join,
)
def test_looking_after_a_store_makes_no_entry_younger(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A pruning that looks into entries marked all of them as just used, so that none ever got old."""
    root = tmp_path / "store"
    fill(str(root), range(3), age=10 * DAY)
    bundle.write(str(tmp_path / "made.tsb"), ((key(n).digest, data(n)) for n in range(3)), "test")
    before = [os.stat(place(str(root), number)).st_mtime for number in range(3)]
    arguments = [str(tmp_path / each) if each.endswith(".tsb") else each for each in command]
    done = piped(*arguments, "--store", f"file://{root}")
    assert done.returncode == 0, done.stderr
    assert [os.stat(place(str(root), number)).st_mtime for number in range(3)] == before


# A clock that was wrong: what is dated ahead is no younger than what is dated back.


@pytest.mark.parametrize("age", [2 * HOUR, -2 * HOUR])
def test_litter_of_a_wrong_clock_is_swept(tmp_path: Path, age: float) -> None:
    fill(str(tmp_path / "store"), range(2))
    for path in (Path(place(str(tmp_path / "store"), 0)).parent, tmp_path / "runs"):
        path.mkdir(exist_ok=True)
        (path / temporary_name()).write_bytes(b"half")
        set_age(str(path / litter(str(path))[0]), age)
    assert sweep(FilesBackend(str(tmp_path / "store"))) == 1
    runs.compact(Settings.load(cache_folder=tmp_path))
    assert litter(str(tmp_path)) == []


@pytest.mark.parametrize("age", [2 * HOUR, -2 * HOUR])
def test_fingerprint_litter_of_a_wrong_clock_goes_with_the_next_save(tmp_path: Path, age: float) -> None:
    (tmp_path / "some.py").write_text("text")
    for name, seconds in (("old", age), ("young", 0.0)):
        (tmp_path / f".file-digests-{name}").write_bytes(b"half")
        set_age(str(tmp_path / f".file-digests-{name}"), seconds)
    digests = FileDigests.load(str(tmp_path))
    digests.sha256(str(tmp_path / "some.py"))
    digests.save()
    assert {path.name for path in tmp_path.iterdir()} == {"some.py", "file-digests-v1", ".file-digests-young"}


@pytest.mark.parametrize("age", [3 * DAY, -3 * DAY])
def test_a_put_removes_what_a_wrong_clock_has_dated_beyond_the_age(tmp_path: Path, age: float) -> None:
    root, numbers = str(tmp_path / "store"), [number for _, number in zip(range(4), in_shard("ab"), strict=False)]
    fill(root, numbers, age=age)
    left = Path(place(root, numbers[0])).parent / temporary_name()
    left.write_bytes(b"half")
    set_age(str(left), age)
    cleaner = "ab" + "0" * 62  # a digest whose every put cleans its shard
    FilesBackend(root, max_age=DAY).put(cleaner, b"x")
    assert os.listdir(left.parent) == [cleaner]


# Records, which others merge once a process has ended.


@pytest.mark.parametrize("ending", ["exit", "SIGTERM", "KeyError"])
def test_a_process_that_has_told_all_still_tells_that_it_ends(tmp_path: Path, ending: str) -> None:
    """After `uninstall()` there is nothing to add to its record; it said "running" for ever, and was never merged."""
    journal = Journal(str(tmp_path / "runs"), "run-1")
    journal.write(ending)
    assert not (tmp_path / "runs").exists(), "a process that asked nothing leaves nothing"
    journal.miss(key(1))
    journal.write()
    journal.write()
    journal.write(ending)
    (record,) = runs.load(Settings.load(cache_folder=tmp_path))
    assert (record.ending, len(record.misses)) == (ending, 1)


# A store of a group, whose maker died in the middle.


@pytest.fixture
def shared() -> Iterator[Path]:
    with group_folder() as folder:
        yield folder


def test_a_lock_file_that_is_closed_to_the_group_is_made_anew(shared: Path) -> None:
    """Its maker died between making it and opening it to the group; nobody else would get a lease there again."""
    ann, bob = (User(*user, 0o022) for user in USERS)
    run(ann, shared, "assert backend.lease('ab' * 32).try_acquire(); os.chmod(root + '/v1/locks/ab', 0o600)")
    run(bob, shared, "assert backend.lease('ab' * 32).try_acquire()")
    assert stat.S_IMODE(os.stat(shared / "v1" / "locks" / "ab").st_mode) in (0o660, 0o600)


def test_folders_of_a_group_are_never_seen_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the others nor after a crash: the name appears when the rights are there."""
    seen = []
    rename = os.rename

    def spy(source: str, target: str) -> None:
        seen.append((os.path.basename(target), oct(os.stat(source).st_mode & 0o7070)))
        rename(source, target)

    monkeypatch.setattr(os, "rename", spy)
    before = os.umask(0o077)
    try:
        make_folders(str(tmp_path / "store" / "v1" / "ab"), shared=True, root=str(tmp_path / "store"))
    finally:
        os.umask(before)
    assert seen == [("store", "0o2070"), ("v1", "0o2070"), ("ab", "0o2070")]


def test_a_folder_that_another_process_makes_first_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chmod = os.chmod

    def slow(path: str, mode: int) -> None:
        chmod(path, mode)
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "theirs").touch()

    monkeypatch.setattr(os, "chmod", slow)
    make_folders(str(tmp_path / "store"), shared=True)
    assert os.listdir(tmp_path) == ["store"]
    assert os.listdir(tmp_path / "store") == ["theirs"]


def test_folders_left_by_killed_makers_are_swept(tmp_path: Path) -> None:
    """Empty ones of ours alone, wherever such folders are made: in the store, and beside it."""
    root = tmp_path / "store"
    fill(str(root), range(1))
    for above in (tmp_path, root, root / "v1"):
        (above / temporary_name()).mkdir()
        full, young, other = (above / name for name in (temporary_name(), temporary_name(), ".other.tmp"))
        for path in (full, young, other):
            path.mkdir()
        (full / "x").touch()
        (above / temporary_name()).write_bytes(b"a file, which no process of ours makes here")
        for path in above.glob(".*.tmp"):
            set_age(str(path), 0.0 if path == young else 2 * HOUR)
    assert sweep(FilesBackend(str(root))) == 3
    assert [len(list(above.glob(".*.tmp"))) for above in (tmp_path, root, root / "v1")] == [4, 4, 4]


def test_a_pruning_of_the_store_is_no_use_of_it_by_the_clock(tmp_path: Path) -> None:
    """The entries that a pruning by age keeps are as old after it as before, so the next one finds them."""
    root = tmp_path / "store"
    fill(str(root), range(4), age=40 * DAY, apart=20 * DAY)
    for most, left in (("30d", 3), ("15d", 1)):
        assert piped("prune", "--max-age", most, "--kernel", "*", "--store", f"file://{root}").returncode == 0
        assert len(list(FilesBackend(str(root)).scan())) == left
