"""Root mean square norm over the last dimension, in fp32 whatever the type of the input."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton


@triton.jit
def rms_norm_kernel(
    y_ptr,
    x_ptr,
    weight_ptr,
    x_row_stride,
    x_col_stride,
    weight_stride,
    n_cols,
    eps,
    HAS_WEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row a program; a row longer than BLOCK is read twice."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    x_ptr += row * x_row_stride
    y_ptr += row * n_cols
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = start + columns < n_cols
        x = tl.load(x_ptr + (start + columns) * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        squares += x * x
    # Inductor hands a Python float over as fp64.
    scale = 1.0 / tl.sqrt((tl.sum(squares, axis=0) / n_cols + eps).to(tl.float32))
    for start in range(0, n_cols, BLOCK):
        mask = start + columns < n_cols
        y = tl.load(x_ptr + (start + columns) * x_col_stride, mask=mask, other=0.0).to(tl.float32) * scale
        if HAS_WEIGHT:
            y *= tl.load(weight_ptr + (start + columns) * weight_stride, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + start + columns, y.to(y_ptr.dtype.element_ty), mask=mask)


def _rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    columns = x.shape[-1]
    rows = x.reshape(-1, columns)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(columns), 4096)
    wrap_triton(rms_norm_kernel)[(rows.shape[0],)](
        y,
        rows,
        rows if weight is None else weight,
        rows.stride(0),
        rows.stride(1),
        0 if weight is None else weight.stride(0),
        columns,
        eps,
        HAS_WEIGHT=weight is not None,
        BLOCK=block,
        num_warps=min(max(block // 256, 1), 8),
    )
    return y


rms_norm = triton_op("tritonstore::rms_norm", _rms_norm, mutates_args=())


@rms_norm.register_kernel("cpu")
def _(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    return torch.rms_norm(x, (x.shape[-1],), weight, eps).contiguous()
