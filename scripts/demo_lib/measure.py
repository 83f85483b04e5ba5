"""What one worker measures, by means of its own and not by the counters of what it measures.

Calls and seconds are taken around the function that PyTorch calls, whatever is installed there. Analyses are counted
beneath, around PyTorch's own function: what a store or a cache answers by itself never comes there.
"""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

SEAMS = ("identify_accessed_tensors", "identify_mutated_tensors")  # torch 2.13; torch 2.11
# Who asks, by module and function: torch 2.11 and 2.13, looked up in their sources.
CALLERS = {
    ("triton_kernel_wrap", "triton_kernel_wrapper_mutation_functionalize"): "functionalization",
    ("graph", "propagate_mutation"): "mutation propagation",
    ("graph", "extract_autotune_inputs"): "autotuning inputs",
    ("ir", "__init__"): "lowering",
}


def wrapper_module() -> Any:
    import torch._higher_order_ops.triton_kernel_wrap as module

    return module


def seam_name() -> str:
    module = wrapper_module()
    for name in SEAMS:
        if hasattr(module, name):
            return name
    raise SystemExit(f"demo: this PyTorch has none of {', '.join(SEAMS)} in {module.__name__}")


def plain(answer: Any) -> Any:
    """An answer of either seam as plain data, order included."""
    if isinstance(answer, list):
        return answer
    accesses = answer.read_writes
    return [
        [dep.name for dep in accesses.reads],
        [dep.name for dep in accesses.writes],
        answer.can_fuse_epilogue,
        type(accesses.reads).__name__,
        sorted({type(dep).__name__ for dep in [*accesses.reads, *accesses.writes]}),
    ]


def caller(frame: FrameType | None) -> str:
    """Which part of PyTorch asks: `frame` is the caller of the seam. A part that is not known keeps its own name."""
    while frame is not None and frame.f_code.co_name == "get_mutated_tensors":  # PyTorch's own step in between
        frame = frame.f_back
    if frame is None:
        return "nobody"
    place = (str(frame.f_globals.get("__name__")).rpartition(".")[2], frame.f_code.co_name)
    return CALLERS.get(place, ".".join(place))


class Meter:
    """Counts of one process. `distinct` says which key a call has (None: this run has no keys)."""

    def __init__(self, distinct: Callable[[Any, dict[str, Any], Any], str] | None) -> None:
        self.calls = 0
        self.callers: Counter[str] = Counter()
        self.analyses = 0
        self.seconds = 0.0
        self.overhead = 0.0  # seconds that measuring itself took; the export's seconds are without them
        self.keys: set[str] = set()
        self.answers: list[Any] = []
        self.failures: list[str] = []
        self._distinct = distinct

    def collect_failures(self) -> None:
        """Note what PyTorch's analysis swallows: it then answers "everything is written", which shows nothing."""
        handler = logging.Handler(logging.WARNING)
        handler.emit = self._failed  # type: ignore[method-assign]
        logger = wrapper_module().log
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)

    def _failed(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            lines = str(record.exc_info[1]).strip().splitlines() or [repr(record.exc_info[1])]
            self.failures.append(lines[-1])

    def count_analyses(self) -> None:
        """Count what reaches PyTorch itself; to be called before a store or cache is installed on top."""
        module, name = wrapper_module(), seam_name()
        original = getattr(module, name)

        @functools.wraps(original)
        def counted(*question: Any) -> Any:
            self.analyses += 1
            return original(*question)

        setattr(module, name, counted)

    def count_calls(self) -> None:
        """Count and time on top of everything; to be called after a store or cache was installed."""
        module, name = wrapper_module(), seam_name()
        inner = getattr(module, name)

        # Named as PyTorch's own arguments, so that tritonstore can stand before it.
        def timed(kernel: Any, kwargs: dict[str, Any], tma_descriptor_metadata: Any = None) -> Any:
            before = dict(kwargs)  # PyTorch takes option names out of the caller's dict
            start = time.perf_counter()
            answer = inner(kernel, kwargs, tma_descriptor_metadata or {})
            end = time.perf_counter()
            self.calls += 1
            self.callers[caller(sys._getframe(1))] += 1
            self.seconds += end - start
            self.answers.append([kernel.fn.__name__, plain(answer), sorted(kwargs)])
            if self._distinct is not None:
                self.keys.add(self._distinct(kernel, before, tma_descriptor_metadata or {}))
            self.overhead += time.perf_counter() - end
            return answer

        setattr(module, name, timed)
