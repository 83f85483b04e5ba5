"""The short way to a key gives what the long way gives: for every value, after every other one, on one kernel."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import sympy
import torch
import triton.language as tl
from torch._higher_order_ops.triton_kernel_wrap import create_tma_stable_metadata
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.support.analysis import CUDA_90, HIP_942, NEWER, target
from tests.support.calls import Call, outcome
from tests.support.sources import load
from tritonstore.keys.code import kept_record
from tritonstore.keys.reader import Reader

SOURCE = """
@triton.jit
def helper(x):
    tl.store(x, 1)

@triton.jit
def kernel(x, v, SIZE: tl.constexpr):
    tl.store(x, 1)

@triton.jit
def only(v):
    pass

@triton.jit
def nothing():
    pass
"""
SYMBOL = ShapeEnv().create_unbacked_symint()
with FakeTensorMode():
    FAKE = {dtype: torch.empty(4, dtype=dtype) for dtype in (torch.float32, torch.float16, torch.bool, torch.complex64)}

PLAIN: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, 1.0, 0.0, -0.0, math.nan, "1", "", "fp32", SYMBOL, sympy.Symbol("s")),
    *(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64 - 1, 2**64, 10**30),
    *(torch.float32, tl.float32, tl.constexpr(1), tl.constexpr(True), (1, 2), (1, True), [1], object(), 3j),
]
TENSORS: list[Any] = [
    *FAKE.values(),
    *(torch.zeros(4, dtype=dtype) for dtype in (torch.float32, torch.float16, torch.uint8, torch.bool)),
    torch.nn.Parameter(torch.zeros(4)),
    torch.zeros(4, device="meta"),
    torch.zeros(4).to_sparse(),
]


def questions() -> list[dict[str, Any]]:
    usual = {"x": FAKE[torch.float32], "v": 1, "SIZE": 16}
    changed = [{**usual, name: value} for name in usual for value in (*PLAIN, *TENSORS)]
    names = [{**usual, "more": 1}, {"x": usual["x"], "v": 1}, {**usual, "num_warps": 4}, {"SIZE": 16, "v": 1, "x": 2}]
    return [usual, *changed, *names]


def long_way(given: dict[str, Any]) -> str:
    """On a kernel that was never asked before."""
    return outcome(Call(load(SOURCE)["kernel"], dict(given)))


@pytest.fixture(scope="module")
def told() -> list[tuple[dict[str, Any], str]]:
    with target(*CUDA_90):
        return [(given, long_way(given)) for given in questions()]


@pytest.mark.parametrize("order", ["forwards", "backwards", "twice"])
def test_every_value_after_every_other(order: str, told: list[tuple[dict[str, Any], str]]) -> None:
    kernel = load(SOURCE)["kernel"]
    asked = {"forwards": told, "backwards": told[::-1], "twice": [each for each in told for _ in range(2)]}[order]
    for given, expected in (*asked, *asked):
        assert outcome(Call(kernel, dict(given))) == expected, given


def test_the_short_way_is_taken() -> None:
    """The record of a kernel that was asked reads plain arguments in short, and leaves the others."""
    kernel, given = load(SOURCE)["kernel"], questions()[0]
    outcome(Call(kernel, dict(given)))
    record = kept_record(kernel)
    assert record is not None
    first = record.reader.read(given)
    assert first is not None
    assert (record.reader.read({**given, "v": 2**40}) is None) is NEWER  # the older analysis goes by the value
    assert record.reader.read({**given, "SIZE": 32}) != first
    for value in (1.0, (1,), tl.constexpr(1), object()):
        assert record.reader.read({**given, "SIZE": value}) is None
    assert record.reader.read({"x": given["x"]}) is None


@pytest.mark.parametrize(("name", "given"), [("only", {"v": 1}), ("nothing", {})])
def test_few_parameters(name: str, given: dict[str, Any]) -> None:
    kernel = load(SOURCE)[name]
    fresh = outcome(Call(load(SOURCE)[name], given))
    assert [outcome(Call(kernel, given)) for _ in range(3)] == [fresh] * 3


def test_another_target_is_another_key() -> None:
    kernel, given = load(SOURCE)["kernel"], questions()[0]
    first = [outcome(Call(kernel, dict(given))) for _ in range(2)]
    with target(*HIP_942):
        second = [outcome(Call(kernel, dict(given))) for _ in range(2)]
        assert second[0] == long_way(given)
    assert len({*first, *second}) == 2
    assert outcome(Call(kernel, dict(given))) == first[0]


def test_descriptors_are_seen_after_the_same_call_without_them() -> None:
    kernel, given = load(SOURCE)["kernel"], questions()[0]
    first = [outcome(Call(kernel, dict(given))) for _ in range(2)]
    assert outcome(Call(kernel, dict(given), {"x": create_tma_stable_metadata([16])})) == "bypass: tma"
    assert outcome(Call(kernel, dict(given), {})) == first[0] == first[1]


def test_functions_as_arguments_go_the_long_way() -> None:
    namespace = load(SOURCE.replace("def helper", "def other") + SOURCE)
    kernel, usual = namespace["kernel"], questions()[0]
    asked = [{**usual, "SIZE": value} for value in (namespace["helper"], namespace["other"], 16, tl.sum, 16)]
    said = [outcome(Call(kernel, given)) for given in (*asked, *asked)]
    assert said[:5] == said[5:]
    assert said[2] == said[4] == long_way(usual)


def test_plans_are_bounded() -> None:
    reader = Reader(load(SOURCE)["kernel"].params)
    kinds = [type(f"Kind{number}", (), {}) for number in range(300)]
    for kind, value in itertools.product(kinds, (1,)):
        assert reader.read({"x": FAKE[torch.float32], "v": kind(), "SIZE": value}) is None
    assert len(reader._plans) <= 256
    assert reader.read({"x": FAKE[torch.float32], "v": 1, "SIZE": 1}) is None
