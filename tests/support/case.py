"""One launch of the corpus, and short ways to make its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

CACHEABLE = "cacheable"


class Case(NamedTuple):
    """A launch: `expect` is CACHEABLE or the Bypass reason. `precise` tells whether PyTorch's analysis succeeds."""

    name: str
    kernel: Any
    kwargs: Callable[[], dict[str, Any]]
    tma: dict[str, Any] | None = None
    expect: str = CACHEABLE
    precise: bool = True

    def __repr__(self) -> str:
        return self.name


def tensors(names: str, dtype: torch.dtype = torch.float32, **others: Any) -> Callable[[], dict[str, Any]]:
    """Keyword arguments: one fresh tensor for each of the space-separated names, then the others as they are."""

    def make() -> dict[str, Any]:
        return {name: torch.zeros(64, dtype=dtype) for name in names.split()} | others

    return make
