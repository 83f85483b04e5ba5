"""The declared target of every test here, the seam of this PyTorch, and a few real kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._higher_order_ops.triton_kernel_wrap as wrap
from triton.runtime import driver

import tritonstore
from tests.support.sources import load
from tritonstore.pytorch.seam import Seam, find

TARGET = "cuda:90:32"


@pytest.fixture(autouse=True)
def _driver_put_back() -> Iterator[None]:
    """Every test starts without a driver, and leaves none."""
    before = driver._active
    driver.set_active(None)
    yield
    driver.set_active(before)


@pytest.fixture
def seam() -> Seam:
    return find(wrap)


@pytest.fixture
def ask(seam: Seam) -> Callable[..., Any]:
    """PyTorch's question, asked as PyTorch asks it: by the name in its module."""

    def ask(kernel: Any, kwargs: dict[str, Any], metadata: Any = None) -> Any:
        return getattr(wrap, seam.entry)(kernel, kwargs, metadata or {})

    return ask


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of this test alone."""
    return f"file://{tmp_path}/store"


@pytest.fixture
def kernels() -> Any:
    """Kernels of this test alone, so that no test depends on what another has asked."""
    found = load(
        """
        SCALE = tl.constexpr(2)

        @triton.jit
        def helper(p, v):
            tl.store(p, v)

        @triton.jit
        def copy(x, y, n, BLOCK: tl.constexpr):
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(y + at, tl.load(x + at, mask=at < n) * SCALE, mask=at < n)

        @triton.jit
        def swap(x, y, n):
            helper(y, tl.load(x) + n)
            helper(x, tl.load(y) - n)

        @triton.jit
        def broken(x, y):
            tl.store(y, tl.load(x).no_such_method())

        tuned = triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])(copy)
        heuristic = triton.heuristics({"BLOCK": lambda args: 64})(copy)
        """
    )
    return SimpleNamespace(**{k: v for k, v in found.items() if not k.startswith("__")}, namespace=found)


def tensors(**others: Any) -> dict[str, Any]:
    """Arguments x and y, fresh, and the others as they are."""
    return {"x": torch.zeros(64), "y": torch.zeros(64), **others}


def counted(*names: str) -> list[Any]:
    """These counters of the installed store."""
    return [tritonstore.stats()[name] for name in names]


def entries(url: str) -> int:
    """How many answers stand in the store at `url`."""
    store = tritonstore.open_store(url)
    with contextlib.closing(store):
        return sum(1 for backend in store.tiers.backends for _ in backend.scan())
