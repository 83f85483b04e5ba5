"""Load AOTInductor packages and compare their numbers with eager PyTorch: `python -m gpu_lib.load RTOL ATOL PACKAGE…`.

A process of its own: where a machine cannot load packages, PyTorch ends the process with a signal. Beside each package
lies a file of the same name with the suffix `.pt`: its inputs, and what eager PyTorch made of them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

BEFORE_ALL = "with the compiler's libstdc++ before all others"


class Loaded(NamedTuple):
    """`code` 0: the numbers agree, and `told` says how it was loaded. Else `told` says what is wrong."""

    code: int
    told: str
    largest: float | None = None
    """The largest difference, absolute."""


def main(rtol: float, atol: float, packages: Sequence[str]) -> None:
    for package in packages:
        try:
            told: dict[str, Any] = {"largest": _compared(Path(package), rtol, atol)}
        except Exception as error:
            told = {"wrong": " ".join(str(error).split())[:300] or type(error).__name__}
        print(json.dumps(told), flush=True)


def _compared(package: Path, rtol: float, atol: float) -> float:
    import torch
    import torch._inductor

    example, outputs = torch.load(package.with_suffix(".pt"), weights_only=True)
    with torch.no_grad():
        found: Any = torch._inductor.aoti_load_package(str(package))(*example)
    found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    torch.testing.assert_close(found, tuple(outputs), rtol=rtol, atol=atol)
    return max(float((left.double() - right.double()).abs().max()) for left, right in zip(found, outputs, strict=True))


def apart(packages: Sequence[Path], rtol: float = 2e-3, atol: float = 2e-4) -> list[Loaded]:
    """Load them in a process of its own.

    torch 2.11.0+cu130 ends with signal 11 in the std::regex of a package that g++ 13.3 has compiled, with or without a
    GPU, unless the compiler's own C++ library comes before all others: so it is put there where a signal was the end.
    """
    command = [sys.executable, "-m", "gpu_lib.load", str(rtol), str(atol), *map(str, packages)]
    code, told, lines, last = 0, "", list[str](), ""
    for way in ("", BEFORE_ALL):
        environment = os.environ | ({"LD_PRELOAD": _before_all()} if way else {})
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        code, told, lines, last = done.returncode, way, done.stdout.splitlines(), " ".join(done.stderr.split())[-200:]
        if code >= 0:
            break
    died = Loaded(code or 1, f"PyTorch ends with exit code {code} when it loads a package: {last}")
    found = [json.loads(line) for line in lines]
    loaded = [Loaded(1, each["wrong"]) if "wrong" in each else Loaded(0, told, each["largest"]) for each in found]
    return [*loaded, *[died] * (len(packages) - len(loaded))]


def _before_all() -> str:
    """The compiler's C++ library, before what is preloaded already; only the latter where there is no such compiler."""
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-print-file-name=libstdc++.so.6"]
    preloaded = os.environ.get("LD_PRELOAD", "")
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return preloaded
    return f"{found} {preloaded}".strip()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
