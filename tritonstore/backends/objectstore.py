"""`s3://`, `gs://` and `az://`: one object per entry, ``<prefix>/v1/<digest>``, by obstore.

Objects are created and not overwritten (a conditional put), as equal questions have equal answers: of two workers
that publish at once, the second one writes nothing. `refresh` mode does overwrite.

Credentials come by each cloud's own means (environment, workload identity, metadata service), never from the URL.
Last use is not known, only when an object was made: bound the bucket by a lifecycle rule. There are no leases.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from tritonstore.backends import options
from tritonstore.backends.base import MAX_SIZE, Backend, Record, check_digest, is_digest
from tritonstore.errors import StoreError, StoreUnavailable, StoreUnreachable
from tritonstore.forks import reset_in_children
from tritonstore.settings import Settings, redact_url
from tritonstore.values import parse_timeout

__all__ = ["ObjectStoreBackend", "open_objectstore"]

VERSION = "v1"

_PAGE = 1000  # objects a request in scan: the most that S3 gives
# Words, or the "retry_timeout: 2s" that obstore puts into every text would be one.
_UNREACHABLE = re.compile(r"error sending request|\b(timed? ?out|connection|dns)\b", re.IGNORECASE)
_ANSWERED = "Server returned non-2xx"  # a server that is busy or broken, but one
_REMEMBERED = 10_000

_T = TypeVar("_T")


class _Runtime:
    """obstore's threads, one set a process. A child of a process that has used them would wait for them for ever."""

    lost = False
    used = False

    def _after_fork(self) -> None:
        self.lost = self.lost or self.used


_runtime = _Runtime()
reset_in_children(_runtime)


class ObjectStoreBackend(Backend):
    """Entries in the bucket that `connect` opens. With `create_only`, what is there is not overwritten."""

    def __init__(self, connect: Callable[[], Any], *, url: str, create_only: bool = True) -> None:
        self.url = url
        self._connect = connect
        self._create_only = create_only
        self._unwanted: set[str] = set()  # what could not be deleted: the next put overwrites it
        self._after_fork()
        reset_in_children(self)

    def _after_fork(self) -> None:
        self._bucket: Any = None
        self._lock = threading.Lock()

    def get(self, digest: str) -> bytes | None:
        path = _path(digest)

        def get() -> bytes | None:
            try:
                found = obstore.get(self._opened(), path)
            except FileNotFoundError:
                return None
            if found.meta["size"] > MAX_SIZE:
                return None
            return bytes(found.bytes())

        return self._call("get", get)

    def put(self, digest: str, data: bytes) -> None:
        path = _path(digest)
        if len(data) > MAX_SIZE:
            raise StoreError(f"{self.url}: a value of {len(data)} bytes is beyond {MAX_SIZE}", self.url, "put")
        keeps = self._create_only and digest not in self._unwanted
        if keeps and (self._call("put", lambda: self._create(path, data)) or self.get(digest) is not None):
            return
        # Also over an object that cannot be an entry: it would be a miss for ever.
        self._call("put", lambda: obstore.put(self._opened(), path, bytes(data), mode="overwrite"))
        self._unwanted.discard(digest)

    def delete(self, digest: str) -> bool:
        path = _path(digest)

        def delete() -> bool:
            try:
                obstore.head(self._opened(), path)  # to delete says nothing about what was there
                obstore.delete(self._opened(), path)
            except FileNotFoundError:
                return False
            return True

        try:
            return self._call("delete", delete)
        except StoreError:
            # Somebody wanted it gone, as it is damaged. Who may put but not delete can still replace it.
            if len(self._unwanted) < _REMEMBERED:
                self._unwanted.add(digest)
            raise

    def scan(self) -> Iterator[Record]:
        pages = self._call("scan", lambda: iter(obstore.list(self._opened(), prefix=VERSION, chunk_size=_PAGE)))
        while True:
            page = self._call("scan", lambda: next(pages, None))
            if page is None:
                return
            for found in page:
                name = found["path"].rpartition("/")[2]
                if found["path"] == f"{VERSION}/{name}" and is_digest(name):
                    yield Record(name, found["size"], found["last_modified"].timestamp())

    def lease(self, digest: str) -> None:
        check_digest(digest)

    def close(self) -> None:
        self._bucket = None

    def _create(self, path: str, data: bytes) -> bool:
        try:
            obstore.put(self._opened(), path, bytes(data), mode="create")
        except AlreadyExistsError:
            return False
        return True

    def _opened(self) -> Any:
        with self._lock:
            if self._bucket is None:
                self._bucket = self._connect()
            return self._bucket

    def _call(self, operation: str, call: Callable[[], _T]) -> _T:
        if _runtime.lost:
            cause = f"process {os.getpid()} was forked from one that had used it; start workers with spawn"
            raise StoreUnreachable(f"{self.url}: {operation} failed: {cause}", self.url, operation)
        _runtime.used = True
        try:
            return call()
        except (BaseError, OSError, ValueError) as error:
            kind, cause = _explain(error)
            raise kind(f"{self.url}: {operation} failed: {cause}", self.url, operation) from None


def _explain(error: Exception) -> tuple[type[StoreError], str]:
    # The first line only: what follows is the source of the error as Rust code, with addresses and headers.
    line = redact_url(str(error).partition("\n")[0])
    text = line[:300]
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return StoreUnavailable, f"the credentials of this process are missing or do not suffice ({text})"
    if isinstance(error, FileNotFoundError) or "404 Not Found" in line:
        return StoreUnavailable, f"there is no such bucket ({text})"
    if isinstance(error, BaseError) and _ANSWERED not in line and _UNREACHABLE.search(line):
        return StoreUnreachable, f"no answer in time ({text})"
    return StoreError, text


def _path(digest: str) -> str:
    return f"{VERSION}/{check_digest(digest)}"


def open_objectstore(url: str, settings: Settings) -> ObjectStoreBackend:
    """``s3://bucket/prefix?region=…&endpoint=…``, ``gs://bucket/prefix``, ``az://container/prefix?account=…``.

    Raises SettingsError.
    """
    scheme = url.partition(":")[0].lower()
    known: dict[str, options.Parser] = {
        "endpoint": _endpoint,
        "connect_timeout": parse_timeout,
        "request_timeout": parse_timeout,
        "create_only": options.boolean,
        **({"region": str} if scheme == "s3" else {"account": str} if scheme == "az" else {}),
    }
    parts, found = options.split_url(url, settings, known)
    if not parts.hostname or parts.netloc != parts.hostname:
        where = "no credentials" if "@" in parts.netloc else "no port"
        raise options.refuse(url, settings, f"use {scheme}://bucket/prefix, with {where} in it")
    names = {"s3": {"endpoint": "endpoint", "region": "region"}, "gs": {"endpoint": "base_url"},
             "az": {"endpoint": "endpoint", "account": "account_name"}}[scheme]  # fmt: skip
    config = {names[name]: found[name] for name in names if name in found}
    wait = timedelta(seconds=found.get("request_timeout", settings.request_timeout))
    client = {
        "connect_timeout": timedelta(seconds=found.get("connect_timeout", settings.connect_timeout)),
        "timeout": wait,
        "allow_http": str(found.get("endpoint", "")).startswith("http:"),
    }
    # One more attempt for a server that is busy, never beyond the request's own time.
    backoff = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(milliseconds=200), "base": 2}
    retry = {"max_retries": 1, "retry_timeout": wait, "backoff": backoff}
    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
    bucket, prefix = parts.netloc, parts.path.strip("/") or None

    def connect() -> Any:
        return kind(bucket, prefix=prefix, config=config, client_options=client, retry_config=retry)

    create_only = found.get("create_only", True) and settings.mode != "refresh"
    return ObjectStoreBackend(connect, url=redact_url(url), create_only=create_only)


def _endpoint(text: str) -> str:
    if not re.fullmatch(r"https?://[^/@?#\s]+(/[^@?#\s]*)?", text):
        raise ValueError("use an address such as https://minio.example:9000")
    return text
