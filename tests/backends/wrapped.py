"""Mixins that ask the contract of a wrapper around a backend: name one before the backend's own test class."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.contract import ReadContract, digest
from tritonstore.backends.base import Backend, Lease, Record
from tritonstore.backends.wrappers import Counting, ReadOnly, Wrapper
from tritonstore.errors import StoreError
from tritonstore.tiers import Tiers


class AsBackend(Backend):
    """Tiers behind the backend's interface. They have no scan and no delete of their own: the last tier's is used."""

    def __init__(self, tiers: Tiers) -> None:
        self.tiers = tiers
        self.inner = tiers.backends[-1]
        self.url = "tiers:"

    def get(self, digest: str) -> bytes | None:
        found = self.tiers.get(digest)
        return None if found is None else found[0]

    def put(self, digest: str, data: bytes) -> None:
        try:
            self.tiers.put(digest, data)
        except StoreError as error:
            raise StoreError(str(error), self.url, error.operation) from error

    def delete(self, digest: str) -> bool:
        deleted = [backend.delete(digest) for backend in self.tiers.backends]
        return any(deleted)

    def scan(self) -> Iterator[Record]:
        return self.inner.scan()

    def lease(self, digest: str) -> Lease | None:
        return self.tiers.lease(digest)

    def close(self) -> None:
        self.tiers.close()


class _Around(ReadContract):
    """The raw access is that of the backend inside."""

    def raw_read(self, backend: Backend, digest: str) -> bytes | None:
        assert isinstance(backend, (AsBackend, Wrapper))
        return super().raw_read(backend.inner, digest)

    def raw_write(self, backend: Backend, digest: str, data: bytes) -> None:
        assert isinstance(backend, (AsBackend, Wrapper))
        super().raw_write(backend.inner, digest, data)


class InTiers(_Around):
    @pytest.fixture
    def backend(self, bare: Backend) -> Backend:
        return AsBackend(Tiers([bare], strict=True))


class Counted(_Around):
    @pytest.fixture
    def backend(self, bare: Backend) -> Backend:
        return Counting(bare)

    def test_operations_are_counted(self, backend: Backend) -> None:
        assert isinstance(backend, Counting)
        backend.put(digest(1), b"x")
        backend.get(digest(1))
        list(backend.get_many([digest(1), digest(2)]))
        list(backend.scan())
        backend.delete(digest(1))
        lease = backend.lease(digest(1))
        if lease is not None:
            lease.try_acquire()
            lease.release()
        leases = {} if lease is None else {"lease": 1}
        assert dict(backend.counts) == {"put": 1, "get": 3, "scan": 1, "delete": 1, **leases}


class OnlyRead(ReadContract):
    """For classes that have `bare`, `raw_read` and `raw_write`, but are not asked the whole contract."""

    @pytest.fixture
    def backend(self, bare: Backend) -> Backend:
        return ReadOnly(bare)

    def raw_read(self, backend: Backend, digest: str) -> bytes | None:
        assert isinstance(backend, Wrapper)
        return super().raw_read(backend.inner, digest)

    def raw_write(self, backend: Backend, digest: str, data: bytes) -> None:
        assert isinstance(backend, Wrapper)
        super().raw_write(backend.inner, digest, data)

    def test_nothing_is_changed(self, backend: Backend) -> None:
        self.raw_write(backend, digest(1), b"there")
        for call in (lambda: backend.put(digest(1), b"x"), lambda: backend.delete(digest(1))):
            with pytest.raises(StoreError, match="only read here"):
                call()
        assert backend.lease(digest(1)) is None
        assert backend.writes == "none"
        assert self.raw_read(backend, digest(1)) == b"there"
