from __future__ import annotations

import contextlib
import http.client
import os
import threading
import urllib.parse
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.backends.contract import BackendContract, digest
from tests.support.elsewhere import run_python
from tests.support.servers import BUCKET, black_hole, free_port, no_connection, s3_url
from tritonstore.backends.base import MAX_SIZE, Backend
from tritonstore.backends.objectstore import ObjectStoreBackend
from tritonstore.backends.registry import open_backend
from tritonstore.errors import SettingsError, StoreError, StoreUnavailable, StoreUnreachable
from tritonstore.settings import Settings
from tritonstore.tiers import Tiers


def opened(url: str, **settings: object) -> ObjectStoreBackend:
    backend = open_backend(url, Settings.load({"HOME": "/h"}, request_timeout=60, **settings))
    assert isinstance(backend, ObjectStoreBackend)
    return backend


def raw(backend: Backend, name: str, data: bytes | None = None) -> bytes | None:
    """Read or write an object by plain HTTP. moto looks at who signs, not at the signature."""
    bucket, _, query = backend.url.removeprefix("s3://").partition("?")
    address = urllib.parse.urlsplit(query.partition("endpoint=")[2]).netloc
    signed = "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    connection = http.client.HTTPConnection(address, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET" if data is None else "PUT", f"/{bucket}/v1/{name}", data, {"Authorization": signed})
        answer = connection.getresponse()
        found = answer.read()
    assert answer.status in (200, 404), found
    return found if answer.status == 200 else None


@pytest.mark.usefixtures("s3_credentials")
class S3Access:
    first_put_wins = True

    @pytest.fixture
    def bare(self, s3_port: int) -> Backend:
        return opened(s3_url(s3_port, uuid.uuid4().hex))

    def raw_read(self, backend: Backend, digest: str) -> bytes | None:
        return raw(backend, digest)

    def raw_write(self, backend: Backend, digest: str, data: bytes) -> None:
        raw(backend, digest, data)


class TestS3(S3Access, BackendContract):
    pass


class TestS3ThatOverwrites(S3Access, BackendContract):
    first_put_wins = False

    @pytest.fixture
    def bare(self, s3_port: int) -> Backend:
        return opened(s3_url(s3_port, uuid.uuid4().hex), mode="refresh")


pytestmark = pytest.mark.usefixtures("s3_credentials")


def test_of_many_writers_one_creates(s3_port: int) -> None:
    backends = [opened(s3_url(s3_port, uuid.uuid4().hex)) for _ in range(1)] * 8
    start, created = threading.Barrier(8), []

    def put(me: int) -> None:
        start.wait()
        created.append(backends[me]._create(f"v1/{digest(1)}", b"%d" % me))

    threads = [threading.Thread(target=put, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(created) == [False] * 7 + [True]


def test_what_cannot_be_an_entry_is_overwritten(s3_port: int) -> None:
    backend = opened(s3_url(s3_port, uuid.uuid4().hex))
    raw(backend, digest(1), b"x" * (MAX_SIZE + 1))
    assert backend.get(digest(1)) is None
    backend.put(digest(1), b"healed")
    assert backend.get(digest(1)) == b"healed"


def test_a_bucket_that_is_not_there(s3_port: int) -> None:
    backend = opened(s3_url(s3_port, "x").replace(BUCKET, "nobody-has-made-this"))
    assert backend.get(digest(1)) is None
    for call in (lambda: backend.put(digest(1), b"x"), lambda: list(backend.scan())):
        with pytest.raises(StoreUnavailable, match="no such bucket"):
            call()


def test_scan_leaves_out_what_is_not_its_own(s3_port: int) -> None:
    backend = opened(s3_url(s3_port, uuid.uuid4().hex))
    backend.put(digest(1), b"x")
    for name in ("README", f"deeper/{digest(2)}", digest(3) + "0"):
        raw(backend, name, b"x")
    assert [record.digest for record in backend.scan()] == [digest(1)]


@pytest.mark.parametrize("kind", ["refused", "silent", "unconnected"])
def test_a_server_that_does_not_answer(kind: str) -> None:
    def check(port: int) -> None:
        url = s3_url(port, "x") + "&connect_timeout=0.2&request_timeout=0.4"
        backend = open_backend(url, Settings.load({"HOME": "/h"}))
        for call in (lambda: backend.get(digest(1)), lambda: backend.put(digest(1), b"x")):
            with pytest.raises(StoreUnreachable, match="no answer in time") as caught:
                call()
            assert "\n" not in str(caught.value)

    if kind == "refused":
        check(free_port())
    else:
        with black_hole() if kind == "silent" else no_connection() as port:
            check(port)


def test_a_child_of_a_process_that_has_used_it_fails_at_once() -> None:
    """obstore's threads are not in the child; it would wait for them for ever."""
    with black_hole() as port:
        code = f"""
import os
from tritonstore.backends.registry import open_backend
from tritonstore.errors import StoreUnreachable
from tritonstore.settings import Settings
def attempt():
    backend = open_backend({s3_url(port, "x") + "&request_timeout=0.3"!r}, Settings.load({{"HOME": "/h"}}))
    try:
        backend.get("a" * 64)
    except StoreUnreachable as error:
        return str(error)
first = os.fork()
if first == 0:
    os._exit("no answer in time" not in attempt())
print(os.waitpid(first, 0)[1], "no answer in time" in attempt())
second = os.fork()
if second == 0:
    os._exit("start workers with spawn" not in attempt())
print(os.waitpid(second, 0)[1])
"""
        assert run_python(code).split() == ["0", "True", "0"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://", "use s3://bucket/prefix"),
        ("s3:///x", "use s3://bucket/prefix"),
        ("s3://user:hunter2@bucket/x", "no credentials"),
        ("gs://bucket:80/x", "no port"),
        ("s3://bucket?account=x", "its options are endpoint"),
        ("az://box?region=x", "its options are endpoint"),
        ("s3://bucket?endpoint=ftp://x", "option endpoint: use an address"),
        ("s3://bucket?endpoint=http://me:hunter2@x", "option endpoint: use an address"),
        ("s3://bucket?request_timeout=0", "option request_timeout: use a time of more than 0"),
        ("s3://bucket?create_only=maybe", "option create_only: use one of true, false"),
    ],
)
def test_urls_that_are_refused(url: str, message: str) -> None:
    with pytest.raises(SettingsError, match="cannot be used: ") as caught:
        open_backend(url, Settings.load({"HOME": "/h"}))
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["gs://bucket/a/b", "az://box/a?account=me", "s3://bucket"])
def test_opening_touches_nothing(url: str) -> None:
    backend = opened(url)
    assert backend._bucket is None
    assert backend.lease(digest(1)) is None


def test_what_each_cloud_is_told() -> None:
    os.environ["AZURE_STORAGE_ACCOUNT_KEY"] = "a2V5"
    try:
        box = opened("az://box/a/b?account=me&connect_timeout=0.5")._opened()
    finally:
        del os.environ["AZURE_STORAGE_ACCOUNT_KEY"]
    assert (box.prefix, box.config["account_name"]) == ("a/b", "me")
    bucket = opened("gs://bucket/a?endpoint=http://127.0.0.1:1")._opened()
    assert bucket.prefix == "a"
    assert bucket.client_options["allow_http"] in (True, "true")


class _Refusing(BaseHTTPRequestHandler):
    """S3 that holds damage, creates nothing over it, and lets nobody delete."""

    code = 0
    kept = b"damage"

    def answer(self, code: int, body: bytes = b"") -> None:
        code = type(self).code or code
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        self.send_header("ETag", '"x"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(200, type(self).kept)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        self.answer(403)

    do_POST = do_DELETE

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["If-None-Match"]:
            return self.answer(412)
        type(self).kept = body
        return self.answer(200)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def refusing(**given: object) -> Iterator[tuple[int, type[_Refusing]]]:
    kind = type("Refusing", (_Refusing,), given)
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1], kind
        finally:
            server.shutdown()


def test_damage_that_may_not_be_deleted_is_overwritten_by_the_next_put() -> None:
    with refusing() as (port, kind):
        backend = opened(s3_url(port, "x"))
        tiers = Tiers([backend])
        backend.put(digest(1), b"good")
        assert kind.kept == b"damage", "what is there is kept, as long as nobody wants it gone"
        assert tiers.get(digest(1), lambda data: data == b"good") is None
        assert tiers.put(digest(1), b"good") == 1
        assert tiers.get(digest(1), lambda data: data == b"good") == (b"good", 0)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_busy_server_is_a_fault_of_one_operation(code: int) -> None:
    with refusing(code=code) as (port, _):
        backend = opened(s3_url(port, "x"))
        for call in (lambda: backend.get(digest(1)), lambda: backend.put(digest(1), b"x")):
            with pytest.raises(StoreError, match=str(code)) as raised:
                call()
            assert type(raised.value) is StoreError
