"""One byte string for one plain value, and its SHA-256.

A digest is only as good as its input: two different records must never give the same bytes. So every atom carries a
tag of its type and its length, every list its count, and `encode` accepts nothing else. No ``repr``, no ``str`` of an
object, no pickle, no ``id``, no ``hash``, no set order: each of those differs between processes or merges values.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import msgpack

SCHEMA = 1
"""Raised whenever the meaning of a record changes; an old digest then never meets a new one."""

DOMAIN = b"tritonstore-access-key/1"


def encode(value: Any) -> bytes:
    """The unique byte string of a plain value: None, bool, int, float, str, bytes, and lists or tuples of them.

    A list and a tuple of equal items encode alike: records use them interchangeably, and where Python's difference
    matters (a constexpr value) the token carries a tag of its own. Raises TypeError for anything else.
    """
    out: list[bytes] = []
    _encode(value, out)
    return b"".join(out)


def _encode(value: Any, out: list[bytes]) -> None:
    kind = type(value)
    if kind is tuple or kind is list:
        out.append(b"L%d:" % len(value))
        for item in value:
            if type(item) is str:  # most items are, and a call for each would be most of the work
                out.append(_text(item))
            else:
                _encode(item, out)
    elif kind is str:
        out.append(_text(value))
    elif kind is bool:
        out.append(b"T" if value else b"F")
    elif kind is int:
        data = b"%x" % value if value >= 0 else b"-%x" % -value
        out.append(b"I%d:" % len(data))
        out.append(data)
    elif value is None:
        out.append(b"N")
    elif kind is float:
        # By its bits: 0.0 and -0.0 are equal to Python and different to a kernel.
        out.append(b"D" + struct.pack(">d", value))
    elif kind is bytes:
        out.append(b"B%d:" % len(value))
        out.append(value)
    else:
        raise TypeError(f"a key record holds a {kind.__module__}.{kind.__qualname__}")


def _text(value: str) -> bytes:
    # Surrogates are legal in Python source; refusing them would turn such a kernel into an error.
    data = value.encode("utf-8", "surrogatepass")
    return b"S%d:%b" % (len(data), data)


def part_digest(name: str, record: Any) -> str:
    """SHA-256, 64 hex digits, of one named part of a key."""
    return hashlib.sha256(DOMAIN + b"/part" + encode([SCHEMA, name, record])).hexdigest()


def packed_digest(name: str, record: Any) -> str:
    """As `part_digest`, of a record of thousands of atoms, which `encode` would take milliseconds for: msgpack tells
    the same values apart, and writes them in C. It would also write a dict or a bytearray: the record must hold none.
    """
    packed: bytes = msgpack.packb(record, default=_packable, strict_types=True, unicode_errors="surrogatepass")
    return hashlib.sha256(DOMAIN + b"/packed" + encode([SCHEMA, name]) + packed).hexdigest()


def _packable(value: Any) -> Any:
    # Called for what msgpack does not write itself: tuples, integers beyond 64 bits, and subclasses of anything.
    if type(value) is tuple:
        return list(value)
    if type(value) is int:
        return msgpack.ExtType(0, b"%x" % value if value >= 0 else b"-%x" % -value)
    raise TypeError(f"a key record holds a {type(value).__module__}.{type(value).__qualname__}")


def key_digest(parts: dict[str, str]) -> str:
    """SHA-256, 64 hex digits, of a whole key: its part digests in their order, with their names."""
    return hashlib.sha256(DOMAIN + encode([SCHEMA, [[name, digest] for name, digest in parts.items()]])).hexdigest()
