"""Which calls each shipped planner takes, and what it says of those that it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from tritonstore.replacement import Planner, Registry, Verdict, apply, plan, shipped, unsupported

from .conftest import Function, export


def decided(function: Callable[..., Any], *inputs: Any, **shapes: Any) -> Any:
    """The row of the last planned call of `function`."""
    return plan(export(Function(function), *inputs, **shapes)).rows[-1]


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def sdpa(**options: Any) -> Callable[..., Any]:
    return lambda q, k, v, m=None: functional.scaled_dot_product_attention(q, k, v, m, **options)


def conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w, b=None: functional.conv1d(x, w, b, **options)


def topk(k: int, **options: Any) -> Callable[..., Any]:
    return lambda x: torch.topk(x, k, **options)


def rms(*shape: int, eps: float | None = None) -> Callable[..., Any]:
    return lambda x, w=None: functional.rms_norm(x, shape, w, eps)


BOOL = torch.ones(5, 7, dtype=torch.bool)
Q, K = (2, 4, 5, 64), (2, 2, 7, 64)

TAKEN = {
    "sdpa": (sdpa(), rand(*Q), rand(*Q), rand(*Q)),
    "sdpa 128": (sdpa(), rand(1, 2, 3, 128), rand(1, 2, 9, 128), rand(1, 2, 9, 128)),
    "sdpa bf16": (sdpa(scale=0.5), *(rand(*Q, dtype=torch.bfloat16) for _ in range(3))),
    "sdpa gqa": (sdpa(enable_gqa=True), rand(*Q), rand(*K), rand(*K)),
    "sdpa causal": (sdpa(is_causal=True, enable_gqa=True), rand(*Q), rand(*K), rand(*K)),
    "sdpa mask": (sdpa(enable_gqa=True), rand(*Q), rand(*K), rand(*K), BOOL),
    "sdpa mask of a batch": (sdpa(enable_gqa=True), rand(*Q), rand(*K), rand(*K), BOOL.expand(2, 1, 5, 7)),
    "sdpa mask of a key": (sdpa(enable_gqa=True), rand(*Q), rand(*K), rand(*K), rand(1, 7)),
    "sdpa transposed": (sdpa(), *(rand(2, 5, 4, 64).transpose(1, 2) for _ in range(3))),
    "rms": (rms(17), rand(3, 5, 17)),
    "rms weight": (rms(17, eps=1e-3), rand(3, 17), rand(17)),
    "rms half": (rms(17), rand(3, 17, dtype=torch.float16)),
    "rms stepped": (rms(9), rand(3, 18)[:, ::2]),
    "topk": (topk(3), rand(2, 40)),
    "topk smallest": (topk(40, largest=False, sorted=False), rand(40)),
    "topk longest": (topk(1, dim=1), rand(1, 4096)),
    "topk bf16": (topk(2), rand(3, 4, 5, dtype=torch.bfloat16)),
    "conv": (conv(groups=6, padding=3), rand(2, 6, 9), rand(6, 1, 4), rand(6)),
    "conv padded before": (conv(groups=6), rand(2, 6, 9), rand(6, 1, 2)),
    "conv bf16": (conv(groups=6), rand(2, 6, 9, dtype=torch.bfloat16), rand(6, 1, 3, dtype=torch.bfloat16)),
}

LEFT = {
    "sdpa 32": (sdpa(), *(rand(1, 2, 5, 32) for _ in range(3)), "head dimensions are 64 and 128"),
    "sdpa 3-D": (sdpa(), *(rand(2, 5, 64) for _ in range(3)), "takes (batch, heads, length, head dimension)"),
    "sdpa dropout": (sdpa(dropout_p=0.5), *(rand(*Q) for _ in range(3)), "no dropout"),
    "sdpa other v": (sdpa(), rand(*Q), rand(*Q), rand(2, 4, 5, 128), "head dimensions are 64 and 128, alike"),
    "sdpa one batch": (sdpa(), rand(*Q), rand(1, 4, 5, 64), rand(1, 4, 5, 64), "differ or may differ"),
    "sdpa no gqa": (sdpa(), rand(*Q), rand(2, 1, 7, 64), rand(2, 1, 7, 64), "without enable_gqa"),
    "sdpa double": (sdpa(), *(rand(*Q, dtype=torch.float64) for _ in range(3)), "not float64"),
    "sdpa empty": (sdpa(), rand(2, 4, 0, 64), rand(*Q), rand(*Q), "query is empty"),
    "rms two": (rms(3, 4), rand(2, 3, 4), "over the last dimension only"),
    "rms mixed": (rms(4), rand(3, 4, dtype=torch.bfloat16), rand(4), "weight is of another type than input"),
    "topk long": (topk(2), rand(2, 4097), "at most 4096 elements, these may have 4097"),
    "topk dim": (topk(2, dim=0), rand(4, 5), "along the last dimension only"),
    "topk number": (topk(1), torch.tensor(1.0), "along the last dimension only"),
    "topk int": (topk(2), torch.arange(9), "not int64"),
    "topk none": (topk(0), rand(2, 9), "not 0"),
    "conv dense": (conv(), rand(2, 6, 9), rand(6, 6, 4), "not depthwise"),
    "conv twice": (conv(groups=6), rand(2, 6, 9), rand(12, 1, 4), "not depthwise"),
    "conv same": (conv(groups=6, padding="same"), rand(2, 6, 9), rand(6, 1, 3), "not causal"),
    "conv middle": (conv(groups=6, padding=1), rand(2, 6, 9), rand(6, 1, 3), "not causal"),
    "conv wide": (conv(groups=6, padding=4), rand(2, 6, 9), rand(6, 1, 5), "widths are 2, 3, 4, not 5"),
    "conv stride": (conv(groups=6, stride=2), rand(2, 6, 9), rand(6, 1, 3), "stride and dilation are 1"),
    "conv dilation": (conv(groups=6, dilation=2), rand(2, 6, 9), rand(6, 1, 3), "stride and dilation are 1"),
    "conv unbatched": (conv(groups=6), rand(6, 9), rand(6, 1, 3), "(batch, channels, length)"),
    "conv2d": (functional.conv2d, rand(1, 2, 5, 5), rand(3, 2, 2, 2), "(batch, channels, length)"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    """And the program computes the same with the operator, of which the CPU's part stands in for the kernel here."""
    function, *inputs = TAKEN[name]
    program = export(Function(function), *inputs)
    expected = program.module()(*inputs)
    planned = plan(program)
    assert [row.verdict for row in planned.rows] == [Verdict.OPTIONAL], str(planned)
    assert len(apply(planned).replaced) == 1
    found = program.module()(*inputs)
    if name.startswith("topk"):
        torch.testing.assert_close(inputs[0].gather(-1, found[1]), found[0])
        expected, found = (values.sort().values for values in (expected.values, found[0]))
    torch.testing.assert_close(found, expected)
    for size, mine, theirs in zip(found.shape, found.stride(), expected.stride(), strict=True):
        assert size == 1 or mine == theirs


@pytest.mark.parametrize("name", LEFT)
def test_left(name: str) -> None:
    function, *inputs, reason = LEFT[name]
    row = decided(function, *inputs)
    assert row.verdict is Verdict.UNSUPPORTED
    assert reason in row.reason


ROWS = torch.export.Dim("rows", min=3, max=300)


@pytest.mark.parametrize(
    ("function", "shape", "dims", "reason"),
    [
        (rms(8), (5, 8), {0: ROWS}, None),
        (topk(2), (5, 8), {0: ROWS}, None),
        (topk(2), (5, 8), {1: ROWS}, None),
        (topk(2), (5, 8), {1: torch.export.Dim("any", min=3)}, "these may have any"),
        (topk(2), (5, 8), {1: torch.export.Dim("long", min=3, max=9000)}, "these may have 9000"),
        (lambda x: functional.rms_norm(x, x.shape[-1:]), (5, 8), {1: ROWS}, "the length of the rows is open"),
        (lambda x: functional.conv1d(x, torch.ones(8, 1, 4), padding=3, groups=8), (1, 8, 9), {2: ROWS}, None),
        (lambda x: functional.conv1d(x, torch.ones(8, 1, 4), padding=3, groups=8), (5, 8, 9), {0: ROWS}, None),
        (lambda x: functional.scaled_dot_product_attention(x, x, x), (1, 2, 5, 64), {2: ROWS}, None),
        (lambda x: functional.scaled_dot_product_attention(x, x, x), (5, 2, 5, 64), {0: ROWS}, None),
    ],
)
def test_open_sizes(function: Any, shape: tuple[int, ...], dims: Any, reason: str | None) -> None:
    program = export(Function(function), rand(*shape), dynamic_shapes=(((dims),),))
    planned = plan(program)
    (row,) = planned.rows
    if reason is not None:
        assert reason in row.reason
        return
    apply(planned)
    (dim,) = dims
    other = rand(*(131 if index == dim else size for index, size in enumerate(shape)))
    expected, found = function(other), program.module()(other)
    if "topk" in row.op:
        expected, found = expected.values, found[0]
    torch.testing.assert_close(found, expected)


def test_convolutions_of_the_decomposed_dialect() -> None:
    """run_decompositions makes one op of all convolutions, and opens attention and norms."""
    function, *inputs = TAKEN["conv"]
    program = export(Function(function), *inputs).run_decompositions()
    (row,) = plan(program).rows
    assert (row.op, row.verdict) == ("aten.convolution.default", Verdict.OPTIONAL)
    transposed = export(
        Function(lambda x, w: functional.conv_transpose1d(x, w, groups=6)), rand(2, 6, 9), rand(6, 1, 4)
    )
    (row,) = plan(transposed.run_decompositions()).rows
    assert row.reason == "the kernel knows no transposed convolution"


def test_one_planner_for_an_op() -> None:
    registry = shipped()
    mine = Planner("mine", ("aten.topk.default",), lambda call: unsupported("mine"))
    with pytest.raises(ValueError, match=r"aten.topk.default already has the planner topk"):
        registry.register(mine)
    registry.register(mine, replace=True)
    assert plan(export(Function(topk(3)), rand(2, 9)), registry).rows[0].reason == "mine"
    assert plan(export(Function(topk(3)), rand(2, 9))).rows[0].planner == "topk"
    assert Registry().ops() == []
    assert "aten.conv1d.default" in registry.ops()
