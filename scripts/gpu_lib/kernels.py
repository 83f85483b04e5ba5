"""Kernels of the checks on a GPU."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scale_forward(x, y, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)


@triton.jit
def scale_backward(grad, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(grad + offsets, mask=mask) * factor, mask=mask)


@triton.jit
def copy_by_descriptor(source, target, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    target.store([row, column], source.load([row, column]))
