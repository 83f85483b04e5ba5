"""Scaled dot product attention: grouped query heads, causal, boolean or additive mask, head dimensions 64 and 128."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from tritonstore.replacement.kernels import layout


@triton.jit
def _scores(q, k, mask_ptrs, visible, scale, rows, columns, CAUSAL: tl.constexpr, MASK: tl.constexpr):
    """Scores of a block in fp32; -inf where a query does not see a key. MASK: 0 none, 1 boolean, 2 added."""
    # Inductor hands a Python float over as fp64, which would make the loop's fp32 values fp64.
    scores = (tl.dot(q, tl.trans(k), input_precision="ieee") * scale).to(tl.float32)
    if CAUSAL:
        visible = visible & (columns[None, :] <= rows[:, None])
    if MASK == 1:
        visible = visible & (tl.load(mask_ptrs, mask=visible, other=0) != 0)
    if MASK == 2:
        scores += tl.load(mask_ptrs, mask=visible, other=0.0).to(tl.float32)
    return tl.where(visible, scores, -float("inf"))


@triton.jit
def sdpa_kernel(
    out_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    mask_ptr,
    out_stride_b,
    out_stride_h,
    out_stride_m,
    out_stride_d,
    q_stride_b,
    q_stride_h,
    q_stride_m,
    q_stride_d,
    k_stride_b,
    k_stride_h,
    k_stride_n,
    k_stride_d,
    v_stride_b,
    v_stride_h,
    v_stride_n,
    v_stride_d,
    mask_stride_b,
    mask_stride_h,
    mask_stride_m,
    mask_stride_n,
    n_heads,
    group,
    n_queries,
    n_keys,
    scale,
    CAUSAL: tl.constexpr,
    MASK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """BLOCK_M queries of one head a program, by the online softmax. A query that sees no key gives zeros."""
    blocks = tl.cdiv(n_queries, BLOCK_M)
    block = tl.program_id(0) % blocks
    head = (tl.program_id(0) // blocks % n_heads).to(tl.int64)
    batch = (tl.program_id(0) // blocks // n_heads).to(tl.int64)
    rows = block.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_DIM)
    seen_rows = rows < n_queries
    q_ptr += batch * q_stride_b + head * q_stride_h
    q = tl.load(q_ptr + rows[:, None] * q_stride_m + dims[None, :] * q_stride_d, mask=seen_rows[:, None], other=0.0)
    k_ptr += batch * k_stride_b + head // group * k_stride_h
    v_ptr += batch * v_stride_b + head // group * v_stride_h
    mask_ptr += batch * mask_stride_b + head * mask_stride_h

    top = tl.full([BLOCK_M], -float("inf"), tl.float32)
    weight_sum = tl.zeros([BLOCK_M], tl.float32)
    total = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    end = n_keys
    if CAUSAL:
        end = tl.minimum(n_keys, (block + 1) * BLOCK_M)
    for start in range(0, end, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N).to(tl.int64)
        seen = columns < n_keys
        k = tl.load(k_ptr + columns[:, None] * k_stride_n + dims[None, :] * k_stride_d, mask=seen[:, None], other=0.0)
        v = tl.load(v_ptr + columns[:, None] * v_stride_n + dims[None, :] * v_stride_d, mask=seen[:, None], other=0.0)
        mask_ptrs = mask_ptr + rows[:, None] * mask_stride_m + columns[None, :] * mask_stride_n
        visible = seen_rows[:, None] & seen[None, :]
        scores = _scores(q, k, mask_ptrs, visible, scale, rows, columns, CAUSAL, MASK)
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        # Of a query that has seen no key yet, the maximum is -inf, and -inf - -inf is NaN.
        base = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp(scores - base[:, None])
        factor = tl.exp(top - base)
        weight_sum = weight_sum * factor + tl.sum(weights, axis=1)
        total = total * factor[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = new_top
    total = total / tl.where(weight_sum == 0.0, 1.0, weight_sum)[:, None]
    out_ptr += batch * out_stride_b + head * out_stride_h
    tl.store(
        out_ptr + rows[:, None] * out_stride_m + dims[None, :] * out_stride_d,
        total.to(out_ptr.dtype.element_ty),
        mask=seen_rows[:, None],
    )


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, block: int, order: list[int]
) -> Tensor:
    batch, heads, queries, dim = q.shape
    keys = k.shape[2]
    out = layout.empty(q, [batch, heads, queries, dim], order)
    kind, strides = 0, (0, 0, 0, 0)
    if mask is not None:
        kind = 1 if mask.dtype == torch.bool else 2
        strides = mask.expand(batch, heads, queries, keys).stride()
    wrap_triton(sdpa_kernel)[(triton.cdiv(queries, block) * batch * heads,)](
        out,
        q,
        k,
        v,
        q if mask is None else mask,
        *out.stride(),
        *q.stride(),
        *k.stride(),
        *v.stride(),
        *strides,
        heads,
        heads // k.shape[1],
        queries,
        keys,
        scale,
        CAUSAL=causal,
        MASK=kind,
        HEAD_DIM=dim,
        BLOCK_M=block,
        BLOCK_N=32,
        num_warps=4,
        num_stages=2,
    )
    return out


sdpa = triton_op("tritonstore::sdpa", _sdpa, mutates_args=())


@sdpa.register_kernel("cpu")
def _(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, block: int, order: list[int]
) -> Tensor:
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=True
    )
    return layout.laid(out, order)
