"""Load one AOTInductor package and compare its numbers with eager PyTorch's: `python -m gpu_lib.load PACKAGE EXPECTED`.

A process of its own: where a machine cannot load packages, PyTorch ends the process with a signal.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

BEFORE_ALL = "with the compiler's libstdc++ before all others"


class Loaded(NamedTuple):
    """Exit code 0: the numbers agree. Negative: PyTorch ended with that signal. Else `told` says what is wrong."""

    code: int
    told: str
    largest: float | None = None
    """The largest difference, absolute."""


def main(package: str, expected: str, rtol: float, atol: float) -> None:
    import torch
    import torch._inductor

    example, outputs = torch.load(expected, weights_only=True)
    with torch.no_grad():
        found: Any = torch._inductor.aoti_load_package(package)(*example)
    found = found if isinstance(found, (tuple, list)) else (found,)
    pairs = list(zip(found, outputs, strict=True))
    torch.testing.assert_close(tuple(found), tuple(outputs), rtol=rtol, atol=atol)
    print(max(float((left.double() - right.double()).abs().max()) for left, right in pairs))


_ways: list[str] = ["", BEFORE_ALL]  # less those that ended with a signal in this process


def apart(package: Path, expected: Path, rtol: float = 2e-3, atol: float = 2e-4) -> Loaded:
    """Load the package in a process of its own, and compare its numbers with those in `expected`.

    torch 2.11.0+cu130 holds parts of a C++ library of its own, which the code of a package that g++ 13.3 has compiled
    then calls in place of its own, and ends with signal 11 in std::regex, with or without a GPU. Where that happens,
    the compiler's own library is put before all others.
    """
    done = None
    for way in tuple(_ways):
        environment = os.environ | ({"LD_PRELOAD": _libstdcxx()} if way else {})
        command = [sys.executable, "-m", "gpu_lib.load", str(package), str(expected), str(rtol), str(atol)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode == 0:
            return Loaded(0, way, float(done.stdout.split()[-1]))
        if done.returncode > 0:
            return Loaded(done.returncode, " ".join(done.stderr.split())[-300:])
        _ways.remove(way)  # no need to try each package in each way
    return Loaded(-11 if done is None else done.returncode, "PyTorch ends with a signal when it loads a package")


@functools.cache
def _libstdcxx() -> str:
    command = [os.environ.get("CXX", "g++"), "-print-file-name=libstdc++.so.6"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
