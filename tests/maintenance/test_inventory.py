from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.synthetic import entry, fill, place
from tritonstore.backends.base import MAX_SIZE, Backend, Record
from tritonstore.backends.files import FilesBackend
from tritonstore.backends.memory import MemoryBackend
from tritonstore.entry import Entry, encode
from tritonstore.errors import FormatError, StoreError
from tritonstore.maintenance.inventory import (
    Filter,
    Unreadable,
    check,
    entries,
    find,
    kernel_of,
    open_backends,
    row_of,
    target_of,
    toolchain_of,
)
from tritonstore.settings import Settings


def problems(backend: Backend) -> dict[str, str]:
    return {record.digest: found.problem for record, found in entries(backend) if isinstance(found, FormatError)}


def test_every_entry_once_in_words(tmp_path: Path) -> None:
    made = [entry(number) for number in range(200)]
    fill(str(tmp_path), made)
    found = {record.digest: (record, each) for record, each in entries(FilesBackend(str(tmp_path)))}
    assert {digest: each for digest, (_, each) in found.items()} == {each.digest: each for each in made}
    row = row_of(*found[made[7].digest])  # type: ignore[arg-type]
    assert (row.kernel, row.module, row.torch, row.triton) == ("_kernel_7", "model.kernels", "2.13.0", "3.7.1")
    assert (row.target, row.size, row.created) == ("cuda:90:32", len(encode(made[7])), made[7].provenance.created)


def test_what_is_wrong_with_an_entry(tmp_path: Path) -> None:
    sound, torn, renamed, other = (entry(number) for number in range(4))
    fill(str(tmp_path), [sound, torn])
    Path(place(str(tmp_path), torn.digest)).write_bytes(encode(torn)[:-1])
    wrong_name = "ab" * 32
    fill(str(tmp_path), [renamed._replace(digest=wrong_name)])
    path = Path(place(str(tmp_path), "cd" * 32))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode(other))
    empty = Path(place(str(tmp_path), "ef" * 32))
    empty.parent.mkdir(exist_ok=True)
    empty.write_bytes(b"")
    huge = Path(place(str(tmp_path), "12" * 32))
    huge.parent.mkdir(exist_ok=True)
    with open(huge, "wb") as file:
        file.truncate(MAX_SIZE + 1)
    assert problems(FilesBackend(str(tmp_path))) == {
        torn.digest: "has another length than its header says",
        wrong_name: "has a digest that is not that of its parts (or has another key schema)",
        "cd" * 32: f"is the entry {other.digest[:16]}…, under another name",
        "ef" * 32: "shorter than a header",
        "12" * 32: "is larger than an entry can be",
    }


class Failing(MemoryBackend):
    def __init__(self, *failing: str) -> None:
        super().__init__()
        self.failing = failing

    def get(self, digest: str) -> bytes | None:
        if digest in self.failing:
            raise StoreError("no permission", self.url, "get")
        return super().get(digest)


def test_one_that_cannot_be_read_is_said_and_the_rest_is_listed() -> None:
    made = [entry(number) for number in range(5)]
    backend = Failing(made[1].digest, made[2].digest)
    for each in made:
        backend.put(each.digest, encode(each))
    found = dict(entries(backend))
    assert [isinstance(each, Entry) for each in found.values()].count(True) == 3
    assert all(isinstance(each, Unreadable) for each in found.values() if isinstance(each, FormatError))


def test_a_store_that_fails_again_and_again_is_an_error() -> None:
    made = [entry(number) for number in range(5)]
    backend = Failing(*(each.digest for each in made))
    for each in made:
        backend.put(each.digest, encode(each))
    with pytest.raises(StoreError, match="no permission"):
        list(entries(backend))


def test_what_goes_away_meanwhile_is_left_out() -> None:
    backend = MemoryBackend()
    made = [entry(number) for number in range(150)]
    for each in made:
        backend.put(each.digest, encode(each))
    listing = entries(backend)
    next(listing)
    for each in made:
        backend.delete(each.digest)
    assert len(list(listing)) < 64


def test_constant_memory_whatever_the_number() -> None:
    taken = 0

    class Endless(MemoryBackend):
        def scan(self) -> Iterator[Record]:
            nonlocal taken
            while True:
                taken += 1
                yield Record(f"{taken:064x}", 1, 0.0)

        def get(self, digest: str) -> bytes | None:
            return b"not an entry"

    listing = entries(Endless())
    for _ in range(10):
        next(listing)
    assert taken <= 64


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    (digest,) = fill(str(tmp_path), [entry(1)], used=1_700_000_000)
    (backend,) = open_backends(Settings.load({}, url=f"file://{tmp_path}"))
    assert len(list(entries(backend))) == 1
    assert Path(place(str(tmp_path), digest)).stat().st_mtime == 1_700_000_000


def test_find_by_the_start_of_a_digest(tmp_path: Path) -> None:
    digests = sorted(fill(str(tmp_path), [entry(number) for number in range(40)]))
    backend = FilesBackend(str(tmp_path))
    assert find(backend, digests[0]) == [digests[0]]
    assert find(backend, digests[0][:12]) == [digests[0]]
    assert find(backend, "0" * 64) == []
    assert len(find(backend, "", limit=7)) == 7


@pytest.mark.parametrize(
    ("only", "taken"),
    [
        (Filter(), [0, 1, 2]),
        (Filter(kernels=["_rms"]), [0]),
        (Filter(kernels=["*rms*", "m.other.swiglu"]), [0, 1]),
        (Filter(kernels=["swiglu"]), [1]),  # the last name of a method's kernel
        (Filter(kernels=["_RMS"]), []),
        (Filter(toolchains=["torch 2.11*"]), [2]),
        (Filter(toolchains=["triton 3.7.1"]), [0, 1]),
        (Filter(targets=["cuda:8?:32"]), [1]),
        (Filter(kernels=["*"], targets=["cuda:90:32"], toolchains=["torch 2.13.0, triton 3.7.1"]), [0]),
    ],
)
def test_filters(only: Filter, taken: list[int]) -> None:
    made = [
        entry(0, kernel="_rms"),
        entry(1, kernel="other.swiglu", module="m", arch=80),
        entry(2, kernel="last", torch="2.11.0", triton="3.6.0"),
    ]
    assert [number for number, each in enumerate(made) if only.takes(each)] == taken


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
known = st.sampled_from(["kernel", "toolchain", "target", "arguments", "code", "torch", "backend", "arch"])


@given(st.dictionaries(known, plain | st.dictionaries(known, plain, max_size=3), max_size=5))
def test_whatever_an_entry_says_is_read_as_text(detail: dict[str, Any]) -> None:
    odd = entry(0)._replace(detail=detail)
    for text in (*kernel_of(odd), *toolchain_of(odd), target_of(odd)):
        assert isinstance(text, str)
    Filter(["*"], ["*"], ["*"]).takes(odd)


def test_check_is_what_all_of_them_use() -> None:
    made = entry(3)
    assert check(made.digest, encode(made)) == made
