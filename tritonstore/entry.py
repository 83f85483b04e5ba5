"""Bytes ↔ Entry: one stored answer with its full key, what it was made from, and a checksum.

Three pure functions, `encode`, `decode` and `decode_answer`; none knows where the bytes live. The grammar stands beside
MAGIC below.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgpack

from tritonstore.access import AccessResult
from tritonstore.errors import FormatError

__all__ = [
    *("MAGIC", "MAX_DEPTH", "MAX_SIZE", "TAG_MAGIC", "TAG_SIZE", "VERSION"),
    *("Entry", "Provenance", "decode", "decode_answer", "encode", "split_tag"),
]

# entry   = MAGIC version length checksum payload [tag]   nothing may follow
# version = one byte, 1
# length  = u32, big-endian: the payload's length in bytes
# checksum = SHA-256 of the payload, 32 bytes
# payload = msgpack: [digest, parts, access, detail, provenance]
#   digest     = str, 64 lower-case hex digits
#   parts      = [[name: str, digest], …]                 at least one, names distinct, order kept
#   access     = [reads: [str, …] | nil, writes: [str, …], can_fuse_epilogue: bool | nil]
#   detail     = {str: plain, …}                          depth at most MAX_DEPTH
#   plain      = nil | bool | int of 64 bits | float64 | str | bin | [plain, …] | {str: plain, …}
#   provenance = [created: int, seconds: float64, writer: str]
# tag     = TAG_MAGIC and an HMAC of 32 bytes, over all before it; who has no key passes over it: see signing.py
#
# One entry has one spelling: a payload that msgpack would write differently (a long form of a small int, a
# key given twice, float32) is refused. A wider int is for the caller to write as a decimal str.
#
# The first byte is no text in any encoding, CR LF and LF show a transfer in text mode, and ^Z ends a `type`:
# as PNG does.
#
# History: 1 (0.1.0) the first, with or without a tag. A new version gets a folder (or key prefix) of its own; a file of
# this one never changes.
MAGIC = b"\x8fTSE\r\n\x1a\n"
VERSION = 1
TAG_MAGIC = b"\x8fTSH\r\n\x1a\n"
TAG_SIZE = 8 + 32

MAX_SIZE = 1 << 20  # bytes of a whole entry, looked at before anything is parsed; real ones have one to four thousand
MAX_DEPTH = 16  # lists and dicts inside each other in `detail`

_HEADER = struct.Struct(">8sBI32s")
_MOST = MAX_SIZE - TAG_SIZE - _HEADER.size  # bytes of a payload: every entry has room for a tag
_HEX = re.compile(r"[0-9a-f]{64}\Z").match
_NOT_MSGPACK = (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException)
_FIELDS = 5
_START = bytes([0x90 | _FIELDS])  # msgpack's mark of a list of so many
_INT_LOW, _INT_HIGH = -(1 << 63), 1 << 64
_SCALARS = frozenset({type(None), bool, float, str, bytes})


class KeyLike(Protocol):
    """What `decode_answer` needs of a key."""

    @property
    def digest(self) -> str: ...
    @property
    def parts(self) -> Mapping[str, str]: ...


class Provenance(NamedTuple):
    """Where an answer came from: `created` in Unix seconds, `seconds` the analysis took, `writer` program and
    version.
    """

    created: int
    seconds: float
    writer: str


class Entry(NamedTuple):
    """One stored answer. `parts` maps a key part's name to its digest; `detail` is plain data for people and
    tools.
    """

    digest: str
    parts: dict[str, str]
    access: AccessResult
    detail: dict[str, Any]
    provenance: Provenance


def encode(entry: Entry) -> bytes:
    """The bytes of `entry`; equal entries (dict order included) give equal bytes.

    Raises FormatError where `entry` breaks the grammar or would exceed MAX_SIZE.
    """
    access, origin = entry.access, entry.provenance
    access.check_shape()
    fields = [
        entry.digest,
        _pairs(entry.parts),
        [None if access.reads is None else list(access.reads), list(access.writes), access.can_fuse_epilogue],
        entry.detail,
        [origin.created, origin.seconds, origin.writer],
    ]
    _from_fields(fields)  # one set of rules for both directions: what could not be read is not written
    payload = _pack(fields)
    if len(payload) > _MOST:
        raise FormatError(f"larger than {MAX_SIZE} bytes")
    return _HEADER.pack(MAGIC, VERSION, len(payload), sha256(payload).digest()) + payload


def decode(data: bytes) -> Entry:
    """The entry in `data`, whose tag (if it has one) is not checked here. Raises FormatError for everything that
    `encode` would not have written, and nothing else.
    """
    payload = _payload(data)
    try:
        fields = msgpack.unpackb(payload, **_bounds(len(payload)))
    except _NOT_MSGPACK as error:
        raise FormatError("is not msgpack of the closed kind") from error
    entry = _from_fields(fields)
    if _pack(fields) != payload:
        raise FormatError("is not in its one spelling")
    return entry


def decode_answer(data: bytes, key: KeyLike) -> tuple[AccessResult, Provenance] | None:
    """What the entry in `data` says to exactly `key`, and where that came from; None if it answers another question,
    be it one of the same digest.

    Raises FormatError as `decode`, but for the detail: that is nine tenths of an entry and no part of the answer, and
    is not looked at.
    """
    payload = _payload(data)
    asked = _START + _pack(key.digest) + _pack(_pairs(key.parts))
    if not payload.startswith(asked):  # as there is one spelling, it is not the entry of this key
        decode(data)  # which may be no entry at all
        return None
    rest = payload[len(asked) :]
    try:
        unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(rest)), **_bounds(len(rest)))
        unpacker.feed(rest)
        access = unpacker.unpack()
        unpacker.skip()
        provenance = unpacker.unpack()
        if unpacker.tell() != len(rest):
            raise ValueError("something behind the fields")
    except _NOT_MSGPACK as error:
        raise FormatError("is not msgpack of the closed kind") from error
    answer = _access(access), _provenance(provenance)
    if not (rest.startswith(_pack(access)) and rest.endswith(_pack(provenance))):
        raise FormatError("is not in its one spelling")
    return answer


def _payload(data: bytes) -> bytes:
    """The payload of an entry with a right header, length and checksum."""
    if len(data) > MAX_SIZE:
        raise FormatError(f"larger than {MAX_SIZE} bytes")
    if len(data) < _HEADER.size:
        raise FormatError("shorter than a header")
    magic, version, length, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError("does not start as an entry does")
    if version != VERSION:
        raise FormatError(f"has version {version}, not {VERSION}")
    payload = data[_HEADER.size : _HEADER.size + length]
    behind = len(data) - _HEADER.size - length
    if behind and not (behind == TAG_SIZE and data.startswith(TAG_MAGIC, _HEADER.size + length)):
        raise FormatError("has another length than its header says")
    if length > _MOST:
        raise FormatError(f"larger than {MAX_SIZE} bytes")
    if sha256(payload).digest() != checksum:
        raise FormatError("has a wrong checksum")
    return payload


def _bounds(most: int) -> dict[str, Any]:
    """What msgpack may make of so many bytes: no list that is longer than the bytes that claim to hold it."""
    return {
        "max_str_len": most,
        "max_bin_len": most,
        "max_array_len": most,
        "max_map_len": most,
        "max_ext_len": 0,
        "raw": False,
        "strict_map_key": True,
    }


def split_tag(data: bytes) -> tuple[bytes, bytes | None]:
    """An entry's bytes without its tag, and the HMAC in the tag, None where it has none. Checks nothing else."""
    body, tag = data[:-TAG_SIZE], data[-TAG_SIZE:]
    if len(data) < _HEADER.size + TAG_SIZE or not tag.startswith(TAG_MAGIC):
        return data, None
    # What looks like a tag may be the end of a payload.
    length: int = _HEADER.unpack_from(data)[2]
    return (body, tag[len(TAG_MAGIC) :]) if len(body) == _HEADER.size + length else (data, None)


def _pairs(parts: Mapping[str, str]) -> list[list[str]]:
    return [[name, digest] for name, digest in parts.items()]


def _pack(fields: Any) -> bytes:
    try:
        packed: bytes = msgpack.packb(fields, use_bin_type=True)
    except (ValueError, TypeError, OverflowError) as error:  # a lone surrogate in a str is a ValueError
        raise FormatError("cannot be written as msgpack") from error
    return packed


def _from_fields(fields: Any) -> Entry:
    digest, parts, access, detail, provenance = _list(fields, _FIELDS, "payload")
    named: dict[str, str] = {}
    for pair in _list(parts, None, "parts"):
        name, part = _list(pair, 2, "part")
        named[_text(name, "part name")] = _digest(part, "part digest")
    if not named or len(named) != len(parts):
        raise FormatError("parts are empty or named twice")
    if type(detail) is not dict:
        raise FormatError("detail is not a map")
    _check_plain(detail, MAX_DEPTH)
    return Entry(
        digest=_digest(digest, "digest"),
        parts=named,
        access=_access(access),
        detail=detail,
        provenance=_provenance(provenance),
    )


def _access(fields: Any) -> AccessResult:
    reads, writes, fuse = _list(fields, 3, "access")
    result = AccessResult(
        reads=None if reads is None else tuple(_list(reads, None, "reads")),
        writes=tuple(_list(writes, None, "writes")),
        can_fuse_epilogue=fuse,
    )
    result.check_shape()
    return result


def _provenance(fields: Any) -> Provenance:
    created, seconds, writer = _list(fields, 3, "provenance")
    if type(created) is not int or not 0 <= created < _INT_HIGH or type(seconds) is not float:
        raise FormatError("provenance is not [int, float, str]")
    return Provenance(created, seconds, _text(writer, "writer"))


def _list(value: Any, length: int | None, what: str) -> list[Any]:
    if type(value) is not list or (length is not None and len(value) != length):
        raise FormatError(f"{what} is not a list" if length is None else f"{what} is not a list of {length}")
    return value


def _text(value: Any, what: str) -> str:
    if type(value) is not str:
        raise FormatError(f"{what} is not text")
    return value


def _digest(value: Any, what: str) -> str:
    if type(value) is not str or _HEX(value) is None:
        raise FormatError(f"{what} is not 64 lower-case hex digits")
    return value


def _check_plain(container: Any, depth: int) -> None:
    # Exact types: a subclass (an enum of str, a numpy float) would come back as something else than what was
    # stored.
    if depth == 0:
        raise FormatError(f"detail is deeper than {MAX_DEPTH}")
    if type(container) is dict:
        for name in container:
            if type(name) is not str:
                raise FormatError("a map has a key that is not text")
        container = container.values()
    for value in container:
        kind = type(value)
        if kind in _SCALARS:
            continue
        if kind is int:
            if not _INT_LOW <= value < _INT_HIGH:
                raise FormatError("an int has more than 64 bits")
        elif kind is list or kind is dict:
            _check_plain(value, depth - 1)
        else:
            raise FormatError(f"detail holds a {kind.__name__}")
