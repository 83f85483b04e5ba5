"""Depthwise convolution over the last dimension: stride 1, dilation 1, one filter a channel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from tritonstore.replacement.kernels import layout


@triton.jit
def conv1d_kernel(
    y_ptr,
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_batch_stride,
    y_channel_stride,
    y_stride,
    x_batch_stride,
    x_channel_stride,
    x_stride,
    weight_channel_stride,
    weight_stride,
    bias_stride,
    n_channels,
    length,
    out_length,
    PADDING: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK outputs of one channel a program."""
    blocks = tl.cdiv(out_length, BLOCK)
    row = tl.program_id(0) // blocks
    batch = (row // n_channels).to(tl.int64)
    channel = (row % n_channels).to(tl.int64)
    places = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x_ptr += batch * x_batch_stride + channel * x_channel_stride
    total = tl.zeros([BLOCK], tl.float32)
    for tap in tl.static_range(WIDTH):
        source = places + (tap - PADDING)
        x = tl.load(x_ptr + source * x_stride, mask=(source >= 0) & (source < length), other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + channel * weight_channel_stride + tap * weight_stride).to(tl.float32)
        total += x * weight
    if HAS_BIAS:
        total += tl.load(bias_ptr + channel * bias_stride).to(tl.float32)
    y_ptr += batch * y_batch_stride + channel * y_channel_stride
    tl.store(y_ptr + places * y_stride, total.to(y_ptr.dtype.element_ty), mask=places < out_length)


def _conv1d(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, order: list[int]) -> Tensor:
    width = weight.shape[2]
    batch, channels, length = x.shape
    out_length = length + 2 * padding - (width - 1)
    y = layout.empty(x, [batch, channels, out_length], order)
    block = 256
    wrap_triton(conv1d_kernel)[(batch * channels * triton.cdiv(out_length, block),)](
        y,
        x,
        weight,
        weight if bias is None else bias,
        y.stride(0),
        y.stride(1),
        y.stride(2),
        x.stride(0),
        x.stride(1),
        x.stride(2),
        weight.stride(0),
        weight.stride(2),
        0 if bias is None else bias.stride(0),
        channels,
        length,
        out_length,
        PADDING=padding,
        WIDTH=width,
        HAS_BIAS=bias is not None,
        BLOCK=block,
    )
    return y


conv1d = triton_op("tritonstore::conv1d", _conv1d, mutates_args=())


@conv1d.register_kernel("cpu")
def _(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, order: list[int]) -> Tensor:
    return layout.laid(torch.conv1d(x, weight, bias, padding=padding, groups=x.shape[1]), order)
