"""Real servers for tests, on free ports of the loopback interface: Redis or Valkey, and moto's S3.

A server that is not installed fails the test that needs it, with the command that installs it. Nothing is skipped: a
store that was not tried with its server has not been tried.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Valkey is tested wherever it is installed; .ci/run sees to that.
_VALKEY = bool(shutil.which("valkey-server") or os.environ.get("CI"))
REDIS_SERVERS = ["redis-server", *(["valkey-server"] if _VALKEY else [])]
BUCKET = "fleet"


class Server:
    """A process that listens on `port`."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def kill(self) -> None:
        """As by the kernel when memory is short."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def redis_server(folder: Path, *arguments: str, program: str = "redis-server") -> Iterator[Server]:
    """A server without persistence in `folder`, with more `arguments` (as ``--requirepass``, ``secret``)."""
    path = shutil.which(program)
    if path is None:
        pytest.fail(f"{program} is not installed; .ci/run does that, by: apt-get install {program}")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    usual = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with _started([path, *usual, *arguments], "Ready to accept connections") as process:
        yield Server(process, port)


@contextlib.contextmanager
def s3_server() -> Iterator[Server]:
    """moto's S3 over HTTP, empty but for the bucket BUCKET."""
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _started(command, "Running on") as process:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=60).close()
        yield Server(process, port)


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port where connections are taken, and nothing is ever answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield int(listener.getsockname()[1])


@contextlib.contextmanager
def no_connection() -> Iterator[int]:
    """A port where connections are neither taken nor refused: a listener whose queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        while True:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.5)
            try:
                waiting.connect(listener.getsockname())
            except TimeoutError:
                break
        yield int(listener.getsockname()[1])


@contextlib.contextmanager
def _started(command: list[str], ready: str) -> Iterator[subprocess.Popen[str]]:
    """The process of `command`, from the moment that it has printed `ready`; killed at the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    assert process.stdout is not None
    drain = threading.Thread(target=process.stdout.read, daemon=True)
    said: list[str] = []
    try:
        for line in process.stdout:
            said.append(line)
            if ready in line:
                break
        else:
            pytest.fail(f"{command[0]} ended with {process.wait()}:\n{''.join(said)}")
        drain.start()  # somebody must go on reading: a server whose pipe is full stands still
        yield process
    finally:
        process.kill()
        process.wait()
        if drain.ident is not None:
            drain.join()
        process.stdout.close()


@pytest.fixture(scope="session", params=REDIS_SERVERS)
def redis_port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server that the session shares, once for each kind that is installed."""
    with redis_server(tmp_path_factory.mktemp("redis"), program=request.param) as server:
        yield server.port


@pytest.fixture
def redis_client(redis_port: int) -> Iterator[Any]:
    """A connection to the server, which is empty."""
    import redis

    with redis.Redis("127.0.0.1", redis_port) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    """The port of an S3 server that the session shares."""
    with s3_server() as server:
        yield server.port


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials for moto, which takes any; without them the cloud's own would be looked for."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "no-secret")


def s3_url(port: int, prefix: str) -> str:
    return f"s3://{BUCKET}/{prefix}?region=us-east-1&endpoint=http://127.0.0.1:{port}"
