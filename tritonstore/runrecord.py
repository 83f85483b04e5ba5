"""RunRecord: what one process (or several of one run) asked, in plain data; bytes ↔ record, and its file's name.

Each process that asked something leaves one such file. Files are written whole under a temporary name and renamed, so
many processes write at once without a lock, and a reader sees a record or none.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from tritonstore.backends.folders import make_folders, write_whole
from tritonstore.errors import FormatError

__all__ = [
    *("BypassFacts", "FileName", "KernelFacts", "MissFacts", "RunRecord", "Timeline"),
    *("decode", "encode", "write"),
]

# record   = MAGIC version length checksum payload      nothing may follow
# version  = one byte, 1
# length   = u32, big-endian: the payload's length in bytes
# checksum = SHA-256 of the payload, 32 bytes
# payload  = zlib of msgpack of a map: the fields of RunRecord by name; named tuples are lists of their fields; a miss's
#            description is {part: digest}, and `described` holds what each of these says, once
#
# History: 1 (0.1.0) the first. What is not of this version is left alone.
MAGIC = b"\x8fTSR\r\n\x1a\n"
VERSION = 1
MAX_SIZE = 4 << 20  # bytes of a file
MAX_PLAIN = 32 << 20  # bytes unpacked, looked at before they are parsed
SUFFIX = ".run"

_HEADER = struct.Struct(">8sBI32s")


class KernelFacts(NamedTuple):
    """What was asked about one kernel: `hits` by tier, `bypasses` and `unproven` by reason, seconds saved and spent."""

    module: str
    name: str
    hits: dict[str, int]
    misses: int
    shared: int
    bypasses: dict[str, int]
    analyses: int
    unproven: dict[str, int]
    seconds_saved: float
    seconds_analysing: float

    @property
    def calls(self) -> int:
        return sum(self.hits.values()) + self.misses + sum(self.bypasses.values())


class MissFacts(NamedTuple):
    """One question that was not in the store. `at` is Unix time, `seconds` what PyTorch's analysis took.

    `outcome` is ``published``, ``shared`` (another worker answered it), ``unproven: reason``, ``analysed`` or
    ``asked``. `parts` and `detail` describe the key; they are empty where the record had no room for them.
    """

    digest: str
    module: str
    name: str
    at: float
    times: int
    seconds: float
    outcome: str
    parts: dict[str, str]
    detail: dict[str, Any]

    @property
    def kernel(self) -> list[str]:
        return [self.module, self.name]


class BypassFacts(NamedTuple):
    """Calls of one kernel that could not be keyed, for one reason. `at` is the first one's Unix time."""

    module: str
    name: str
    reason: str
    detail: str
    times: int
    at: float
    seconds: float


class Timeline(NamedTuple):
    """Counts by time: bucket i holds what happened from `start + i·width` (Unix seconds) on, for `width` seconds."""

    start: float
    width: float
    hits: list[int]
    analysed: list[int]
    shared: list[int]
    bypassed: list[int]
    seconds: list[float]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """See the module. `counters` are those of `Counters.snapshot`, added up; `used` the digests that were answered or
    published; `dropped` counts what had no room; `sources` the files that a merged record stands for; `ending` is
    ``exit``, ``SIGTERM``, an exception's name, or ``running`` where nothing was heard of the process since.
    """

    run: str
    started: float
    ended: float
    processes: int = 1
    command: str = ""
    host: str = ""
    pid: int = 0
    ending: str = "exit"
    mode: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    urls: list[str] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)
    kernels: list[KernelFacts] = field(default_factory=list)
    misses: list[MissFacts] = field(default_factory=list)
    bypasses: list[BypassFacts] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    timeline: list[Timeline] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)


class FileName(NamedTuple):
    """A record's file name: they sort by time, and tell the run without being opened."""

    started_ms: int
    run: str
    owner: str

    def __str__(self) -> str:
        return f"{self.started_ms:013d}@{self.run}@{self.owner}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> FileName | None:
        """The parts of a record's file name; None where it is none."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2], match[3])


_NAME = re.compile(r"([0-9]{13})@([A-Za-z0-9_.-]{1,64})@([A-Za-z0-9_.-]{1,128})\.run")


def encode(record: RunRecord) -> bytes:
    """The bytes of `record`. Raises FormatError where it is too large or holds what msgpack cannot."""
    import msgpack

    described: dict[str, Any] = {}
    misses = []
    for miss in record.misses:
        for part, digest in miss.parts.items():
            if part in miss.detail:
                described[f"{part} {digest}"] = miss.detail[part]
        misses.append([*miss[:8], sorted(set(miss.detail) & set(miss.parts))])
    fields = {name: getattr(record, name) for name in RunRecord.__slots__}
    fields |= {"misses": misses, "described": described}
    fields["used"] = b"".join(bytes.fromhex(digest) for digest in record.used)
    try:
        plain: bytes = msgpack.packb(fields, use_bin_type=True, unicode_errors="replace")
    except (ValueError, TypeError, OverflowError) as error:
        raise FormatError("cannot be written as msgpack") from error
    payload = zlib.compress(plain, 1)
    data = _HEADER.pack(MAGIC, VERSION, len(payload), sha256(payload).digest()) + payload
    if len(data) > MAX_SIZE or len(plain) > MAX_PLAIN:
        raise FormatError(f"larger than {MAX_SIZE} bytes")
    return data


def decode(data: bytes) -> RunRecord:
    """The record in `data`. Raises FormatError for everything else, and nothing but that."""
    import msgpack

    if not _HEADER.size <= len(data) <= MAX_SIZE:
        raise FormatError("has not the size of a run record")
    magic, version, length, checksum = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if magic != MAGIC or version != VERSION or len(payload) != length or sha256(payload).digest() != checksum:
        raise FormatError("is not a run record of this version, or is damaged")
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(payload, MAX_PLAIN)
        if not unpacker.eof or unpacker.unused_data:
            raise FormatError("is longer than a run record may be")
        fields = msgpack.unpackb(plain, raw=False, strict_map_key=True, max_ext_len=0)
        return _record(fields)
    except FormatError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, zlib.error) as error:
        raise FormatError("is not a run record") from error
    except msgpack.UnpackException as error:
        raise FormatError("is not a run record") from error


def _record(fields: Any) -> RunRecord:
    described = _map(fields.pop("described"))
    misses = []
    for *rest, told in fields["misses"]:
        parts = _map(rest[7])
        detail = {part: described[f"{part} {parts[part]}"] for part in told}
        misses.append(MissFacts._make([*rest, detail | {"kernel": [rest[1], rest[2]]} if detail else {}]))
    used = fields["used"]
    if type(used) is not bytes or len(used) % 32:
        raise FormatError("has digests that are not whole")
    fields |= {
        "misses": [_checked(miss) for miss in misses],
        "kernels": [_checked(KernelFacts(*each)) for each in fields["kernels"]],
        "bypasses": [_checked(BypassFacts(*each)) for each in fields["bypasses"]],
        "timeline": [_timeline(Timeline(*each)) for each in fields["timeline"]],
        "used": [used[at : at + 32].hex() for at in range(0, len(used), 32)],
    }
    record: RunRecord = _checked(RunRecord(**fields))
    return record


def _timeline(line: Timeline) -> Timeline:
    _checked(line)
    if line.width < 1e-3 or len({len(column) for column in line[2:]}) != 1:
        raise FormatError("has a timeline without a width, or with columns of several lengths")
    return line


_TABLES = frozenset({"hits", "bypasses", "unproven", "faults"})  # as counters.py has them
_LAST = 253402300800.0  # Unix seconds, the year 10000: no library shows a later time. More counts than any run's
_KINDS: dict[str, Any] = {"str": str, "int": int, "float": float}


def _checked(facts: Any) -> Any:
    """`facts` itself. Raises FormatError where a field has not its type: what reads a record then need not ask."""
    for name, written in type(facts).__annotations__.items():
        kind = str(getattr(written, "__forward_arg__", written))  # typing wraps those of a named tuple
        if not _is(kind, getattr(facts, name), name):
            raise FormatError(f"has a {name} that is not {kind}")
    return facts


def _is(kind: str, value: Any, name: str = "") -> bool:
    if kind in _KINDS:
        return type(value) is _KINDS[kind] and (kind == "str" or 0 <= value < _LAST)
    if kind.startswith("list"):
        inner = kind[5:-1]
        return type(value) is list and (inner not in _KINDS or all(_is(inner, each) for each in value))
    if type(value) is not dict or not all(type(each) is str for each in value):
        return False
    if name == "counters":  # those of many records are added up
        return all(_is_count(each, name in _TABLES) for name, each in value.items())
    inner = kind[len("dict[str, ") : -1]
    return inner == "Any" or all(_is(inner, each) for each in value.values())


def _is_count(value: Any, table: bool) -> bool:
    if table:
        return _is("dict[str, int]", value)
    return _is("int", value) or _is("float", value)


def _map(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise FormatError("has a description that is not a map")
    return value


def write(folder: str, name: FileName, data: bytes) -> str:
    """Put `data` into `folder` under `name`, whole or not at all; replaces what this process wrote before. The path.

    Raises OSError.
    """
    path = os.path.join(folder, str(name))
    try:
        write_whole(path, data)
    except FileNotFoundError:
        make_folders(folder)
        write_whole(path, data)
    return path
