"""Redis that does not answer, refuses or is full; secrets, TLS, permissions and URLs."""

from __future__ import annotations

import datetime
import ipaddress
import itertools
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.backends.contract import digest
from tests.backends.test_redis import opened
from tests.support.servers import black_hole, free_port, no_connection, redis_server
from tritonstore.backends.redis import RedisBackend
from tritonstore.backends.registry import open_backend
from tritonstore.errors import SettingsError, StoreError, StoreUnavailable, StoreUnreachable
from tritonstore.settings import Settings
from tritonstore.store import open_store

SECRET = "hunter2/%:@,s3cret"
QUOTED = "hunter2%2F%25%3A%40%2Cs3cret"


@pytest.mark.parametrize(
    ("kind", "message"),
    [("refused", "no connection"), ("silent", "no answer in time"), ("unconnected", "no answer in time")],
)
def test_a_server_that_does_not_answer(kind: str, message: str) -> None:
    def check(port: int) -> None:
        backend = opened(f"redis://127.0.0.1:{port}?connect_timeout=0.2&request_timeout=0.3")
        for call in (
            lambda: backend.get(digest(1)),
            lambda: backend.put(digest(1), b"x"),
            lambda: backend.delete(digest(1)),
            lambda: list(backend.scan()),
            lambda: backend.lease(digest(1)).try_acquire(),
        ):
            with pytest.raises(StoreUnreachable, match=message) as caught:
                call()
            assert caught.value.url == backend.url

    if kind == "refused":
        check(free_port())
    else:
        with black_hole() if kind == "silent" else no_connection() as port:
            check(port)


def test_timeouts_come_from_the_settings_and_the_url_wins() -> None:
    backend = opened("redis://h", connect_timeout=0.5, request_timeout=0.7)
    assert (backend._connection["socket_connect_timeout"], backend._connection["socket_timeout"]) == (0.5, 0.7)
    backend = opened("redis://h?connect_timeout=3&request_timeout=4s", connect_timeout=0.5, request_timeout=0.7)
    assert (backend._connection["socket_connect_timeout"], backend._connection["socket_timeout"]) == (3.0, 4.0)
    plain = open_backend("redis://h", Settings.load({"HOME": "/h"}))
    assert isinstance(plain, RedisBackend)
    assert (plain._connection["socket_connect_timeout"], plain._connection["socket_timeout"]) == (1.0, 2.0)


def for_ever(call: Callable[[int], object]) -> None:
    for n in itertools.count():
        call(n)


def test_a_full_server(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction") as server:
        backend = opened(f"redis://127.0.0.1:{server.port}")
        backend.put(digest(0), b"x" * 500_000)
        with pytest.raises(StoreUnavailable, match="the server is full; raise its maxmemory"):
            for_ever(lambda n: backend.put(digest(n), b"x" * 500_000))
        assert backend.get(digest(0)) == b"x" * 500_000


def test_a_read_only_replica(tmp_path: Path) -> None:
    with redis_server(tmp_path / "a", "--repl-diskless-sync-delay", "0") as primary:
        with redis.Redis("127.0.0.1", primary.port) as client:
            client.set(f"tritonstore:v1:{digest(1)}", b"x")  # without an expiry, so that a read wants to renew it
        arguments = ("--replicaof", "127.0.0.1", str(primary.port))
        with redis_server(tmp_path / "b", *arguments) as server, redis.Redis("127.0.0.1", server.port) as client:
            while client.info("replication")["master_link_status"] != "up":
                pass
            url = f"redis://127.0.0.1:{server.port}"
            assert opened(url).get(digest(1)) == b"x", "a read that cannot renew is a read"
            for call in (lambda: opened(url).put(digest(2), b"y"), lambda: opened(url).lease(digest(1)).try_acquire()):
                with pytest.raises(StoreUnavailable, match="a read-only replica; name its primary"):
                    call()


# Secrets


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[int]:
    """A server with a password."""
    with redis_server(tmp_path / "locked", "--requirepass", SECRET) as server:
        yield server.port


def test_the_password_of_the_url(locked: int) -> None:
    backend = opened(f"redis://:{QUOTED}@127.0.0.1:{locked}")
    backend.put(digest(1), b"x")
    assert opened(f"redis://default:{QUOTED}@127.0.0.1:{locked}").get(digest(1)) == b"x"
    assert backend.url == f"redis://***@127.0.0.1:{locked}"


def test_secrets_are_never_printed_or_logged(
    locked: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    urls = (
        f"redis://:wrong-{QUOTED}@127.0.0.1:{locked}",
        f"redis://me:{QUOTED}@127.0.0.1:{locked}",
        f"redis://:{QUOTED}@127.0.0.1:{free_port()}",
    )
    for url in urls:
        backend = opened(url)
        shown += [repr(backend), str(backend), backend.url, repr(backend._client), str(vars(backend.lease(digest(1))))]
        for call in (lambda it=backend: it.get(digest(1)), lambda it=backend: it.put(digest(1), b"x")):
            with pytest.raises(StoreUnavailable) as caught:
                call()
            shown += [str(caught.value), repr(caught.value), str(vars(caught.value))]
        with caplog.at_level(logging.DEBUG), open_closed(url) as store:
            for _ in range(5):
                assert store.tiers.get(digest(1)) is None
            shown += [repr(store.settings), str(store.counters.snapshot())]
    for url in (
        f"redis://:{SECRET}@h:1",
        f"redis://:{QUOTED}@h/x",
        f"redis://:{QUOTED}@h?colour=red",
        "redis://:hunter2@",
        "redis://:hunter2",
    ):
        with pytest.raises(SettingsError) as refused:
            opened(url)
        shown.append(str(refused.value))
    text = "\n".join([*shown, caplog.text, *capfd.readouterr()])
    assert "the server refuses the user or password" in text
    for secret in ("hunter2", "s3cret", SECRET, QUOTED):
        assert secret not in text


class open_closed:
    """A lenient store, closed at the end."""

    def __init__(self, url: str) -> None:
        self.store = open_store(url, strict=False)

    def __enter__(self):  # type: ignore[no-untyped-def]
        return self.store

    def __exit__(self, *_: object) -> None:
        self.store.close()


def certificate(folder: Path) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(2))
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    (folder / "cert.pem").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    tls = free_port()
    arguments = ("--tls-port", str(tls), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
    with redis_server(tmp_path / "tls", *arguments, "--tls-ca-cert-file", cert, "--requirepass", SECRET):
        url = f"rediss://:{QUOTED}@127.0.0.1:{tls}"
        backend = opened(f"{url}?ssl_ca_certs={cert}")
        backend.put(digest(1), b"x")
        assert backend.get(digest(1)) == b"x"
        with pytest.raises(StoreUnreachable, match="certificate"):  # nobody vouches for it
            opened(url).get(digest(1))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis:", "use redis://user:password@host:port/0"),
        ("redis://", "use redis://user:password@host:port/0"),
        ("redis://h/one", "use redis://user:password@host:port/0"),
        ("redis://h:99999", "it is no URL"),
        ("redis://h:0", "there is no port 0"),
        ("redis://h#x", "a # is written %23"),
        ("redis://h?ttl=3", "its options are prefix, max_age"),
        ("redis://h?prefix=a&prefix=b", "each once"),
        ("redis://h?request_timeout=soon", "option request_timeout: use a time"),
        ("redis://h?connect_timeout=0", "option connect_timeout: use a time of more than 0"),
        ("redis://h?ssl_ca_certs=/x", "TLS needs rediss:"),
        ("redis://h?write=some", "option write: use one of all, publish, none"),
    ],
)
def test_urls_that_are_refused(url: str, message: str) -> None:
    with pytest.raises(SettingsError, match="cannot be used: ") as caught:
        opened(url)
    assert message in str(caught.value)


@pytest.mark.parametrize("may_write", [True, False])
def test_the_permissions_that_the_documents_name_suffice(
    redis_port: int, redis_client: redis.Redis, may_write: bool, root: Path
) -> None:
    text = " ".join((root / "docs" / "fleet.md").read_text().split())
    (whole,) = re.findall(r"ACL that suffices: `~tritonstore:\* ([^`]*)`", text)
    (reading,) = re.findall(r"reading alone needs `([^`]*)`", text)
    redis_client.set(f"tritonstore:v1:{digest(1)}", b"x")
    redis_client.script_flush()
    user = uuid.uuid4().hex
    granted = (whole if may_write else reading).split()
    redis_client.acl_setuser(user, enabled=True, nopass=True, keys=["tritonstore:*"], commands=granted)
    url = f"redis://{user}:x@127.0.0.1:{redis_port}?request_timeout=60"
    with open_closed(url if may_write else f"{url}&write=none") as store:
        assert store.tiers.get(digest(1)) == (b"x", 0)
        assert store.tiers.get(digest(2)) is None
        if may_write:
            backend = store.tiers.backends[0]
            lease = store.tiers.lease(digest(3))
            assert lease.try_acquire()
            lease.release()
            assert redis_client.keys("*lease*") == []
            assert store.tiers.put(digest(2), b"y") == 1
            assert len(list(backend.scan())) == 2
            assert backend.delete(digest(2)) is True
        assert store.counters.snapshot()["faults"] == {}
    redis_client.acl_deluser(user)


def test_other_errors_of_the_server_are_faults(redis_port: int, redis_client: redis.Redis) -> None:
    user = uuid.uuid4().hex
    redis_client.acl_setuser(user, enabled=True, nopass=True, keys=["*"], commands=["+get"])
    backend = opened(f"redis://{user}:x@127.0.0.1:{redis_port}")
    with pytest.raises(StoreUnavailable, match="ACL forbids it"):
        backend.put(digest(1), b"x")
    with pytest.raises(StoreError, match="get failed"):
        backend.get(digest(1))
    redis_client.acl_deluser(user)
