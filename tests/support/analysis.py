"""PyTorch's own analysis of a launch, as plain data, and the declared targets it runs on here.

`pytorch_answer` is what every stored answer is compared with, so it never goes through the package under test: it
calls the function that PyTorch shipped, found once at import, with the arguments in a fresh dict.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch._higher_order_ops.triton_kernel_wrap as wrap
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver

# PyTorch's memo tables are process-wide and keyed by function name: two analyses at once answer for one another.
_LOCK = threading.Lock()

NEWER = hasattr(wrap, "identify_accessed_tensors")
SEAM = "identify_accessed_tensors" if NEWER else "identify_mutated_tensors"
_ORIGINAL: Callable[..., Any] = getattr(wrap, SEAM)
if _ORIGINAL.__code__.co_filename != wrap.__file__:
    raise ImportError(f"{SEAM} is already patched; import tests.support.analysis before tritonstore.install()")

CUDA_90 = ("cuda", 90, 32)
CUDA_80 = ("cuda", 80, 32)
CUDA_75 = ("cuda", 75, 32)
CUDA_100 = ("cuda", 100, 32)
HIP_942 = ("hip", "gfx942", 64)


@dataclass(frozen=True)
class Answer:
    """What an analysis said. `reads` and `fuse` are None for torch 2.11, which answers with written names only."""

    reads: tuple[str, ...] | None
    writes: tuple[str, ...]
    fuse: bool | None
    types: tuple[str, ...]
    failed: bool = False


def answer_of(result: Any, failed: bool = False) -> Answer:
    """The plain data of what a seam function returned. `failed` is read off newer results and taken from the caller
    for older ones, which carry no sign of it."""
    if isinstance(result, list):
        return Answer(None, tuple(result), None, ("list",), failed)
    accesses = result.read_writes
    kinds = [type(result), type(accesses), type(accesses.reads), type(accesses.writes), type(accesses.index_exprs)]
    kinds += sorted({type(dep) for dep in (*accesses.reads, *accesses.writes)}, key=lambda kind: kind.__name__)
    return Answer(
        tuple(dep.name for dep in accesses.reads),
        tuple(dep.name for dep in accesses.writes),
        result.can_fuse_epilogue,
        tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds),
        accesses.reads is accesses.writes,
    )


def observe(
    analysis: Callable[..., Any], kernel: Any, kwargs: Mapping[str, Any], tma: Mapping[str, Any] | None = None
) -> tuple[Answer, tuple[str, ...]]:
    """Call a seam function on a fresh dict: its answer, and the names that it left in that dict, in order."""
    given = dict(kwargs)
    # A warning that is an error here would be one more exception that the analysis swallows, and a wrong answer.
    with _failures() as failures, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = analysis(kernel, given, dict(tma or {}))
    return answer_of(result, bool(failures)), tuple(given)


def pytorch_answer(kernel: Any, kwargs: Mapping[str, Any], tma: Mapping[str, Any] | None = None) -> Answer:
    """What PyTorch alone says about this launch, now, on the active driver."""
    return pytorch_outcome(kernel, kwargs, tma)[0]


def pytorch_outcome(
    kernel: Any, kwargs: Mapping[str, Any], tma: Mapping[str, Any] | None = None
) -> tuple[Answer, tuple[str, ...]]:
    """As `pytorch_answer`, with the names that PyTorch left in the caller's dict."""
    with _LOCK:
        return observe(_ORIGINAL, kernel, kwargs, tma)


class _Listener(logging.Handler):
    def __init__(self, failures: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.failures.append(record.getMessage())


@contextmanager
def _failures() -> Iterator[list[str]]:
    """The failures that the analysis swallows and logs: kept here, and kept off the terminal."""
    failures: list[str] = []
    listener = _Listener(failures)
    log = wrap.log
    before = log.level, log.propagate, log.handlers
    log.setLevel(logging.WARNING)
    log.propagate, log.handlers = False, [listener]
    try:
        yield failures
    finally:
        log.setLevel(before[0])
        log.propagate, log.handlers = before[1:]


class OfflineDriver(DriverBase):  # type: ignore[misc]
    """A driver that knows its target and nothing else: enough to generate TTIR without a GPU."""

    def __init__(self, target: GPUTarget) -> None:
        super().__init__()
        self.target = target

    @classmethod
    def is_active(cls) -> bool:
        return False

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_active_torch_device(self) -> Any:
        raise NotImplementedError("an offline driver has no device")

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("an offline driver launches nothing")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("an offline driver measures nothing")


class AbsentDriver(OfflineDriver):
    """What a machine without a GPU has: asking for the target raises, as Triton's own driver search does."""

    def __init__(self) -> None:
        super().__init__(GPUTarget("none", 0, 0))

    def get_current_target(self) -> GPUTarget:
        raise RuntimeError("0 active drivers ([]). There should only be one.")


@contextmanager
def target(backend: str, arch: int | str, warp_size: int) -> Iterator[None]:
    """Triton generates code for this target while the context is open."""
    with _driver(OfflineDriver(GPUTarget(backend, arch, warp_size))):
        yield


@contextmanager
def devices(*targets: tuple[str, int | str, int]) -> Iterator[Callable[[int], None]]:
    """One driver with several devices, as a real one has; what is yielded makes the device of an index the current."""
    offline = OfflineDriver(GPUTarget(*targets[0]))

    def use(index: int) -> None:
        offline.target = GPUTarget(*targets[index])

    with _driver(offline):
        yield use


@contextmanager
def no_target() -> Iterator[None]:
    """No driver while the context is open."""
    with _driver(AbsentDriver()):
        yield


@contextmanager
def _driver(offline: OfflineDriver) -> Iterator[None]:
    # `driver.active` would search for a GPU and raise where nothing is active yet.
    before = driver._active
    driver.set_active(offline)
    try:
        yield
    finally:
        driver.set_active(before)
