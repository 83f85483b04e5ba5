from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.backends.contract import BackendContract, digest
from tritonstore.backends.base import Backend
from tritonstore.backends.memory import MemoryBackend


class MemoryAccess:
    strangers_can_write = False

    @pytest.fixture
    def bare(self) -> Iterator[Backend]:
        backend = MemoryBackend()
        yield backend
        backend.close()

    def raw_read(self, backend: Backend, digest: str) -> bytes | None:
        assert isinstance(backend, MemoryBackend)
        found = backend._values.get(digest)
        return None if found is None else found[0]

    def raw_write(self, backend: Backend, digest: str, data: bytes) -> None:
        assert isinstance(backend, MemoryBackend)
        backend._values[digest] = (data, time.time())


class TestMemory(MemoryAccess, BackendContract):
    pass


def test_bounded_by_count_least_recently_used_goes_first() -> None:
    backend = MemoryBackend(max_count=3)
    for n in range(3):
        backend.put(digest(n), b"x")
    backend.get(digest(0))
    backend.put(digest(3), b"x")
    assert {record.digest for record in backend.scan()} == {digest(2), digest(0), digest(3)}


def test_bounded_by_size_and_the_sum_does_not_drift() -> None:
    backend = MemoryBackend(max_size=1000)
    for n in range(200):
        backend.put(digest(n % 30), b"x" * (n % 90))
        if n % 7 == 0:
            backend.delete(digest(n % 11))
        kept = sum(record.size for record in backend.scan())
        assert kept == backend._size <= 1000


def test_what_was_just_put_is_never_evicted() -> None:
    backend = MemoryBackend(max_size=10)
    backend.put(digest(1), b"x" * 5)
    backend.put(digest(2), b"x" * 500)
    assert backend.get(digest(2)) == b"x" * 500
    assert backend.get(digest(1)) is None
