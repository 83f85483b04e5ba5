"""Fuzz whatever decodes bytes from outside: entries, bundles, run records. scripts/fuzz --help says how to run it.

A target takes any bytes. The first one chooses how the rest is wrapped: as it stands, or behind a right magic, length
and checksum, without which no input would get past the first comparison. It raises for whatever must not be: an
exception other than the format error, bytes that are accepted and would be written differently, and every event that
Python's audit hooks report meanwhile: an import, an opened file, compiled or run code, a process, a socket.

With atheris (libFuzzer; guided by coverage) where it is installed, else with plain mutations of the kept inputs.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import io
import random
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import zstandard

GUIDED = ("tests.support", "tritonstore")
if __name__ == "__main__" and importlib.util.find_spec("atheris") is not None:
    import atheris

    guided: Any = atheris.instrument_imports(include=list(GUIDED))
else:
    guided = contextlib.nullcontext()
with guided:
    from tests.support.records import full_record
    from tests.support.synthetic import entry as made_entry
    from tritonstore import entry, runrecord
    from tritonstore.errors import FormatError
    from tritonstore.keys.encoding import key_digest
    from tritonstore.maintenance import bundle, runs
    from tritonstore.signing import Keys, Unsigned

CORPUS = Path(__file__).parents[1] / "hostile" / "corpus"
LONGEST = 4096  # bytes of an input
QUESTION = made_entry(0)
KEYS = Keys([b"a key that only the tests have, 0123456789"])
Target = Callable[[bytes], None]


class Escaped(AssertionError):
    """Something happened that decoding must not do."""


# No code is run


_decoding = 0  # the thread that does
_events: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _decoding and _decoding == threading.get_ident():
        _events.append(f"{event} {str(arguments)[:200]}")


sys.addaudithook(_audit)


@contextlib.contextmanager
def nothing_but_decoding() -> Iterator[None]:
    """Raises Escaped if the block does anything that Python's audit hooks report; swallows FormatError."""
    global _decoding
    _events.clear()
    collects = gc.isenabled()
    gc.disable()  # it would run somebody's finalizers here
    _decoding = threading.get_ident()
    try:
        yield
    except FormatError:
        pass
    finally:
        _decoding = 0
        if collects:
            gc.enable()
    if _events:
        raise Escaped(f"decoding did more than decode: {_events[:3]}")


# Targets


def sealed_entry(payload: bytes) -> bytes:
    return entry.MAGIC + struct.pack(">BI", entry.VERSION, len(payload)) + sha256(payload).digest() + payload


def entry_target(data: bytes) -> None:
    """0 as it stands, 1 a sealed payload, 2 a tag behind it, 3 a payload signed with our key."""
    how, rest = data[0] % 4, data[1:]
    if how == 1:
        rest = sealed_entry(rest)
    elif how == 2:
        rest = sealed_entry(rest[:-32]) + entry.TAG_MAGIC + rest[-32:]
    elif how == 3:
        rest = KEYS.sign(sealed_entry(rest))
    found = answer = None
    with nothing_but_decoding():
        answer = entry.decode_answer(rest, QUESTION)
    with nothing_but_decoding():
        found = entry.decode(rest)
    if found is None:  # a hit does not look at the detail, so it may take what `decode` refuses
        return
    if entry.encode(found) != entry.split_tag(rest)[0]:
        raise Escaped("an entry has a second spelling")
    if repr(entry.decode_answer(rest, found)) != repr((found.access, found.provenance)):  # no NaN equals itself
        raise Escaped("an entry answers its own question otherwise than it says")
    if (answer is not None) is not (_question(found) == _question(QUESTION)):
        raise Escaped("an entry answers another question than its own")
    with contextlib.suppress(Unsigned):
        KEYS.check(rest)
        if KEYS.sign(rest) != rest:
            raise Escaped("a tag that nobody made with the key")


def _question(asked: entry.KeyLike) -> tuple[str, list[tuple[str, str]]]:
    return asked.digest, list(asked.parts.items())


def sealed_bundle(body: bytes, manifest: bytes) -> bytes:
    lengths = struct.pack(">QQ", len(body), len(manifest))
    checksum = sha256(lengths + body + manifest).digest()
    return bundle.MAGIC + struct.pack(">B", bundle.VERSION) + lengths + checksum + body + manifest


_squeeze = zstandard.ZstdCompressor(level=1)


def bundle_target(data: bytes) -> None:
    """0 as it stands, 1 two zstd frames, 2 what they hold, 3 a manifest in msgpack before an entry's bytes.

    In 1 and 2 the first two bytes say how long the body is, in 3 how long the manifest is.
    """
    how, rest = data[0] % 4, data[1:]
    cut, both = (int.from_bytes(rest[:2], "big"), rest[2:]) if how else (0, rest)
    first, second = both[:cut], both[cut:]
    if how == 1:
        rest = sealed_bundle(first, second)
    elif how == 2:
        rest = sealed_bundle(_squeeze.compress(first), _squeeze.compress(second))
    elif how == 3:
        row = [sha256(second).digest(), len(second), sha256(second).digest()]
        with contextlib.suppress(Exception):
            packed = msgpack.packb({**msgpack.unpackb(first), "entries": [row]})
            first = packed
        rest = sealed_bundle(_squeeze.compress(second), _squeeze.compress(first))
    with nothing_but_decoding():
        for digest, content, problem in bundle.Bundle(io.BytesIO(rest), 1 << 20):
            if problem is None and key_digest(entry.decode(content).parts) != digest:
                raise Escaped("a bundle gives an entry under another digest")


def record_target(data: bytes) -> None:
    """0 as it stands, 1 a sealed payload, 2 what zlib unpacks to it. Who reads a record must cope with what it says."""
    how, rest = data[0] % 3, data[1:]
    payload = zlib.compress(rest, 1) if how == 2 else rest
    if how:
        header = runrecord.MAGIC + struct.pack(">BI", runrecord.VERSION, len(payload))
        rest = header + sha256(payload).digest() + payload
    found = None
    with nothing_but_decoding():
        found = runrecord.decode(rest)
    if found is not None:
        runs.merge([found, found])
        with contextlib.suppress(FormatError):
            runrecord.encode(found)


TARGETS: dict[str, Target] = {"entry": entry_target, "bundle": bundle_target, "record": record_target}


def one(target: str, data: bytes) -> None:
    """Try one input."""
    if data:
        TARGETS[target](data)


def seeds(target: str) -> list[bytes]:
    """Inputs to begin with: sound ones of each kind, and those that were kept."""
    kept = [path.read_bytes() for path in sorted((CORPUS / target).glob("*"))]
    datas = [entry.encode(made_entry(number)) for number in range(2)]
    if target == "entry":
        plain = [data[45:] for data in datas]
        sealed = [b"\1" + plain[0], b"\1" + plain[1], b"\2" + plain[0] + bytes(32), b"\3" + plain[1]]
        return [b"\0" + datas[0][:60], *sealed, *kept]
    if target == "bundle":
        manifest = msgpack.packb({"created": 1, "writer": "w", "entries": []})
        row = [bytes.fromhex(made_entry(0).digest), len(datas[0]), sha256(datas[0]).digest()]
        whole = msgpack.packb({"created": 1, "writer": "w", "entries": [row]})
        body, packed = _squeeze.compress(datas[0]), _squeeze.compress(whole)
        return [
            b"\0" + sealed_bundle(body, packed)[:90],
            b"\1" + len(body).to_bytes(2, "big") + body + packed,
            b"\2" + len(datas[0]).to_bytes(2, "big") + datas[0] + whole,
            b"\3" + len(manifest).to_bytes(2, "big") + manifest + datas[1],
            *kept,
        ]
    # Not whole ones behind their checksum: an engine keeps what it has reached, and could change nothing in them.
    data = runrecord.encode(full_record())
    return [b"\0" + data[:60], b"\1" + data[45:80], b"\2" + zlib.decompress(data[45:]), *kept]


# Engines


_TOKENS = (b"\xc0", b"\x80", b"\x90", b"\xc4", b"\xc7", b"\xca", b"\xcb", b"\xcf", b"\xd3", b"\xd9", b"\xdc", b"\xdd")
_TOKENS += (b"\xde", b"\xdf", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\xa0", b"\xed\xa0\x80")


def mutated(rng: random.Random, pool: list[bytes]) -> bytes:
    """One of the pool with a few changes: bits, cuts, repetitions, tokens of msgpack, a part of another."""
    data = bytearray(rng.choice(pool))
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.randint(1, 16)]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randint(1, 64)]
        elif kind == 3:
            data[at : at + rng.randint(0, 2)] = rng.choice(_TOKENS)
        elif kind == 4:
            data[at : at + rng.randint(0, 4)] = rng.randbytes(rng.randint(1, 4))
        else:
            other = rng.choice(pool)
            start = rng.randrange(len(other))
            data[at:] = other[start : start + LONGEST]
    return bytes(data[:LONGEST])


def plain(target: str, count: int, seconds: float, seed: int) -> int:
    """Try up to `count` mutations in up to `seconds`; how many. An input that fails is raised with the failure."""
    rng, pool, end = random.Random(seed), seeds(target), time.monotonic() + seconds
    for number in range(count):
        if number % 256 == 0 and time.monotonic() > end:
            return number
        data = mutated(rng, pool)
        try:
            one(target, data)
        except Exception as error:
            raise Escaped(f"{target} fails on {data.hex()}") from error
    return count


def main(arguments: list[str]) -> int:
    """Command line: see the module."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", choices=[*TARGETS])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many at most [%(default)s]")
    parser.add_argument("--seconds", type=int, default=60, help="how long at most [%(default)s]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=["atheris", "plain"], help="default: atheris where it is installed")
    parser.add_argument(
        "--folder", default="build/fuzz", help="for the inputs that reach new code, and those that fail"
    )
    chosen = parser.parse_args(arguments)
    engine = chosen.engine or ("plain" if isinstance(guided, contextlib.nullcontext) else "atheris")
    if engine == "plain":
        tried = plain(chosen.target, chosen.inputs, chosen.seconds, chosen.seed)
        print(f"{chosen.target}: {tried:,} inputs, nothing found (plain mutations)")
        return 0
    if isinstance(guided, contextlib.nullcontext):
        print("scripts/fuzz: atheris is not installed; pip install atheris, or use --engine plain", file=sys.stderr)
        return 2
    folder = Path(chosen.folder) / chosen.target
    folder.mkdir(parents=True, exist_ok=True)
    for data in seeds(chosen.target):
        (folder / sha256(data).hexdigest()[:16]).write_bytes(data)
    options = [f"-runs={chosen.inputs}", f"-max_total_time={chosen.seconds}", f"-seed={chosen.seed}"]
    options += [f"-max_len={LONGEST}", f"-artifact_prefix={folder.parent}/{chosen.target}-", "-print_final_stats=1"]
    atheris.Setup(["fuzz", *options, str(folder)], lambda data: one(chosen.target, data))
    atheris.Fuzz()  # ends the process
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
