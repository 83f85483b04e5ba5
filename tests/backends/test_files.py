from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.backends.contract import BackendContract, digest
from tritonstore.backends.base import MAX_SIZE, Backend
from tritonstore.backends.files import FilesBackend
from tritonstore.backends.leases import FileLease, is_remote, is_remote_by
from tritonstore.errors import StoreError, StoreUnavailable

DAY = 86400.0


def place(root: Path, name: str) -> Path:
    return root / "v1" / name[:2] / name


class FilesAccess:
    @pytest.fixture
    def bare(self, tmp_path: Path) -> Iterator[Backend]:
        yield FilesBackend(str(tmp_path / "store"))
        assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")], "left a temporary file"

    def raw_read(self, backend: Backend, digest: str) -> bytes | None:
        assert isinstance(backend, FilesBackend)
        path = place(Path(backend.root), digest)
        return path.read_bytes() if path.exists() else None

    def raw_write(self, backend: Backend, digest: str, data: bytes) -> None:
        assert isinstance(backend, FilesBackend)
        path = place(Path(backend.root), digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class TestFiles(FilesAccess, BackendContract):
    pass


class TestDurable(FilesAccess, BackendContract):
    @pytest.fixture
    def bare(self, tmp_path: Path) -> Backend:
        return FilesBackend(str(tmp_path / "d"), durable=True, lock_folder=str(tmp_path / "locks"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def aged(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def same_shard(count: int, shard: str = "ab") -> list[str]:
    """Digests of one shard that come last in the lot that chooses who cleans."""
    return [shard + "ffffff" + digest(n)[8:] for n in range(count)]


CLEANER = "ab" + "000000" + "e" * 56  # every put of it cleans its shard


def test_reading_makes_no_folder(root: Path) -> None:
    backend = FilesBackend(str(root))
    assert backend.get(digest(1)) is None
    assert backend.delete(digest(1)) is False
    assert list(backend.scan()) == []
    assert not root.exists()


def test_private_by_default(root: Path) -> None:
    before = os.umask(0)
    try:
        backend = FilesBackend(str(root / "deep"))
        backend.put(digest(1), b"x")
        lease = backend.lease(digest(1))
        assert lease.try_acquire()
        lease.release()
    finally:
        os.umask(before)
    for path in [root, *root.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_final_name_is_never_written_in_place(root: Path) -> None:
    backend = FilesBackend(str(root))
    backend.put(digest(1), b"old")
    with open(place(root, digest(1)), "rb") as reader:
        backend.put(digest(1), b"new and longer")
        assert reader.read() == b"old"
    assert place(root, digest(1)).read_bytes() == b"new and longer"


def test_temporary_names_hold_host_process_and_chance(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    replace = os.replace

    def spy(source: str, target: str, **folders: int) -> None:
        assert folders["src_dir_fd"] == folders["dst_dir_fd"], "a rename between file systems is a copy"
        names.append(os.path.basename(source))
        replace(source, target, **folders)

    monkeypatch.setattr(os, "replace", spy)
    backend = FilesBackend(str(root))
    backend.put(digest(1), b"x")
    backend.put(digest(1), b"x")
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:64]
    for name in names:
        assert re.fullmatch(rf"\.{re.escape(host)}\.{os.getpid()}\.[0-9a-f]{{16}}\.tmp", name)
    assert names[0] != names[1]


@pytest.mark.parametrize("failing", ["write", "replace", "close"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device"), MemoryError()])
def test_whatever_stops_a_put_leaves_the_old_entry_and_no_temporary(
    root: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    backend = FilesBackend(str(root))
    backend.put(digest(1), b"old")
    real = os.close

    def fail(*arguments: object, **_: object) -> None:
        if failing == "close":
            real(arguments[0])  # type: ignore[arg-type]
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(StoreUnavailable if isinstance(error, OSError) else type(error)):
            backend.put(digest(1), b"new")
    assert [path.name for path in place(root, digest(1)).parent.iterdir()] == [digest(1)]
    assert backend.get(digest(1)) == b"old"


def test_short_writes_are_finished(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    backend = FilesBackend(str(root))
    backend.put(digest(1), b"0123456789" * 10)
    assert place(root, digest(1)).read_bytes() == b"0123456789" * 10


def test_disk_full_in_a_real_process(root: Path) -> None:
    code = f"""
import resource
from tritonstore.backends.files import FilesBackend
from tritonstore.errors import StoreUnavailable
backend = FilesBackend({str(root)!r})
backend.put("a" * 64, b"x" * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for _ in range(3):
    try:
        backend.put("a" * 64, b"y" * 5000)
    except StoreUnavailable as error:
        assert "make room for" in str(error), error
        print("unavailable")
backend.put("a" * 64, b"z" * 50)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["unavailable"] * 3
    assert [path.name for path in place(root, "a" * 64).parent.iterdir()] == ["a" * 64]
    assert place(root, "a" * 64).read_bytes() == b"z" * 50


# What stands in an entry's place


def strange_things(path: Path) -> dict[str, Callable[[], None]]:
    return {
        "fifo": lambda: os.mkfifo(path),
        "folder": lambda: path.mkdir(),
        "link": lambda: path.symlink_to("/etc/hostname"),
        "dangling link": lambda: path.symlink_to("/nowhere/at/all"),
        "link to itself": lambda: path.symlink_to(path),
        "sparse": lambda: sparse(path),
        "socket": lambda: bind(path),
    }


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def bind(path: Path) -> None:
    # A socket's path has at most 108 bytes, which a temporary folder may exceed.
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{here}/{path.name[:40]}")
            os.rename(path.parent / path.name[:40], path)
        finally:
            os.close(here)


@pytest.mark.parametrize("kind", list(strange_things(Path())))
def test_something_strange_is_a_miss_and_a_put_heals_it(root: Path, kind: str) -> None:
    backend = FilesBackend(str(root))
    path = place(root, digest(1))
    path.parent.mkdir(parents=True)
    strange_things(path)[kind]()
    assert backend.get(digest(1)) is None
    assert [record.digest for record in backend.scan()] == ([digest(1)] if kind == "sparse" else [])
    backend.put(digest(1), b"healed")
    assert backend.get(digest(1)) == b"healed"
    assert place(root, digest(1)).is_file()
    assert not place(root, digest(1)).is_symlink()


@pytest.mark.parametrize("kind", list(strange_things(Path())))
def test_something_strange_can_be_deleted(root: Path, kind: str) -> None:
    path = place(root, digest(1))
    path.parent.mkdir(parents=True)
    strange_things(path)[kind]()
    assert FilesBackend(str(root)).delete(digest(1)) is True
    assert not os.path.lexists(path)


def test_a_folder_with_something_in_it_stops_only_its_own_digest(root: Path) -> None:
    backend = FilesBackend(str(root))
    place(root, digest(1)).mkdir(parents=True)
    (place(root, digest(1)) / "precious").write_text("mine")
    for _ in range(2):
        with pytest.raises(StoreError):
            backend.put(digest(1), b"x")
        with pytest.raises(StoreError):
            backend.delete(digest(1))
    assert (place(root, digest(1)) / "precious").read_text() == "mine"
    backend.put(digest(2), b"x")
    assert backend.get(digest(2)) == b"x"


def test_an_orphan_in_the_place_of_a_shard_stops_only_that_shard(root: Path) -> None:
    (root / "v1").mkdir(parents=True)
    (root / "v1" / "ab").write_text("orphan")
    backend = FilesBackend(str(root))
    with pytest.raises(StoreUnavailable):
        backend.put("ab" * 32, b"x")
    with pytest.raises(StoreUnavailable):
        backend.get("ab" * 32)
    backend.put("cd" * 32, b"x")
    assert [record.digest for record in backend.scan()] == ["cd" * 32]


@pytest.mark.parametrize("below", ["", "below", "below/further"])
def test_a_file_in_the_place_of_the_store(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("a file")
    backend = FilesBackend(str(tmp_path / "file" / below) if below else str(tmp_path / "file"))
    for call in (
        lambda: backend.get(digest(1)),
        lambda: backend.put(digest(1), b"x"),
        lambda: backend.delete(digest(1)),
        lambda: list(backend.scan()),
    ):
        with pytest.raises(StoreUnavailable) as caught:
            call()
        assert f"{tmp_path}/file is not a folder" in str(caught.value)
        assert caught.value.url == backend.url
    with pytest.raises(StoreError, match="lease failed"):
        backend.lease(digest(1)).try_acquire()
    assert (tmp_path / "file").read_text() == "a file"


def test_no_permission_has_one_clear_message(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *arguments: object) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    backend = FilesBackend(str(root))
    calls: list[Callable[[], object]] = [lambda: backend.put(digest(1), b"x"), lambda: backend.get(digest(1))]
    for call in calls:
        with pytest.raises(StoreUnavailable, match=r"Permission denied; make .*store writable"):
            call()


def test_a_folder_nobody_can_write_in() -> None:
    backend = FilesBackend("/proc/tritonstore")
    with pytest.raises(StoreUnavailable, match="/proc/tritonstore"):
        backend.put(digest(1), b"x")
    assert backend.get(digest(1)) is None


def test_a_store_removed_under_a_writer_comes_back(root: Path) -> None:
    backend = FilesBackend(str(root))
    backend.put(digest(1), b"x")
    place(root, digest(1)).unlink()
    place(root, digest(1)).parent.rmdir()
    backend.put(digest(1), b"y")
    assert backend.get(digest(1)) == b"y"


# Last use, cleaning


def test_last_use_is_refreshed_at_most_once_an_hour(root: Path) -> None:
    backend = FilesBackend(str(root))
    backend.put(digest(1), b"x")
    path = place(root, digest(1))
    for age, refreshed in ((1800.0, False), (3700.0, True), (-1800.0, False), (-2 * DAY, True)):
        aged(path, age)
        before = path.stat().st_mtime
        assert backend.get(digest(1)) == b"x"
        assert (path.stat().st_mtime != before) is refreshed
        if refreshed:
            assert abs(path.stat().st_mtime - time.time()) < 60


def test_without_touch_reading_changes_nothing(root: Path) -> None:
    FilesBackend(str(root)).put(digest(1), b"x")
    aged(place(root, digest(1)), 5 * DAY)
    before = place(root, digest(1)).stat().st_mtime
    assert FilesBackend(str(root), touch=False).get(digest(1)) == b"x"
    assert place(root, digest(1)).stat().st_mtime == before


def test_temporary_files_are_never_listed_and_only_old_ones_are_swept(root: Path) -> None:
    backend = FilesBackend(str(root), max_age=DAY)
    shard = root / "v1" / "ab"
    shard.mkdir(parents=True)
    old, live = shard / ".host.1.00000000000000ff.tmp", shard / ".other.2.00000000000000ff.tmp"
    old.write_bytes(b"torn")
    live.write_bytes(b"half")
    aged(old, 3700)
    aged(live, 3500)
    assert list(backend.scan()) == []
    backend.put(CLEANER, b"x")
    assert sorted(path.name for path in shard.iterdir()) == [live.name, CLEANER]


def test_age_counts_from_last_use(root: Path) -> None:
    backend = FilesBackend(str(root), max_age=10 * DAY)
    kept, used, old = same_shard(3)
    for name in (kept, used, old):
        backend.put(name, b"x")
    aged(place(root, kept), 9 * DAY)
    aged(place(root, used), 11 * DAY)
    aged(place(root, old), 11 * DAY)
    backend.get(used)
    backend.put(CLEANER, b"x")
    assert {record.digest for record in backend.scan()} == {kept, used, CLEANER}


def test_size_least_recently_used_goes_first(root: Path) -> None:
    backend = FilesBackend(str(root), max_size=256 * 10_000)
    names = same_shard(20)
    for age, name in enumerate(names):
        FilesBackend(str(root)).put(name, b"x" * 1000)
        aged(place(root, name), 60.0 * age)
    backend.put(CLEANER, b"x" * 1000)
    assert {record.digest for record in backend.scan()} == {*names[:8], CLEANER}


def test_growth_is_bounded_and_the_last_put_is_always_there(root: Path) -> None:
    limit = 256 * 1000
    backend = FilesBackend(str(root), max_size=limit)
    for n in range(3000):
        name = digest(n)
        backend.put(name, b"x" * 400)
        assert backend.get(name) is not None
    assert sum(record.size for record in backend.scan()) <= limit * 1.25


def test_an_entry_beyond_the_whole_limit_is_kept_until_the_next(root: Path) -> None:
    backend = FilesBackend(str(root), max_size=1000)
    first, second = same_shard(2)
    backend.put(first, b"x" * 5000)
    assert backend.get(first) is not None
    aged(place(root, first), 60)
    backend.put(second, b"x" * 5000)
    assert [record.digest for record in backend.scan()] == [second]


def test_cleaning_leaves_what_is_not_its_own(root: Path) -> None:
    backend = FilesBackend(str(root), max_size=1, max_age=1.0)
    shard = root / "v1" / "ab"
    for path in (root / "v0" / "ab" / ("ab" * 32), shard / "README", root / "v1" / "locks" / "ab"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not an entry of this version")
        aged(path, 9 * DAY)
    (shard / ("ab" + "c" * 62)).mkdir()
    backend.put(CLEANER, b"x")
    assert (root / "v0" / "ab" / ("ab" * 32)).exists()
    assert (root / "v1" / "locks" / "ab").exists()
    assert sorted(path.name for path in shard.iterdir()) == sorted(["README", "ab" + "c" * 62, CLEANER])


def test_one_put_in_256_cleans_without_any_scan_at_the_start(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[object] = []
    real = os.scandir

    def counted(path: str) -> object:
        scans.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", counted)
    backend = FilesBackend(str(root), max_size=1 << 40, max_age=90 * DAY)
    for n in range(2000):
        backend.put(digest(n), b"x")
    assert 0 < len(scans) < 2000 / 256 * 3


def test_a_failed_cleaning_does_not_fail_the_put(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", fail)
    backend = FilesBackend(str(root), max_size=1, max_age=1)
    backend.put(CLEANER, b"x")
    assert backend.get(CLEANER) == b"x"


# Leases


def test_a_lock_file_is_never_unlinked_under_its_waiters(root: Path) -> None:
    backend = FilesBackend(str(root))
    lease = backend.lease(digest(1))
    assert lease.try_acquire()
    lock = root / "v1" / "locks" / digest(1)[:2]
    before = lock.stat().st_ino
    lease.release()
    assert lock.stat().st_ino == before


def test_stripes_only_delay(root: Path) -> None:
    backend = FilesBackend(str(root))
    first, second = (backend.lease(name) for name in same_shard(2))
    assert first.try_acquire()
    assert not second.try_acquire()
    other = backend.lease("cd" * 32)
    assert other.try_acquire()
    for lease in (first, second, other):
        lease.release()


def test_the_lock_folder_can_be_elsewhere(root: Path, tmp_path: Path) -> None:
    lease = FilesBackend(str(root), lock_folder=str(tmp_path / "locks")).lease(digest(1))
    assert lease.try_acquire()
    lease.release()
    assert not root.exists()
    assert [path.name for path in (tmp_path / "locks").iterdir()] == [digest(1)[:2]]


MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:40 / /net rw - nfs4 server:/export rw
23 22 8:2 / /net/local\\040disk rw shared:2 master:1 - xfs /dev/sdb1 rw
24 21 0:41 / /home rw - ext4 /dev/sdc1 rw
25 24 0:42 / /home rw - fuse.sshfs me@server: rw
garbage
"""


@pytest.mark.parametrize(
    ("folder", "remote"),
    [
        ("/", False),
        ("/var/x", False),
        ("/net", True),
        ("/net/a/b", True),
        ("/network", False),
        ("/net/local disk/x", False),
        ("/net/local", True),
        ("/home/me", True),
    ],
)
def test_network_file_systems_are_told_by_the_mount_table(tmp_path: Path, folder: str, remote: bool) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert is_remote_by(folder, str(tmp_path / "mountinfo")) is remote
    assert is_remote(str(tmp_path)) is is_remote_by(str(tmp_path), "/proc/self/mountinfo")
    assert is_remote(str(tmp_path / "absent")) is is_remote(str(tmp_path))


def test_a_mount_table_is_read_again_for_another_device_and_after_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts, folder = tmp_path / "mountinfo", tmp_path / "store"
    monkeypatch.setattr("tritonstore.backends.leases._MOUNTS", str(mounts))
    assert is_remote(str(folder)) is False
    folder.mkdir()
    assert is_remote(str(folder)) is False  # there is no table to tell by
    mounts.write_text(f"9 1 0:9 / {folder} rw - nfs4 server:/ rw\n")
    assert is_remote(str(folder)) is True
    mounts.write_text(f"9 1 0:9 / {folder} rw - ext4 /dev/sda rw\n")
    assert is_remote(str(folder)) is True  # known by now
    status = os.stat(folder)
    monkeypatch.setattr("os.stat", lambda path: os.stat_result((*status[:2], status.st_dev + 1, *status[3:10])))
    assert is_remote(str(folder)) is False


def test_on_a_network_file_system_a_marker_names_its_owner(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonstore.backends.leases.is_remote", lambda folder: True)
    first, second = (FileLease(str(root), "ab", "file:///x", may_be_remote=True) for _ in range(2))
    assert first.try_acquire()
    assert f"pid={os.getpid()}" in (root / "ab").read_text()
    assert not second.try_acquire()
    first.release()
    assert second.try_acquire()
    second.release()
    named = FileLease(str(root), "cd", "file:///x", may_be_remote=False)  # a lock folder that a user named
    assert named.try_acquire()
    assert (root / "cd").read_text() == ""
    named.release()


def test_the_size_limits_of_backend_and_entry_are_one() -> None:
    from tritonstore.entry import MAX_SIZE as entry_limit

    assert entry_limit == MAX_SIZE
