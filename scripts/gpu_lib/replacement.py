"""The replacement pass on a real GPU: `python -m gpu_lib.replacement [--json FILE]`.

Each kernel against eager PyTorch in float32 and bfloat16 over edge shapes; then a model of plain ATen ops before and
after the pass: eager, through Inductor, and as an AOTInductor package (loaded in a process of its own, because some
machines cannot load packages at all). Exit code: 0 if all differences are within their tolerances, 1 if not, 2 without
a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from tritonstore import replacement
from tritonstore.replacement.planners.common import power_of_2

from . import load
from .plain import Plain

# Absolute and relative. Both sides sum in fp32; in bfloat16 the last bit of a result near 1 is 0.0078.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
MODEL = {torch.float32: 1e-4, torch.bfloat16: 6e-2}  # several ops after each other, one of them a dense convolution
Case = tuple[str, Callable[[], tuple[Any, Any]]]
"""(what is computed, a function that gives the kernel's and eager PyTorch's results)"""


def _random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def rms_norm(dtype: torch.dtype) -> Iterator[Case]:
    op = torch.ops.tritonstore.rms_norm.default

    def both(x: torch.Tensor, weight: torch.Tensor | None = None) -> tuple[Any, Any]:
        return op(x, weight, 1e-6), functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)

    for shape in ((3, 5, 17), (1, 64), (4, 1), (2, 4096), (2, 4097), (1, 20000), (0, 8)):
        for weighted in (True, False):
            x = _random(*shape, dtype=dtype)
            weight = _random(shape[-1], dtype=dtype) if weighted else None
            yield f"{list(shape)}{' weight' if weighted else ''}", partial(both, x, weight)
    strange = {"transposed": _random(33, 7, dtype=dtype).t(), "stepped": _random(5, 66, dtype=dtype)[:, ::2]}
    strange["expanded"] = _random(1, 33, dtype=dtype).expand(4, 33)
    for name, x in strange.items():
        yield name, partial(both, x)


def topk(dtype: torch.dtype) -> Iterator[Case]:
    """Values must be equal to the bit; indices must point at them, each at another place.

    To the CPU's: where k is all of a row, or nearly, CUDA's own topk of float32 and float64 takes a NaN with the sign
    bit set for the smallest element. For small k it takes it for the largest, as the CPU always does.
    """
    op = torch.ops.tritonstore.topk.default

    def both(x: torch.Tensor, k: int, largest: bool) -> tuple[Any, Any]:
        values, indices = op(x, k, largest, max(2, power_of_2(x.shape[-1])))
        places = indices.sort(-1).values
        assert bool((places[..., 1:] != places[..., :-1]).all()), "an index appears twice"
        assert bool(((indices >= 0) & (indices < x.shape[-1])).all()), "an index is not in the row"
        expected = torch.topk(x.cpu(), k, largest=largest).values.to(x.device)
        exact = {"rtol": 0.0, "atol": 0.0, "equal_nan": True}
        torch.testing.assert_close(x.gather(-1, indices), expected, **exact)
        torch.testing.assert_close(values, expected, **exact)
        return values.nan_to_num(0, 0, 0), expected.nan_to_num(0, 0, 0)

    for columns, k in ((1, 1), (2, 1), (7, 7), (64, 8), (333, 32), (512, 512), (4095, 5), (4096, 4096)):
        for largest in (True, False):
            x = torch.randint(-9, 9, (3, columns), device="cuda").to(dtype)
            x[0, : columns // 2] = -torch.inf
            x[1, columns // 3] = torch.nan
            x[1, columns // 2] = torch.copysign(torch.tensor(torch.nan), torch.tensor(-1.0))  # as large as the other
            x[2, 0], x[2, columns // 2] = torch.inf, -0.0
            what = f"[3, {columns}] k={k} {'largest' if largest else 'smallest'}, NaN, inf, duplicates"
            yield what, partial(both, x, k, largest)
    yield "one row, transposed", lambda: both(_random(65, 1, dtype=dtype).t(), 9, True)
    yield "3-D", lambda: both(_random(2, 3, 40, dtype=dtype), 4, True)


def conv1d(dtype: torch.dtype) -> Iterator[Case]:
    op = torch.ops.tritonstore.conv1d.default

    def both(x: torch.Tensor, width: int, padding: int, bias: bool, laid: list[int]) -> tuple[Any, Any]:
        channels = x.shape[1]
        w = _random(channels, 1, width, dtype=dtype)
        b = _random(channels, dtype=dtype) if bias else None
        return op(x, w, b, padding, laid), functional.conv1d(x, w, b, padding=padding, groups=channels)

    for width in (2, 3, 4):
        for padding in (0, width - 1):
            for shape in ((2, 3, 257), (1, 1, width), (1, 96, 1000)):
                x = _random(*shape, dtype=dtype)
                what = f"{list(shape)} width {width} padding {padding}"
                yield what, partial(both, x, width, padding, width != 3, [0, 1, 2])
    x = _random(2, 65, 48, dtype=dtype).transpose(1, 2)
    yield "channels last", lambda: both(x, 4, 3, True, [0, 2, 1])
    yield "stepped", lambda: both(_random(2, 5, 90, dtype=dtype)[:, :, ::3], 4, 3, False, [0, 1, 2])


def sdpa(dtype: torch.dtype) -> Iterator[Case]:
    op = torch.ops.tritonstore.sdpa.default

    def both(shape: tuple[int, ...], mask: str, causal: bool) -> tuple[Any, Any]:
        batch, heads, kv_heads, queries, keys, dim = shape
        # As a projection gives them: (batch, length, heads, dim), seen the other way round.
        q = _random(batch, queries, heads, dim, dtype=dtype).transpose(1, 2)
        k, v = (_random(batch, keys, kv_heads, dim, dtype=dtype).transpose(1, 2) for _ in range(2))
        m = None
        if mask:
            seen = torch.rand(*((queries, keys) if mask == "flat" else (batch, 1, queries, keys)), device="cuda") > 0.4
            seen[..., 0, :] = False  # the first query sees nothing at all
            m = torch.where(seen, 0.5, -torch.inf).to(dtype) if mask == "added" else seen
        largest = 32 if dtype == torch.float32 else 64
        block = min(largest, max(16, power_of_2(queries)))
        mine = op(q, k, v, m, causal, dim**-0.5, block, [0, 2, 1, 3])
        with sdpa_kernel(SDPBackend.MATH):
            theirs = functional.scaled_dot_product_attention(q, k, v, m, is_causal=causal, enable_gqa=True)
        return mine, theirs

    for dim in (64, 128):
        for heads, kv_heads, queries, keys, causal in (
            (4, 4, 1, 1, False),
            (8, 2, 1, 333, False),
            (4, 1, 65, 65, True),
            (2, 2, 100, 37, True),
            (6, 3, 33, 200, True),
            (4, 2, 257, 129, False),
        ):
            shape = (2, heads, kv_heads, queries, keys, dim)
            what = f"heads {heads}/{kv_heads} queries {queries} keys {keys} dim {dim}{' causal' if causal else ''}"
            yield what, partial(both, shape, "", causal)
        for mask in ("flat", "batch", "added"):
            what = f"mask {mask}, one row sees nothing, dim {dim}"
            yield what, partial(both, (2, 4, 2, 50, 77, dim), mask, False)


def compared(name: str, what: str, dtype: torch.dtype, both: Callable[[], tuple[Any, Any]]) -> dict[str, Any]:
    """One row of the table; `wrong` says what is not as it must be."""
    row: dict[str, Any] = {"name": name, "dtype": str(dtype).removeprefix("torch."), "what": what, "wrong": None}
    tolerance = (MODEL if name == "model" else TOLERANCE)[dtype]
    row |= {"tolerance": tolerance, "largest": None}
    try:
        mine, theirs = both()
        for left, right in zip(_flat(mine), _flat(theirs), strict=True):
            assert left.stride() == right.stride() or left.numel() < 2 or name != "model", "other strides"
            difference = (left.double() - right.double()).abs()
            largest = float(difference.max()) if difference.numel() else 0.0
            row["largest"] = max(largest, row["largest"] or 0.0)
            torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)
    except Exception as error:
        row["wrong"] = " ".join(str(error).split())[:300] or type(error).__name__
        if not isinstance(error, AssertionError):
            print(f"{name} {dtype} {what}\n{traceback.format_exc()[-1500:]}", file=sys.stderr)
    return row


def _flat(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def model(dtype: torch.dtype, attention: bool, folder: Path) -> Iterator[dict[str, Any]]:
    """The plain model before and after the pass: eager, through Inductor, as a package.

    The length is open without attention only: with it, PyTorch 2.11 fixes it at export (on CUDA, not on the CPU).
    """
    import torch._inductor

    import tritonstore

    plain = Plain(attention).to("cuda", dtype).eval()
    example = plain.example("cuda", dtype)
    named = "with attention" if attention else "open length"
    with torch.no_grad():
        expected = plain(*example)
        exported = torch.export.export(plain, example, dynamic_shapes=None if attention else plain.dynamic())
        with tritonstore.installed(url=(folder / "store").as_uri()):
            planned = replacement.plan(exported)
            before = tritonstore.stats()["analyses"]
            assert replacement.plan(exported) == planned
            assert tritonstore.stats()["analyses"] == before, "a warm plan must not analyse"
            print(f"{planned}\nanalyses of the first plan: {before}, of the second: 0")
            applied = replacement.apply(planned)
            assert len(applied.replaced) == len(planned.rows) - 1, planned  # one convolution is not depthwise
            yield compared("model", f"{named}, eager", dtype, lambda: (exported.module()(*example), expected))
            compiled = torch.compile(exported.module())
            yield compared("model", f"{named}, through Inductor", dtype, lambda: (compiled(*example), expected))
            if not attention:
                other = plain.example("cuda", dtype, length=129)
                what = f"{named}, another length"
                yield compared("model", what, dtype, lambda: (exported.module()(*other), plain(*other)))
            package = folder / f"{dtype}-{attention}.pt2"
            started = time.perf_counter()
            torch._inductor.aoti_compile_and_package(exported, package_path=str(package))
            print(f"AOTInductor package: {time.perf_counter() - started:.1f} s")
    torch.save((example, tuple(expected)), package.with_suffix(".pt"))
    known = {"name": "model", "dtype": str(dtype).removeprefix("torch."), "what": f"{named}, package"}
    yield known | _loaded(package, MODEL[dtype])


def _loaded(package: Path, tolerance: float) -> dict[str, Any]:
    ((code, told, largest),) = load.apart([package], rtol=tolerance, atol=tolerance)
    row: dict[str, Any] = {"tolerance": tolerance, "largest": largest, "wrong": told if code > 0 else None}
    if code < 0:
        row["note"] = f"{told}; not compared"
    elif code == 0 and told:
        row["note"] = f"ok, {told}"
    return row


def main() -> int:
    parser = argparse.ArgumentParser(prog="gpu_lib.replacement", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, too")
    parser.add_argument("--only", metavar="NAME", help="rms_norm, topk, conv1d, sdpa or model")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_lib.replacement: PyTorch sees no GPU here", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRITONSTORE_STRICT", "1")
    torch.manual_seed(0)
    replacement.shipped()  # registers the operators
    rows = []
    for kernel in (rms_norm, topk, conv1d, sdpa):
        for dtype in TOLERANCE if arguments.only in (None, kernel.__name__) else ():
            started = time.perf_counter()
            rows += [compared(kernel.__name__, what, dtype, both) for what, both in kernel(dtype)]
            print(f"{kernel.__name__} {dtype}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="tritonstore-gpu-") as temporary:
        for dtype in TOLERANCE if arguments.only in (None, "model") else ():
            for attention in (True, False):
                try:
                    for row in model(dtype, attention, Path(temporary).resolve()):
                        rows.append(row)
                except Exception as error:
                    traceback.print_exc()
                    what = f"with attention: {attention}"
                    known = {"name": "model", "dtype": str(dtype).removeprefix("torch."), "what": what}
                    rows.append(known | {"tolerance": None, "largest": None, "wrong": repr(error)[:300]})
    print(f"{torch.cuda.get_device_name()}; torch {torch.__version__}\n")
    for row in rows:
        shown = "-" if row["largest"] is None else f"{row['largest']:.1e} of {row['tolerance']:.0e}"
        verdict = row["wrong"] or row.get("note") or "ok"
        print(f"{row['name']:9} {row['dtype']:9} {row['what']:60} {shown:18} {verdict}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1) + "\n")
    wrong = sum(row["wrong"] is not None for row in rows)
    print(f"\n{len(rows)} comparisons, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
