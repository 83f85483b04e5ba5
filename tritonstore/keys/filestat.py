"""SHA-256 of files, remembered by the identity of their inodes.

A file is the same as long as device, inode, size, modification time and change time are: the change time cannot be
set, so an edit that keeps the size and restores the modification time is still seen. A digest is remembered only for a
file that has been still for a while: an edit in the same clock tick as the hashing would leave no trace in the times.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time

import msgpack

import tritonstore
from tritonstore.backends.folders import make_folders, write_whole
from tritonstore.settings import Settings

_VERSION = 1
_MAX_FILES = 4096
_MAX_BYTES = 4 << 20
_STILL_NS = 3_000_000_000
_TEMPORARY = ".file-digests-"
_HOUR = 3600.0

Identity = tuple[int, int, int, int, int]


def process_start() -> float:
    """Since when the code in this process may have been imported, in seconds since the epoch.

    A file changed later may not be the one in memory. A forked child has its parent's code, which is older than it.
    """
    return tritonstore.LOADED


class FileDigests:
    """Digests of files, backed by one small private file in the cache folder. Losing it costs only time."""

    def __init__(self, path: str | None, known: dict[str, tuple[Identity, str]]) -> None:
        self._path = path
        self._known = known
        self._used: dict[str, tuple[Identity, str]] = {}
        self._dirty = False
        self.newest_change = 0.0
        self.newest_path = ""

    @classmethod
    def load(cls, folder: str | None = None) -> FileDigests:
        """What earlier processes of this user remembered. Anything odd about the file means starting afresh."""
        try:
            path = os.path.join(folder or Settings.load().cache_folder, f"file-digests-v{_VERSION}")
        except (OSError, ValueError):
            return cls(None, {})
        return cls(path, _read(path))

    def sha256(
        self, path: str, status: os.stat_result | None = None, listed: tuple[str, int, int] | None = None
    ) -> str:
        """The digest in hex. ``listed``: (digest, size, ns) as an installer recorded it. Raises OSError."""
        status = status or os.stat(path)
        if (changed := status.st_ctime_ns / 1e9) > self.newest_change:
            self.newest_change, self.newest_path = changed, path
        if listed is not None and status.st_size == listed[1] and status.st_ctime_ns < listed[2]:
            return listed[0]
        identity = _identity(status)
        known = self._known.get(path)
        if known is None or known[0] != identity:
            known = (identity, _hash(path, identity))
            self._dirty = True
        if time.time_ns() - status.st_ctime_ns > _STILL_NS:
            self._used[path] = known
        return known[1]

    def save(self) -> None:
        """Remember what was hashed. A fault costs the next process a second, so it is not worth a warning."""
        if not self._dirty or self._path is None:
            return
        # Other Triton installations of this user stay remembered, the ones just used first.
        merged = dict(list({**self._used, **{k: v for k, v in self._known.items() if k not in self._used}}.items()))
        try:
            body: bytes = msgpack.packb([[path, *entry] for path, entry in list(merged.items())[:_MAX_FILES]])
        except ValueError:  # a path that is no text
            return
        data = hashlib.sha256(body).digest() + body
        folder = os.path.dirname(self._path)
        with contextlib.suppress(OSError):
            make_folders(folder)
            write_whole(self._path, data, temporary=f"{_TEMPORARY}{os.urandom(8).hex()}")
            _sweep(folder)


def _sweep(folder: str) -> None:
    """Remove what processes that were killed in `save` have left. Raises OSError."""
    now = time.time()
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.startswith(_TEMPORARY) and abs(now - os.lstat(path).st_mtime) > _HOUR:
            os.unlink(path)


def _identity(status: os.stat_result) -> Identity:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _hash(path: str, identity: Identity) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        buffer = memoryview(bytearray(1 << 20))
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
        if _identity(os.fstat(file.fileno())) != identity:
            raise OSError(f"{path} changed while it was read")
    return digest.hexdigest()


def _read(path: str) -> dict[str, tuple[Identity, str]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    with open(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        # Whoever can write this file can name any Triton as any other, so only the user's own counts.
        private = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        if not private or not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            return {}
        try:
            data = file.read()
        except OSError:
            return {}
    if hashlib.sha256(data[32:]).digest() != data[:32]:
        return {}
    try:
        rows = msgpack.unpackb(data[32:], use_list=False, max_array_len=_MAX_FILES, max_map_len=0)
        return {
            str(name): ((int(a), int(b), int(c), int(d), int(e)), str(digest)) for name, (a, b, c, d, e), digest in rows
        }
    except (ValueError, TypeError, msgpack.UnpackException):
        return {}
