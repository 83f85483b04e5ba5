"""The kernels' numbers, by Triton's interpreter, and their code, for the capabilities that they are planned for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch.nn import functional
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import tritonstore
from tritonstore.replacement import apply, plan
from tritonstore.replacement.call import values

from .conftest import Function, export


def test_the_kernels_compute_what_pytorch_does(root: Path) -> None:
    command = [sys.executable, "-m", "tests.replacement.interpreted"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "112 results agree\n"


SHARED = {75: 65536, 80: 101376, 90: 101376, 100: 101376}
"""Bytes of shared memory that a block can have on every GPU of that generation (CUDA's programming guide)."""

CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "rms_norm": (lambda x, w: functional.rms_norm(x, (300,), w), [(3, 300), (300,)]),
    "topk of one": (lambda x: x.topk(1), [(3, 7)]),
    "topk": (lambda x: x.topk(9, largest=False), [(3, 60)]),
    "conv1d": (lambda x, w, b: functional.conv1d(x, w, b, groups=6, padding=3), [(2, 6, 9), (6, 1, 4), (6,)]),
    "sdpa": (lambda q, k: functional.scaled_dot_product_attention(q, k, k, is_causal=True), [(1, 2, 9, 64)] * 2),
    "sdpa with a mask": (
        lambda q, k: functional.scaled_dot_product_attention(q, k, k, torch.ones(30, 9).bool(), enable_gqa=True),
        [(1, 4, 30, 128), (1, 2, 9, 128)],
    ),
}


def launched(name: str, dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
    """The kernel that a replaced call launches, and its arguments: nodes' values for tensors, else as they are."""
    function, shapes = CASES[name]
    program = export(Function(function), *(torch.randn(shape).to(dtype) for shape in shapes))
    assert len(apply(plan(program)).replaced) == 1
    opened = program.run_decompositions({}, decompose_custom_triton_ops=True)
    (launch,) = (node for node in opened.graph.nodes if "tensors_to_clone" in node.kwargs)
    kernel = kernel_side_table.get_kernel(launch.kwargs["kernel_idx"])
    return kernel, {
        **kernel_side_table.get_constant_args(launch.kwargs["constant_args_idx"]),
        **values(launch.kwargs["kwargs"]),
    }


TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int64: "*i64", torch.bool: "*i1"}


EVERYWHERE = [(name, arch) for name in CASES for arch in (75, 90)]
"""The oldest one, in float32, and the one at hand, in bfloat16."""

OTHERS = [("sdpa", 80), ("topk of one", 80), ("sdpa", 100), ("topk of one", 100)]


@pytest.mark.parametrize(("name", "arch"), [*EVERYWHERE, *OTHERS])
def test_what_is_launched_compiles(name: str, arch: int) -> None:
    """Down to machine code, with fp64 scalars as Inductor hands them over."""
    with tritonstore.installed(url="memory:", target=f"cuda:{arch}:32"):
        kernel, arguments = launched(name, torch.float32 if arch == 75 else torch.bfloat16)
    options = {"num_warps": 4}
    if hasattr(kernel, "configs"):  # what the launch asks for beyond arguments
        options = {"num_warps": kernel.configs[0].num_warps, "num_stages": kernel.configs[0].num_stages}
        kernel = kernel.fn
    constants = {param.name: arguments[param.name] for param in kernel.params if param.is_constexpr}
    signature = {}
    for param in kernel.params:
        value = arguments[param.name]
        kind = TYPES[value.dtype] if isinstance(value, torch.Tensor) else "fp64" if isinstance(value, float) else "i32"
        signature[param.name] = "constexpr" if param.is_constexpr else kind
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    assert f".target sm_{arch}" in compiled.asm["ptx"]
    assert compiled.asm["cubin"]
    assert compiled.metadata.shared <= SHARED[arch]
