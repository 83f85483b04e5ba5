"""Real file systems that are full or read-only: mounts that this process alone sees, and that end with it.

Root makes a mount namespace of its own; another user makes a user namespace first, as `unshare -Urm` does. Where a
machine forbids both there is nothing real to try, which is an error and no reason to skip.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 32, 4096, 16384, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]


def own_namespace() -> None:
    """From now on mounts are this process's own. Must come before the first thread. Raises OSError."""
    if os.geteuid():
        _new_user(os.geteuid(), NEW_MOUNTS)
    else:
        _call(_libc.unshare, NEW_MOUNTS)
    _mount("none", "/", "", RECURSIVE | PRIVATE)


def become(uid: int) -> None:
    """From now on this process, which has one thread, has that user id, and owns what it owned. Raises OSError."""
    _new_user(uid)


def _new_user(uid: int, more: int = 0) -> None:
    outside, group = os.geteuid(), os.getegid()
    _call(_libc.unshare, NEW_USER | more)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


@contextmanager
def tmpfs(path: Path, options: str) -> Iterator[Path]:
    """A file system in memory at `path`, for the block; `options` such as ``size=64k``."""
    path.mkdir(parents=True)
    _mount("none", str(path), "tmpfs", 0, f"mode=0700,{options}")
    with _unmounted(path):
        yield path


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """The folder `path` can only be read, by root as well, for the block."""
    _mount(str(path), str(path), "", BIND)
    with _unmounted(path):
        _mount(str(path), str(path), "", BIND | REMOUNT | READ_ONLY)
        yield


@contextmanager
def _unmounted(path: Path) -> Iterator[None]:
    try:
        yield
    finally:
        _call(_libc.umount2, os.fsencode(path), 2)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    _call(_libc.mount, source.encode(), os.fsencode(target), kind.encode(), flags, options.encode())


def _call(function: object, *arguments: object) -> None:
    if function(*arguments):  # type: ignore[operator]
        error = ctypes.get_errno()
        raise OSError(error, f"a mount of this process's own: {os.strerror(error)}; root or user namespaces are needed")
