"""Kernels of a given number of arguments, and questions about them as PyTorch asks inside an export."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

ARGUMENTS = (4, 16, 40)

_HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef _scaled(x, factor):\n    return x * factor\n"


def shape(arguments: int) -> tuple[int, int, int]:
    """Of so many arguments: tensors, scalars, compile-time values."""
    tensors = max(2, arguments // 5)
    values = max(1, arguments // 5)
    return tensors, arguments - tensors - values, values


def kernel(arguments: int, folder: Path) -> Any:
    """A kernel that reads all its tensors but the last, and writes that one; Triton wants its source in a file."""
    tensors, scalars, values = shape(arguments)
    names = [*(f"t{n}" for n in range(tensors)), *(f"s{n}" for n in range(scalars))]
    names += [f"V{n}: tl.constexpr" for n in range(values)]
    lines = [f"def kernel({', '.join(names)}):", "    at = tl.program_id(0) * V0 + tl.arange(0, 16)"]
    lines += [f"    x{n} = tl.load(t{n} + at)" for n in range(tensors - 1)]
    lines += [f"    total = {' + '.join(f'x{n}' for n in range(tensors - 1))}"]
    lines += [f"    tl.store(t{tensors - 1} + at, _scaled(total, s{max(0, scalars - 1)}))"]
    name = f"bench_kernel_{arguments}"
    path = folder / f"{name}.py"
    path.write_text(_HEAD + "\n\n@triton.jit\n" + "\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.kernel


def question(arguments: int, number: int = 0) -> dict[str, Any]:
    """The arguments of a launch in an export: tensors without memory, strides and sizes, and block sizes."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    tensors, scalars, values = shape(arguments)
    with FakeTensorMode():
        held = {f"t{n}": torch.empty(64, 128, dtype=torch.float16) for n in range(tensors)}
    strides = {f"s{n}": 128 * (n + 1) for n in range(scalars)}
    return {**held, **strides, **{f"V{n}": 16 + number for n in range(values)}}
