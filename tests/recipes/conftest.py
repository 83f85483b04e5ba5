"""Kernels that can be imported by path, a store that knows them, and the declared target."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._higher_order_ops.triton_kernel_wrap as wrap

import tritonstore
from tests.support.analysis import CUDA_90, SEAM, target
from tritonstore.access import AccessResult
from tritonstore.entry import Entry, Provenance, decode, encode
from tritonstore.keys import call_key
from tritonstore.recipes.recipe import Recipe, of_entry

HEADER = "import triton\nimport triton.language as tl\n"

KERNELS = """
@triton.jit
def scale(x, y, factor, SIZE: tl.constexpr):
    offsets = tl.arange(0, SIZE)
    tl.store(y + offsets, tl.load(x + offsets) * factor)


@triton.jit
def copy(x, y, SIZE: tl.constexpr):
    offsets = tl.arange(0, SIZE)
    tl.store(y + offsets, tl.load(x + offsets))
"""


@pytest.fixture(autouse=True)
def declared_target() -> Iterator[None]:
    with target(*CUDA_90):
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules that this process can import, and forgets afterwards."""
    place = tmp_path / "modules"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    before = set(sys.modules)
    yield place
    for name in set(sys.modules) - before:
        if str(place) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def ask(url: str) -> Callable[..., dict[str, Any]]:
    """PyTorch's question through the store, and what was counted."""

    def ask(*calls: tuple[Any, dict[str, Any]]) -> dict[str, Any]:
        with tritonstore.installed(url=url):
            for kernel, arguments in calls:
                getattr(wrap, SEAM)(kernel, dict(arguments), {})
            return tritonstore.stats()

    return ask


def write(folder: Path, name: str, text: str) -> None:
    """Put a module of kernels there."""
    (folder / f"{name}.py").write_text(HEADER + text)


def tensors(*names: str) -> dict[str, Any]:
    return {name: torch.zeros(16) for name in names}


def recipe_of(kernel: Any, arguments: dict[str, Any], tma: dict[str, Any] | None = None) -> Recipe:
    """The recipe of this call, by way of the bytes of an entry. Raises Bypass."""
    key = call_key(kernel, arguments, tma)
    entry = Entry(key.digest, dict(key.parts), AccessResult((), (), False), key.describe(), Provenance(1, 0.1, "test"))
    recipe = of_entry(decode(encode(entry)))
    assert recipe is not None
    return recipe
