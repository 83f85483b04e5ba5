"""Whole exports of a model with real Triton kernels, while the store's files cannot be used: none of them notices.

Each export must end, with the graphs of PyTorch alone, and with one warning where there was a fault. `injected` lets a
system call on the store's folders fail; `fault_places` has places that are really full, read-only or missing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.fault_trace import FILES, Traced, run

KERNELS = 3


class Outcome(NamedTuple):
    """One export: whether it is that of PyTorch alone, the warnings, the store's faults, and answers from the store."""

    name: str
    identical: bool
    warnings: list[str]
    faults: dict[str, int]
    hits: int
    seconds: float


class Exporter:
    """Imports torch, so after `own_namespace`."""

    def __init__(self) -> None:
        warnings.simplefilter("ignore")  # PyTorch's own
        import torch

        from tests.fleet import workload

        torch.set_num_threads(1)

        class Model(torch.nn.Module):  # type: ignore[misc,unused-ignore]
            def forward(self, x: Any) -> Any:
                for power in range(KERNELS):
                    x = workload.scale_op(x, 16 << power)
                return x

        workload.Model = Model  # type: ignore[misc]
        self._workload = workload
        self.alone = workload.alone()

    def export(self, name: str, url: str | None) -> Outcome:
        """One export with the store at `url`, not strict. Each installation works the fingerprint out anew."""
        done = self._workload.with_store(url)  # type: ignore[arg-type]
        faults = {kind: count for kind, count in done.stats["faults"].items() if not kind.startswith("set-aside")}
        hits = sum(count for tier, count in done.stats["hits"].items() if tier != "memory")
        return Outcome(name, done.text == self.alone, done.warnings, faults, hits, done.seconds)

    def text(self) -> str:
        """An export as it is here and now."""
        return str(self._workload.export())

    def injected(self, folder: Path, error: str, number: int, *, lasting: bool) -> tuple[Outcome, Traced]:
        """An export in a child, whose `number`-th system call on something in `folder` fails, or all from then on."""

        def act(stop: Any) -> int | None:
            hit = stop.number == number or (lasting and stop.number > number)
            return int(getattr(errno, error)) if hit else None

        def work() -> bytes:
            return json.dumps(self.export(error, f"file://{folder}/store")).encode()

        done = run(work, act, only=FILES, under=str(folder))
        if done.code:
            raise AssertionError(f"the export failed: {done.said.decode()}")
        return Outcome(*json.loads(done.said)), done


def wrong(outcome: Outcome) -> list[str]:
    """What does not hold for every export, whatever failed."""
    found = [] if outcome.identical else ["the export is not that of PyTorch alone"]
    faults = {kind: count for kind, count in outcome.faults.items() if kind != "run-record"}  # which is silent
    if len(outcome.warnings) != (1 if faults else 0):
        found.append(f"{len(outcome.warnings)} warnings for {faults}: {outcome.warnings}")
    return found


@contextlib.contextmanager
def environment(**changes: str | None) -> Iterator[None]:
    """These variables for the block; None is unset."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(changes: dict[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
