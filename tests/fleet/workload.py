"""A small export with real kernels: KERNELS launches, each a question of its own."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from demo_lib.graphs import Describer
from torch.library import triton_op, wrap_triton

import tritonstore
from tests.support.analysis import target

KERNELS = 8
TARGET = "cuda:90:32"


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton_op("tritonstore_fleet::scale", mutates_args={})
def scale_op(x: torch.Tensor, block: int) -> torch.Tensor:
    y = torch.empty_like(x)
    wrap_triton(scale)[(1,)](x, y, x.numel(), BLOCK=block)
    return y


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for power in range(KERNELS):
            x = scale_op(x, 16 << power)
        return x


class Outcome(NamedTuple):
    """One export: its text, its seconds, what the store counted, and the warnings it gave."""

    text: str
    seconds: float
    stats: dict[str, Any]
    warnings: list[str]


def export() -> str:
    with torch.no_grad():
        program = torch.export.export(Model(), (torch.zeros(64),))
        opened = program.run_decompositions({}, decompose_custom_triton_ops=True)
    return Describer(str(Path(__file__).resolve().parents[2])).program(opened)


def alone() -> str:
    """The export by PyTorch alone."""
    with target("cuda", 90, 32):
        return export()


def with_store(url: str, **settings: Any) -> Outcome:
    """The export with the store at `url`, as a user has it: not strict."""
    with warnings_of("tritonstore") as said, tritonstore.installed(url=url, target=TARGET, strict=False, **settings):
        started = time.monotonic()
        text = export()
        return Outcome(text, time.monotonic() - started, dict(tritonstore.stats()), said)


@contextlib.contextmanager
def warnings_of(name: str) -> Iterator[list[str]]:
    """What this logger says at WARNING or above, as lines."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


def at_put(monkeypatch: Any, backend: type, number: int, act: Callable[[], object]) -> None:
    """Have `act` called just after the put with this number (from 1) of `backend`."""
    put = backend.put  # type: ignore[attr-defined]
    count = iter(range(1, 1_000_000))

    def counted(self: Any, digest: str, data: bytes) -> None:
        put(self, digest, data)
        if next(count) == number:
            act()

    monkeypatch.setattr(backend, "put", counted)
