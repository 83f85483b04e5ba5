"""Operators of these tests: one that is right, and one for each way of being wrong."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op, triton_op, wrap_triton


@triton.jit
def relu_kernel(y_ptr, x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


@triton.jit
def into_x_kernel(y_ptr, x_ptr, n, BLOCK: tl.constexpr):
    """Writes what it should read."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(y_ptr + offsets, mask=mask), mask=mask)


def launch(kernel: Any, y: Tensor, x: Tensor) -> None:
    wrap_triton(kernel)[(triton.cdiv(x.numel(), 64),)](y, x, x.numel(), BLOCK=64)


@triton_op("tritonstore_tests::relu", mutates_args=())
def relu(x: Tensor) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    launch(relu_kernel, y, x)
    return y


@relu.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return torch.relu(x).contiguous()


@triton_op("tritonstore_tests::in_a_copy", mutates_args=())
def in_a_copy(x: Tensor) -> Tensor:
    y = x.clone()
    launch(into_x_kernel, x, y)
    return y


@triton_op("tritonstore_tests::writes_input", mutates_args=())
def writes_input(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    launch(relu_kernel, y, x)
    launch(into_x_kernel, y, x.view(-1))
    return y


@triton_op("tritonstore_tests::writes_nothing", mutates_args=())
def writes_nothing(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    launch(into_x_kernel, x, torch.empty_like(x))
    return y


@triton_op("tritonstore_tests::gives_input", mutates_args=())
def gives_input(x: Tensor) -> Tensor:
    launch(relu_kernel, torch.empty_like(x), x)
    return x.view(x.shape)


@triton_op("tritonstore_tests::in_place", mutates_args={"x"})
def in_place(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    launch(relu_kernel, y, x)
    return y


@triton_op("tritonstore_tests::other_shape", mutates_args=())
def other_shape(x: Tensor) -> Tensor:
    y = torch.empty(x.numel() + 1, device=x.device)
    launch(relu_kernel, y, x)
    return y


@triton_op("tritonstore_tests::other_dtype", mutates_args=())
def other_dtype(x: Tensor) -> Tensor:
    y = torch.empty_like(x, dtype=torch.float64)
    launch(relu_kernel, y, x)
    return y


@triton_op("tritonstore_tests::other_strides", mutates_args=())
def other_strides(x: Tensor) -> Tensor:
    y = torch.empty(x.shape[::-1], device=x.device)
    launch(relu_kernel, y, x)
    return y.t()


@triton_op("tritonstore_tests::two_outputs", mutates_args=())
def two_outputs(x: Tensor) -> tuple[Tensor, Tensor]:
    y, z = torch.empty_like(x), torch.empty_like(x)
    launch(relu_kernel, y, x)
    launch(relu_kernel, z, x)
    return y, z


@triton_op("tritonstore_tests::fixes_size", mutates_args=())
def fixes_size(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    if x.shape[0] < 100:
        launch(relu_kernel, y, x)
    return y


@custom_op("tritonstore_tests::opaque", mutates_args=())
def opaque(x: Tensor) -> Tensor:
    return torch.relu(x)


@opaque.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


WRONG = {
    writes_input: "kernel into_x_kernel writes x_ptr, which is an input of the op",
    writes_nothing: "no kernel writes output 0",
    gives_input: "output 0 is an input's memory",
    in_place: "says itself that it writes its arguments",
    other_shape: "output 0 has shape [13] instead of [3, 4]",
    other_dtype: "output 0 has dtype torch.float64 instead of torch.float32",
    other_strides: "output 0 has strides (1, 3) instead of (4, 1)",
    two_outputs: "2 outputs instead of 1",
    opaque: "launches no Triton kernel that can be seen",
}
