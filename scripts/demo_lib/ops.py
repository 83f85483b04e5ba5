"""Liger-Kernel's forward kernels and our own, as operators that `torch.export` can see through.

Each operator launches one kernel through `torch.library.wrap_triton`, with the block sizes that Liger-Kernel's own
launchers choose. `torch.export` keeps the operators whole; `run_decompositions` opens them, and PyTorch then asks which
tensors each launch writes: the question that tritonstore answers from its store.
"""

from __future__ import annotations

import torch
import triton
from liger_kernel.ops.fused_add_rms_norm import _fused_add_rms_norm_forward_kernel
from liger_kernel.ops.rms_norm import _rms_norm_forward_kernel
from liger_kernel.ops.rope import _triton_rope
from liger_kernel.ops.softmax import _softmax_single_block_forward_kernel
from liger_kernel.ops.swiglu import _swiglu_forward_kernel
from liger_kernel.ops.utils import calculate_settings
from torch import Tensor
from torch.library import triton_op, wrap_triton

from .kernels import attention_kernel, top_k_kernel

LLAMA = 0  # Liger-Kernel's casting mode: only the reciprocal root is computed in fp32


@triton_op("tritonstore_demo::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    y = torch.empty_like(rows)
    rstd = torch.empty(rows.shape[0], dtype=torch.float32, device=x.device)
    block, warps = calculate_settings(rows.shape[1])
    wrap_triton(_rms_norm_forward_kernel)[(rows.shape[0],)](
        y,
        y.stride(0),
        rows,
        rows.stride(0),
        weight,
        weight.stride(0),
        rstd,
        rstd.stride(0),
        rows.shape[1],
        eps,
        0.0,
        casting_mode=LLAMA,
        elementwise_affine=True,
        BLOCK_SIZE=block,
        num_warps=warps,
    )
    return y.view(x.shape)


@triton_op("tritonstore_demo::add_rms_norm", mutates_args=())
def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(norm(x + residual), x + residual)"""
    rows, more = x.reshape(-1, x.shape[-1]), residual.reshape(-1, x.shape[-1])
    y, total = torch.empty_like(rows), torch.empty_like(rows)
    rstd = torch.empty(rows.shape[0], dtype=torch.float32, device=x.device)
    block, warps = calculate_settings(rows.shape[1])
    wrap_triton(_fused_add_rms_norm_forward_kernel)[(rows.shape[0],)](
        y,
        y.stride(0),
        total,
        total.stride(0),
        rows,
        rows.stride(0),
        more,
        more.stride(0),
        weight,
        weight.stride(0),
        rstd,
        rstd.stride(0),
        rows.shape[1],
        eps,
        0.0,
        casting_mode=LLAMA,
        BLOCK_SIZE=block,
        num_warps=warps,
    )
    return y.view(x.shape), total.view(x.shape)


@triton_op("tritonstore_demo::rope", mutates_args=())
def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """q and k are (batch, length, heads, head_dim), cos and sin (1, length, head_dim); the kernel works in place."""
    q, k = q.clone(), k.clone()
    batch, length, heads, dim = q.shape
    pad_heads, pad_kv = triton.next_power_of_2(heads), triton.next_power_of_2(k.shape[2])
    pad_dim = triton.next_power_of_2(dim)
    # Liger-Kernel 0.8.5 can also rotate a part of each head.
    part = {"pad_rd": pad_dim, "rd": dim} if "rd" in _triton_rope.arg_names else {}
    wrap_triton(_triton_rope)[(batch * length,)](
        q,
        q.stride(1),
        k,
        k.stride(1),
        cos,
        cos.stride(1),
        sin,
        sin.stride(1),
        length,
        bs=batch,
        cos_bs=1,
        n_qh=heads,
        n_kh=k.shape[2],
        hd=dim,
        pad_n_qh=pad_heads,
        pad_n_kh=pad_kv,
        pad_hd=pad_dim,
        BLOCK_SIZE=max(pad_heads, pad_kv),
        BACKWARD_PASS=False,
        **part,
    )
    return q, k


@triton_op("tritonstore_demo::swiglu", mutates_args=())
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    a, b = gate.reshape(-1, gate.shape[-1]), up.reshape(-1, gate.shape[-1])
    c = torch.empty_like(a)
    block, warps = calculate_settings(a.shape[1])
    wrap_triton(_swiglu_forward_kernel)[(a.shape[0],)](
        a, b, c, c.stride(0), 1.0, n_cols=a.shape[1], BLOCK_SIZE=block, num_warps=warps
    )
    return c.view(gate.shape)


@triton_op("tritonstore_demo::softmax", mutates_args=())
def softmax(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    block, warps = calculate_settings(x.shape[1])
    wrap_triton(_softmax_single_block_forward_kernel)[(x.shape[0],)](
        y, y.stride(0), x, x.stride(0), x.shape[1], BLOCK_SIZE=block, num_warps=warps
    )
    return y


@triton_op("tritonstore_demo::attention", mutates_args=())
def attention(q: Tensor, k: Tensor, v: Tensor, positions: Tensor, block: int) -> Tensor:
    """q is (batch, length, heads, head_dim), k and v are the caches (batch, kv heads, keys, head_dim)."""
    out = torch.empty_like(q)
    batch, length, heads, dim = q.shape
    wrap_triton(attention_kernel)[(triton.cdiv(length, block), batch * heads)](
        out,
        q,
        k,
        v,
        positions,
        q.stride(0),
        q.stride(1),
        q.stride(2),
        k.stride(0),
        k.stride(1),
        k.stride(2),
        length,
        k.shape[2],
        dim**-0.5,
        N_HEADS=heads,
        GROUP=heads // k.shape[1],
        HEAD_DIM=dim,
        BLOCK_M=block,
        BLOCK_N=32,
    )
    return out


@triton_op("tritonstore_demo::top_k", mutates_args=())
def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values = torch.empty((x.shape[0], k), dtype=torch.float32, device=x.device)
    indices = torch.empty((x.shape[0], k), dtype=torch.int64, device=x.device)
    wrap_triton(top_k_kernel)[(x.shape[0],)](
        values, indices, x, x.stride(0), x.shape[1], K=k, BLOCK_SIZE=triton.next_power_of_2(x.shape[1])
    )
    return values, indices
