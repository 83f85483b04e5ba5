"""Run records made up for tests, and the program that real ones come from."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any

from tests.support.synthetic import entry
from tritonstore import runrecord
from tritonstore.runrecord import BypassFacts, FileName, KernelFacts, MissFacts, RunRecord, Timeline

STARTED = 1_780_000_000.0


def sha(text: object) -> str:
    return sha256(str(text).encode()).hexdigest()


def kernel(name: str = "_rms", module: str = "model.kernels", **changes: Any) -> KernelFacts:
    """Ten calls: seven hits, two misses, one bypass."""
    facts = KernelFacts(module, name, {"memory": 6, "file": 1}, 2, 0, {"tma": 1}, 3, {}, 0.7, 0.25)
    return facts._replace(**changes)


def miss(number: int = 0, name: str = "_rms", **changes: Any) -> MissFacts:
    """A described miss; `detail` and `parts` may be given."""
    parts = {part: sha(f"{part} of {number}") for part in ("toolchain", "target", "ops", "arguments", "code")}
    detail = {"arguments": [["BLOCK", ["constexpr", ["int", number]], False]], "kernel": ["model.kernels", name]}
    facts = MissFacts(sha(number), "model.kernels", name, STARTED + number, 1, 0.1, "published", parts, detail)
    return facts._replace(**changes)


def bypass(name: str = "_rms", **changes: Any) -> BypassFacts:
    facts = BypassFacts("model.kernels", name, "tma", "x is a host-side TMA descriptor", 1, STARTED, 0.05)
    return facts._replace(**changes)


def record(run: str = "run-1", **changes: Any) -> RunRecord:
    """One process of a run with one kernel."""
    facts: dict[str, Any] = {
        "run": run,
        "started": STARTED,
        "ended": STARTED + 40.0,
        "command": "export.py",
        "host": "host",
        "pid": 1,
        "mode": "readwrite",
        "versions": {"torch": "2.13.0", "triton": "3.7.1", "tritonstore": "0.1.0"},
        "urls": ["file:///store"],
        "counters": {
            "calls": 10,
            "hits": {"file": 1, "memory": 6},
            "bypasses": {"tma": 1},
            "unproven": {},
            "faults": {},
            "misses": 2,
            "shared": 0,
            "analyses": 3,
            "publishes": 2,
            "seconds_saved": 0.7,
            "seconds_analysing": 0.25,
            "seconds_key": 0.02,
            "seconds_store": 0.004,
        },
        "kernels": [kernel()],
        "misses": [miss(1), miss(2)],
        "bypasses": [bypass()],
        "used": [sha(1), sha(2), sha(3)],
        "timeline": [Timeline(STARTED, 1.0, [0, 3, 4], [2, 0, 0], [0, 0, 0], [0, 1, 0], [0.2, 0.05, 0.0])],
    }
    return RunRecord(**{**facts, **changes})


def full_record() -> RunRecord:
    """One that has something in every field."""
    digest = entry(0).digest
    return RunRecord(
        run="run",
        started=1.0,
        ended=2.0,
        command="export.py",
        host="host",
        pid=3,
        mode="readwrite",
        versions={"torch": "2.13.0"},
        urls=["memory:"],
        counters={"hits": {"memory": 1}, "misses": 2, "seconds_key": 0.5},
        kernels=[KernelFacts("m", "k", {"file": 1}, 1, 0, {"tma": 1}, 1, {"invariant": 1}, 0.5, 0.25)],
        misses=[MissFacts(digest, "m", "k", 1.5, 1, 0.25, "published", {"code": digest}, {"code": [["m", 1]]})],
        bypasses=[BypassFacts("m", "k", "tma", "why", 1, 1.5, 0.25)],
        used=[digest],
        timeline=[Timeline(1.0, 0.5, [1], [2], [0], [0], [0.25])],
        dropped={"misses": 1},
        sources=["x"],
    )


def put(folder: object, made: RunRecord, owner: str = "host-1-0a0b0c0d") -> str:
    """Write a record as its process would; the file's name."""
    name = FileName(int(made.started * 1000), made.run, owner)
    runrecord.write(os.fspath(folder), name, runrecord.encode(made))  # type: ignore[call-overload]
    return str(name)


# Asks PyTorch about real kernels as an export does. `ask(times, block)` may be called in any process.
PROGRAM = """
import os, sys, logging
logging.disable(logging.WARNING)  # PyTorch's own, for the kernel that cannot be analysed
import torch
import torch._higher_order_ops.triton_kernel_wrap as wrap
from tests.support.analysis import SEAM
from tests.support.sources import load
import tritonstore

kernels = load('''
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
heuristic = triton.heuristics({"BLOCK": lambda args: 64})(copy)
''', module="model.kernels")

def ask(times, block=64, kernel="copy"):
    for _ in range(times):
        more = {"BLOCK": block} if kernel == "copy" else {}
        getattr(wrap, SEAM)(kernels[kernel], {"x": torch.zeros(4), "y": torch.zeros(4), "n": 1, **more}, {})

def install():
    tritonstore.install(url="memory:", target="cuda:90:32")

if __name__ == "__main__":
    install()
"""
