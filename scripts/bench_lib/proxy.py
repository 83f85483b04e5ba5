"""A TCP proxy that passes everything on after a delay each way, as a network of that latency would.

Run by itself, so that its threads do not stand in the way of what is measured: `python -m bench_lib.proxy PORT DELAY`
prints the port that it listens on, and ends with its standard input.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator

from .child import ROOT


def _pump(source: socket.socket, sink: socket.socket, delay: float) -> None:
    """Pass on what comes from `source`, each piece `delay` after it came, however many are under way."""
    under_way: deque[tuple[float, bytes]] = deque()
    data = b"first"
    while data or under_way:
        left = max(0.0, under_way[0][0] - time.perf_counter()) if under_way else None
        # More to come, or the time of what came first: whichever is sooner. select takes its timeout in microseconds.
        if select.select([source] if data else [], [], [], left)[0]:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            under_way.append((time.perf_counter() + delay, data))
        while under_way and under_way[0][0] <= time.perf_counter():
            piece = under_way.popleft()[1]
            with contextlib.suppress(OSError):
                sink.sendall(piece) if piece else sink.shutdown(socket.SHUT_WR)


def serve(port: int, delay: float) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        print(listener.getsockname()[1], flush=True)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", port))
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(source, sink, delay), daemon=True).start()


def _end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)


@contextlib.contextmanager
def delayed(port: int, latency: float) -> Iterator[int]:
    """A port that leads to `port`, with `latency` seconds for there and back."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench_lib.proxy", str(port), str(latency / 2)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]))
