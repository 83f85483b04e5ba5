"""Kernels of the corpus whose interest is how they reach memory: pointers, block pointers, loops, reductions, asm."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.support.case import Case, tensors


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def scale_in_place(x, factor, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) * factor)


@triton.jit
def gather_kernel(values, index, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(values + tl.load(index + offsets)))


@triton.jit
def block_pointer_matmul(a, b, c, m, n, k, BLOCK: tl.constexpr):
    left = tl.make_block_ptr(a, (m, k), (k, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    right = tl.make_block_ptr(b, (k, n), (n, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(0, k, BLOCK):
        total += tl.dot(tl.load(left, boundary_check=(0, 1)), tl.load(right, boundary_check=(0, 1)))
        left = tl.advance(left, (0, BLOCK))
        right = tl.advance(right, (BLOCK, 0))
    target = tl.make_block_ptr(c, (m, n), (n, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    tl.store(target, total, boundary_check=(0, 1))


@triton.jit
def block_pointer_broadcast(x, out, n, BLOCK: tl.constexpr):
    target = tl.make_block_ptr(out, (n, n), (n, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    row = tl.load(x + tl.arange(0, BLOCK))
    tl.store(target, tl.broadcast_to(row[None, :], (BLOCK, BLOCK)))


@triton.jit
def three_dimensions(x, out, n, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(x, (n, n, n), (n * n, n, 1), (0, 0, 0), (2, BLOCK, BLOCK), (2, 1, 0))
    target = tl.make_block_ptr(out, (n, n, n), (n * n, n, 1), (0, 0, 0), (2, BLOCK, BLOCK), (2, 1, 0))
    tl.store(target, tl.permute(tl.load(source), (0, 2, 1)))


@triton.jit
def combine_softmax(max_a, sum_a, max_b, sum_b):
    top = tl.maximum(max_a, max_b)
    return top, sum_a * tl.exp(max_a - top) + sum_b * tl.exp(max_b - top)


@triton.jit
def online_softmax(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets)
    top, total = tl.reduce((values, tl.full((BLOCK,), 1.0, tl.float32)), 0, combine_softmax)
    tl.store(out + offsets, tl.exp(values - top) / total)


@triton.jit
def combine_linear(scale_a, shift_a, scale_b, shift_b):
    return scale_a * scale_b, scale_b * shift_a + shift_b


@triton.jit
def linear_scan(scale, shift, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    pair = (tl.load(scale + offsets), tl.load(shift + offsets))
    _, result = tl.associative_scan(pair, 0, combine_linear)
    tl.store(out + offsets, result + tl.cumsum(result, 0))


@triton.jit
def bucketize(values, edges, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    wanted = tl.load(values + offsets)
    low = tl.zeros((BLOCK,), dtype=tl.int32)
    high = tl.full((BLOCK,), 0, tl.int32) + n
    width = n + 1
    while width > 1:
        middle = (low + high) // 2
        below = tl.load(edges + middle, mask=middle < n, other=0.0) < wanted
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
        width = (width + 1) // 2
    tl.store(out + offsets, low)


@triton.jit
def carried_pointers(x, out, n, step):
    for _ in range(n):
        tl.store(out, tl.load(x))
        x += step
        out += step


@triton.jit
def swapped_pointers(x, y, n):
    for _ in range(n):
        tl.store(x, 1.0)
        x, y = y, x


@triton.jit
def atomics(counter, lock, total, x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.atomic_add(total + offsets, tl.load(x + offsets))
    tl.atomic_max(counter, 1)
    tl.atomic_xchg(lock, 0)


@triton.jit
def pure_asm(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + offsets)], tl.float32, True, 1)
    tl.store(out + offsets, value)


@triton.jit
def impure_asm(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + offsets)], tl.float32, False, 1)
    tl.store(out + offsets, value)


@triton.jit(noinline=True)
def copy_one(source, destination):
    tl.store(destination, tl.load(source))


@triton.jit
def swapped_helper(x, y, out):
    copy_one(x, out)
    copy_one(out, y)


@triton.jit
def nothing(x, n):
    pass


INTEGERS = torch.int32
MEMORY_CASES = [
    Case("plain pointers", add_kernel, tensors("x y out", n=64, BLOCK=64)),
    Case("in place", scale_in_place, tensors("x", factor=2.0, BLOCK=64)),
    Case("indirect load", gather_kernel, lambda: tensors("values out", BLOCK=64)() | tensors("index", INTEGERS)()),
    Case("block pointers with advance", block_pointer_matmul, tensors("a b c", m=64, n=64, k=64, BLOCK=16)),
    Case("broadcast store through a block pointer", block_pointer_broadcast, tensors("x out", n=64, BLOCK=16)),
    Case("3-D tiles", three_dimensions, tensors("x out", n=64, BLOCK=16)),
    Case("reduction with a custom combine", online_softmax, tensors("x out", BLOCK=64)),
    Case("scans", linear_scan, tensors("scale shift out", BLOCK=64)),
    Case("while loop", bucketize, lambda: tensors("values edges", n=64, BLOCK=64)() | tensors("out", INTEGERS)()),
    Case("loop that carries pointers", carried_pointers, tensors("x out", n=4, step=16)),
    Case("loop that swaps pointers", swapped_pointers, tensors("x y", n=4)),
    Case("atomics", atomics, lambda: tensors("counter lock", INTEGERS)() | tensors("total x", BLOCK=64)()),
    Case("pure inline asm", pure_asm, tensors("x out", BLOCK=64)),
    Case("impure inline asm", impure_asm, tensors("x out", BLOCK=64), precise=False),
    Case("noinline helper with swapped arguments", swapped_helper, tensors("x y out")),
    Case("no access at all", nothing, tensors("x", n=1)),
]
