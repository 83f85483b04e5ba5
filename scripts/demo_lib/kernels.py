"""The demo's own Triton kernels: attention over a key/value cache, and top-k.

The other kernels of the demo are Liger-Kernel's, used as published (see ops.py).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _online_softmax(scores, running_max, running_sum):
    """One step of the online softmax: new maximum, weights, factor for what was summed so far, new sum."""
    new_max = tl.maximum(running_max, tl.max(scores, axis=1))
    weights = tl.exp(scores - new_max[:, None])
    factor = tl.exp(running_max - new_max)
    return new_max, weights, factor, running_sum * factor + tl.sum(weights, axis=1)


@triton.jit
def attention_kernel(
    out_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    positions_ptr,
    q_batch_stride,
    q_row_stride,
    q_head_stride,
    kv_batch_stride,
    kv_head_stride,
    kv_row_stride,
    n_queries,
    n_keys,
    scale,
    N_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Causal attention of a block of queries over the cache; GROUP query heads share one key/value head."""
    block = tl.program_id(0)
    batch = tl.program_id(1) // N_HEADS
    head = tl.program_id(1) % N_HEADS
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_DIM)
    q_offsets = batch * q_batch_stride + rows[:, None] * q_row_stride + head * q_head_stride + dims[None, :]
    row_mask = rows < n_queries
    q = tl.load(q_ptr + q_offsets, mask=row_mask[:, None], other=0.0)
    positions = tl.load(positions_ptr + rows, mask=row_mask, other=0)
    kv_base = batch * kv_batch_stride + (head // GROUP) * kv_head_stride

    running_max = tl.full([BLOCK_M], -1.0e30, tl.float32)
    running_sum = tl.zeros([BLOCK_M], tl.float32)
    total = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    for start in range(0, n_keys, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        column_mask = columns < n_keys
        kv_offsets = kv_base + columns[:, None] * kv_row_stride + dims[None, :]
        k = tl.load(k_ptr + kv_offsets, mask=column_mask[:, None], other=0.0)
        v = tl.load(v_ptr + kv_offsets, mask=column_mask[:, None], other=0.0)
        # Inductor hands a Python float over as fp64, which would make the loop's fp32 values fp64.
        scores = (tl.dot(q, tl.trans(k)) * scale).to(tl.float32)
        visible = (columns[None, :] <= positions[:, None]) & column_mask[None, :]
        scores = tl.where(visible, scores, -1.0e30)
        running_max, weights, factor, running_sum = _online_softmax(scores, running_max, running_sum)
        total = total * factor[:, None] + tl.dot(weights.to(v.dtype), v)
    total = total / running_sum[:, None]
    tl.store(out_ptr + q_offsets, total.to(q.dtype), mask=row_mask[:, None])


@triton.jit
def top_k_kernel(values_ptr, indices_ptr, x_ptr, x_row_stride, n_cols, K: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """The K largest values of each row and their indices, largest first."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=columns < n_cols, other=-float("inf")).to(tl.float32)
    for rank in range(K):
        value, index = tl.max(x, axis=0, return_indices=True)
        tl.store(values_ptr + row * K + rank, value)
        tl.store(indices_ptr + row * K + rank, index.to(tl.int64))
        x = tl.where(columns == index, -float("inf"), x)
