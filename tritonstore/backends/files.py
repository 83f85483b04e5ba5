"""`file://`: one file per entry, `v1/<first two hex digits>/<digest>`, the only backend that writes files.

A file gets its final name only when it is whole (temporary name beside it, then `os.replace`), so no reader needs a
lock. Temporary names hold host, process id and a random part: folders are shared between hosts, where process ids
repeat. Last use is the file's mtime, refreshed at most once an hour. Who may use the folder: see `trust`.

Growth is bounded without any record of what is there: about one put in 256, chosen by the digest itself, cleans the
shard that it wrote to down to its 256th part of the limits. Large entries clean more often. So a shard is expected to
overshoot by an eighth of its part at most, no process scans at its start, and none need to agree on anything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterator

from tritonstore.backends.base import MAX_SIZE, Backend, Record, check_digest, is_digest
from tritonstore.backends.folders import TEMPORARY, make_folders, open_to_group, temporary_name
from tritonstore.backends.leases import FileLease
from tritonstore.backends.trust import Trust
from tritonstore.errors import StoreError, StoreUnavailable

__all__ = ["FilesBackend"]

# A new entry format is a new folder: an old tool keeps its own, and nobody deletes what it cannot read.
VERSION = "v1"

_SHARDS = 256
_HOUR = 3600.0
_SHARD_NAME = re.compile(r"[0-9a-f]{2}\Z")

# O_NONBLOCK: opening a FIFO that has no writer would wait for ever. O_NOFOLLOW: a link could lead elsewhere.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW

# What no put has left there stands in the entry's place: a link, a socket, a device without a driver.
_NO_ENTRY = frozenset({errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENODEV})
_NOT_A_FOLDER = frozenset({errno.ENOTDIR, errno.EEXIST, errno.ELOOP})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_GONE = frozenset({errno.ENOENT, errno.ESTALE, errno.ENAMETOOLONG})
_UNAVAILABLE = _NOT_A_FOLDER | _FORBIDDEN | _FULL | _GONE


class FilesBackend(Backend):
    """Entries in the folder `root`, which the first put makes (mode 0700; files 0600).

    With `shared`, every member of the folder's group can read and write: see `folders`.
    `max_size` bytes and `max_age` seconds since last use bound it, 0 is unlimited. `durable` waits for the
    disk at each put. `lock_folder` holds the leases' lock files (default: inside the store). Without `touch`,
    reading changes nothing at all.
    """

    def __init__(
        self,
        root: str,
        *,
        url: str = "",
        max_size: int = 0,
        max_age: float = 0.0,
        durable: bool = False,
        lock_folder: str | None = None,
        touch: bool = True,
        shared: bool = False,
    ) -> None:
        self.root = root
        self.url = url or f"file://{root}"
        self._base = os.path.join(root, VERSION) + os.sep
        self._share = max_size / _SHARDS
        self._max_age = max_age
        self._durable = durable
        self._touch = touch
        self._shared = shared
        self._mode = 0o664 if shared else 0o600
        self._trust = Trust(root, self._base.rstrip(os.sep), shared=shared)
        self._locks_in_store = lock_folder is None
        self._locks = os.path.join(root, VERSION, "locks") if lock_folder is None else lock_folder

    def get(self, digest: str) -> bytes | None:
        check_digest(digest)
        path = f"{self._base}{digest[:2]}{os.sep}{digest}"
        if digest[:2] not in self._trust.shards:
            self._look("get", digest[:2])
        try:
            descriptor = os.open(path, _READ)
        except OSError as error:
            if error.errno in _NO_ENTRY:
                return None
            raise self._fault("get", error) from error
        try:
            try:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_SIZE:
                    return None
                data = _read(descriptor, found.st_size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._fault("get", error) from error
        # Either direction: a file dated to the future (a wrong clock) would otherwise outlive every limit.
        if self._touch and abs(time.time() - found.st_mtime) > _HOUR and self._trust.writes:
            with contextlib.suppress(OSError):  # a store that may only be read; its entries just look older
                os.utime(path, follow_symlinks=False)
        return data

    def put(self, digest: str, data: bytes) -> None:
        check_digest(digest)
        if len(data) > MAX_SIZE:
            raise StoreError(f"{self.url}: a value of {len(data)} bytes is beyond {MAX_SIZE}", self.url, "put")
        self._look("put", digest[:2], write=True)
        try:
            try:
                self._write(digest, data)
            except FileNotFoundError:  # the first put of a shard, or somebody removed the folder just now
                make_folders(self._base + digest[:2], shared=self._shared, root=self.root)
                self._write(digest, data)
        except OSError as error:
            raise self._fault("put", error) from error

    def delete(self, digest: str) -> bool:
        check_digest(digest)
        self._look("delete", digest[:2], write=True)
        try:
            with self._opened(digest[:2]) as shard:
                try:
                    os.unlink(digest, dir_fd=shard)
                except (IsADirectoryError, PermissionError):  # POSIX lets unlink(folder) answer EPERM
                    if not stat.S_ISDIR(os.lstat(digest, dir_fd=shard).st_mode):
                        raise
                    os.rmdir(digest, dir_fd=shard)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._fault("delete", error) from error
        return True

    def scan(self) -> Iterator[Record]:
        self._look("scan")
        try:
            for shard in _names(self._base, _SHARD_NAME):
                with (
                    contextlib.suppress(FileNotFoundError, NotADirectoryError),
                    os.scandir(self._base + shard) as files,
                ):
                    for file in files:
                        if is_digest(file.name) and file.name.startswith(shard):
                            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                                found = file.stat(follow_symlinks=False)
                                if stat.S_ISREG(found.st_mode):
                                    yield Record(file.name, found.st_size, found.st_mtime)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._fault("scan", error) from error

    def lease(self, digest: str) -> FileLease | None:
        check_digest(digest)
        if self._locks_in_store and not self._trust.writes:
            return None
        # 256 lock files, shared by the digests of a shard and never unlinked: to unlink one would leave its
        # waiters with a lock on a file that the next worker does not find.
        inside, root = self._locks_in_store, self.root if self._locks_in_store else self._locks
        return FileLease(self._locks, digest[:2], self.url, may_be_remote=inside, shared=self._shared, root=root)

    def close(self) -> None:
        """Nothing is held open between calls."""

    @contextlib.contextmanager
    def _opened(self, shard: str) -> Iterator[int]:
        """A descriptor of that folder. A link in its place (or in v1's) is refused: it could lead anywhere."""
        base = os.open(self._base.rstrip(os.sep), _FOLDER)
        try:
            folder = os.open(shard, _FOLDER, dir_fd=base)
        except OSError as error:
            error.filename = self._base + shard  # for the message: the name alone says nothing
            raise
        finally:
            os.close(base)
        try:
            yield folder
        finally:
            os.close(folder)

    def _look(self, operation: str, shard: str = "", *, write: bool = False) -> None:
        problem = self._trust.refusal(shard, write=write)
        if problem:
            raise StoreUnavailable(f"{self.url}: {operation} failed: {problem}", self.url, operation)

    def _write(self, digest: str, data: bytes) -> None:
        temporary = temporary_name()
        with self._opened(digest[:2]) as shard:
            try:
                descriptor = os.open(temporary, _WRITE, self._mode, dir_fd=shard)
                try:
                    if self._shared:
                        open_to_group(descriptor)
                    written = os.write(descriptor, data)
                    while written < len(data):  # the disk was nearly full, or a signal came
                        written += os.write(descriptor, data[written:])
                    if self._durable:
                        os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                _replace(temporary, digest, shard)
            except BaseException:  # Ctrl-C as well: a temporary file that stays behind is found only an hour later
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=shard)
                raise
            if self._durable:
                os.fsync(shard)
            if self._cleans(digest, len(data)):
                with contextlib.suppress(OSError):  # what cannot be cleaned now is cleaned later; the put has succeeded
                    self._clean(shard, keep=digest)

    def _cleans(self, digest: str, size: int) -> bool:
        if not self._share and not self._max_age:
            return False
        share = max(1 / 256, 8 * size / self._share if self._share else 0.0)
        # Digits that do not choose the shard, or whole shards would never be cleaned.
        return int(digest[2:8], 16) < share * 0x1000000

    def _clean(self, shard: int, keep: str) -> None:
        """Remove old temporary files, entries past their age, and the least recently used beyond the shard's part."""
        now = time.time()
        entries: list[tuple[float, int, str]] = []
        total = 0
        with os.scandir(shard) as files:
            for file in files:
                with contextlib.suppress(OSError):  # one file that cannot be removed must not stop all cleaning
                    found = file.stat(follow_symlinks=False)
                    if not stat.S_ISREG(found.st_mode):
                        continue
                    if TEMPORARY.match(file.name):
                        if abs(now - found.st_mtime) > _HOUR:  # no live writer takes so long
                            os.unlink(file.name, dir_fd=shard)
                    elif is_digest(file.name):
                        if self._max_age and abs(now - found.st_mtime) > self._max_age and file.name != keep:
                            os.unlink(file.name, dir_fd=shard)
                        else:
                            entries.append((found.st_mtime, found.st_size, file.name))
                            total += found.st_size
        if not self._share or total <= self._share:
            return
        entries.sort()
        for _, size, name in entries:
            if total <= 0.9 * self._share:  # a little room, or the very next put would have to clean again
                break
            if name != keep:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=shard)
                    total -= size

    def _fault(self, operation: str, error: OSError) -> StoreError:
        kind = StoreUnavailable if error.errno in _UNAVAILABLE else StoreError
        return kind(f"{self.url}: {operation} failed: {self._cause(error)}", self.url, operation)

    def _cause(self, error: OSError) -> str:
        root = self.root
        if error.errno in _NOT_A_FOLDER:
            while root != os.path.dirname(root) and not os.path.lexists(root):
                root = os.path.dirname(root)
            if not os.path.isdir(root):
                return f"{root} is not a folder; remove it, or name another folder in TRITONSTORE_URL"
            if error.filename is not None and os.path.islink(error.filename):
                return f"{error.filename} is a link, which is not followed; remove it"
        if error.errno in _FORBIDDEN:
            return f"{error.strerror}; make {root} writable for this user, or name another in TRITONSTORE_URL"
        if error.errno in _FULL:
            return f"{error.strerror}; make room for {root}, or lower TRITONSTORE_MAX_SIZE"
        return f"{error.strerror or error} ({error.filename or root})"


def _read(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size + 1)
    while len(data) < size:
        more = os.read(descriptor, size + 1 - len(data))
        if not more:
            break  # truncated meanwhile; the entry's checksum will tell
        data += more
    return data


def _replace(temporary: str, final: str, folder: int) -> None:
    try:
        os.replace(temporary, final, src_dir_fd=folder, dst_dir_fd=folder)
    except IsADirectoryError:
        os.rmdir(final, dir_fd=folder)  # an empty folder in an entry's place; a full one is somebody's, and an error
        os.replace(temporary, final, src_dir_fd=folder, dst_dir_fd=folder)


def _names(folder: str, pattern: re.Pattern[str]) -> list[str]:
    with os.scandir(folder) as files:
        return sorted(file.name for file in files if pattern.match(file.name) and not file.is_symlink())
