from __future__ import annotations

import os
import time
from typing import Any

import pytest
import redis

from tests.backends.contract import BackendContract, digest
from tritonstore.backends.base import Backend
from tritonstore.backends.redis import RedisBackend
from tritonstore.backends.registry import open_backend
from tritonstore.settings import Settings

DAY = 86400.0


def opened(url: str, **settings: object) -> RedisBackend:
    backend = open_backend(url, Settings.load({"HOME": "/h"}, **{"request_timeout": 60, **settings}))
    assert isinstance(backend, RedisBackend)
    return backend


class RedisAccess:
    @pytest.fixture
    def bare(self, redis_port: int, redis_client: redis.Redis) -> Backend:
        self.client = redis_client
        return opened(f"redis://127.0.0.1:{redis_port}")

    def raw_read(self, backend: Backend, digest: str) -> bytes | None:
        found: bytes | None = self.client.get(f"tritonstore:v1:{digest}")
        return found

    def raw_write(self, backend: Backend, digest: str, data: bytes) -> None:
        self.client.set(f"tritonstore:v1:{digest}", data)


class TestRedis(RedisAccess, BackendContract):
    pass


def test_many_digests_take_one_round_trip_for_each_hundred(redis_port: int, redis_client: redis.Redis) -> None:
    backend = opened(f"redis://127.0.0.1:{redis_port}")
    for n in range(250):
        backend.put(digest(n), b"%d" % n)
    sent: list[object] = []
    (connection,) = backend._client.connection_pool._available_connections
    send = connection.send_packed_command
    connection.send_packed_command = lambda command, *rest: (sent.append(command), send(command, *rest))
    assert len(list(backend.get_many(digest(n) for n in range(250)))) == 250
    assert len(sent) == 3


def test_an_entry_that_is_put_between_the_two_commands_of_a_get(redis_port: int, redis_client: redis.Redis) -> None:
    backend = opened(f"redis://127.0.0.1:{redis_port}")
    call = backend._call

    def racing(operation: str, command: Any, *most: int) -> Any:
        answers = call(operation, command, *most)
        if answers == [b"", -2]:  # as it was before the put, and as it was after
            backend.put(digest(1), b"came just now")
            return [b"", 1000]
        return answers

    backend._call = racing  # type: ignore[method-assign]
    assert backend.get(digest(1)) == b"came just now"


def test_prefixes_keep_stores_apart(redis_port: int, redis_client: redis.Redis) -> None:
    one = opened(f"redis://127.0.0.1:{redis_port}?prefix=a*[b]%3F%3A")
    other = opened(f"redis://127.0.0.1:{redis_port}?prefix=axb%3A")
    one.put(digest(1), b"1")
    other.put(digest(2), b"2")
    assert one.get(digest(2)) is None
    assert [record.digest for record in one.scan()] == [digest(1)]
    assert sorted(redis_client.keys()) == sorted([f"a*[b]?:v1:{digest(1)}".encode(), f"axb:v1:{digest(2)}".encode()])


def test_databases_keep_stores_apart(redis_port: int, redis_client: redis.Redis) -> None:
    opened(f"redis://127.0.0.1:{redis_port}/3").put(digest(1), b"1")
    assert opened(f"redis://127.0.0.1:{redis_port}/0").get(digest(1)) is None
    assert opened(f"redis://127.0.0.1:{redis_port}/3").get(digest(1)) == b"1"


def test_entries_expire_and_a_read_renews_them_at_most_once_an_hour(redis_port: int, redis_client: redis.Redis) -> None:
    backend = opened(f"redis://127.0.0.1:{redis_port}?max_age=10d")
    backend.put(digest(1), b"x")
    key = f"tritonstore:v1:{digest(1)}"
    assert abs(redis_client.ttl(key) - 10 * DAY) < 60
    for left, renewed in ((10 * DAY - 1800, False), (10 * DAY - 3700, True), (60, True)):
        redis_client.expire(key, int(left))
        (record,) = backend.scan()
        assert abs(time.time() - record.used - (10 * DAY - left)) < 60
        assert backend.get(digest(1)) == b"x"
        assert (redis_client.ttl(key) > left + 60) is renewed
    redis_client.expire(key, 60)
    assert opened(f"redis://127.0.0.1:{redis_port}?max_age=10d", mode="readonly").get(digest(1)) == b"x"
    assert redis_client.ttl(key) <= 60
    redis_client.pexpire(key, 1)
    while redis_client.exists(key):
        pass
    assert backend.get(digest(1)) is None


def test_without_an_age_entries_stay_and_still_tell_their_last_use(redis_port: int, redis_client: redis.Redis) -> None:
    backend = opened(f"redis://127.0.0.1:{redis_port}", max_age=0)
    backend.put(digest(1), b"x")
    assert redis_client.ttl(f"tritonstore:v1:{digest(1)}") > 99 * 365 * DAY
    (record,) = backend.scan()
    assert abs(time.time() - record.used) < 60


@pytest.mark.parametrize("kind", ["list", "hash"])
def test_a_key_of_another_type_is_a_miss_and_is_healed(redis_port: int, redis_client: redis.Redis, kind: str) -> None:
    backend, key = opened(f"redis://127.0.0.1:{redis_port}"), f"tritonstore:v1:{digest(1)}"
    if kind == "list":
        redis_client.rpush(key, "x")
    else:
        redis_client.hset(key, "a", "b")
    assert backend.get(digest(1)) is None
    assert list(backend.scan()) == []
    backend.put(digest(1), b"healed")
    assert backend.get(digest(1)) == b"healed"


def test_a_lease_ends_by_itself(redis_port: int, redis_client: redis.Redis) -> None:
    backend = opened(f"redis://127.0.0.1:{redis_port}?lease_duration=0.2s")
    dead, waiting = backend.lease(digest(1)), backend.lease(digest(1))
    assert dead.try_acquire()
    started = time.monotonic()
    while not waiting.try_acquire():
        assert time.monotonic() - started < 60
    dead.release()  # no longer its own
    assert not backend.lease(digest(1)).try_acquire()
    waiting.release()
    assert redis_client.keys() == []


def test_a_connection_that_the_server_has_closed_is_made_anew(redis_port: int, redis_client: redis.Redis) -> None:
    backend = opened(f"redis://127.0.0.1:{redis_port}")
    backend.put(digest(1), b"x")
    for _ in range(3):
        redis_client.client_kill_filter(_type="normal", skipme=True)
        assert backend.get(digest(1)) == b"x"


def test_a_forked_child_has_connections_of_its_own(redis_port: int, redis_client: redis.Redis) -> None:
    backend = opened(f"redis://127.0.0.1:{redis_port}")
    backend.put(digest(1), b"x")
    lease = backend.lease(digest(2))
    assert lease.try_acquire()
    child = os.fork()
    if child == 0:
        fine = all(backend.get(digest(1)) == b"x" for _ in range(50))
        lease.release()
        os._exit(0 if fine else 1)
    assert all(backend.get(digest(1)) == b"x" for _ in range(50))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not backend.lease(digest(2)).try_acquire(), "a child does not give back its parent's lease"
