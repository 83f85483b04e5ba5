"""`diskcache://`: one SQLite file, for places where inodes are short. By diskcache, without its pickles.

diskcache keeps any Python object, and unpickles what it reads (CVE-2025-69872). Here it gets a Disk of our own that
stores bytes under text in the database itself, and reads nothing else: what another program has put there is a miss.

Last use is the time of storing, renewed by a read at most once an hour; the entries stored longest ago are culled
first. SQLite relies on locks that network file systems do not keep, so a store there is refused.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any

import diskcache

from tritonstore.backends import options
from tritonstore.backends.base import MAX_SIZE, Backend, Record, check_digest
from tritonstore.backends.folders import make_folders
from tritonstore.backends.leases import FileLease, is_remote
from tritonstore.backends.trust import Trust
from tritonstore.errors import StoreError, StoreUnavailable
from tritonstore.forks import reset_in_children
from tritonstore.settings import Settings, redact_url

__all__ = ["DiskcacheBackend", "open_diskcache"]

VERSION = "v1"

_HOUR = 3600.0
_FOREVER = 100 * 365 * 86400.0  # so that an entry's expiry always tells when it was stored
_RENEWAL_TIMEOUT = 0.05  # seconds that a renewal, which is an extra, waits for other writers
_BUSY_TIMEOUT = 5.0  # seconds that a writer waits for other writers
_SMALLEST = 16 << 20  # bytes; diskcache culls ten entries at a time, which must never be all there are
_LOCKS = 64  # lock files; inodes are short here
_ADVICE = "use a folder of this user's own, or file: with shared=true"
_MODE_RAW = 1  # diskcache's mark for a value that stands in the database as it is


class _BytesDisk(diskcache.Disk):  # type: ignore[misc]
    """Text keys and bytes values, both raw. There is no way from here to pickle or to a file."""

    def put(self, key: Any) -> tuple[str, bool]:
        return str(key), True

    def get(self, key: Any, raw: Any) -> Any:
        return key if raw and type(key) is str else ""

    def store(self, value: Any, read: Any, key: Any = None) -> tuple[int, int, None, Any]:
        return 0, _MODE_RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: Any, filename: Any, value: Any, read: Any) -> bytes:
        if mode != _MODE_RAW or type(value) is not bytes:
            raise OSError("not a value of this store")  # which diskcache takes for a value that is gone
        return value

    def remove(self, file_path: Any) -> None:
        """Nothing: our values have no files, and a planted row could name any file."""


class DiskcacheBackend(Backend):
    """A diskcache in the folder `root`, which the first put makes (mode 0700).

    `max_size` bytes bound the file (0: unlimited; at least 16 MiB), `max_age` seconds since last use the entries.
    """

    def __init__(
        self, root: str, *, url: str = "", max_size: int = 0, max_age: float = 0.0, durable: bool = False,
        touch: bool = True,
    ) -> None:  # fmt: skip
        self.root = root
        self.url = url or f"diskcache://{root}"
        self._folder = os.path.join(root, VERSION)
        self._file = os.path.join(self._folder, diskcache.core.DBNAME)
        self._lifetime = max_age or _FOREVER
        self._fresh = self._lifetime - min(_HOUR, self._lifetime / 2)
        self._touch = touch
        self._settings = {
            "size_limit": max(max_size, _SMALLEST) if max_size else 1 << 62,
            "eviction_policy": "least-recently-stored",
            "cull_limit": 10,
            "statistics": 0,
            "sqlite_synchronous": 2 if durable else 1,
        }
        self._cache: Any = None
        self._inherited: list[Any] = []
        self._lock = threading.Lock()
        reset_in_children(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        # Kept, not closed: SQLite forbids a child to do anything with its parent's connections.
        self._inherited.append(self._cache)
        self._cache = None

    def get(self, digest: str) -> bytes | None:
        check_digest(digest)
        with self._faults("get"):
            cache = self._opened(make=False)
            if cache is None:
                return None
            data, expiry = cache.get(digest, expire_time=True)
            if data is None or len(data) > MAX_SIZE:
                return None
            if self._touch and expiry is not None and expiry - time.time() < self._fresh:
                self._renew(digest)
            return bytes(data)

    def _renew(self, digest: str) -> None:
        # diskcache would wait as long as for a put, and write the value again.
        now = time.time()
        update = "UPDATE Cache SET store_time = ?, expire_time = ? WHERE key = ? AND raw = 1"
        try:
            with contextlib.closing(
                sqlite3.connect(self._file, timeout=_RENEWAL_TIMEOUT, isolation_level=None)
            ) as connection:
                connection.execute(update, (now, now + self._lifetime, digest))
        except sqlite3.Error:
            self._touch = False  # the next one would wait as well; without it the entries just look older

    def put(self, digest: str, data: bytes) -> None:
        check_digest(digest)
        if len(data) > MAX_SIZE:
            raise StoreError(f"{self.url}: a value of {len(data)} bytes is beyond {MAX_SIZE}", self.url, "put")
        with self._faults("put"):
            self._opened(make=True).set(digest, bytes(data), expire=self._lifetime)

    def delete(self, digest: str) -> bool:
        check_digest(digest)
        with self._faults("delete"):
            cache = self._opened(make=False)
            return cache is not None and bool(cache.delete(digest))

    def scan(self) -> Iterator[Record]:
        # By rowid and in pages, which diskcache has no call for: no long transaction, and constant memory.
        select = (
            "SELECT rowid, key, length(value), store_time FROM Cache WHERE rowid > ? AND raw = 1 AND mode = ?"
            " AND (expire_time IS NULL OR expire_time > ?) ORDER BY rowid LIMIT 1000"
        )
        last = -1
        while True:
            with self._faults("scan"):
                if self._opened(make=False) is None:
                    return
                with contextlib.closing(sqlite3.connect(self._file, timeout=_BUSY_TIMEOUT)) as connection:
                    rows = connection.execute(select, (last, _MODE_RAW, time.time())).fetchall()
            for _, key, size, stored in rows:
                if _is_digest(key):
                    yield Record(key, size, stored)
            if not rows:
                return
            last = rows[-1][0]

    def lease(self, digest: str) -> FileLease:
        check_digest(digest)
        name = f"{int(digest[:2], 16) % _LOCKS:02x}"
        return FileLease(os.path.join(self._folder, "locks"), name, self.url, may_be_remote=False)

    def close(self) -> None:
        """Close this thread's connection; those of other threads end with them."""
        cache, self._cache = self._cache, None
        if cache is not None:
            with contextlib.suppress(sqlite3.Error):
                cache.close()

    def _opened(self, *, make: bool) -> Any:
        if self._cache is None:
            with self._lock:
                if self._cache is None:
                    if not make and not os.path.exists(self._file):
                        return None
                    # SQLite writes when it reads, so a store of another user is not even read.
                    problem = Trust(self.root, self._folder, shared=False, advice=_ADVICE).refusal(write=True)
                    if problem:
                        raise OSError(problem)
                    make_folders(self._folder)
                    self._wait_for_others()
                    self._cache = diskcache.Cache(
                        self._folder, timeout=_BUSY_TIMEOUT, disk=_BytesDisk, **self._settings
                    )
        return self._cache

    def _wait_for_others(self) -> None:
        # diskcache itself waits a minute for each of some twenty statements while another process writes.
        with contextlib.closing(sqlite3.connect(self._file, timeout=_BUSY_TIMEOUT, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _faults(self, operation: str) -> Iterator[None]:
        try:
            yield
        except (diskcache.Timeout, sqlite3.Error, OSError) as error:
            busy = isinstance(error, diskcache.Timeout) or "locked" in str(error)
            cause = f"other processes have kept it busy for {_BUSY_TIMEOUT:.0f} s" if busy else self._cause(error)
            kind = StoreError if busy else StoreUnavailable
            raise kind(f"{self.url}: {operation} failed: {cause}", self.url, operation) from error

    def _cause(self, error: Exception) -> str:
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            return f"{error}; remove {self._file}"
        if isinstance(error, OSError) and error.errno is None:
            return str(error)
        return f"{error}; {self.root} must be a folder that this user can write, with room"


def open_diskcache(url: str, settings: Settings) -> DiskcacheBackend:
    """``diskcache:///path?durable=true``. Raises SettingsError, also for a folder on a network file system."""
    parts, found = options.split_url(url, settings, {"durable": options.boolean})
    root = options.folder(parts, url, settings)
    if "$" in root:  # diskcache would put environment variables in
        raise options.refuse(url, settings, "a diskcache: path has no $")
    if is_remote(root):
        raise options.refuse(
            url, settings, f"{root} is on a network file system, where SQLite's locks fail; use file:, redis: or s3:"
        )
    return DiskcacheBackend(
        root,
        url=redact_url(url),
        max_size=settings.max_size,
        max_age=settings.max_age,
        durable=found.get("durable", settings.durable),
        touch=settings.mode != "readonly",
    )


def _is_digest(key: Any) -> bool:
    try:
        return type(key) is str and check_digest(key) == key
    except ValueError:
        return False
