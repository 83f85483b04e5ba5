"""One suite for every backend.

A subclass says how to open one (`bare`), and how to read and write *around* it, so that the store cannot vouch for
itself. `ReadContract` is the half that a store which is only read must keep as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tritonstore.backends.base import MAX_SIZE, Backend
from tritonstore.errors import StoreError


def digest(name: object) -> str:
    return sha256(str(name).encode()).hexdigest()


class ReadContract:
    """A test class has `bare`, `raw_read` and `raw_write` from its first base, and its name starts with Test."""

    strangers_can_write = True

    @pytest.fixture
    def bare(self, request: pytest.FixtureRequest) -> Iterator[Backend]:
        raise NotImplementedError

    @pytest.fixture
    def backend(self, bare: Backend) -> Backend:
        """What is tested: the bare one, or a wrapper around it."""
        return bare

    def raw_read(self, backend: Backend, digest: str) -> bytes | None:
        raise NotImplementedError

    def raw_write(self, backend: Backend, digest: str, data: bytes) -> None:
        raise NotImplementedError

    def test_reading_what_is_not_there(self, backend: Backend) -> None:
        assert backend.get(digest("nothing")) is None
        assert list(backend.get_many([digest("nothing")])) == []
        assert list(backend.scan()) == []

    @pytest.mark.parametrize("data", [b"", b"x", b"\0\xff\r\n\x1a", b"z" * MAX_SIZE])
    def test_get_finds_what_was_written_around_it(self, backend: Backend, data: bytes) -> None:
        self.raw_write(backend, digest(1), data)
        assert backend.get(digest(1)) == data

    def test_scan_finds_what_was_written_around_it(self, backend: Backend) -> None:
        before = time.time()
        expected = {digest(n): n for n in range(20)}
        for name, size in expected.items():
            self.raw_write(backend, name, b"x" * size)
        records = list(backend.scan())
        assert {record.digest: record.size for record in records} == expected
        assert len(records) == len(expected)
        assert all(before - 5 <= record.used <= time.time() + 5 for record in records)

    def test_get_many_gives_those_that_are_there_in_order(self, backend: Backend) -> None:
        asked = [digest(n) for n in range(250)]
        for n in range(0, 250, 9):
            self.raw_write(backend, asked[n], b"%d" % n)
        self.raw_write(backend, asked[1], b"")
        expected = [(asked[n], b"" if n == 1 else b"%d" % n) for n in range(250) if n % 9 == 0 or n == 1]
        assert list(backend.get_many(iter(asked))) == expected

    @pytest.mark.parametrize("bad", ["", "ab", "A" * 64, "a" * 63 + "\n"])
    def test_get_many_refuses_what_is_no_digest(self, backend: Backend, bad: str) -> None:
        with pytest.raises(ValueError, match="not a digest"):
            list(backend.get_many([digest(1), bad]))

    def test_too_large_to_be_an_entry_is_a_miss(self, backend: Backend) -> None:
        if not self.strangers_can_write:
            return
        self.raw_write(backend, digest(1), b"x" * (MAX_SIZE + 1))
        assert backend.get(digest(1)) is None
        assert list(backend.get_many([digest(1)])) == []

    @pytest.mark.parametrize(
        "bad",
        [
            "",
            "ab",
            "../" + "a" * 61,
            "A" * 64,
            "g" * 64,
            "a" * 63,
            "a" * 65,
            "a" * 63 + "\n",
            "a/" * 32,
            "\0" * 64,
            "٣" * 64,
        ],
    )
    @pytest.mark.parametrize("operation", ["get", "put", "delete", "lease"])
    def test_what_is_no_digest_is_refused(self, backend: Backend, bad: str, operation: str) -> None:
        arguments = (bad, b"x") if operation == "put" else (bad,)
        with pytest.raises(ValueError, match="not a digest"):
            getattr(backend, operation)(*arguments)

    def test_close_twice_and_a_printable_url(self, backend: Backend) -> None:
        assert backend.url.partition(":")[1] == ":"
        backend.close()
        backend.close()


class BackendContract(ReadContract):
    """The whole contract. Of `first_put_wins`, the last put does not."""

    first_put_wins = False

    def test_missing_is_none(self, backend: Backend) -> None:
        assert backend.get(digest("nothing")) is None
        assert list(backend.scan()) == []
        assert backend.delete(digest("nothing")) is False

    @pytest.mark.parametrize("data", [b"", b"x", b"\0\xff\r\n\x1a", b"y" * 5000, b"z" * MAX_SIZE])
    def test_put_stores_exactly_these_bytes(self, backend: Backend, data: bytes) -> None:
        backend.put(digest(1), data)
        assert self.raw_read(backend, digest(1)) == data
        assert backend.get(digest(1)) == data

    def test_empty_is_a_value(self, backend: Backend) -> None:
        backend.put(digest(1), b"")
        assert backend.get(digest(1)) == b""
        assert [record.digest for record in backend.scan()] == [digest(1)]
        assert backend.delete(digest(1)) is True

    def test_which_put_wins(self, backend: Backend) -> None:
        for data in (b"1", b"", b"three" * 100, b"4"):
            backend.put(digest(1), data)
            assert self.raw_read(backend, digest(1)) == (b"1" if self.first_put_wins else data)
        assert [(record.digest, record.size) for record in backend.scan()] == [(digest(1), 1)]

    def test_a_mutable_buffer_is_copied(self, backend: Backend) -> None:
        buffer = bytearray(b"before")
        backend.put(digest(1), buffer)  # type: ignore[arg-type]
        buffer[:] = b"after!"
        assert backend.get(digest(1)) == b"before"

    def test_delete(self, backend: Backend) -> None:
        backend.put(digest(1), b"1")
        backend.put(digest(2), b"2")
        assert backend.delete(digest(1)) is True
        assert self.raw_read(backend, digest(1)) is None
        assert backend.get(digest(1)) is None
        assert backend.delete(digest(1)) is False
        assert backend.get(digest(2)) == b"2"

    def test_scan_yields_each_once(self, backend: Backend) -> None:
        before = time.time()
        expected = {digest(n): n for n in range(300)}
        for name, size in expected.items():
            backend.put(name, b"x" * size)
        records = list(backend.scan())
        assert {record.digest: record.size for record in records} == expected
        assert len(records) == len(expected)
        assert all(before - 5 <= record.used <= time.time() + 5 for record in records)

    def test_scan_bears_changes_meanwhile(self, backend: Backend) -> None:
        for n in range(50):
            backend.put(digest(n), b"x")
        seen = []
        for record in backend.scan():
            seen.append(record.digest)
            for n in range(50):
                backend.delete(digest(n))
        assert len(seen) == len(set(seen))
        assert list(backend.scan()) == []

    def test_too_large_is_refused_and_changes_nothing(self, backend: Backend) -> None:
        backend.put(digest(1), b"small")
        with pytest.raises(StoreError, match="beyond") as caught:
            backend.put(digest(1), b"x" * (MAX_SIZE + 1))
        assert (caught.value.url, caught.value.operation) == (backend.url, "put")
        assert backend.get(digest(1)) == b"small"

    def test_threads(self, backend: Backend) -> None:
        start = threading.Barrier(8)
        wrong: list[object] = []

        def work(me: int) -> None:
            start.wait()
            for n in range(40):
                name, data = digest(n % 10), (b"%d " % (n % 10)) * 500
                backend.put(name, data)
                if backend.get(name) != data:
                    wrong.append((me, n))

        threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(list(backend.scan())) == 10

    def test_lease_excludes_and_ends(self, backend: Backend) -> None:
        first, second = backend.lease(digest(1)), backend.lease(digest(1))
        if first is None or second is None:
            assert first is None
            assert second is None
            return
        assert first.try_acquire() is True
        assert second.try_acquire() is False
        second.release()  # not held: nothing happens
        assert second.try_acquire() is False
        first.release()
        first.release()
        assert second.try_acquire() is True
        second.release()

    def test_leases_are_no_entries(self, backend: Backend) -> None:
        lease = backend.lease(digest(1))
        if lease is not None:
            assert lease.try_acquire()
        assert list(backend.scan()) == []
        assert backend.get(digest(1)) is None
        if lease is not None:
            lease.release()
        assert list(backend.scan()) == []
