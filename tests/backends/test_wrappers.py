"""Every backend wrapped by tiers, by counting and as read-only, against the same contract."""

from __future__ import annotations

import pytest

from tests.backends.contract import BackendContract, ReadContract, digest
from tests.backends.test_diskcache import DiskcacheAccess
from tests.backends.test_files import FilesAccess
from tests.backends.test_memory import MemoryAccess
from tests.backends.test_objectstore import S3Access
from tests.backends.test_redis import RedisAccess
from tests.backends.wrapped import Counted, InTiers, OnlyRead
from tritonstore.backends.memory import MemoryBackend
from tritonstore.backends.registry import open_backend
from tritonstore.backends.wrappers import Counting, ReadOnly
from tritonstore.settings import Settings
from tritonstore.tiers import Tiers


class TestMemoryInTiers(InTiers, MemoryAccess, BackendContract):
    pass


class TestFilesInTiers(InTiers, FilesAccess, BackendContract):
    pass


class TestDiskcacheInTiers(InTiers, DiskcacheAccess, BackendContract):
    pass


class TestRedisInTiers(InTiers, RedisAccess, BackendContract):
    pass


class TestS3InTiers(InTiers, S3Access, BackendContract):
    pass


class TestMemoryCounted(Counted, MemoryAccess, BackendContract):
    pass


class TestFilesCounted(Counted, FilesAccess, BackendContract):
    pass


class TestDiskcacheCounted(Counted, DiskcacheAccess, BackendContract):
    pass


class TestRedisCounted(Counted, RedisAccess, BackendContract):
    pass


class TestS3Counted(Counted, S3Access, BackendContract):
    pass


class TestMemoryOnlyRead(OnlyRead, MemoryAccess, ReadContract):
    pass


class TestFilesOnlyRead(OnlyRead, FilesAccess, ReadContract):
    pass


class TestDiskcacheOnlyRead(OnlyRead, DiskcacheAccess, ReadContract):
    pass


class TestRedisOnlyRead(OnlyRead, RedisAccess, ReadContract):
    pass


class TestS3OnlyRead(OnlyRead, S3Access, ReadContract):
    pass


# `writes`: what tiers put where


def test_what_is_not_written_is_only_read() -> None:
    near, far = MemoryBackend(), MemoryBackend()
    far.put(digest(1), b"x")
    tiers = Tiers([near, ReadOnly(far)], strict=True)
    assert tiers.get(digest(1)) == (b"x", 1)
    assert near.get(digest(1)) == b"x", "a hit in it fills the tiers above"
    assert tiers.put(digest(2), b"y") == 1
    assert far.get(digest(2)) is None
    near.delete(digest(1))
    assert tiers.get(digest(1), lambda data: False) is None
    assert far.get(digest(1)) == b"x", "damage in it is left to its owner"


def test_publish_takes_new_answers_and_no_fillings() -> None:
    near, far = Counting(MemoryBackend()), MemoryBackend()
    near.writes = "publish"
    far.put(digest(1), b"x")
    tiers = Tiers([near, far], strict=True)
    assert tiers.get(digest(1)) == (b"x", 1)
    assert near.counts["put"] == 0
    assert tiers.put(digest(2), b"y") == 2


def test_leases_do_not_come_from_a_tier_that_is_not_written() -> None:
    class Leasing(MemoryBackend):
        def lease(self, digest: str) -> object:  # type: ignore[override]
            return self

    near, far = Leasing(), Leasing()
    lease = Tiers([near, far]).lease(digest(1))
    assert lease is not None
    assert lease._lease is far  # type: ignore[attr-defined]
    lease = Tiers([near, ReadOnly(far)]).lease(digest(1))
    assert lease is not None
    assert lease._lease is near  # type: ignore[attr-defined]


@pytest.mark.parametrize("writes", ["all", "publish", "none"])
@pytest.mark.parametrize("url", ["memory:", "file:///nowhere/x", "file:///nowhere/x?durable=true"])
def test_the_option_of_every_url(url: str, writes: str) -> None:
    backend = open_backend(f"{url}{'&' if '?' in url else '?'}write={writes}", Settings.load({"HOME": "/h"}))
    assert backend.writes == writes
    assert isinstance(backend, ReadOnly) is (writes == "none")
    assert backend.url.partition("?")[0] == url.partition("?")[0]
