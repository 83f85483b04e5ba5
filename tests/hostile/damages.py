"""Whatever may stand in an entry's place; and a thread that has no more rights than a file's owner."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

from tests.support.synthetic import entry
from tritonstore.entry import MAGIC, MAX_SIZE, encode

Place = Callable[[Path, bytes], object]
"""Puts its damage where the path is, in place of an entry with these bytes."""

SPARSE = 10 << 30


def _flipped(path: Path, data: bytes) -> None:
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def _newer(path: Path, data: bytes) -> None:
    payload = data[45:]
    path.write_bytes(MAGIC + b"\2" + len(payload).to_bytes(4, "big") + sha256(payload).digest() + payload)


def _folder(path: Path, data: bytes) -> None:
    path.mkdir()


def _full_folder(path: Path, data: bytes) -> None:
    path.mkdir()
    (path / "work").write_bytes(b"somebody's")


def _link(path: Path, data: bytes) -> None:
    elsewhere = path.parents[3] / "elsewhere"
    elsewhere.write_bytes(data)
    path.symlink_to(elsewhere)


def _device(path: Path, data: bytes) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero, which has no end
    except PermissionError:  # only root makes devices
        path.symlink_to("/dev/zero")


def _sparse(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.truncate(path, SPARSE)


def _unreadable(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0)


FILES: dict[str, Place] = {
    "empty": lambda path, data: path.write_bytes(b""),
    "cut": lambda path, data: path.write_bytes(data[: len(data) // 2]),
    "longer": lambda path, data: path.write_bytes(data + b"\0"),
    "flipped": _flipped,
    "another entry": lambda path, data: path.write_bytes(encode(entry(777))),
    "newer format": _newer,
    "junk": lambda path, data: path.write_bytes(b"\x93" * MAX_SIZE),
    "too large": lambda path, data: path.write_bytes(bytes(MAX_SIZE + 1)),
    "sparse": _sparse,
}
"""Damaged files: a reader sees that they are none."""

OTHERS: dict[str, Place] = {
    "folder": _folder,
    "full folder": _full_folder,
    "pipe": lambda path, data: os.mkfifo(path),
    "socket": lambda path, data: os.mknod(path, 0o600 | stat.S_IFSOCK),
    "device": _device,
    "link to an entry": _link,
    "link to nothing": lambda path, data: path.symlink_to("nothing"),
    "link to itself": lambda path, data: path.symlink_to(path),
}
"""No files at all: nothing is there, as far as a reader is concerned."""

ALL: dict[str, Place] = {**FILES, **OTHERS, "unreadable": _unreadable}


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


_OVERRIDES = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, see capability.h


@contextlib.contextmanager
def mortal() -> Iterator[None]:
    """In this thread, for the block: modes of files hold for root as well."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, before = _Header(0x20080522, 0), (_Sets * 2)()
    assert libc.capget(ctypes.byref(header), before) == 0
    without = (_Sets * 2)(*before)
    without[0].effective = before[0].effective & ~_OVERRIDES
    assert libc.capset(ctypes.byref(header), without) == 0
    try:
        yield
    finally:
        assert libc.capset(ctypes.byref(header), before) == 0
