"""What people reported of caches of kernels and of PyTorch's analysis, each held against the key.

Every entry names the report. APART: the two programs or launches have two answers, so two keys. SAME: one answer, so
one key. BYPASS: no key, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.support.analysis import HIP_942, NEWER, target
from tests.support.calls import Call, answer, assert_same_key, assert_told_apart, digest, outcome
from tests.support.sources import load
from tests.support.switch import launch, switch

CONSTEXPR = "v: tl.constexpr"
HELPED = """
@triton.jit
def helper(p, q):
    tl.store({}, 1.0)
@triton.jit
def kernel(x, y):
    helper(x, y)
"""
CHOSEN = """
@triton.jit
def first(p, q):
    tl.store({}, 1.0)
@triton.jit
def second(p, q):
    tl.load(p)
@triton.jit
def kernel(x, y, v: tl.constexpr):
    if v == "first":
        first(x, y)
    else:
        second(x, y)
"""
SHADOWED = """
FLAG = tl.constexpr(True)
def make(FLAG):
    @triton.jit
    def kernel(x, y):
        if FLAG:
            tl.store(x, 1.0)
        else:
            tl.store(y, 1.0)
    return kernel
kernel = make(tl.constexpr({}))
"""
OUT_OF_ORDER = """
@triton.jit
def helper(source, n, other, out):
    tl.store(out, tl.load(source) + tl.load(other))
@triton.jit
def kernel(x, n, y, z):
    helper({})
"""


class NamedPair(NamedTuple):
    first: int
    second: int


def from_source(source: str, **others: Any) -> Call:
    return launch(load(source)["kernel"], **others)


def notebook(written: str, cell: int) -> Call:
    source = f"@triton.jit\ndef kernel(x, y):\n    tl.store({written}, 1.0)"
    return launch(load(source, module="__main__", path=f"/tmp/ipykernel_{cell}/1.py")["kernel"])


def ordered(arguments: str) -> Call:
    return from_source(OUT_OF_ORDER.format(arguments), n=4, z=torch.zeros(4))


def tuned(kernel: Any, *configs: Any, **options: Any) -> Any:
    return triton.autotune(list(configs), key=[], **options)(kernel)


PLAIN = "@triton.jit\ndef kernel(x, y):\n    tl.store(y, tl.load(x))\n"
SIZED = "@triton.jit\ndef kernel(x, y, v: tl.constexpr):\n    tl.store(y + tl.arange(0, v), 1.0)\n"
plain, sized = load(PLAIN)["kernel"], load(SIZED)["kernel"]
empty, one_size = triton.Config({}), triton.Config({"v": 16})
hooked = triton.Config({"v": 16}, pre_hook=lambda arguments: arguments["y"].zero_())

APART: dict[str, tuple[Callable[[], Call], Callable[[], Call]]] = {
    "triton-lang/triton#7322, a constexpr global edited": (
        lambda: launch(switch("VAL == 1", "", "VAL = tl.constexpr(1)")),
        lambda: launch(switch("VAL == 1", "", "VAL = tl.constexpr(2)")),
    ),
    "triton-lang/triton#586, a helper edited": (
        lambda: from_source(HELPED.format("p")),
        lambda: from_source(HELPED.format("q")),
    ),
    "triton-lang/triton#4051, a helper that a constexpr chooses edited": (
        lambda: from_source(CHOSEN.format("p"), v="first"),
        lambda: from_source(CHOSEN.format("q"), v="first"),
    ),
    "triton-lang/triton#11224, a closure variable that hides a global": (
        lambda: from_source(SHADOWED.format(True)),
        lambda: from_source(SHADOWED.format(False)),
    ),
    "triton-lang/triton#4072, a tl.dtype as an argument": (
        lambda: launch(switch("v == tl.float32", CONSTEXPR), v=tl.float32),
        lambda: launch(switch("v == tl.float32", CONSTEXPR), v=tl.float16),
    ),
    "pytorch/pytorch#118595, arguments handed on out of order": (
        lambda: ordered("x, n, y, z"),
        lambda: ordered("z, n, y, x"),
    ),
    "pytorch/pytorch#176712, a bare dtype global": (
        lambda: launch(switch("x.dtype.element_ty == T", "", "T = tl.float32")),
        lambda: launch(switch("x.dtype.element_ty == T", "", "T = tl.int8")),
    ),
    "joblib/joblib#1096, one name in two notebooks": (lambda: notebook("x", 1), lambda: notebook("y", 2)),
}
SAME: dict[str, tuple[Callable[[], Call], Callable[[], Call]]] = {
    "triton-lang/triton#7344, a helper's address in the key": (
        lambda: from_source(HELPED.format("p")),
        lambda: from_source(HELPED.format("p")),
    ),
    "triton-lang/triton#301, version=": (
        lambda: launch(plain),
        lambda: from_source(PLAIN.replace("@triton.jit", "@triton.jit(version='2')")),
    ),
    "joblib/joblib#1570, one cell run again": (lambda: notebook("x", 1), lambda: notebook("x", 2)),
    "pytorch/pytorch#141823, configs with no arguments": (lambda: launch(plain), lambda: launch(tuned(plain, empty))),
    "pytorch/pytorch#139059, a config's pre_hook": (
        lambda: launch(tuned(sized, one_size)),
        lambda: launch(tuned(sized, hooked)),
    ),
    "pytorch/pytorch#120802, reset_to_zero": (
        lambda: launch(tuned(sized, one_size)),
        lambda: launch(tuned(sized, one_size, reset_to_zero=["y"])),
    ),
    "pytorch/pytorch#187028, a backend option given at the launch": (
        lambda: launch(plain),
        lambda: launch(plain, num_warps=8),
    ),
}
if NEWER:
    SAME["pytorch/pytorch#176353, a bool tensor is read as bytes"] = (
        lambda: Call(plain, {"x": torch.zeros(4, dtype=torch.bool), "y": torch.zeros(4)}),
        lambda: Call(plain, {"x": torch.zeros(4, dtype=torch.uint8), "y": torch.zeros(4)}),
    )

CONSTEXPR_FUNCTION = "@triton.constexpr_function\ndef f():\n    return 1\n"
BYPASS: dict[str, tuple[str, Callable[[], Call]]] = {
    "triton-lang/triton#7802, constexpr_function": (
        "value-type",
        lambda: launch(switch("f() == 1", "", CONSTEXPR_FUNCTION)),
    ),
    "pytorch/pytorch#148289, a NamedTuple as an argument": (
        "argument-type",
        lambda: launch(switch("v is None"), v=NamedPair(1, 2)),
    ),
    "pytorch/pytorch#192288, a NamedTuple as a constexpr": (
        "value-type",
        lambda: launch(switch("v.first == 1", CONSTEXPR), v=NamedPair(1, 2)),
    ),
    "pytorch/pytorch#193257, symbolic strides in a constexpr tuple": (
        "value-type",
        lambda: launch(switch("v[0] == 1", CONSTEXPR), v=(ShapeEnv().create_unbacked_symint(), 1)),
    ),
    "pytorch/pytorch#124601, a reinterpreted tensor": (
        "argument-type",
        lambda: launch(switch("v is None"), v=triton.reinterpret(torch.zeros(4, dtype=torch.int8), tl.float8e5)),
    ),
    "pytorch/pytorch#142208, autotune over heuristics": (
        "kernel-type",
        lambda: launch(tuned(triton.heuristics({"v": lambda arguments: 16})(sized), empty)),
    ),
    "pytorch/pytorch#128061, heuristics over autotune": (
        "kernel-type",
        lambda: launch(triton.heuristics({"v": lambda arguments: 16})(tuned(sized, empty))),
    ),
}


@pytest.mark.parametrize(("first", "second"), APART.values(), ids=APART)
def test_told_apart(first: Callable[[], Call], second: Callable[[], Call]) -> None:
    assert_told_apart(first(), second())


@pytest.mark.parametrize(("first", "second"), SAME.values(), ids=SAME)
def test_one_key(first: Callable[[], Call], second: Callable[[], Call]) -> None:
    assert_same_key(first(), second())


@pytest.mark.parametrize(("reason", "make"), BYPASS.values(), ids=BYPASS)
def test_no_key(reason: str, make: Callable[[], Call]) -> None:
    assert outcome(make()) == f"bypass: {reason}"


def test_a_config_with_an_option_of_one_backend_only() -> None:
    """pytorch/pytorch#140800: on hip the option is taken out of the configuration, elsewhere it is one too many."""
    call = launch(tuned(sized, triton.Config({"v": 16, "matrix_instr_nonkdim": 16})))
    assert outcome(call) == "bypass: argument-names"
    with target(*HIP_942):
        assert_same_key(call, launch(sized, v=16))


@pytest.mark.parametrize("values", [(1, 2), (16, 17), (0, 1)], ids=str)
def test_scalars_that_pytorch_may_take_for_constants(values: tuple[int, int]) -> None:
    """pytorch/pytorch#170049: torch 2.11 hands runtime scalars over as constants, so that their value decides."""
    kernel = switch("v == 1", "v")
    first, second = (launch(kernel, v=value) for value in values)
    if answer(first) != answer(second):
        assert digest(first) != digest(second)


def test_the_price_of_a_key_does_not_follow_the_walk() -> None:
    """pytorch/pytorch#193703: the walk doubles with each step in which a value meets itself; the key only reads."""
    steps = "".join("    value = value + value\n" for _ in range(200))
    source = f"@triton.jit\ndef kernel(x, y):\n    value = tl.load(x)\n{steps}    tl.store(y, value)\n"
    assert digest(from_source(source)) == digest(from_source(source))


def test_an_input_that_is_only_read() -> None:
    """pytorch/pytorch#119348 and #195628: whatever PyTorch makes of a store whose place was loaded, one key serves."""
    source = "@triton.jit\ndef kernel(x, y):\n    tl.store(y + tl.load(x).to(tl.int32), 1.0)\n"
    first, second = from_source(source), from_source(source.replace("1.0", "2.0"))
    assert answer(first) == answer(second)
    assert digest(first) == digest(from_source(source))


def test_a_failed_generation_names_every_tensor() -> None:
    """pytorch/pytorch#170808: such an answer is no fact about the kernel, however plausible it looks."""
    call = from_source("@triton.jit\ndef kernel(x, y):\n    tl.static_assert(False)\n    tl.store(x, 1.0)\n")
    assert answer(call).failed
    assert answer(call).writes == ("x", "y")
