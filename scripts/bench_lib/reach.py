"""Reach: Redis and S3 behind a network of 0.1, 1 and 10 ms; what a run pays for it, and what one round trip could save.

A run here is its questions alone, without the analyses: a cold one looks up, claims, publishes; a warm-shared one finds
everything behind the network and fills its own disk; a warm-local one finds it there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.servers import BUCKET, redis_server, s3_server

from . import proxy
from .made import Made

LATENCIES = (0.0001, 0.001, 0.01)
QUESTIONS = 50


def section(folder: Path, scale: float) -> dict[str, Any]:
    os.environ["TRITONSTORE_CACHE_FOLDER"] = str(folder / "cache")
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "no-secret"}
    count = max(2, int(QUESTIONS * scale))
    results: dict[str, Any] = {"questions": count, "redis": {}, "s3": {}}
    with redis_server(folder / "redis") as server:
        for latency in LATENCIES:
            results["redis"][str(latency)] = _behind(folder, server.port, latency, count, _redis)
    with s3_server() as server:
        for latency in LATENCIES:
            results["s3"][str(latency)] = _behind(folder, server.port, latency, count, _s3)
    return results


def _redis(port: int, name: str) -> str:
    return f"redis://127.0.0.1:{port}?prefix={name}"


def _s3(port: int, name: str) -> str:
    return f"s3://{BUCKET}/{name}?region=us-east-1&endpoint=http://127.0.0.1:{port}"


def _behind(folder: Path, port: int, latency: float, count: int, url: Callable[[int, str], str]) -> dict[str, Any]:
    from tritonstore import open_store
    from tritonstore.access import AccessResult

    name = f"bench{int(latency * 1e6)}"
    access = AccessResult(("x_ptr",), ("y_ptr",), True)
    questions = [Made(number) for number in range(count)]
    with proxy.delayed(port, latency) as near:
        shared = url(near, name)

        def local(host: str) -> str:
            return f"{(folder / f'{url.__name__}-{name}-{host}').as_uri()},{shared}"

        def cold() -> None:
            store = open_store(local("first"))
            for question in questions:
                if store.lookup(question) is None:
                    with store.claim(question) as (verb, _):
                        if verb == "analyse":
                            store.publish(question, access, 0.1)
            store.close()

        def warm(where: str) -> None:
            store = open_store(where)
            if not all(store.lookup(question) for question in questions):
                raise RuntimeError(f"{where}: an answer is missing; {store.counters.snapshot()}")
            store.close()

        def prefetch() -> None:
            store = open_store(shared)
            (backend,) = store.tiers.backends
            if len(dict(backend.get_many([question.digest for question in questions]))) != count:
                raise RuntimeError(f"{shared}: an answer is missing")
            store.close()

        steps = {
            "cold": cold,
            "warm-shared": lambda: warm(local("second")),
            "warm-local": lambda: warm(local("second")),
            "all in get_many": prefetch,
        }
        return {step: _seconds(run) for step, run in steps.items()}


def _seconds(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
