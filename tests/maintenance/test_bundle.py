from __future__ import annotations

import io
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.synthetic import entry, fill
from tritonstore.backends.files import FilesBackend
from tritonstore.backends.memory import MemoryBackend
from tritonstore.entry import Entry, encode
from tritonstore.errors import StoreError, StoreUnavailable
from tritonstore.maintenance import bundle as module
from tritonstore.maintenance.bundle import MAGIC, Bundle, BundleError, load, write
from tritonstore.maintenance.fetch import opened_bundle

GOLDEN = Path(__file__).parents[1] / "golden" / "bundle-v1.tsb"
MADE = [entry(number) for number in range(8)]
HEADER = struct.Struct(">8sBQQ32s")


def pairs(entries: list[Entry] = MADE) -> list[tuple[str, bytes]]:
    return [(each.digest, encode(each)) for each in entries]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "made.tsb"
    assert write(str(path), pairs(), "tritonstore test") == 8
    return path


def sealed(body: bytes, manifest: bytes, version: int = 1) -> bytes:
    """A bundle with right lengths and a right checksum around anything."""
    checksum = sha256(struct.pack(">QQ", len(body), len(manifest)) + body + manifest).digest()
    return HEADER.pack(MAGIC, version, len(body), len(manifest), checksum) + body + manifest


def squeezed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def manifest_of(entries: list[Any], **others: Any) -> bytes:
    return squeezed(msgpack.packb({"created": 1, "writer": "w", "entries": entries, **others}))


def listed(data: bytes, digest: str, **changes: Any) -> list[Any]:
    row = {"digest": bytes.fromhex(digest), "size": len(data), "checksum": sha256(data).digest(), **changes}
    return list(row.values())


def opened(data: bytes, max_size: int = 0) -> Bundle:
    return Bundle(io.BytesIO(data), max_size)


def read(data: bytes, max_size: int = 0) -> dict[str, bytes]:
    """Everything in a bundle; raises for anything that is wrong with it."""
    found = {}
    for digest, content, problem in opened(data, max_size):
        if problem is not None:
            raise problem
        found[digest] = content
    return found


def test_round_trip(path: Path) -> None:
    before = time.time()
    bundle = opened(path.read_bytes())
    assert len(bundle) == 8
    assert bundle.writer == "tritonstore test"
    assert abs(bundle.created - before) < 60
    assert bundle.size == sum(len(data) for _, data in pairs())
    assert list(read(path.read_bytes()).items()) == pairs()
    assert {digest: data for digest, data, _ in bundle} == {digest: data for digest, data, _ in bundle}  # twice


def test_golden_file() -> None:
    """A bundle of today is read for as long as the version stays."""
    assert list(read(GOLDEN.read_bytes()).items()) == pairs()


def test_the_folder_is_left_clean_and_nothing_is_written_for_nothing(tmp_path: Path) -> None:
    assert write(str(tmp_path / "none.tsb"), [], "w") == 0
    assert list(tmp_path.iterdir()) == []


def test_an_older_file_stays_until_the_new_one_is_whole(path: Path) -> None:
    before = path.read_bytes()

    def failing() -> Iterator[tuple[str, bytes]]:
        yield pairs()[0]
        raise StoreError("the store broke")

    with pytest.raises(StoreError, match="broke"):
        write(str(path), failing(), "w")
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_cut_short_anywhere(path: Path) -> None:
    whole = path.read_bytes()
    for length in [0, 1, 8, 40, HEADER.size - 1, HEADER.size, HEADER.size + 1, len(whole) // 2, len(whole) - 1]:
        with pytest.raises(BundleError, match=r"shorter than the header|truncated"):
            read(whole[:length])


def test_anything_behind_it(path: Path) -> None:
    with pytest.raises(BundleError, match="too long"):
        read(path.read_bytes() + b"\0")


@given(st.data())
@settings(max_examples=150)
def test_a_flipped_bit_anywhere(data: st.DataObject) -> None:
    whole = bytearray(GOLDEN.read_bytes())
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BundleError):
        read(bytes(whole))


@given(st.binary(max_size=400))
def test_any_bytes_are_refused_with_one_kind_of_error(data: bytes) -> None:
    for attempt in (data, GOLDEN.read_bytes()[: HEADER.size] + data, sealed(data, data), sealed(data, squeezed(data))):
        with pytest.raises(BundleError):
            read(attempt)


one_digest, one_data = pairs()[0]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"PK\x03\x04" + b"\0" * 100, "not a bundle of tritonstore"),
        (sealed(b"", b"", version=2), "has version 2, and this tritonstore reads 1"),
        (sealed(b"", b"no zstd"), "manifest cannot be read"),
        (sealed(b"", squeezed(b"\xc1")), "manifest cannot be read"),
        (sealed(b"", squeezed(msgpack.packb([1, 2]))), "manifest cannot be read"),
        (sealed(b"", manifest_of([], created="now")), "does not say when"),
        (sealed(b"", manifest_of([[1, 2, 3]])), "no digest"),
        (sealed(b"", manifest_of([listed(b"", one_digest, size=-1)])), "larger than an entry"),
        (sealed(b"", manifest_of([listed(b"", one_digest, size=1 << 21)])), "larger than an entry"),
        (sealed(b"", manifest_of([listed(b"", one_digest)] * 2)), "lists an entry twice"),
        (sealed(b"junk", manifest_of([listed(one_data, one_digest)])), "body cannot be unpacked|holds less"),
        (sealed(squeezed(one_data[:50]), manifest_of([listed(one_data, one_digest)])), "holds less than"),
        (sealed(squeezed(one_data + b"more"), manifest_of([listed(one_data, one_digest)])), "holds more than"),
        (sealed(squeezed(b"\0" * 5_000_000), manifest_of([])), "holds more than"),
        (sealed(b"", squeezed(b"\0" * 5_000_000)), "manifest is beyond"),
        (
            sealed(squeezed(one_data), manifest_of([listed(one_data, one_digest, checksum=b"\0" * 32)])),
            "another checksum than the manifest says",
        ),
        (sealed(squeezed(one_data), manifest_of([listed(one_data, "ab" * 32)])), "under another name"),
        (sealed(squeezed(b"x" * 99), manifest_of([listed(b"x" * 99, one_digest)])), "does not start as an entry does"),
    ],
)
def test_what_is_refused_and_why(data: bytes, why: str) -> None:
    backend = MemoryBackend()
    with pytest.raises(BundleError, match=why):
        load(opened(data), [backend])
    assert list(backend.scan()) == []


def test_more_than_a_limit(path: Path) -> None:
    size = sum(len(data) for _, data in pairs())
    assert len(read(path.read_bytes(), size)) == 8
    with pytest.raises(BundleError, match=f"{size:,} bytes, beyond the limit of {size - 1:,}"):
        opened(path.read_bytes(), size - 1)


def test_new_and_known(path: Path, tmp_path: Path) -> None:
    backend = FilesBackend(str(tmp_path / "store"))
    fill(backend.root, MADE[:3], used=1_700_000_000)
    own = MADE[3]._replace(provenance=MADE[3].provenance._replace(created=5))
    fill(backend.root, [own])
    result = load(opened(path.read_bytes()), [backend])
    assert (result.new, result.known, result.refused) == (4, 4, [])
    assert backend.get(own.digest) == encode(own)  # what is there stays
    assert {record.digest for record in backend.scan()} == {each.digest for each in MADE}
    assert load(opened(path.read_bytes()), [backend]).new == 0


def test_a_damaged_entry_in_the_store_is_put_anew(path: Path, tmp_path: Path) -> None:
    backend = FilesBackend(str(tmp_path / "store"))
    backend.put(MADE[0].digest, b"damage")
    assert load(opened(path.read_bytes()), [backend]).new == 8
    assert backend.get(MADE[0].digest) == encode(MADE[0])


def test_every_tier_gets_what_it_lacks(path: Path) -> None:
    near, far = MemoryBackend(), MemoryBackend()
    far.put(*pairs()[0])
    result = load(opened(path.read_bytes()), [near, far])
    assert (result.new, result.known) == (8, 0)
    assert len(list(near.scan())) == len(list(far.scan())) == 8


def test_a_dry_run_stores_nothing(path: Path) -> None:
    backend = MemoryBackend()
    backend.put(*pairs()[0])
    result = load(opened(path.read_bytes()), [backend], dry_run=True)
    assert (result.new, result.known) == (7, 1)
    assert len(list(backend.scan())) == 1


def test_in_part_only_on_request() -> None:
    newer = MADE[1]._replace(digest="ab" * 32)  # as another key schema would have it
    both = [pairs()[0], (newer.digest, encode(newer))]
    body = squeezed(b"".join(data for _, data in both))
    data = sealed(body, manifest_of([listed(content, digest) for digest, content in both]))
    backend = MemoryBackend()
    with pytest.raises(BundleError, match="entry abababababababab… has a digest that is not that of its parts"):
        load(opened(data), [backend])
    assert list(backend.scan()) == []
    result = load(opened(data), [backend], partial=True)
    assert (result.new, [digest for digest, _ in result.refused]) == (1, ["ab" * 32])


@pytest.mark.parametrize("error", [StoreUnavailable("disk full"), KeyboardInterrupt()])
def test_a_fault_on_the_way_leaves_the_store_as_it_was(path: Path, error: BaseException) -> None:
    class Full(MemoryBackend):
        puts = 0

        def put(self, digest: str, data: bytes) -> None:
            self.puts += 1
            if self.puts == 5:
                raise error
            super().put(digest, data)

    first, second = MemoryBackend(), Full()
    first.put(*pairs()[0])
    with pytest.raises(type(error)):
        load(opened(path.read_bytes()), [first, second])
    assert [record.digest for record in first.scan()] == [MADE[0].digest]
    assert list(second.scan()) == []


def test_not_beyond_what_the_manifest_may_hold(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(module, "_MAX_ENTRIES", 7)
    with pytest.raises(BundleError, match="manifest cannot be read"):
        opened(path.read_bytes())


# From a file or a URL


class Answer(BaseHTTPRequestHandler):
    data = b""
    length: int | None = None
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        if self.length is not None:
            self.send_header("Content-Length", str(self.length))
        self.end_headers()
        self.wfile.write(self.data)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""


Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers = []

    def serve(data: bytes, length: int | None = None, status: int = 200) -> str:
        handler = type("Handler", (Answer,), {"data": data, "length": length, "status": status})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/made.tsb"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def fetched(source: str, limit: int = 0) -> dict[str, bytes]:
    steps: list[int] = []
    with opened_bundle(source, limit, steps.append) as file:
        found = read_file(file)
    return found


def read_file(file: BinaryIO) -> dict[str, bytes]:
    return {digest: data for digest, data, problem in Bundle(file) if problem is None}


def test_from_everywhere(path: Path, serve: Serve, tmp_path: Path) -> None:
    odd = tmp_path / "a b%20c.tsb"
    odd.write_bytes(path.read_bytes())
    data = path.read_bytes()
    for source in (
        str(path),
        path.as_uri(),
        odd.as_uri(),
        serve(data, len(data)),
        serve(data),
    ):
        assert list(fetched(source).items()) == pairs()


@pytest.mark.parametrize("length", [None, 5000], ids=["unsaid", "said"])
def test_nothing_beyond_the_limit_is_fetched(serve: Serve, length: int | None) -> None:
    with pytest.raises(BundleError, match=r"beyond the limit of 4,000|more than 4,000 bytes"):
        fetched(serve(b"x" * 5000, length), 4000)


def test_a_server_that_says_no_or_stops(serve: Serve, path: Path) -> None:
    with pytest.raises(BundleError, match="the server answers 404"):
        fetched(serve(b"not here", 8, status=404))
    data = path.read_bytes()
    with pytest.raises(BundleError, match="truncated"):
        fetched(serve(data[:-10], len(data)))
    with pytest.raises(BundleError, match="cannot be fetched"):
        fetched("http://127.0.0.1:9/made.tsb")


@pytest.mark.parametrize("source", ["missing.tsb", "file:///missing/made.tsb", "/"])
def test_a_file_that_cannot_be_read(source: str) -> None:
    with pytest.raises(BundleError, match="cannot be read"):
        fetched(source)


def test_a_bundle_is_as_readable_as_other_new_files(path: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
