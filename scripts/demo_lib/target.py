"""A declared Triton target for the runs without tritonstore, where the machine has no GPU: ten lines, by themselves."""

from __future__ import annotations

import warnings
from typing import Any

TARGET = "cuda:90:32"


def gpu_available() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's notice at its import that NumPy is absent
        import torch

    return bool(torch.cuda.is_available())


class _Declared:
    """As much of a Triton driver as code generation asks for: the target. Any other use is an error."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        backend, arch, warp_size = TARGET.split(":")
        return GPUTarget(backend, int(arch), int(warp_size))


def declare() -> None:
    """Make TARGET the active target of this process; on a machine with a GPU, leave the real driver."""
    if not gpu_available():
        import triton

        triton.runtime.driver.set_active(_Declared())
