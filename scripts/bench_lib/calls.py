"""Calls: what one question costs that was asked before, that is on a disk or behind a server, or that is new."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from demo_lib.measure import seam_name, wrapper_module
from demo_lib.target import TARGET, gpu_available

from . import launches, rivals
from .timing import interleaved, once_each

Question = tuple[Any, dict[str, Any]]


def section(folder: Path, scale: float, redis_port: int | None) -> dict[str, Any]:
    """For kernels of 4, 16 and 40 arguments; `scale` shortens all of it."""
    import tritonstore

    os.environ["TRITONSTORE_CACHE_FOLDER"] = str(folder / "cache")
    module, name = wrapper_module(), seam_name()
    alone = getattr(module, name)
    target: dict[str, Any] = {} if gpu_available() else {"target": TARGET}
    results: dict[str, Any] = {}
    with tritonstore.installed(url=(folder / "store").as_uri(), **target):
        ask = getattr(module, name)
        for count in launches.ARGUMENTS:
            kernel, kwargs = launches.kernel(count, folder), launches.question(count)
            answer = ask(kernel, dict(kwargs), {})
            key, entry = _stored(folder, kernel, kwargs)
            with _stores(folder, key, entry, redis_port) as stores:
                results[str(count)] = {
                    "hits": interleaved(_hits(ask, answer, kernel, kwargs, stores), 8.0 * scale),
                    "stored": interleaved(_stored_reads(folder, key.digest, entry), 2.0 * scale),
                    "publishes": once_each(_publishes(folder, entry, key), max(3, int(400 * scale))),
                    "miss": _miss(ask, alone, kernel, count, max(2, int(30 * scale))),
                    "entry_bytes": len(entry),
                }
    return results


def _stored(folder: Path, kernel: Any, kwargs: dict[str, Any]) -> tuple[Any, bytes]:
    from tritonstore import keys

    key = keys.call_key(kernel, kwargs)
    return key, (folder / "store" / "v1" / key.digest[:2] / key.digest).read_bytes()


@contextlib.contextmanager
def _stores(folder: Path, key: Any, entry: bytes, redis_port: int | None) -> Iterator[dict[str, Any]]:
    """Stores that all hold the entry, opened as a user would."""
    from tritonstore import open_store

    urls = {"memory": "memory:", "files": (folder / "store").as_uri(), "diskcache": f"diskcache://{folder}/diskcache"}
    if redis_port is not None:
        urls["redis"] = f"redis://127.0.0.1:{redis_port}"
    stores = {name: open_store(url) for name, url in urls.items()}
    for store in stores.values():
        store.adopt(key.digest, entry)
        store.lookup(key)
    try:
        yield stores
    finally:
        for store in stores.values():
            store.close()


def _hits(ask: Any, answer: Any, kernel: Any, kwargs: dict[str, Any], stores: Any) -> dict[str, Callable[[], Any]]:
    """The same question, asked of everybody who knows the answer. Nobody may change `kwargs`."""
    from tritonstore import keys
    from tritonstore.pytorch import seam
    from tritonstore.pytorch.answers import answers_of

    answers = answers_of(seam.find(wrapper_module()))
    kept: dict[Any, Any] = getattr(answers, "_tables", {})

    def hit(store: Any) -> Any:
        """As the first time in a process: nothing of the answer is remembered."""
        store._memory.clear()
        kept.clear()
        return answers.build(store.lookup(keys.call_key(kernel, kwargs)))

    contestants: dict[str, Callable[[], Any]] = {
        "exact dict": rivals.exact_dict(answer, kernel, kwargs),
        "key": lambda: keys.call_key(kernel, kwargs),
        "memory": lambda: ask(kernel, kwargs, {}),
    }
    memoizer = rivals.memoizer(answer, kernel, kwargs)
    if memoizer is not None:
        contestants["torch memoizer"] = memoizer
    for name in ("files", "diskcache", "redis"):
        if name in stores:
            contestants[name] = lambda store=stores[name]: hit(store)  # type: ignore[misc]
    return contestants


def _stored_reads(folder: Path, digest: str, entry: bytes) -> dict[str, Callable[[], Any]]:
    """The bytes of one entry, read without any key: the floor, our backend, and what keeps bytes elsewhere."""
    import diskcache

    from tritonstore.backends.files import FilesBackend

    triton = rivals.Triton(folder / "triton")
    triton.put(digest, entry)
    direct = diskcache.Cache(str(folder / "diskcache-direct"))
    direct.set(digest, entry)
    backend = FilesBackend(str(folder / "store"))
    path = str(folder / "store" / "v1" / digest[:2] / digest)
    return {
        "bare open, read, SHA-256": lambda: rivals.read_and_hash(path),
        "files backend": lambda: backend.get(digest),
        "diskcache": lambda: direct.get(digest),
        "Triton's FileCacheManager": lambda: triton.get(digest),
    }


def _publishes(folder: Path, entry: bytes, key: Any) -> dict[str, Callable[[int], Any]]:
    """The same bytes, stored under a new name each time."""
    import diskcache

    from tritonstore.access import AccessResult
    from tritonstore.backends.files import FilesBackend
    from tritonstore.store import open_store

    from .made import Made

    bare = folder / "bare"
    bare.mkdir(exist_ok=True)
    triton = rivals.Triton(folder / "triton")
    direct = diskcache.Cache(str(folder / "diskcache-direct"))
    backend = FilesBackend(str(folder / "published"))
    store = open_store((folder / "published").as_uri())
    for shard in range(256):  # a store's folders are made once
        (folder / "published" / "v1" / f"{shard:02x}").mkdir(parents=True, exist_ok=True, mode=0o700)
    access = AccessResult(("t0",), ("t1",), True)
    digests = [Made(-number).digest for number in range(2000)]
    described = key.describe()
    return {
        "bare write, rename": lambda n: rivals.write(str(bare / digests[n]), entry, n),
        "files backend": lambda n: backend.put(digests[n], entry),
        "publish": lambda n: store.publish(Made(n, described), access, 0.1),
        "diskcache": lambda n: direct.set(digests[n], entry),
        "Triton's FileCacheManager": lambda n: triton.put(digests[n], entry),
    }


def _miss(ask: Any, alone: Any, kernel: Any, arguments: int, rounds: int) -> dict[str, Any]:
    """New questions through the store, and what the analysis in them took."""
    import tritonstore
    from tritonstore.pytorch.lock import analysis_lock

    overheads, analyses = [], []
    for number in range(1, rounds + 1):
        kwargs = launches.question(arguments, number)
        before = tritonstore.stats()
        started = time.perf_counter()
        ask(kernel, kwargs, {})
        seconds = time.perf_counter() - started
        after = tritonstore.stats()
        if after["publishes"] != before["publishes"] + 1:
            raise RuntimeError(f"a new question was not published: {after}")
        analysing = after["seconds_analysing"] - before["seconds_analysing"]
        analyses.append(analysing)
        overheads.append(seconds - analysing)
        with analysis_lock():
            alone(kernel, launches.question(arguments, number), {})
    analysis, overhead = statistics.median(analyses), statistics.median(overheads)
    return {
        "analysis_us": analysis * 1e6,
        "overhead_us": overhead * 1e6,
        "share": statistics.median(o / a for o, a in zip(overheads, analyses, strict=True)),
        "rounds": rounds,
    }
