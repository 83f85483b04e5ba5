"""Kernels of the corpus whose interest is the launch: wrappers, argument types, TMA, and where the source came from."""

from __future__ import annotations

from typing import Any

import sympy
import torch
import triton
import triton.language as tl
from torch._higher_order_ops.triton_kernel_wrap import (
    create_tma_experimental_metadata,
    create_tma_stable_metadata,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.support.case import Case, tensors
from tests.support.sources import load


@triton.jit
def fill(out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, 1.0, mask=offsets < n)


@triton.jit
def either(x, y, FIRST: tl.constexpr):
    if FIRST:
        tl.store(x, 1.0)
    else:
        tl.store(y, 1.0)


def config(**kwargs: Any) -> triton.Config:
    return triton.Config(kwargs)


one_config = triton.autotune([config(BLOCK=64)], key=[])(fill)
no_config = triton.autotune([], key=[])(fill)
first_then_second = triton.autotune([config(FIRST=True), config(FIRST=False)], key=[])(either)
second_then_first = triton.autotune([config(FIRST=False), config(FIRST=True)], key=[])(either)
heuristic = triton.heuristics({"BLOCK": lambda arguments: 64})(fill)


@triton.jit
def first_of_pair(pair, out):
    tl.store(out, tl.load(pair[0]))


@triton.jit
def typed(x, out, scale, flag, bias):
    value = tl.load(x).to(tl.float32) * scale
    if bias is not None:
        value += tl.load(bias)
    if flag:
        tl.store(out, value)


@triton.jit
def wide(x, y, n):
    if n.dtype == tl.int64:
        tl.store(x, 1.0)
    else:
        tl.store(y, 1.0)


@triton.jit
def device_descriptor(x, out, m, n, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, [m, n], [n, 1], [BLOCK, BLOCK])
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def host_descriptor(source, target):
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def copy_tile(source, target, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(source + offsets))


_KERNEL = """
    @triton.jit
    def generated(x, y):
        tl.store({written}, tl.load({read}))
"""
_COPY = _KERNEL.format(written="y", read="x")
_BACK = _KERNEL.format(written="x", read="y")
from_exec = load(_COPY)["generated"]
from_notebook = load(_COPY, module="__main__", path="/tmp/ipykernel_7/1234567.py")["generated"]
one_module = load(_COPY, module="twice")["generated"]
other_module = load(_BACK, module="twice")["generated"]


def symbolic() -> dict[str, Any]:
    """Sizes as torch.export hands them over: a SymInt, and a bare sympy expression from Inductor."""
    return tensors("x y out", n=ShapeEnv().create_unbacked_symint(), BLOCK=sympy.Symbol("s0", integer=True))()


def typed_arguments(dtype: torch.dtype, **others: Any) -> Any:
    return lambda: tensors("x", dtype)() | tensors("out", scale=2.0, flag=True, bias=None)() | others


@triton.jit
def symbolic_add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) + tl.load(y + offsets))


_STABLE = {name: create_tma_stable_metadata([16, 16]) for name in ("source", "target")}
_EXPERIMENTAL = {name: create_tma_experimental_metadata([64], [16], 4) for name in ("source", "target")}

LAUNCH_CASES = [
    Case("autotuner, one config", one_config, tensors("out", n=64)),
    Case("autotuner, no config", no_config, tensors("out", n=64, BLOCK=64)),
    Case("autotuner, two configs", first_then_second, tensors("x y")),
    Case("autotuner, swapped configs", second_then_first, tensors("x y")),
    Case("heuristics", heuristic, tensors("out", n=64), expect="kernel-type", precise=False),
    Case(
        "autotuner over heuristics",
        triton.autotune([config()], key=[])(heuristic),
        tensors("out", n=64),
        expect="kernel-type",
        precise=False,
    ),
    Case(
        "tuple argument",
        first_of_pair,
        lambda: tensors("out", pair=(torch.zeros(4), torch.zeros(4)))(),
        expect="argument-type",
    ),
    Case("bool tensor, None, bool and float", typed, typed_arguments(torch.bool)),
    Case("fp8 tensor", typed, typed_arguments(torch.float8_e4m3fn)),
    Case("fp8 tensor, e5m2", typed, typed_arguments(torch.float8_e5m2)),
    Case("optional tensor given", typed, lambda: typed_arguments(torch.float16)() | tensors("bias")()),
    Case("SymInt and sympy arguments", symbolic_add, symbolic),
    Case("32-bit integer", wide, tensors("x y", n=2**31 - 1)),
    Case("64-bit integer", wide, tensors("x y", n=2**31)),
    Case("unsigned 64-bit integer", wide, tensors("x y", n=2**64 - 1)),
    Case("integer beyond 64 bits", wide, tensors("x y", n=2**64), expect="integer-range", precise=False),
    Case("device TMA descriptors", device_descriptor, tensors("x out", m=64, n=64, BLOCK=16)),
    Case("host TMA descriptors", host_descriptor, tensors("source target"), _STABLE, expect="tma"),
    Case("experimental TMA metadata", copy_tile, tensors("source target", BLOCK=16), _EXPERIMENTAL),
    Case("kernel from exec", from_exec, tensors("x y")),
    Case("kernel from a notebook", from_notebook, tensors("x y")),
    Case("module name shared, first", one_module, tensors("x y")),
    Case("module name shared, second", other_module, tensors("x y")),
    Case("missing argument", fill, tensors("out", n=64), expect="argument-names", precise=False),
]
