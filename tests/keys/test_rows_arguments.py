"""Arguments: what of a launch's arguments changes the key, by width, type, dtype, constexpr value and name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from torch._higher_order_ops.triton_kernel_wrap import create_tma_stable_metadata
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.support.analysis import CUDA_75, HIP_942, NEWER, target
from tests.support.calls import Call, answer, assert_same_key, assert_told_apart, digest, outcome
from tests.support.sources import load
from tests.support.switch import launch, switch

CONSTEXPR = "v: tl.constexpr"


class Row(NamedTuple):
    """Two values of the argument v that make the condition of a kernel come out differently."""

    condition: str
    left: Any
    right: Any
    parameters: str = CONSTEXPR


def runtime(condition: str, left: Any, right: Any) -> Row:
    return Row(condition, left, right, "v")


helpers = load(
    """
    @triton.jit
    def one(p, q):
        tl.store(p, 1.0)

    @triton.jit
    def two(p, q):
        tl.store(q, 1.0)

    @triton.jit
    def kernel(x, y, v: tl.constexpr):
        v(x, y)

    @triton.jit
    def second_of_pair(x, y, v: tl.constexpr):
        v[1](x, y)
    """
)
ROWS = {
    "None or int": runtime("v is None", None, 2),
    "constexpr 1 or True": Row("f'{v}' == '1'", 1, True),
    "constexpr 1 or 1.0": Row("isinstance(v, float)", 1.0, 1),
    "constexpr True or 1.0": Row("isinstance(v, float)", 1.0, True),
    "constexpr 0.0 or -0.0": Row("f'{v}' == '0.0'", 0.0, -0.0),
    "constexpr nan or inf": Row("f'{v}' == 'inf'", math.inf, math.nan),
    "constexpr int value": Row("v == 64", 64, 128),
    "constexpr None or 0": Row("v is None", None, 0),
    "constexpr None or 'None'": Row("v is None", None, "None"),
    "constexpr 1 or '1'": Row("v == 1", 1, "1"),
    "constexpr 2**31 - 1 or 2**31": Row("(tl.program_id(0) + v).dtype == tl.int32", 2**31 - 1, 2**31),
    "constexpr 10**10 or 10": Row("(tl.program_id(0) + v).dtype == tl.int64", 10**10, 10),
    "constexpr str value": Row("v == 'sum'", "sum", "max"),
    "constexpr tl.float32 or torch.float32": Row("v == tl.float32", tl.float32, torch.float32),
    "constexpr tl.float32 or 'fp32'": Row("v == tl.float32", tl.float32, "fp32"),
    "constexpr tl.float32 or tl.float16": Row("v == tl.float32", tl.float32, tl.float16),
    "constexpr torch.float32 or torch.float16": Row("f'{v}' == 'torch.float32'", torch.float32, torch.float16),
    "constexpr tuple element": Row("v[1] == 2", (1, 2), (1, 3)),
    "constexpr tuple element type": Row("v[0] is True", (True,), (1,)),
    "constexpr tuple length": Row("len(v) == 1", (1,), (1, 1)),
    "constexpr tuple nesting": Row("len(v) == 2", ((1, 2), 3), ((1, 2, 3),)),
    "constexpr SymInt or 3": Row("v == 2", ShapeEnv().create_unbacked_symint(), 3),
}
WIDTH_ROWS = {
    "2**31 - 1 or 2**31": runtime("v.dtype == tl.int32", 2**31 - 1, 2**31),
    "-2**31 or -2**31 - 1": runtime("v.dtype == tl.int32", -(2**31), -(2**31) - 1),
    "2**63 - 1 or 2**63": runtime("v.dtype == tl.int64", 2**63 - 1, 2**63),
    "2**64 - 1 or -1": runtime("v.dtype == tl.uint64", 2**64 - 1, -1),
    "bool or int": runtime("v.dtype == tl.int1", True, 1),
    "float or int": runtime("v.dtype == tl.float32", 1.0, 1),
    "constexpr 2**32 - 1 or 2**32": Row("tl.to_tensor(v).dtype == tl.uint32", 2**32 - 1, 2**32),
    "SymInt or 2**40": runtime("v.dtype == tl.int32", ShapeEnv().create_unbacked_symint(), 2**40),
}
# torch 2.11 hands every scalar to Triton as a constant: there its value is a fact about the answer.
VALUE_ROWS = {
    "int value": runtime("v == 1", 1, 2),
    "float value": runtime("v == 1.0", 1.0, 2.0),
    "bool value": runtime("v", True, False),
    "bool or int": runtime("f'{v}' == '1'", 1, True),
    "SymInt or 3": runtime("v == 2", ShapeEnv().create_unbacked_symint(), 3),
}
ROWS |= WIDTH_ROWS if NEWER else VALUE_ROWS


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_value_that_flips_the_answer_changes_the_key(row: Row) -> None:
    kernel = switch(row.condition, row.parameters)
    assert_told_apart(launch(kernel, v=row.left), launch(kernel, v=row.right))


@pytest.mark.parametrize(("name", "wrap"), [("kernel", lambda f: f), ("second_of_pair", lambda f: (1, f))])
def test_a_function_as_a_constexpr_changes_the_key(name: str, wrap: Callable[[Any], Any]) -> None:
    kernel = helpers[name]
    assert_told_apart(launch(kernel, v=wrap(helpers["one"])), launch(kernel, v=wrap(helpers["two"])))


POINTERS = {
    torch.bool: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.uint16: "uint16",
    torch.uint32: "uint32",
    torch.uint64: "uint64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float64: "float64",
    torch.float8_e4m3fn: "float8e4nv",
    torch.float8_e5m2: "float8e5",
    torch.float8_e4m3fnuz: "float8e4b8",
    torch.float8_e5m2fnuz: "float8e5b16",
}
if not NEWER:
    POINTERS[torch.bool] = "int1"


@pytest.mark.parametrize("dtype", POINTERS, ids=str)
def test_a_pointers_element_type_changes_the_key(dtype: torch.dtype) -> None:
    kernel = switch(f"v.dtype.element_ty == tl.{POINTERS[dtype]}")
    other = launch(kernel, v=torch.zeros(4))
    assert_told_apart(launch(kernel, v=torch.zeros(4).to(dtype)), other)


def test_all_element_types_have_keys_of_their_own_but_bool_and_uint8() -> None:
    kernel = switch("v is None")
    keys = {dtype: digest(launch(kernel, v=torch.zeros(4).to(dtype))) for dtype in (*POINTERS, torch.float32)}
    shared = 1 if NEWER else 0
    assert len(set(keys.values())) == len(keys) - shared
    assert (keys[torch.bool] == keys[torch.uint8]) == NEWER


def test_a_dtype_that_the_target_lacks_fails_under_a_key_of_its_own() -> None:
    kernel = load("@triton.jit\ndef kernel(x, y):\n    tl.store(y, tl.load(x).to(tl.float32))")["kernel"]
    call = Call(kernel, {"x": torch.zeros(4).to(torch.float8_e4m3fn), "y": torch.zeros(4)})
    precise, key = answer(call), digest(call)
    with target(*CUDA_75):
        assert answer(call).failed
        assert not precise.failed
        assert digest(call) != key


config = triton.Config
FIRST, SECOND = config({"v": 1}), config({"v": 2})


def tuned(*configs: Any) -> Any:
    """One kernel behind an Autotuner of these configs."""
    return triton.autotune(list(configs), key=[])(switch("v == 1", CONSTEXPR))


def test_the_first_config_changes_the_key() -> None:
    assert_told_apart(launch(tuned(FIRST, SECOND)), launch(tuned(SECOND, FIRST)))


def test_a_config_overrides_the_given_value() -> None:
    assert_told_apart(launch(tuned(FIRST), v=2), launch(tuned(SECOND), v=2))
    assert_same_key(launch(tuned(FIRST), v=1), launch(tuned(FIRST), v=2))


def test_a_config_mutated_after_a_first_call_changes_the_key() -> None:
    first = config({"v": 1})
    call = launch(tuned(first))
    before, said = digest(call), answer(call)
    first.kwargs["v"] = 2
    assert answer(call) != said
    assert digest(call) != before
    first.kwargs["v"] = 1
    assert digest(call) == before


def test_a_tensor_that_only_a_config_holds_is_left_out_of_the_newer_answer() -> None:
    plain = switch("v == 1", CONSTEXPR)
    given = triton.autotune([config({"v": 1})], key=[])(plain)
    from_config = triton.autotune([config({"v": 1, "x": torch.zeros(4)})], key=[])(plain)
    whole, part = launch(given), Call(from_config, {"y": torch.zeros(4)})
    if NEWER:
        assert_told_apart(whole, part)
    else:
        assert answer(whole) == answer(part)


def test_popped_options_depend_on_the_target() -> None:
    kernel = switch("v == 1", CONSTEXPR)
    bare, waves, registers = launch(kernel, v=1), launch(kernel, v=1, waves_per_eu=2), launch(kernel, v=1, maxnreg=64)
    assert_same_key(bare, registers)
    assert outcome(waves) == "bypass: argument-names"
    assert answer(waves).failed
    with target(*HIP_942):
        assert_same_key(bare, waves)
        assert outcome(registers) == "bypass: argument-names"
        assert answer(registers).failed


def test_a_parameter_named_like_an_option_matters() -> None:
    kernel = switch("num_warps == 4", "num_warps: tl.constexpr")
    assert_told_apart(launch(kernel, num_warps=4), launch(kernel, num_warps=8))


def test_building_the_key_leaves_the_callers_dict_alone() -> None:
    call = launch(switch("v == 1", CONSTEXPR), num_stages=3, v=1)
    names = list(call.kwargs)
    digest(call)
    assert list(call.kwargs) == names


class Wrapped(torch.Tensor):
    """A tensor subclass."""


class Pointer:
    """What Triton takes for a pointer, and PyTorch does not take for a tensor."""

    dtype = torch.float32

    def data_ptr(self) -> int:
        return 0


class Word(str):
    """A str subclass."""


class Number(int):
    """An int subclass."""


def stable() -> Call:
    call = launch(switch("v == 1", CONSTEXPR), v=1)
    return call._replace(tma={"x": create_tma_stable_metadata([4])})


def given(value: Any, parameters: str = "v") -> Callable[[], Call]:
    return lambda: launch(switch("v is None", parameters), v=value() if isinstance(value, type(stable)) else value)


def without(name: str) -> Callable[[], Call]:
    def make() -> Call:
        call = launch(switch("v is None", "v=1"), v=1)
        del call.kwargs[name]
        return call

    return make


BYPASSES = {
    "tuple": ("argument-type", given((1, 2))),
    "list": ("argument-type", given([1, 2])),
    "str": ("argument-type", given("text")),
    "JITFunction for a runtime parameter": ("argument-type", given(helpers["one"])),
    "tensor subclass": ("argument-type", given(lambda: torch.zeros(4).as_subclass(Wrapped))),
    "object with a data pointer": ("argument-type", given(Pointer())),
    "sparse tensor": ("argument-type", given(lambda: torch.zeros(4).to_sparse())),
    "int subclass": ("argument-type", given(Number(3))),
    "complex tensor": ("dtype", given(lambda: torch.zeros(4, dtype=torch.complex64))),
    "integer beyond u64": ("integer-range", given(2**64)),
    "integer below i64": ("integer-range", given(-(2**63) - 1)),
    "stable TMA metadata": ("tma", stable),
    "name missing": ("argument-names", without("v")),
    "tensor missing": ("argument-names", without("x")),
    "name too many": ("argument-names", lambda: launch(switch("v is None"), v=1, w=1)),
    "constexpr object": ("value-type", given(object(), CONSTEXPR)),
    "constexpr callable": ("value-type", given(len, CONSTEXPR)),
    "constexpr set": ("value-type", given(frozenset({1}), CONSTEXPR)),
    "constexpr str subclass": ("value-type", given(Word("x"), CONSTEXPR)),
    "constexpr int subclass": ("value-type", given(Number(3), CONSTEXPR)),
    "constexpr tensor": ("value-type", given(lambda: torch.zeros(4), CONSTEXPR)),
    "constexpr object in a tuple": ("value-type", given((1, object()), CONSTEXPR)),
}


@pytest.mark.parametrize(("reason", "make"), BYPASSES.values(), ids=BYPASSES.keys())
def test_arguments_that_cannot_be_keyed_say_why(reason: str, make: Callable[[], Call]) -> None:
    assert outcome(make()) == f"bypass: {reason}"
