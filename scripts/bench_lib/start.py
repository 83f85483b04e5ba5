"""Process start: what the store adds to `import torch` and to the first call, warm and from a cold page cache."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo_lib.target import TARGET

from . import child
from .timing import summary

FRONT_END = "import of Triton's front end"

# Says what its start took: `import torch`, the first call, and what of it is the store's.
PROGRAM = (
    f"FRONT_END = {FRONT_END!r}"
    + """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
started = time.perf_counter()
import torch
imported = time.perf_counter() - started
told = {"import_torch": imported}
if "ask" in sys.argv:
    import torch._higher_order_ops.triton_kernel_wrap as module
    import triton
    from pathlib import Path
    from bench_lib import launches
    from demo_lib.measure import seam_name
    kernel, kwargs = launches.kernel(16, Path(sys.argv[2])), launches.question(16)
    # PyTorch's answer types are its own need, whoever answers.
    import torch._inductor.dependencies
    ask = getattr(module, seam_name())
    steps = {}
    # PyTorch's own need for the first analysis; where all answers come from the store, only our look at it in memory.
    started = time.perf_counter()
    import triton.compiler.code_generator, triton.backends.compiler
    steps[FRONT_END] = time.perf_counter() - started
    if os.environ.get("TRITONSTORE"):
        started = time.perf_counter()
        from tritonstore.keys import call_key
        steps["import of the keys"] = time.perf_counter() - started
        from tritonstore.keys.integrity import snapshot
        from tritonstore.keys.toolchain import toolchain
        started = time.perf_counter()
        memory = snapshot()
        steps["Triton in memory"] = time.perf_counter() - started
        started = time.perf_counter()
        toolchain(memory)
        steps["fingerprint"] = time.perf_counter() - started
    for number in range(3):
        started = time.perf_counter()
        ask(kernel, dict(kwargs), {})
        steps[("first call", "second call", "third call")[number]] = time.perf_counter() - started
    told["steps"] = steps
print(json.dumps(told))
"""
)

NOTHING = "python -c pass"

# What a plain `import torch` runs of ours, timed in one process: PyTorch calls it at the end of its import.
ACTIVATE = """
import json, time, warnings
warnings.simplefilter("ignore")
import torch
started = time.perf_counter()
from tritonstore.pytorch.autoload import activate
activate()
print(json.dumps(time.perf_counter() - started))
"""


def section(folder: Path, scale: float) -> dict[str, Any]:
    rounds = max(1, round(5 * scale))
    store = {"TRITONSTORE_URL": (folder / "store").as_uri(), "TRITONSTORE_TARGET": TARGET}
    off, on = child.environment(folder / "cache"), child.environment(folder / "cache", TRITONSTORE="1", **store)
    child.run(["-c", PROGRAM, "ask", str(folder)], on)  # fills the store and the memo of the fingerprint
    steps = {"warm": steps_of(folder, on, rounds), "cold page cache": steps_of(folder, on, rounds, cold=True)}
    return {
        "activate": {"off": activation(off, rounds), "on": activation(on, rounds)},
        "steps": steps,
        "cli": commands(on, rounds),
        "added_ms": added(steps["warm"]),
    }


def activation(env: Mapping[str, str], rounds: int) -> dict[str, Any]:
    """What runs at the end of `import torch`."""
    by_hand = {**env, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    taken = [json.loads(child.run(["-c", ACTIVATE], by_hand).out) for _ in range(rounds + 1)]
    return summary(taken[1:])  # the first one compiles


def steps_of(folder: Path, env: Mapping[str, str], rounds: int, *, cold: bool = False) -> dict[str, Any]:
    """The steps of PROGRAM, one by one."""
    told = []
    for _ in range(rounds):
        if cold:
            forget_pages()
        told.append(json.loads(child.run(["-c", PROGRAM, "ask", str(folder)], env).out)["steps"])
    return {step: summary([each[step] for each in told]) for step in told[0]}


def commands(env: Mapping[str, str], rounds: int) -> dict[str, Any]:
    """Commands of people, and a Python that does nothing."""
    given = {
        "--help": ["-m", "tritonstore", "--help"],
        "stats": ["-m", "tritonstore", "stats"],
        NOTHING: ["-c", "pass"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in given}
    for number in range(rounds + 1):
        for name, arguments in given.items():
            taken = child.run(arguments, env).seconds
            if number:  # the first one compiles
                seconds[name].append(taken)
    return {name: summary(taken) for name, taken in seconds.items()}


def added(steps: dict[str, Any]) -> float:
    """Milliseconds of a process that asks once, beyond an analysis's imports: all steps but what a later hit costs."""
    own = ("import of the keys", "Triton in memory", "fingerprint", "first call")
    return float(sum(steps[name]["median_us"] for name in own) - steps["third call"]["median_us"]) / 1e3


def forget_pages() -> int:
    """Take the files that a start reads out of the page cache, as far as they are clean; how many there were."""
    import torch
    import triton

    import tritonstore

    count = 0
    roots = (tritonstore.__file__, triton.__file__, f"{Path(torch.__file__).parent}/_higher_order_ops/__init__.py")
    for root in (Path(str(each)).parent for each in roots):
        for path in root.rglob("*.py*"):
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)
                count += 1
    return count
