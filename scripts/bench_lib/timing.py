"""Interleaved measuring: the contestants take turns, so that a busy moment of the machine meets all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pyperf

Contestant = Callable[[], Any]


def summary(seconds: list[float], calls: int = 1) -> dict[str, Any]:
    """Median, p99 and maximum of samples, in microseconds; `calls` a sample."""
    values = [max(each, 1e-12) for each in seconds]
    bench = pyperf.Benchmark([pyperf.Run(values, metadata={"name": "calls"}, collect_metadata=False)])
    return {
        "median_us": bench.median() * 1e6,
        "p99_us": bench.percentile(99) * 1e6,
        "max_us": max(seconds) * 1e6,
        "samples": len(seconds),
        "calls_a_sample": calls,
    }


def interleaved(contestants: Mapping[str, Contestant], seconds: float, block: float = 2e-3) -> dict[str, Any]:
    """`summary` of each contestant's time for one call.

    In turn each is called for a block of about `block` seconds, in a new order each time, until `seconds` are over.
    """
    counts = {}
    for name, call in contestants.items():
        call()
        # The fastest of some: after a hiccup each block would be one call, which finds the caches full of others.
        counts[name] = max(1, int(block / max(1e-7, min(_timed(call) for _ in range(5)))))
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(contestants)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not all(samples.values()):
        for name in order:
            call, count = contestants[name], counts[name]
            started = time.perf_counter()
            for _ in range(count):
                call()
            samples[name].append((time.perf_counter() - started) / count)
        order = [*order[1:], order[0]]
    return {name: summary(taken, counts[name]) for name, taken in samples.items()}


def _timed(call: Contestant) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def once_each(contestants: Mapping[str, Callable[[int], Any]], rounds: int) -> dict[str, Any]:
    """`summary` of single calls, each told its round's number: for what is slow, or may not be repeated."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(contestants)
    for number in range(rounds):
        for name in order:
            started = time.perf_counter()
            contestants[name](number)
            samples[name].append(time.perf_counter() - started)
        order = [*order[1:], order[0]]
    return {name: summary(taken) for name, taken in samples.items()}


def environment() -> dict[str, Any]:
    """The machine and its Python, as pyperf describes them, and the versions of what is measured."""
    from importlib.metadata import PackageNotFoundError, version

    told = pyperf.Run([1.0], collect_metadata=True).get_metadata()
    kept = ("cpu_model_name", "cpu_count", "platform", "python_version", "load_avg_1min", "date")
    described: dict[str, Any] = {name: str(told[name]) for name in kept if name in told}
    for package in ("torch", "triton", "diskcache", "redis", "obstore", "moto", "pyperf"):
        try:
            described[package] = version(package)
        except PackageNotFoundError:
            described[package] = None
    return described
