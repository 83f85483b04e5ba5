"""What the shipped planners ask of every call."""

from __future__ import annotations

from typing import Any

import torch

from tritonstore.replacement.call import Call

CAPABILITY = {torch.float32: 75, torch.float16: 75, torch.bfloat16: 80}
"""What each type of element needs; Triton's own lower bound is 75, and bfloat16 arithmetic came with 80."""

WORTH_IT = "one kernel instead of several, or of a library call"


def obstacle(call: Call, **tensors: Any) -> str | None:
    """Why the kernel cannot take these tensors, first of them the main one; None if it can."""
    main = next(iter(tensors.values()))
    if main.dtype not in CAPABILITY:
        return f"the kernel knows float32, float16 and bfloat16, not {str(main.dtype).removeprefix('torch.')}"
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype != main.dtype:
            return f"{name} is of another type than {next(iter(tensors))}"
        if tensor is not None and any(size == 0 for size in tensor.shape if isinstance(size, int)):
            return f"{name} is empty"
        if tensor is not None and tensor.device != main.device:
            return f"{name} is on another device than {next(iter(tensors))}"
    need = CAPABILITY[main.dtype]
    if not call.supports(need):
        return f"no GPU of capability {need / 10} or higher to export for (or ROCm)"
    return None


def power_of_2(number: int) -> int:
    """The smallest power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()
