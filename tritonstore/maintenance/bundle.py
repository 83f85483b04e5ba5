"""Bundles: entries of a store in one portable, compressed, checked file.

`write` and `Bundle` know the format; `save` and `load` move entries between a bundle and stores. A bundle is read in
two passes: all of it is checked before the first entry reaches a store.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, BinaryIO, cast

import msgpack
import zstandard

from tritonstore.backends.base import Backend
from tritonstore.entry import MAX_SIZE
from tritonstore.errors import FormatError, StoreError
from tritonstore.maintenance.inventory import check
from tritonstore.signing import Keys

__all__ = ["MAGIC", "Bundle", "BundleError", "Loaded", "load", "write"]

# bundle   = MAGIC version body-length manifest-length checksum body manifest     nothing may follow
# version  = one byte, 1
# body-length, manifest-length = u64, big-endian, in bytes as they stand in the file
# checksum = SHA-256 of the two lengths, the body and the manifest, 32 bytes
# body     = one zstd frame: the entries (see entry.py), one after the other
# manifest = one zstd frame of msgpack: {"created": int, "writer": str, "entries": [[digest, size, SHA-256], …]}
#   digest and SHA-256 are 32 raw bytes each; the entries stand in the body in this order, and each digest once
#
# The manifest comes last, so that a bundle is written in one pass over a store that others write to.
#
# History: 1 (0.1.0) the first.
MAGIC = b"\x8fTSB\r\n\x1a\n"
VERSION = 1

_HEADER = struct.Struct(">8sBQQ32s")
_LENGTHS = struct.Struct(">QQ")
_CHUNK = 1 << 20
_MAX_ENTRIES = 4_000_000
_MAX_MANIFEST = 90 * _MAX_ENTRIES  # bytes, unpacked: 71 an entry
_LEVEL = 9  # zstd: twice the speed of 19, and 2 % larger, on entries of real kernels
Step = Callable[[], object]


def _no_step() -> None:
    """Nobody watches."""


class BundleError(FormatError):
    """A bundle that is refused; nothing of it has been stored."""


def write(path: str, entries: Iterable[tuple[str, bytes]], writer: str) -> int:
    """Write a bundle of (digest, data) to `path`, which appears whole or not at all; the number of entries.

    Writes nothing if there are no entries. Raises OSError.
    """
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb+") as file:
            count = _write(file, entries, writer)
            file.flush()
            os.fsync(file.fileno())
        if count:
            os.replace(temporary, path)
        return count
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _write(file: BinaryIO, entries: Iterable[tuple[str, bytes]], writer: str) -> int:
    file.write(b"\0" * _HEADER.size)
    listed: list[list[Any]] = []
    with zstandard.ZstdCompressor(level=_LEVEL).stream_writer(file, closefd=False) as body:
        for digest, data in entries:
            body.write(data)
            listed.append([bytes.fromhex(digest), len(data), sha256(data).digest()])
    body_length = file.tell() - _HEADER.size
    manifest = {"created": int(time.time()), "writer": writer, "entries": listed}
    file.write(zstandard.ZstdCompressor(level=_LEVEL).compress(msgpack.packb(manifest, use_bin_type=True)))
    lengths = body_length, file.tell() - _HEADER.size - body_length
    checksum = sha256(_LENGTHS.pack(*lengths))
    file.seek(_HEADER.size)
    while chunk := file.read(_CHUNK):
        checksum.update(chunk)
    file.seek(0)
    file.write(_HEADER.pack(MAGIC, VERSION, *lengths, checksum.digest()))
    return len(listed)


class Bundle:
    """An open bundle, checked as a file: header, lengths, checksum, manifest. Raises BundleError and OSError.

    `max_size` bounds the bytes of its entries, unpacked; 0 is no bound. With `signing`, an entry that is not signed is
    as wrong as a damaged one.
    """

    def __init__(self, file: BinaryIO, max_size: int = 0, signing: Keys | None = None) -> None:
        self._file = file
        self.signing = signing
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise BundleError("it is shorter than the header of a bundle")
        magic, version, body, manifest, checksum = _HEADER.unpack(header)
        if magic != MAGIC:
            raise BundleError("it is not a bundle of tritonstore")
        if version != VERSION:
            raise BundleError(f"it has version {version}, and this tritonstore reads {VERSION}")
        expected = _HEADER.size + body + manifest
        if size != expected:
            what = "truncated" if size < expected else "too long"
            raise BundleError(f"it is {what}: {size:,} bytes, and its header says {expected:,}")
        found = sha256(_LENGTHS.pack(body, manifest))
        while chunk := file.read(_CHUNK):
            found.update(chunk)
        if found.digest() != checksum:
            raise BundleError("its checksum is wrong: it was damaged on the way")
        file.seek(_HEADER.size + body)
        self._entries, self.created, self.writer = _manifest(file.read(manifest))
        self._body = body
        self.size = sum(size for _, size, _ in self._entries)
        if max_size and self.size > max_size:
            raise BundleError(f"its entries have {self.size:,} bytes, beyond the limit of {max_size:,}")

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[str, bytes, FormatError | None]]:
        """(digest, data, what is wrong with it or None) of every entry. Raises BundleError where the body ends."""
        self._file.seek(_HEADER.size)
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
            cast(Any, _Part(self._file, self._body)), read_size=_CHUNK, closefd=False
        )
        for raw, size, checksum in self._entries:
            data = self._exactly(reader, size)
            digest = raw.hex()
            problem: FormatError | None = None
            if sha256(data).digest() != checksum:
                problem = FormatError("has another checksum than the manifest says")
            else:
                try:
                    check(digest, data, self.signing)
                except FormatError as error:
                    problem = error
            yield digest, data, problem
        if self._exactly(reader, 1, at_end=True):
            raise BundleError("it holds more than its manifest says")

    @staticmethod
    def _exactly(reader: Any, size: int, at_end: bool = False) -> bytes:
        data = b""
        try:
            while len(data) < size:
                more = reader.read(size - len(data))
                if not more:
                    break
                data += more
        except zstandard.ZstdError as error:
            raise BundleError(f"its body cannot be unpacked ({error})") from error
        if len(data) < size and not at_end:
            raise BundleError("it holds less than its manifest says")
        return data


class _Part:
    """The next `left` bytes of a file, and nothing after them: the body, without the manifest behind it."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file = file
        self._left = left

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data


def _manifest(data: bytes) -> tuple[list[tuple[bytes, int, bytes]], int, str]:
    # Digests do not compress: what unpacks to much more than it has is made to fill the memory.
    most = min(_MAX_MANIFEST, 4 * len(data) + 4096)
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data) as reader:
            packed = reader.read(most + 1)
        if len(packed) > most:
            raise BundleError(f"its manifest is beyond {most:,} bytes")
        manifest = msgpack.unpackb(packed, raw=False, max_array_len=_MAX_ENTRIES, max_ext_len=0)
        entries = [(digest, size, checksum) for digest, size, checksum in manifest["entries"]]
        created, writer = manifest["created"], manifest["writer"]
    except (zstandard.ZstdError, msgpack.UnpackException, ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"its manifest cannot be read ({type(error).__name__})") from error
    if type(created) is not int or type(writer) is not str:
        raise BundleError("its manifest does not say when and by whom it was made")
    for digest, size, checksum in entries:
        if type(digest) is not bytes or type(checksum) is not bytes or len(digest) != 32 or len(checksum) != 32:
            raise BundleError("its manifest holds something that is no digest")
        if type(size) is not int or not 0 <= size <= MAX_SIZE:
            raise BundleError("its manifest lists an entry that is larger than an entry can be")
    if len({digest for digest, _, _ in entries}) != len(entries):
        raise BundleError("its manifest lists an entry twice")
    return entries, created, writer


@dataclass
class Loaded:
    """What became of a bundle's entries: `new` were stored, `known` were there, `refused` were left out, with why."""

    new: int = 0
    known: int = 0
    size: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)


def load(
    bundle: Bundle,
    backends: Sequence[Backend],
    *,
    partial: bool = False,
    dry_run: bool = False,
    step: Step = _no_step,
) -> Loaded:
    """Put a bundle's entries into every tier that lacks them, all or nothing.

    An entry that is not sound refuses the whole bundle (BundleError, nothing stored), unless `partial`: then it is
    left out. A store that fails on the way loses again what this call has put there, and the StoreError is raised.
    A process that is killed leaves sound entries, some of them or all.
    """
    result = Loaded()
    for digest, _, problem in bundle:
        step()
        if problem is not None:
            result.refused.append((digest, problem.problem))
            if not partial:
                raise BundleError(f"its entry {digest[:16]}… {problem.problem}")
    put: list[tuple[Backend, str]] = []
    try:
        for digest, data, problem in bundle:
            step()
            if problem is not None:
                continue
            lacking = [backend for backend in backends if not _holds(backend, digest, bundle.signing)]
            for backend in lacking if not dry_run else ():
                backend.put(digest, data)
                put.append((backend, digest))
            result.new += bool(lacking)
            result.known += not lacking
            result.size += len(data) if lacking else 0
    except BaseException:
        for backend, digest in reversed(put):
            with contextlib.suppress(StoreError):
                backend.delete(digest)
        raise
    return result


def _holds(backend: Backend, digest: str, signing: Keys | None) -> bool:
    """Whether a sound entry stands there; one that is damaged, or not signed as it should be, is put anew."""
    try:
        data = backend.get(digest)
        if data is None:
            return False
        check(digest, data, signing)
    except (FormatError, StoreError):  # one that cannot be read is put anew, too; if no put works, that one says so
        return False
    return True
