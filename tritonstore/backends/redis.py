"""`redis://` and `rediss://` (TLS): one key per entry, in Redis or Valkey, by redis-py.

An entry is the string ``<prefix>v1:<digest>`` with a time to live, renewed by a read at most once an hour; so what is
left of it tells the last use. Its size is bounded by the server (maxmemory, maxmemory-policy). A lease is redis-py's
Lock on ``<prefix>lease:<digest>``, which the server ends if its holder does not.

A command fails after the request timeout, a connection after the connect timeout, and an operation with all that it
takes (a handshake, one more attempt) after both together; see `redis_limits`. Only a lost connection is made again,
once: a server may have closed it while it was idle.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import redis
from redis.backoff import NoBackoff
from redis.exceptions import InvalidResponse
from redis.retry import Retry

from tritonstore.backends import options
from tritonstore.backends.base import MAX_SIZE, Backend, Record, check_digest, is_digest
from tritonstore.backends.redis_faults import explain
from tritonstore.backends.redis_limits import Limits, limited
from tritonstore.errors import StoreError
from tritonstore.forks import reset_in_children
from tritonstore.settings import Settings, parse_age, redact_url
from tritonstore.values import parse_timeout

if TYPE_CHECKING:
    from redis.lock import Lock

__all__ = ["RedisBackend", "open_redis"]

VERSION = "v1"

_HOUR = 3600.0
_FOREVER = 100 * 365 * 86400.0  # so that what is left of an entry's time to live always tells its last use
_BATCH = 100  # digests a round trip in get_many
_PAGE = 1000  # keys a round trip in scan
_REPLY = MAX_SIZE + (64 << 10)  # bytes of an answer that are read: an entry, and some words
_SCAN_REPLY = 64 << 20  # a page of keys, also of somebody else's and with long names
_RENEWAL = 0.5  # seconds that a read spends on a renewal at most, which is an extra
_SHORTEST_LEASE = 0.1


class RedisBackend(Backend):
    """Entries under `prefix` of the server that `connection` (arguments of redis.Redis) names.

    `max_age` seconds after their last use they expire, 0 is never. A lease ends `lease_duration` seconds after it was
    taken. Without `touch`, reading changes nothing.
    """

    def __init__(
        self,
        connection: dict[str, Any],
        *,
        url: str,
        prefix: str = "tritonstore:",
        max_age: float = 0.0,
        lease_duration: float = 30.0,
        touch: bool = True,
    ) -> None:
        self.url = url
        self.prefix = prefix
        self._entries = f"{prefix}{VERSION}:"
        self._connection = connection
        self._lifetime = max_age or _FOREVER
        self._fresh = self._lifetime - min(_HOUR, self._lifetime / 2)
        self._lease_duration = lease_duration
        self._touch = touch
        self._after_fork()
        reset_in_children(self)

    def _after_fork(self) -> None:
        retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
        self._client = redis.Redis(**self._connection, retry=retry, protocol=2)
        self._limits = Limits(self._connection["socket_timeout"])
        self._allowed = self._connection["socket_timeout"] + self._connection["socket_connect_timeout"]
        pool = self._client.connection_pool
        pool.connection_class = limited(pool.connection_class, self._limits)

    def get(self, digest: str) -> bytes | None:
        for _, data in self.get_many([digest]):
            return data
        return None

    def get_many(self, digests: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        rest = iter(digests)
        while batch := [check_digest(digest) for digest in islice(rest, _BATCH)]:
            # No transaction: a server that is full refuses every command in one. GETRANGE, because a huge value of
            # somebody else's must not be fetched; its answer for no value is that for an empty one.
            pipeline = self._client.pipeline(transaction=False)
            for digest in batch:
                pipeline.getrange(self._entries + digest, 0, MAX_SIZE)
                pipeline.pttl(self._entries + digest)
            answers = self._call(
                "get", lambda commands=pipeline: commands.execute(raise_on_error=False), _REPLY * len(batch)
            )
            found, worn = [], []
            for digest, data, left in zip(batch, answers[::2], answers[1::2], strict=True):
                if isinstance(data, redis.ResponseError) and not str(data).startswith("WRONGTYPE"):
                    raise self._fault("get", data) from data
                if data is not None and not isinstance(data, (bytes, redis.ResponseError)):
                    raise self._fault("get", InvalidResponse("not an answer to GETRANGE"))
                left = left if type(left) is int else None  # a user without the right to ask: unknown, so not renewed
                if data == b"" and left != -2:  # empty, or put just between the two commands
                    data = self._call("get", lambda key=self._entries + digest: self._client.get(key))
                if not isinstance(data, bytes) or (data == b"" and left == -2) or len(data) > MAX_SIZE:
                    continue
                found.append((digest, data))
                if self._touch and left is not None and left < self._fresh * 1000:
                    worn.append(digest)
            if worn:
                self._renew(worn)
            yield from found

    def put(self, digest: str, data: bytes) -> None:
        check_digest(digest)
        if len(data) > MAX_SIZE:
            raise StoreError(f"{self.url}: a value of {len(data)} bytes is beyond {MAX_SIZE}", self.url, "put")
        key, lifetime = self._entries + digest, max(1, int(self._lifetime * 1000))
        if self._call("put", lambda: self._client.set(key, bytes(data), px=lifetime)) is not True:
            raise self._fault("put", InvalidResponse("not an answer to SET"))

    def delete(self, digest: str) -> bool:
        check_digest(digest)
        deleted = self._call("delete", lambda: self._client.delete(self._entries + digest))
        if type(deleted) is not int:
            raise self._fault("delete", InvalidResponse("not an answer to DEL"))
        return deleted > 0

    def scan(self) -> Iterator[Record]:
        # SCAN may give a key twice while the server resizes its table. To remember 1,000,000 digests takes 100 MB.
        seen: set[bytes] = set()
        pattern = re.sub(r"([*?\[\]^\\])", r"\\\1", self._entries) + "*"
        cursor: Any = 0
        while True:
            cursor, keys = self._call(
                "scan", lambda at=cursor: self._client.scan(at, match=pattern, count=_PAGE), _SCAN_REPLY
            )
            if type(keys) is not list or not all(type(key) is bytes for key in keys):
                raise self._fault("scan", InvalidResponse("not an answer to SCAN"))
            names = [key.decode("ascii", "replace").removeprefix(self._entries) for key in keys]
            fresh = [name for name in dict.fromkeys(names) if is_digest(name) and bytes.fromhex(name) not in seen]
            seen.update(map(bytes.fromhex, fresh))
            if fresh:
                yield from self._records(fresh)
            if not cursor:
                return

    def lease(self, digest: str) -> RedisLease:
        check_digest(digest)
        return RedisLease(self, digest)

    def close(self) -> None:
        self._client.close()

    def new_lock(self, digest: str) -> Lock:
        """redis-py's lock for `digest`. Not thread-local: another thread may give a claim back."""
        name = f"{self.prefix}lease:{digest}"
        lock: Lock = self._client.lock(name, timeout=self._lease_duration, blocking=False, thread_local=False)
        return lock

    def take(self, lock: Lock) -> bool:
        """One attempt at `lock`. Raises StoreError."""
        return bool(self._call("lease", lambda: lock.acquire(blocking=False)))

    def give_back(self, lock: Lock) -> None:
        """Never raises: it has expired, or there is no server, and then it ends by itself."""
        with suppress(StoreError):
            self._call("lease", lock.release)

    def _renew(self, digests: list[str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for digest in digests:
            pipeline.pexpire(self._entries + digest, int(self._lifetime * 1000))
        started = time.monotonic()
        try:
            with self._limits.within(_RENEWAL, _REPLY):
                answers = pipeline.execute(raise_on_error=False)
            failed = any(isinstance(answer, Exception) for answer in answers)
        except Exception:
            failed = True
        # A replica, a user that may not write, a server that holds writes up: the next one would cost the same, and
        # without it the entries just look older.
        if failed or time.monotonic() - started > _RENEWAL / 2:
            self._touch = False

    def _records(self, digests: list[str]) -> Iterator[Record]:
        pipeline = self._client.pipeline(transaction=False)
        for digest in digests:
            pipeline.pttl(self._entries + digest)
            pipeline.strlen(self._entries + digest)
        answers = self._call("scan", lambda: pipeline.execute(raise_on_error=False))
        now = time.time()
        for digest, left, size in zip(digests, answers[::2], answers[1::2], strict=True):
            if type(left) is int and type(size) is int and left != -2:
                age = self._lifetime - left / 1000 if left >= 0 else 0.0
                yield Record(digest, size, now - max(0.0, age))

    def _call(self, operation: str, call: Any, most: int = _REPLY) -> Any:
        try:
            with self._limits.within(self._allowed, most):
                return call()
        except redis.RedisError as error:
            raise self._fault(operation, error) from error
        except Exception as error:  # what redis-py raises at an answer that is none; its text is the server's
            raise self._fault(operation, InvalidResponse(type(error).__name__)) from None

    def _fault(self, operation: str, error: Exception) -> StoreError:
        kind, text = explain(error, self._connection.get("username"), self._connection.get("password"))
        return kind(f"{self.url}: {operation} failed: {text}", self.url, operation)


class RedisLease:
    """A try-lock on one digest."""

    def __init__(self, backend: RedisBackend, digest: str) -> None:
        self._backend = backend
        self._digest = digest
        self._lock: Lock | None = None
        self._owner = 0

    def try_acquire(self) -> bool:
        lock = self._backend.new_lock(self._digest)
        if not self._backend.take(lock):
            return False
        self._lock, self._owner = lock, os.getpid()
        return True

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None and self._owner == os.getpid():  # a forked child does not own what its parent acquired
            self._backend.give_back(lock)


def open_redis(url: str, settings: Settings) -> RedisBackend:
    """``redis://user:password@host:port/database?prefix=…``, ``rediss://`` for TLS. Raises SettingsError."""
    known: dict[str, options.Parser] = {
        "prefix": options.text,
        "max_age": parse_age,
        "lease_duration": _lease_duration,
        "connect_timeout": parse_timeout,
        "request_timeout": parse_timeout,
        "ssl_ca_certs": options.absolute_path,
        "ssl_certfile": options.absolute_path,
        "ssl_keyfile": options.absolute_path,
    }
    parts, found = options.split_url(url, settings, known)
    database = parts.path.strip("/") or "0"
    if not parts.hostname or not re.fullmatch(r"[0-9]{1,5}", database):
        raise options.refuse(url, settings, "use redis://user:password@host:port/0, the number being the database")
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise options.refuse(url, settings, "that is no host name") from None
    tls = {name: found[name] for name in known if name.startswith("ssl_") and name in found}
    if tls and parts.scheme != "rediss":
        raise options.refuse(url, settings, "TLS needs rediss: instead of redis:")
    connection = {
        "host": parts.hostname,
        "port": parts.port or 6379,
        "db": int(database),
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "socket_connect_timeout": found.get("connect_timeout", settings.connect_timeout),
        "socket_timeout": found.get("request_timeout", settings.request_timeout),
        "ssl": parts.scheme == "rediss",
        **tls,
    }
    return RedisBackend(
        connection,
        url=redact_url(url),
        prefix=found.get("prefix", "tritonstore:"),
        max_age=found.get("max_age", settings.max_age),
        lease_duration=found.get("lease_duration", 30.0),
        touch=settings.mode != "readonly",
    )


def _lease_duration(text: str) -> float:
    seconds = parse_timeout(text)
    if seconds < _SHORTEST_LEASE:
        raise ValueError(f"use a time of at least {_SHORTEST_LEASE} (seconds), longer than an analysis takes")
    return seconds
