from __future__ import annotations

import contextlib
import os
import pickle
import sqlite3
import stat
import time
from pathlib import Path

import diskcache
import pytest

from tests.backends.contract import BackendContract, digest
from tritonstore.backends.base import Backend
from tritonstore.backends.diskcache import DiskcacheBackend, open_diskcache
from tritonstore.backends.registry import open_backend
from tritonstore.errors import SettingsError, StoreError, StoreUnavailable
from tritonstore.settings import Settings

DAY = 86400.0


def database(backend: Backend) -> sqlite3.Connection:
    """A connection beside the backend's, to a database that is there."""
    assert isinstance(backend, DiskcacheBackend)
    backend._opened(make=True)
    return sqlite3.connect(backend._file, timeout=60, isolation_level=None)


def insert(backend: Backend, name: object, value: object, *, mode: int = 1, file: str | None = None) -> None:
    row = (name, 1, time.time(), None, time.time(), mode, file, value)
    columns = "key, raw, store_time, expire_time, access_time, mode, filename, value"
    with contextlib.closing(database(backend)) as connection:
        connection.execute(f"INSERT OR REPLACE INTO Cache ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


class DiskcacheAccess:
    @pytest.fixture
    def bare(self, tmp_path: Path) -> Backend:
        return DiskcacheBackend(str(tmp_path / "store"))

    def raw_read(self, backend: Backend, digest: str) -> bytes | None:
        with contextlib.closing(database(backend)) as connection:
            row = connection.execute("SELECT value FROM Cache WHERE key = ?", (digest,)).fetchone()
        return None if row is None else row[0]

    def raw_write(self, backend: Backend, digest: str, data: bytes) -> None:
        insert(backend, digest, data)


class TestDiskcache(DiskcacheAccess, BackendContract):
    pass


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_reading_makes_no_folder(root: Path) -> None:
    backend = DiskcacheBackend(str(root))
    assert backend.get(digest(1)) is None
    assert backend.delete(digest(1)) is False
    assert list(backend.scan()) == []
    assert not root.exists()


def test_it_is_one_private_file_and_those_of_sqlite(root: Path) -> None:
    backend = DiskcacheBackend(str(root))
    for n in range(20):
        backend.put(digest(n), os.urandom(200_000))
    assert {path.name for path in (root / "v1").iterdir()} <= {"cache.db", "cache.db-wal", "cache.db-shm"}
    for folder in (root, root / "v1"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return (os.mkdir, (str(self.path),))


def test_nothing_is_ever_unpickled(root: Path, tmp_path: Path) -> None:
    backend, bomb = DiskcacheBackend(str(root)), pickle.dumps(Bomb(tmp_path / "fired"))
    insert(backend, digest(1), bomb, mode=4)
    insert(backend, bomb, b"x")
    with contextlib.closing(database(backend)) as connection:
        connection.execute("UPDATE Cache SET raw = 0 WHERE key = ?", (bomb,))
    assert backend.get(digest(1)) is None
    assert list(backend.scan()) == []
    backend.put(digest(1), b"healed")
    assert backend.get(digest(1)) == b"healed"
    assert not (tmp_path / "fired").exists()


@pytest.mark.parametrize(("value", "mode"), [("text", 1), (7, 1), (None, 2), (b"x", 3), (1.5, 1)])
def test_what_is_no_bytes_is_a_miss(root: Path, value: object, mode: int) -> None:
    backend = DiskcacheBackend(str(root))
    insert(backend, digest(1), value, mode=mode, file="../../elsewhere" if value is None else None)
    assert backend.get(digest(1)) is None


def test_a_planted_row_deletes_no_file(root: Path, tmp_path: Path) -> None:
    backend, precious = DiskcacheBackend(str(root)), tmp_path / "precious"
    precious.write_text("mine")
    insert(backend, digest(1), None, mode=2, file="../../precious")
    assert backend.delete(digest(1)) is True
    insert(backend, digest(1), None, mode=2, file="../../precious")
    backend.put(digest(1), b"x")
    assert precious.read_text() == "mine"


def test_size_is_bounded_the_oldest_go_first_and_the_last_put_stays(root: Path) -> None:
    backend = DiskcacheBackend(str(root), max_size=1)  # taken as 16 MiB
    for n in range(60):
        backend.put(digest(n), os.urandom(1 << 20))
        assert backend.get(digest(n)) is not None
    kept = [n for n in range(60) if backend.get(digest(n)) is not None]
    assert kept == list(range(kept[0], 60))
    assert os.path.getsize(backend._file) <= 18 << 20


def test_last_use_is_renewed_at_most_once_an_hour(root: Path) -> None:
    backend = DiskcacheBackend(str(root), max_age=10 * DAY)
    backend.put(digest(1), b"x")

    def stored() -> float:
        (record,) = backend.scan()
        return record.used

    def age(seconds: float) -> None:
        with contextlib.closing(database(backend)) as connection:
            now = time.time() - seconds
            connection.execute("UPDATE Cache SET store_time = ?, expire_time = ?", (now, now + 10 * DAY))

    age(1800)
    before = stored()
    assert backend.get(digest(1)) == b"x"
    assert stored() == before
    age(9 * DAY)
    assert DiskcacheBackend(str(root), max_age=10 * DAY, touch=False).get(digest(1)) == b"x"
    assert time.time() - stored() > 8 * DAY
    assert backend.get(digest(1)) == b"x"
    assert time.time() - stored() < 60
    age(11 * DAY)
    assert backend.get(digest(1)) is None
    assert list(backend.scan()) == []


def test_a_renewal_does_not_wait_for_other_writers_and_is_not_tried_again(root: Path) -> None:
    backend = DiskcacheBackend(str(root), max_age=10 * DAY)
    backend.put(digest(1), b"x")
    with contextlib.closing(database(backend)) as connection:
        connection.execute("UPDATE Cache SET expire_time = ?", (time.time() + DAY,))
        connection.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        for _ in range(100):  # each would wait 5 seconds
            assert backend.get(digest(1)) == b"x"
        assert time.monotonic() - started < 60
        connection.execute("ROLLBACK")
    assert not backend._touch


def test_a_busy_database_is_a_fault_within_its_bound(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonstore.backends.diskcache._BUSY_TIMEOUT", 0.1)
    backend = DiskcacheBackend(str(root))
    backend.put(digest(1), b"x")
    other = DiskcacheBackend(str(root))
    with contextlib.closing(database(backend)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for one in (backend, other):
            with pytest.raises(StoreError, match="kept it busy"):
                one.put(digest(2), b"y")
        assert backend.get(digest(1)) == b"x", "readers do not wait for writers"
        connection.execute("ROLLBACK")
    other.put(digest(2), b"y")


def test_damage_has_one_clear_message(root: Path) -> None:
    backend = DiskcacheBackend(str(root))
    (root / "v1").mkdir(parents=True)
    Path(backend._file).write_bytes(b"not a database" * 100)
    for call in (lambda: backend.get(digest(1)), lambda: backend.put(digest(1), b"x"), lambda: list(backend.scan())):
        with pytest.raises(StoreUnavailable, match=r"remove .*cache\.db"):
            call()


def test_a_file_in_the_place_of_the_store(root: Path) -> None:
    root.write_text("a file")
    with pytest.raises(StoreUnavailable, match="must be a folder"):
        DiskcacheBackend(str(root)).put(digest(1), b"x")


def test_a_forked_child_uses_it(root: Path) -> None:
    backend = DiskcacheBackend(str(root))
    backend.put(digest(1), b"x")
    child = os.fork()
    if child == 0:
        fine = backend.get(digest(1)) == b"x"
        backend.put(digest(2), b"y")
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert backend.get(digest(2)) == b"y"
    with contextlib.closing(database(backend)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_network_file_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonstore.backends.diskcache.is_remote", lambda folder: True)
    settings = Settings.load({"HOME": "/h"}, url="diskcache:///net/share/store")
    with pytest.raises(SettingsError, match="/net/share/store is on a network file system") as caught:
        open_backend(settings.urls[0], settings)
    assert "file:, redis: or s3:" in str(caught.value)


@pytest.mark.parametrize("url", ["diskcache:", "diskcache://host/x", "diskcache:///a$HOME", "diskcache:///x?size=1"])
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="cannot be used: "):
        open_backend(url, Settings.load({"HOME": "/h"}))


def test_url_and_settings(tmp_path: Path) -> None:
    settings = Settings.load({"HOME": "/h"}, max_size="1GiB", max_age="2d", durable=True)
    backend = open_diskcache(f"diskcache://{tmp_path}/a%20b", settings)
    assert (backend.root, backend._lifetime) == (f"{tmp_path}/a b", 2 * DAY)
    backend.put(digest(1), b"x")
    cache = diskcache.Cache(f"{tmp_path}/a b/v1")
    assert (cache.size_limit, cache.cull_limit, cache.sqlite_synchronous) == (1 << 30, 10, 2)
    assert open_diskcache(f"diskcache://{tmp_path}/x?durable=false", settings)._settings["sqlite_synchronous"] == 1
