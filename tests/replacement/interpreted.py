"""The shipped kernels in Triton's interpreter against PyTorch: run it with TRITON_INTERPRET=1.

The interpreter multiplies bfloat16 matrices as integers (Triton 3.7.1), so attention runs in float16 in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from tritonstore.replacement.kernels import conv1d, rms_norm, sdpa, topk

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
Pair = tuple[str, Any, Any]


def rms_norms(dtype: torch.dtype) -> Iterator[Pair]:
    for x in (*(torch.randn(shape) for shape in ((3, 5, 17), (1, 64), (4, 1))), torch.randn(3, 5).t()):
        x = x.to(dtype)
        for weight in (None, torch.randn(x.shape[-1]).to(dtype)):
            found = rms_norm._rms_norm(x, weight, 1e-6)
            yield f"rms_norm {tuple(x.shape)}", found, functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)
    x = torch.randn(1, 4100).to(dtype)
    yield "rms_norm, more than a block", rms_norm._rms_norm(x, None, 1e-6), functional.rms_norm(x, (4100,), None, 1e-6)


def topks(dtype: torch.dtype) -> Iterator[Pair]:
    for columns, k in ((1, 1), (2, 1), (17, 17), (33, 8)) if dtype is torch.float32 else ((1, 1), (17, 5)):
        for largest in (True, False):
            x = torch.randint(-3, 4, (3, columns)).to(dtype)
            x[0, : columns // 2] = -torch.inf
            x[1, columns // 3] = torch.nan
            x[1, columns // 2] = torch.copysign(torch.tensor(torch.nan), torch.tensor(-1.0))  # as large as the other
            x[2, 0], x[2, columns // 2] = torch.inf, -0.0
            values, indices = topk._topk(x, k, largest, max(2, 1 << (columns - 1).bit_length()))
            expected = torch.topk(x, k, largest=largest).values
            what = f"topk {columns} {k} {largest}"
            yield f"{what} values", values, expected
            yield f"{what} where they stand", x.gather(1, indices), expected
            yield f"{what} other places", [len(set(row)) for row in indices.tolist()], [k] * 3
            stable = torch.sort(x, dim=1, descending=largest, stable=True).indices[:, :k]
            yield f"{what} the first of equal ones", indices, stable


def convolutions(dtype: torch.dtype) -> Iterator[Pair]:
    for width in (2, 3, 4):
        for padding in (0, width - 1):
            for shape in ((2, 3, 9), (1, 1, width), (1, 2, 300)):
                x, weight = torch.randn(shape).to(dtype), torch.randn(shape[1], 1, width).to(dtype)
                bias = torch.randn(shape[1]).to(dtype) if width != 3 else None
                found = conv1d._conv1d(x, weight, bias, padding, [0, 1, 2])
                what = f"conv1d {shape} {width} {padding}"
                yield what, found, functional.conv1d(x, weight, bias, padding=padding, groups=shape[1])
    x, weight = torch.randn(2, 9, 3).to(dtype).transpose(1, 2), torch.randn(3, 1, 4).to(dtype)
    found = conv1d._conv1d(x, weight, None, 3, [0, 2, 1])
    yield "conv1d, channels last", found, functional.conv1d(x, weight, None, padding=3, groups=3)


def attentions(dtype: torch.dtype) -> Iterator[Pair]:
    cases = (
        (64, 4, 2, 5, 7, False, ""),
        (64, 2, 1, 33, 33, True, ""),
        (128, 2, 2, 40, 19, True, ""),
        (64, 2, 2, 1, 50, False, "boolean"),
        (64, 2, 2, 19, 37, False, "boolean"),
        (128, 2, 1, 19, 37, False, "added"),
    )
    for dim, heads, kv_heads, queries, keys, causal, kind in cases if dtype is torch.float32 else cases[::3]:
        q = torch.randn(2, queries, heads, dim).to(dtype).transpose(1, 2)
        k, v = (torch.randn(2, kv_heads, keys, dim).to(dtype) for _ in range(2))
        mask = None
        if kind:
            mask = torch.rand(2, 1, queries, keys) > 0.5
            mask[:, :, 0] = False  # a query that sees nothing
            mask = torch.where(mask, torch.randn(queries, keys), -torch.inf).to(dtype) if kind == "added" else mask
        found = sdpa._sdpa(q, k, v, mask, causal, dim**-0.5, 16 if queries <= 16 else 32, [0, 2, 1, 3])
        what = f"sdpa {dim} {heads}/{kv_heads} {queries} {keys} {causal} {kind}"
        options = {"attn_mask": mask, "is_causal": causal, "enable_gqa": True}
        yield what, found, functional.scaled_dot_product_attention(q, k, v, **options)


def main() -> None:
    torch.manual_seed(0)
    for module in (conv1d, rms_norm, sdpa, topk):
        module.wrap_triton = lambda kernel: kernel  # type: ignore[attr-defined]  # it takes no interpreted kernel
    number = 0
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.float16 if dtype is torch.bfloat16 else dtype
        pairs = [*rms_norms(dtype), *topks(dtype), *convolutions(dtype), *attentions(matrix)]
        for what, found, expected in pairs:
            exact = what.startswith("topk")
            tolerance = 0.0 if exact else TOLERANCE[matrix if what.startswith("sdpa") else dtype]
            try:
                torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=exact)
            except AssertionError as error:
                raise SystemExit(f"{what} {dtype}: {error}") from None
            number += 1
    print(f"{number} results agree")


if __name__ == "__main__":
    main()
