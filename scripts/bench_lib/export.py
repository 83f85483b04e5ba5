"""Whole exports: the demo's decoder, warm beside the floor, what a hit costs among the export's own work, and cold."""

from __future__ import annotations

import io
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo_lib.measure import seam_name, wrapper_module
from demo_lib.methods import METHODS
from demo_lib.report import Progress
from demo_lib.runs import Options, run
from demo_lib.target import TARGET, gpu_available

from . import rivals
from .timing import summary

CHOSEN = ("decode", "prefill_4", "prefill_16", "prefill_dynamic")


def section(folder: Path, scale: float) -> dict[str, Any]:
    os.environ["TRITONSTORE_CACHE_FOLDER"] = str(folder / "cache")
    layers, rounds = max(1, round(2 * scale)), max(1, round(6 * scale))
    results = warm(folder, layers, rounds)
    results["cold"] = _cold(folder, layers, CHOSEN if scale >= 1 else CHOSEN[:2], (1, 2, 4) if scale >= 1 else (1, 2))
    return results


def warm(folder: Path, layers: int, rounds: int) -> dict[str, Any]:
    """One process that exports the same method in turn with PyTorch alone, a warm store, and answers free of charge."""
    import tritonstore

    module, name = wrapper_module(), seam_name()
    alone = getattr(module, name)
    target: dict[str, Any] = {} if gpu_available() else {"target": TARGET}
    with tritonstore.installed(url=(folder / "store").as_uri(), **target):
        ask = getattr(module, name)
        try:
            seconds, in_export = _turns(module, name, {"PyTorch alone": alone, "warm": ask}, layers, rounds)
            stats = tritonstore.stats()
        finally:
            setattr(module, name, ask)
    return {
        "seconds": {each: summary(taken) for each, taken in seconds.items()},
        "warm_to_floor": statistics.median(w / f for w, f in zip(seconds["warm"], seconds["floor"], strict=True)),
        "alone_to_floor": statistics.median(
            a / f for a, f in zip(seconds["PyTorch alone"], seconds["floor"], strict=True)
        ),
        "in_export": in_export,
        "calls": stats["calls"],
        "hits": sum(stats["hits"].values()),
        "inductor_imported": "torch._inductor.dependencies" in sys.modules,
    }


def _turns(module: Any, name: str, asked: dict[str, Any], layers: int, rounds: int) -> Any:
    method = next(each for each in METHODS if each.name == "prefill_16")
    model, example, dynamic = method.build(layers, "cpu")

    def export(with_: Callable[..., Any]) -> float:
        import torch

        setattr(module, name, with_)
        started = time.perf_counter()
        exported = torch.export.export(model, example, dynamic_shapes=dynamic)
        exported.run_decompositions({}, decompose_custom_triton_ops=True)
        return time.perf_counter() - started

    recorded: list[Any] = []

    def record(*question: Any) -> Any:
        recorded.append(asked["warm"](*question))
        return recorded[-1]

    export(record)  # the store is warm from here on, and everything is imported
    recorded.clear()
    export(record)
    seconds: dict[str, list[float]] = {each: [] for each in ("PyTorch alone", "warm", "floor")}
    order = list(seconds)
    for _ in range(rounds):
        for each in order:
            answers = iter(recorded)
            seconds[each].append(export(asked.get(each) or (lambda *question, answers=answers: next(answers))))
        order = [*order[1:], order[0]]
    return seconds, _in_export(export, asked["warm"])


def _in_export(export: Callable[[Any], float], ask: Callable[..., Any]) -> dict[str, Any]:
    """A hit among the export's own work, whose data have taken the processor's caches: who is asked first pays.

    So the exact dict and the store are asked first by turns, and only the first one counts.
    """
    taken: dict[str, list[float]] = {"exact dict": [], "warm": []}
    answers: dict[Any, Any] = {}
    calls = 0

    def exact(kernel: Any, kwargs: dict[str, Any]) -> Any:
        return answers.get(rivals.exact_key(kernel, kwargs))

    def both(kernel: Any, kwargs: dict[str, Any], tma: Any = None) -> Any:
        nonlocal calls
        calls += 1
        started = time.perf_counter()
        if calls % 2:
            exact(kernel, kwargs)
            taken["exact dict"].append(time.perf_counter() - started)
            answer = ask(kernel, kwargs, tma or {})
        else:
            answer = ask(kernel, kwargs, tma or {})
            taken["warm"].append(time.perf_counter() - started)
        answers[rivals.exact_key(kernel, kwargs)] = answer
        return answer

    for _ in range(3):
        export(both)
    return {each: summary(seconds) for each, seconds in taken.items()}


def _cold(folder: Path, layers: int, methods: tuple[str, ...], workers: tuple[int, ...]) -> list[dict[str, Any]]:
    """The demo's runs in fresh processes: PyTorch alone, an empty store, and the same store once it is filled."""
    lines = []
    for count in workers:
        place = folder / f"workers-{count}"
        place.mkdir()
        options = Options(count, layers, methods, (place / "store").as_uri(), place.resolve())
        for name in ("pytorch", "cold", "warm"):
            started = time.perf_counter()
            line = run(name, options, Progress(io.StringIO())).line
            lines.append({**line, "wall_seconds": time.perf_counter() - started})
    return lines
