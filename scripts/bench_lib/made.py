"""Made-up questions, and stores full of answers in their real format (tests.support.synthetic)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tests.support.synthetic import entry, fill
from tritonstore.entry import encode

ENTRY_BYTES = len(encode(entry(0)))  # all have nearly the same size


class Made:
    """A question as the store sees one, the same each time for each number."""

    __slots__ = ("_detail", "digest", "kernel", "parts")

    def __init__(self, number: int, detail: dict[str, Any] | None = None) -> None:
        made = entry(number)
        self.digest, self.parts = made.digest, made.parts
        self._detail = made.detail if detail is None else detail
        self.kernel = ("model.kernels", f"_kernel_{number % 300}")

    def describe(self) -> dict[str, Any]:
        return self._detail


def filled(folder: Path, count: int) -> float:
    """Fill the files store in `folder` with entries 0 to `count`; the seconds that it took."""
    started = time.perf_counter()
    now = time.time()
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        fill(os.fspath(folder), [entry(number) for number in numbers], used=now, apart=1e-3)
    return time.perf_counter() - started
