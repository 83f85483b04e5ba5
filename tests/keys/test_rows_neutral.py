"""What cannot change the answer stays out of the key: equal answers, one key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch._higher_order_ops.triton_kernel_wrap import create_tma_experimental_metadata
from torch._inductor.ir import FixedLayout, InputBuffer, StorageBox, TensorBox
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.support.analysis import HIP_942, NEWER, target
from tests.support.calls import Call, answer, assert_same_key, digest
from tests.support.sources import load
from tests.support.switch import launch, switch_source

KERNEL = """
@triton.jit
def kernel(x, y, n, scale):
    offsets = tl.arange(0, 4)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) * scale)
"""
CONSTEXPR = KERNEL.replace("n,", "n: tl.constexpr,", 1)
kernel = load(KERNEL)["kernel"]


def called(**changes: Any) -> Call:
    return Call(kernel, {"x": torch.zeros(64), "y": torch.zeros(64), "n": 16, "scale": 2.0} | changes)


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.zeros(64)


def box() -> Any:
    layout = FixedLayout(torch.device("cpu"), torch.float32, [64], [1])
    return TensorBox(StorageBox(InputBuffer(name="x", layout=layout)))


def symint() -> Any:
    return ShapeEnv().create_unbacked_symint()


def symbool() -> Any:
    return symint() > 3


def same_storage() -> Call:
    shared = torch.zeros(64)
    return called(x=shared, y=shared)


TENSORS: dict[str, Callable[[], Any]] = {
    "shape": lambda: torch.zeros(2, 3, 5),
    "no elements": lambda: torch.zeros(0),
    "scalar tensor": lambda: torch.zeros(()),
    "stride": lambda: torch.zeros(8, 8).t(),
    "expanded": lambda: torch.zeros(1).expand(64),
    "alignment": lambda: torch.zeros(65)[1:],
    "device": lambda: torch.zeros(64, device="meta"),
    "grad": lambda: torch.zeros(64, requires_grad=True),
    "result with a graph": lambda: torch.zeros(64, requires_grad=True) * 2,
    "Parameter": lambda: torch.nn.Parameter(torch.zeros(64)),
    "FakeTensor": fake,
    "TensorBox": box,
    "contents": lambda: torch.ones(64),
}


@pytest.mark.parametrize("make", TENSORS.values(), ids=TENSORS.keys())
def test_of_a_tensor_only_the_element_type_matters(make: Callable[[], Any]) -> None:
    assert_same_key(called(), called(x=make()))
    assert_same_key(called(), called(y=make()))


def test_aliasing() -> None:
    assert_same_key(called(), same_storage())


SCALARS: dict[str, Callable[[], Call]] = {
    "divisible by 16 or not": lambda: called(n=17),
    "value 1": lambda: called(n=1),
    "value 0": lambda: called(n=0),
    "negative": lambda: called(n=-3),
    "bounds of i32": lambda: called(n=2**31 - 1),
    "float value": lambda: called(scale=-0.0),
    "infinite": lambda: called(scale=float("inf")),
    "not a number": lambda: called(scale=float("nan")),
}


if not NEWER:
    # torch 2.11 hands scalars to Triton as constants, and its keys hold their values: see test_rows_arguments.
    SCALARS = {"unchanged": called}


@pytest.mark.parametrize("make", SCALARS.values(), ids=SCALARS.keys())
def test_a_scalars_value_within_its_width(make: Callable[[], Call]) -> None:
    assert_same_key(called(), make())


def test_a_bools_value_of_one_type() -> None:
    others = (True, False) if NEWER else (True, True)
    assert_same_key(called(n=others[0]), called(n=others[1]))


@pytest.mark.parametrize("make", [symint, symbool], ids=["SymInt", "SymBool"])
def test_symbols_stand_for_the_int_2(make: Callable[[], Any]) -> None:
    assert_same_key(called(n=2), called(n=make()))
    constexpr = load(CONSTEXPR)["kernel"]
    assert_same_key(called(n=2)._replace(kernel=constexpr), called(n=make())._replace(kernel=constexpr))


def test_a_wrapped_constexpr_equals_its_value() -> None:
    constexpr = load(CONSTEXPR)["kernel"]
    first, second = called(n=64), called(n=tl.constexpr(64))
    assert_same_key(first._replace(kernel=constexpr), second._replace(kernel=constexpr))


def test_experimental_tma_metadata() -> None:
    metadata = {"x": create_tma_experimental_metadata([64], [16], 4)}
    assert_same_key(called(), called()._replace(tma=metadata))


def test_keyword_order_and_option_values() -> None:
    backwards = Call(kernel, dict(reversed(called().kwargs.items())))
    assert_same_key(called(), backwards)
    assert_same_key(called(num_warps=4), called(num_stages=3, num_warps=8))
    with target(*HIP_942):
        assert_same_key(called(waves_per_eu=1), called(waves_per_eu=2))


WRITTEN = {
    "comment": KERNEL.replace("    offsets", "    # what we write\n    offsets"),
    "docstring": KERNEL.replace("    offsets =", '    """What we write."""\n    offsets ='),
    "blank lines": KERNEL.replace("    tl.store", "\n\n    tl.store"),
    "indentation": KERNEL.replace("    ", "  "),
    "parentheses": KERNEL.replace("offsets < n", "(offsets\n        < (n))"),
    "quotes and trailing comma": KERNEL.replace("mask=offsets < n)", "mask=offsets < n,)"),
    "start line": "\n" * 50 + KERNEL,
    "nested in a function": "def make():\n"
    + "".join(f"    {line}\n" for line in KERNEL.splitlines())
    + "    return kernel\nkernel = make()\n",
    "kernel name": KERNEL.replace("kernel", "renamed") + "kernel = renamed\n",
    "version=": KERNEL.replace("@triton.jit", "@triton.jit(version=7)"),
    "debug=": KERNEL.replace("@triton.jit", "@triton.jit(debug=True)"),
    "launch_metadata=": KERNEL.replace("@triton.jit", "@triton.jit(launch_metadata=print)"),
    "kernel noinline": KERNEL.replace("@triton.jit", "@triton.jit(noinline=True)"),
    # torch 2.11 makes a constant of n, with the hints that do_not_specialize decides.
    "do_not_specialize": KERNEL.replace(
        "@triton.jit", f"@triton.jit(do_not_specialize={['n', 'x'] if NEWER else ['x']})"
    ),
    "do_not_specialize_on_alignment": KERNEL.replace(
        "@triton.jit", "@triton.jit(do_not_specialize_on_alignment=['x'])"
    ),
    "an unused global": "UNUSED = 3\n" + KERNEL,
    "another kernel beside it": KERNEL.replace("kernel", "other") + KERNEL,
}


@pytest.mark.parametrize("source", WRITTEN.values(), ids=WRITTEN.keys())
def test_the_way_it_is_written(source: str) -> None:
    assert_same_key(called(), called()._replace(kernel=load(source)["kernel"]))


ANNOTATIONS = [
    ("x", "tl.const"),
    ("x", "tl.tensor"),
    ("n", "tl.int32"),
    ("n", "'i64'"),
    ("n", "int"),
    ("scale", "float"),
]


@pytest.mark.parametrize(("name", "annotation"), ANNOTATIONS)
def test_const_and_scalar_annotations(name: str, annotation: str) -> None:
    signature = "x, y, n, scale"
    annotated = load(KERNEL.replace(signature, signature.replace(name, f"{name}: {annotation}")))["kernel"]
    assert_same_key(called(), called()._replace(kernel=annotated))


def test_the_kernels_own_defaults() -> None:
    source = "D = {}\n" + switch_source("v", "v: tl.constexpr = D") + "D = 0\n"
    assert_same_key(launch(load(source.format(1))["kernel"], v=1), launch(load(source.format(2))["kernel"], v=1))


def test_the_module_and_the_file() -> None:
    for module, path in (("other.package", None), ("__main__", "/somewhere/else.py"), ("kernels", "C:\\x.py")):
        assert_same_key(called(), called()._replace(kernel=load(KERNEL, module=module, path=path)["kernel"]))


HELPERS = """
@triton.jit
def {first}(p, q):
    tl.store(q, tl.load(p))
one = {first}
@triton.jit
def {second}(p, q):
    tl.store(p, 1.0)
two = {second}
@triton.jit
def kernel(x, y):
    one(x, y)
    two(x, y)
"""


def test_helper_names_up_to_equality() -> None:
    first = load(HELPERS.format(first="copy", second="fill"))["kernel"]
    second = load(HELPERS.format(first="move", second="set"))["kernel"]
    assert_same_key(launch(first), launch(second))


def test_later_configs_and_what_a_config_says_of_the_launch() -> None:
    def tuned(*configs: Any) -> Call:
        return called()._replace(kernel=triton.autotune(list(configs), key=["n"])(kernel))

    config = triton.Config
    plain = called()
    for configs in (
        (),
        (config({}),),
        (config({}), config({"n": 2**40})),
        (config({}, num_warps=8, num_stages=5),),
        (config({}, pre_hook=print),),
    ):
        assert_same_key(plain, tuned(*configs))


VARIABLES = {
    "TRITON_DEBUG": "1",
    "TRITON_DEFAULT_FP_FUSION": "0",
    "TRITON_DISABLE_LINE_INFO": "1",
    "TRITON_CACHE_DIR": "/nowhere",
    "TRITON_HOME": "/nowhere",
    "TRITON_DUMP_DIR": "/nowhere",
    "TRITON_ALWAYS_COMPILE": "1",
    "TRITON_PRINT_AUTOTUNING": "1",
    "TRITON_KERNEL_DUMP": "1",
}


@pytest.mark.parametrize("name", VARIABLES)
def test_environment_variables_that_do_not_reach_ttir(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = answer(called()), digest(called())
    monkeypatch.setenv(name, VARIABLES[name])
    assert (answer(called()), digest(called())) == before
