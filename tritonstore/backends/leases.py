"""Leases in the file system, for `file://`: flock where it can be trusted, a marker with a heartbeat where it
cannot.

The kernel drops a flock when its holder dies, however that happens. On network file systems flock is local to
one host, silently missing, or served by a daemon that hangs; there a marker file names its owner, and a
marker that has stood still for its duration is taken over. That may let two workers analyse the same call,
which is waste, never damage.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from tritonstore.backends.folders import make_folders
from tritonstore.errors import StoreError

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["FileLease", "is_remote", "is_remote_by"]

# fmt: off
_REMOTE = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
    "orangefs", "panfs", "smb3", "smbfs", "virtiofs", "wekafs",
    "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs", "fuse.sshfs",
})
# fmt: on
# Seconds that a marker must stand still before another worker takes it over. The same on all hosts.
_LEASE_DURATION = 30.0
_MOUNTS = "/proc/self/mountinfo"


class FileLease:
    """A try-lock on `folder/name`. `url` is the store's, for messages.

    `may_be_remote` asks for a look at the file system's type; a lock folder that a user has named is taken at
    its word. `shared` lets the folder's group take part, from the folder `root` down.
    """

    def __init__(
        self, folder: str, name: str, url: str, *, may_be_remote: bool, shared: bool = False, root: str = ""
    ) -> None:  # fmt: skip
        self._folder = folder
        self._path = os.path.join(folder, name)
        self._url = url
        self._may_be_remote = may_be_remote
        self._shared = shared
        self._root = root or folder
        self._lock: BaseFileLock | None = None  # kept between attempts: a marker's standstill is observed by one object
        self._owner = 0

    def try_acquire(self) -> bool:
        from filelock import Timeout  # not at import: a process that only hits never needs it

        try:
            if self._lock is None:
                make_folders(self._folder, shared=self._shared, root=self._root)
                soft = self._may_be_remote and is_remote(self._folder)
                self._lock = _new_lock(self._path, soft=soft, mode=0o660 if self._shared else 0o600)
            try:
                self._lock.acquire(blocking=False)
            except PermissionError:
                # Its maker died before it opened the file to the group, which would then be closed for ever.
                if not self._shared or os.stat(self._path).st_mode & 0o060 == 0o060:
                    raise
                os.unlink(self._path)
                self._lock.acquire(blocking=False)
        except Timeout:
            return False
        except OSError as error:
            cause = f"{error.strerror or error} ({error.filename or self._path})"
            raise StoreError(f"{self._url}: lease failed: {cause}", self._url, "lease") from error
        except (RuntimeError, ValueError, TypeError) as error:  # the last two: a filelock too old
            raise StoreError(f"{self._url}: lease failed: {error}", self._url, "lease") from error
        self._owner = os.getpid()
        return True

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None and self._owner == os.getpid():  # a forked child does not own what its parent acquired
            try:
                lock.release()
            except (OSError, RuntimeError):
                return  # the answer is there all the same; the lock ends with this process


def _new_lock(path: str, *, soft: bool, mode: int) -> BaseFileLock:
    from filelock import FileLock, SoftFileLease

    # Not thread-local: the claim that acquires may be given back by another thread (a generator that is
    # closed elsewhere).
    if soft:
        return SoftFileLease(path, lease_duration=_LEASE_DURATION, thread_local=False, mode=mode)
    return FileLock(path, thread_local=False, mode=mode, preserve_lock_file=True)


def is_remote(folder: str) -> bool:
    """Whether `folder` lies on a network file system. False where this cannot be told (no /proc)."""
    try:
        device = os.stat(folder).st_dev
    except OSError:  # it is not there yet
        device = -1
    try:
        return is_remote_by(folder, _MOUNTS) if device < 0 else _is_remote(folder, device)
    except OSError:
        return False


@functools.lru_cache(maxsize=256)
def _is_remote(folder: str, device: int) -> bool:
    # Once for each: to read all mounts and take them apart is a tenth of what a new question costs. Not where it fails.
    return is_remote_by(folder, _MOUNTS)


def is_remote_by(folder: str, mountinfo: str) -> bool:
    """The same by a file that lists the mounts. Raises OSError."""
    with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
        lines = file.readlines()
    path = os.path.realpath(folder)
    best, kind = -1, ""
    for line in lines:
        # proc(5): "36 35 98:0 /root /mount/point options [optional fields] - type source options"
        before, _, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if len(fields) < 5:
            continue
        mount = _unescape(fields[4])
        # >=: of several mounts on one place, the last one is seen
        if len(mount) >= best and (path == mount or path.startswith(mount.rstrip("/") + "/")):
            best, kind = len(mount), types[0]
    return kind in _REMOTE


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
