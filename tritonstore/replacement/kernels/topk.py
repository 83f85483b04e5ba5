"""The k largest or smallest elements of each row, in order, with their indices; of equal ones the first comes first."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton


@triton.jit
def topk_kernel(
    values_ptr,
    indices_ptr,
    x_ptr,
    x_row_stride,
    x_col_stride,
    n_cols,
    k,
    LARGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One row a program. Each element becomes a 64-bit number: its rank among floats above, its place below.

    So no two are equal, and what pads the row (the smallest number of all) is never chosen before an element, not even
    before -inf. As in ATen, NaN is larger than everything.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_cols
    x = tl.load(x_ptr + row * x_row_stride + columns * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    bits = x.to(tl.int32, bitcast=True)
    rank = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    rank = tl.where(x == 0.0, 0, rank)  # -0.0 equals 0.0
    rank = tl.where(x != x, 0x7FFFFFFF, rank)
    if not LARGEST:
        rank = ~rank
    number = (rank.to(tl.int64) << 32) + (BLOCK - columns)
    number = tl.where(mask, number, -0x8000000000000000)
    best = tl.topk(number, BLOCK_K)
    index = BLOCK - (best & 0xFFFFFFFF)
    places = tl.arange(0, BLOCK_K)
    chosen = places < k
    value = tl.load(x_ptr + row * x_row_stride + index * x_col_stride, mask=chosen, other=0.0)
    tl.store(values_ptr + row * k + places, value, mask=chosen)
    tl.store(indices_ptr + row * k + places, index, mask=chosen)


def _topk(x: Tensor, k: int, largest: bool, block: int) -> tuple[Tensor, Tensor]:
    rows = x.reshape(-1, x.shape[-1])
    values = torch.empty((*x.shape[:-1], k), dtype=x.dtype, device=x.device)
    indices = torch.empty((*x.shape[:-1], k), dtype=torch.int64, device=x.device)
    wrap_triton(topk_kernel)[(rows.shape[0],)](
        values,
        indices,
        rows,
        rows.stride(0),
        rows.stride(1),
        rows.shape[1],
        k,
        LARGEST=largest,
        BLOCK=block,
        BLOCK_K=max(triton.next_power_of_2(k), 2),  # of one element, Triton's topk fails to compile
        num_warps=min(max(block // 256, 1), 8),
    )
    return values, indices


topk = triton_op("tritonstore::topk", _topk, mutates_args=())


@topk.register_kernel("cpu")
def _(x: Tensor, k: int, largest: bool, block: int) -> tuple[Tensor, Tensor]:
    values, indices = torch.sort(x, dim=-1, descending=largest, stable=True)
    return values[..., :k].contiguous(), indices[..., :k].contiguous()
