"""A Python process: its output, its seconds and its peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


# Runs a module and leaves its own peak memory: what the parent of a process is told holds the parent's own.
PEAK = """
import atexit, os, runpy, sys

def told():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    with open(os.environ["BENCH_PEAK"], "w") as file:
        file.write(line.split()[1])

atexit.register(told)
module = sys.argv[1]
sys.argv[:2] = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class Child(NamedTuple):
    out: str
    seconds: float
    peak_mib: float


def environment(cache: Path, **more: str) -> dict[str, str]:
    """This process's environment with a cache folder of its own, and no settings but `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRITONSTORE")}
    paths = [str(ROOT / "scripts"), str(ROOT), kept.get("PYTHONPATH", "")]
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's installation is compiled
    kept["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))
    return kept | {"TRITONSTORE_CACHE_FOLDER": str(cache)} | more


def run(arguments: list[str], env: Mapping[str, str], *, fine: tuple[int, ...] = (0,)) -> Child:
    """Run `python arguments` to its end. Raises RuntimeError with what it said if its exit code is not `fine`.

    The peak memory is that of ``-m MODULE …``; 0 for everything else.
    """
    given = ["-c", PEAK, *arguments[1:]] if arguments[0] == "-m" else arguments
    with tempfile.NamedTemporaryFile("w+") as peak:
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *given], env={**env, "BENCH_PEAK": peak.name}, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - started
        if done.returncode not in fine:
            raise RuntimeError(f"{arguments[:4]} ended with {done.returncode}: {done.stderr[-2000:]}")
        with open(peak.name) as found:
            return Child(done.stdout, seconds, int(found.read() or 0) / 1024)
