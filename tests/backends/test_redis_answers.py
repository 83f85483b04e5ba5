"""Servers that are none: slow ones, endless ones, answers of the wrong kind. Each is a StoreError, in time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.backends.contract import digest
from tests.backends.test_redis import opened
from tritonstore.errors import SettingsError, StoreError, StoreUnreachable

Then = Callable[[socket.socket], None]


@contextlib.contextmanager
def server(then: Then, command: bytes = b"GETRANGE") -> Iterator[int]:
    """Agrees to everything until `command` comes, and then does `then`."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=talk, args=(connection,), daemon=True).start()

    def talk(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while said := connection.recv(65536):
                if command in said:
                    then(connection)
                else:
                    connection.sendall(b"+OK\r\n" * max(1, said.count(b"SETINFO")))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def trickle(connection: socket.socket) -> None:
    connection.sendall(b"$1000000\r\n")
    while True:
        connection.sendall(b"x")
        threading.Event().wait(0.02)


def endless(connection: socket.socket) -> None:
    connection.sendall(b"$300000000\r\n")
    while True:
        connection.sendall(b"x" * 100_000)


def say(text: bytes) -> Then:
    return lambda connection: connection.sendall(text)


def test_a_server_that_trickles_is_given_up_within_the_time_of_one_command() -> None:
    with server(trickle) as port:
        backend = opened(f"redis://127.0.0.1:{port}?request_timeout=0.2&connect_timeout=0.2")
        started = time.monotonic()
        with pytest.raises(StoreUnreachable, match="no answer in time"):
            backend.get(digest(1))
        assert time.monotonic() - started < 60  # the whole megabyte would take hours


def test_an_endless_answer_is_given_up() -> None:
    with (
        server(endless) as port,
        pytest.raises(StoreError, match=r"no answer of a Redis server .more than 1114112 bytes"),
    ):
        opened(f"redis://127.0.0.1:{port}").get(digest(1))


@pytest.mark.parametrize(
    "answer",
    [
        b"$abc\r\n",
        b":zz\r\n:1\r\n",
        b"?foo\r\n",
        b":1\r\n:1\r\n",
        b"*1\r\n$1\r\nx\r\n:1\r\n",
        b"*1\r\n" * 5000,
        b"-ERR s3cret\xff\r\n:1\r\n",
    ],
)
def test_what_is_no_answer_to_a_get_is_a_fault(answer: bytes) -> None:
    with server(say(answer)) as port, pytest.raises(StoreError):
        opened(f"redis://127.0.0.1:{port}").get(digest(1))


@pytest.mark.parametrize("left", [b"-NOPERM no pttl\r\n", b"$1\r\nx\r\n", b"$-1\r\n"])
def test_an_unknown_time_to_live_is_no_fault(left: bytes) -> None:
    with server(say(b"$1\r\nx\r\n" + left)) as port:
        backend = opened(f"redis://127.0.0.1:{port}")
        assert backend.get(digest(1)) == b"x"
        assert backend._touch, "what is not known is not renewed"


@pytest.mark.parametrize(
    ("command", "answer"),
    [(b"SET\r\n$", b"$1\r\nx\r\n"), (b"DEL", b"$1\r\nx\r\n"), (b"SCAN", b"*2\r\n$1\r\n0\r\n:7\r\n")],
)
def test_what_is_no_answer_to_other_commands_is_a_fault(command: bytes, answer: bytes) -> None:
    with server(say(answer), command) as port:
        backend = opened(f"redis://127.0.0.1:{port}")
        calls = {b"DEL": lambda: backend.delete(digest(1)), b"SCAN": lambda: list(backend.scan())}
        with pytest.raises(StoreError):
            calls.get(command, lambda: backend.put(digest(1), b"x"))()


def test_a_renewal_that_fails_is_the_last_one() -> None:
    renewals: list[bytes] = []

    def worn(connection: socket.socket) -> None:
        connection.sendall(b"$1\r\nx\r\n:1000\r\n")
        renewals.append(connection.recv(65536))
        connection.sendall(b"-READONLY replica\r\n")

    with server(worn) as port:
        backend = opened(f"redis://127.0.0.1:{port}")
        assert backend.get(digest(1)) == b"x"
        assert b"PEXPIRE" in renewals[0]
        assert not backend._touch


def test_a_short_user_name_is_not_replaced_inside_words() -> None:
    with (
        server(say(b"-ERR user e cannot be there\r\n:1\r\n")) as port,
        pytest.raises(StoreError, match=r"user \*\*\* cannot be there"),
    ):
        opened(f"redis://e:pw@127.0.0.1:{port}").get(digest(1))


def test_what_the_server_says_of_a_login_is_not_told() -> None:
    with (
        server(say(b"-WRONGPASS you sent s3cret\r\n"), b"AUTH") as port,
        pytest.raises(StoreError, match=r"the server refuses the user or password of the URL$"),
    ):
        opened(f"redis://e:pw@127.0.0.1:{port}").get(digest(1))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://a..b/", "no host name"),
        ("redis://" + "a" * 70 + ".x/", "no host name"),
        ("redis://h?prefix=%ff", "option prefix: use text"),
        ("redis://h?lease_duration=0.0005", "option lease_duration: use a time of at least 0.1"),
        ("redis://h?request_timeout=99999999999999w", "at most 36500d"),
        ("redis://h?prefix=x?write=none", "there is one"),
    ],
)
def test_urls_refused_when_opened(url: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        opened(url)
