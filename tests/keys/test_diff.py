"""Every kind of change that gives another key is named by its true cause, and nothing else is named.

The launches are those of the rows that show that the key changes (test_rows_*): real kernels, keyed for real.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._higher_order_ops.triton_kernel_wrap as wrap
import triton
from hypothesis import given
from hypothesis import strategies as st

from tests.keys import test_rows_arguments as rows_arguments
from tests.keys import test_rows_code as rows_code
from tests.keys.test_rows_environment import Op
from tests.support.analysis import CUDA_80, CUDA_90, HIP_942, NEWER, target
from tests.support.calls import Call
from tests.support.sources import load
from tests.support.switch import launch, switch
from tritonstore.errors import Bypass
from tritonstore.keys import call_key
from tritonstore.keys.diff import Described, Difference, differences

CODE = {
    "global constexpr value": "global FLAG 1 → 2 in kernel kernel",
    "global constexpr 1 or '1'": "global FLAG 1 → '1' in kernel kernel",
    "global constexpr 1 or True": "global FLAG 1 → True in kernel kernel",
    "global constexpr 0.0 or -0.0": "global F 0.0 → -0.0 in kernel kernel",
    "global constexpr dtype or its name": "global T tl.fp32 → 'fp32' in kernel kernel",
    "bare dtype global": "global T tl.fp32 → tl.fp16 in kernel kernel",
    "global constexpr tuple": "global F (1, 2) → (1, 3) in kernel kernel",
    "mutated constexpr": "global F 1 → 2 typed as 1 in kernel kernel",
    "mutated constexpr list": "global F [1] → [2] in kernel kernel",
    "global removed": "global F is no longer defined in kernel kernel",
    "global no longer constexpr": "global F 1 → something a kernel may not read in kernel kernel",
    "global None": "global F None → 1 in kernel kernel",
    "global named like a builtin": "global max 1 → 2 in kernel kernel",
    "helper named like a builtin": "the helper min: read → write",
    "global behind a local in a dead branch": "global FLAG True → False in kernel kernel",
    "closure that shadows a global": ("closure variable FLAG something a kernel may not read → False in kernel kernel"),
    "helper in a closure": "the helper helper: read → write",
    "helper": "the helper helper: read → write",
    "helper of a helper": "the helper helper: read → write",
    "helper at depth three": "the helper helper: read → write",
    "global of a deep helper": "global helper is no longer defined in helper middle",
    "helper in a module": "the helper cfg.f: read → write",
    "helper's source": "helper read changed",
    "kernel's source": "kernel kernel changed",
    "module attribute, int": "cfg.X 1 → 2 in kernel kernel",
    "module attribute, bool or int": "cfg.X True → 1 in kernel kernel",
    "module attribute, constexpr": "cfg.X 1 → 2 in kernel kernel",
    "module attribute, dtype": "cfg.X tl.fp32 → tl.fp16 in kernel kernel",
    "module attribute removed": "cfg.X 1 → something a kernel may not read in kernel kernel",
    "module replaced": "cfg.X 1 → 2 in kernel kernel",
    "module in a module": "cfg.sub.X 1 → 2 in kernel kernel",
    "return checker's attribute": "attribute held.to there → not there in kernel kernel",
    "default expression": "global NAME is no longer defined in a parameter of kernel kernel",
    "annotation expression": "global NAME is no longer defined in a parameter of kernel kernel",
    "annotation alias of a default": "an annotation or default of kernel kernel changed",
    "module attribute, constexpr or bare": "cfg.X tl.constexpr 1 → int 1 in kernel kernel",
    "annotation alias of a local": "global A tl.int32 → Triton's constexpr in kernel kernel",
    "helper in a tuple of a constexpr": "the helper F: read → write",
    "helper renamed onto another": (
        "two helpers now share one full name, or no longer do: Triton generates only one of them"
    ),
    "helper's noinline": "helper helper is now noinline",
    "constexpr whose value and type disagree": "global F 1 → 1 typed as 2 in kernel kernel",
}
ARGUMENTS = {
    "None or int": "v None → i32",
    "constexpr 1 or True": "v 1 → True",
    "constexpr 1 or 1.0": "v 1.0 → 1",
    "constexpr True or 1.0": "v 1.0 → True",
    "constexpr 0.0 or -0.0": "v 0.0 → -0.0",
    "constexpr nan or inf": "v inf → nan",
    "constexpr int value": "v 64 → 128",
    "constexpr None or 0": "v None → 0",
    "constexpr None or 'None'": "v None → 'None'",
    "constexpr 1 or '1'": "v 1 → '1'",
    "constexpr 2**31 - 1 or 2**31": "v 2147483647 → 2147483648",
    "constexpr 10**10 or 10": "v 10000000000 → 10",
    "constexpr str value": "v 'sum' → 'max'",
    "constexpr tl.float32 or torch.float32": "v tl.fp32 → torch.float32",
    "constexpr tl.float32 or 'fp32'": "v tl.fp32 → 'fp32'",
    "constexpr tl.float32 or tl.float16": "v tl.fp32 → tl.fp16",
    "constexpr torch.float32 or torch.float16": "v torch.float32 → torch.float16",
    "constexpr tuple element": "v (1, 2) → (1, 3)",
    "constexpr tuple element type": "v (True,) → (1,)",
    "constexpr tuple length": "v (1,) → (1, 1)",
    "constexpr tuple nesting": "v ((1, 2), 3) → ((1, 2, 3),)",
    "constexpr SymInt or 3": "v 2 → 3",
}
if NEWER:
    ARGUMENTS |= {
        "2**31 - 1 or 2**31": "v i32 → i64",
        "-2**31 or -2**31 - 1": "v i32 → i64",
        "2**63 - 1 or 2**63": "v i64 → u64",
        "2**64 - 1 or -1": "v u64 → i32",
        "bool or int": "v i1 → i32",
        "float or int": "v fp32 → i32",
        "constexpr 2**32 - 1 or 2**32": "v 4294967295 → 4294967296",
        "SymInt or 2**40": "v i32 → i64",
    }
else:
    ARGUMENTS |= {
        "None or int": "v None → 2",
        "int value": "v 1 → 2",
        "float value": "v 1.0 → 2.0",
        "bool value": "v True → False",
        "bool or int": "v 1 → True",
        "SymInt or 3": "v 2 → 3",
    }


def described(call: Call) -> Described:
    key = call_key(call.kernel, call.kwargs, call.tma)
    return Described(key.parts, key.describe())


def causes(old: Call | Described, new: Call | Described) -> list[str]:
    ends = [described(end) if isinstance(end, Call) else end for end in (old, new)]
    assert differences(ends[0], ends[0]) == []
    return [difference.text for difference in differences(*ends)]


def test_no_kind_of_change_is_left_out() -> None:
    keyed = {name for name, row in rows_code.ROWS.items() if not _bypasses(row)}
    assert keyed - set(CODE) == set()
    assert set(rows_arguments.ROWS) - set(ARGUMENTS) == set()


def _bypasses(row: rows_code.Row) -> bool:
    try:
        described(_state(row, "right"))
    except Bypass:
        return True
    return False


def _state(row: rows_code.Row, side: str) -> Call:
    namespace = load(row.source)
    exec(getattr(row, side), namespace)
    return rows_code.call_of(namespace)


@pytest.mark.parametrize("name", [name for name in CODE if name in rows_code.ROWS])
def test_code(name: str) -> None:
    row = rows_code.ROWS[name]
    assert causes(_state(row, "left"), _state(row, "right")) == [CODE[name]]


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name in rows_arguments.ROWS])
def test_arguments(name: str) -> None:
    row = rows_arguments.ROWS[name]
    kernel = switch(row.condition, row.parameters)
    assert causes(launch(kernel, v=row.left), launch(kernel, v=row.right)) == [ARGUMENTS[name]]


def test_several_causes_at_once_are_all_named() -> None:
    source = """
        SCALE = tl.constexpr({})
        @triton.jit
        def _rms(p, q):
            tl.store(p, tl.load(q) * {})
        @triton.jit
        def kernel(x, y, BLOCK_N: tl.constexpr):
            _rms(x, y)
            tl.store(y, SCALE)
    """
    old = launch(load(source.format(2, 1))["kernel"], BLOCK_N=64)
    new = launch(load(source.format(3, 2), module="moved")["kernel"], BLOCK_N=128)
    new.kwargs["x"] = torch.zeros(4, dtype=torch.float16)
    with target(*CUDA_80):
        before = described(old)
    with target(*CUDA_90):
        after = described(new)
    assert causes(before, after) == [
        "target sm_80 → sm_90",
        "x *fp32 → *fp16",
        "BLOCK_N 64 → 128",
        "global SCALE 2 → 3 in kernel kernel",
        "helper _rms changed",
    ]


def test_what_does_not_matter_is_not_named() -> None:
    """Another module, another name, another position of a helper: equal questions, and no cause is made up."""
    source = """
        F = tl.constexpr({f})
        @triton.jit
        def {a}(p):
            tl.store(p, 1.0)
        @triton.jit
        def {b}(p):
            tl.load(p)
        @triton.jit
        def kernel(x, y):
            {a}(x)
            {b}(y)
            tl.store(y, F)
    """
    old = launch(load(source.format(a="first", b="second", f=1))["kernel"])
    new = launch(load(source.format(a="first", b="second", f=2), module="elsewhere")["kernel"])
    assert causes(old, new) == ["global F 1 → 2 in kernel kernel"]


def test_a_function_given_as_an_argument() -> None:
    helpers = rows_arguments.helpers
    assert causes(launch(helpers["kernel"], v=helpers["one"]), launch(helpers["kernel"], v=helpers["two"])) == [
        "the function given to v: one → two"
    ]
    pair = helpers["second_of_pair"]
    assert causes(launch(pair, v=(1, helpers["one"])), launch(pair, v=(1, helpers["two"]))) == [
        "the function given to v: one → two"
    ]


def test_parameters_of_kernels_and_helpers() -> None:
    source = """
        D = {default}
        @triton.jit
        def helper(p, {second}extra{annotation}=D):
            tl.store(p, 1.0)
        D = 0
        @triton.jit
        def kernel(x, y{third}):
            helper(x)
    """

    def call(default: int = 1, second: str = "", annotation: str = ": tl.constexpr", third: str = "") -> Call:
        text = source.format(default=default, second=second, annotation=annotation, third=third)
        return launch(load(text)["kernel"], **({"z": 1} if third else {}))

    assert causes(call(), call(default=2)) == ["the default of extra in helper helper: 1 → 2"]
    assert causes(call(), call(second="q=None, ")) == ["the parameters of helper helper changed"]
    assert causes(call(), call(annotation="")) == ["parameter extra of helper helper is no longer a constexpr"]
    assert causes(call(), call(third=", z")) == ["parameter z is new", "the parameters of kernel kernel changed"]
    assert causes(call(third=", z"), call()) == ["parameter z is gone", "the parameters of kernel kernel changed"]


def test_whether_the_caller_passed_a_tensor() -> None:
    kernel = load("@triton.jit\ndef kernel(x, y):\n    tl.store(x, 1.0)\n")["kernel"]
    tuned = triton.autotune([triton.Config({"y": 1})], key=[])(kernel)
    old = Call(tuned, {"x": torch.zeros(4), "y": torch.zeros(4)})
    new = Call(tuned, {"x": torch.zeros(4), "y": 5})
    assert causes(old, new) == ["y: the caller's value is no longer a tensor"]
    assert causes(new, old) == ["y: the caller's value is now a tensor"]


def test_pointers() -> None:
    kernel = load("@triton.jit\ndef kernel(x, y):\n    tl.store(x, 1.0)\n")["kernel"]
    half = Call(kernel, {"x": torch.zeros(4, dtype=torch.float16), "y": torch.zeros(4)})
    assert causes(half, launch(kernel)) == ["x *fp16 → *fp32"]


PLAIN = "@triton.jit\ndef kernel(x, y):\n    tl.store(y, tl.load(x))\n"


@contextlib.contextmanager
def environment(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv(name, value)
        yield


def test_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    call = launch(load(PLAIN)["kernel"])
    told = {}
    for name, place in {
        "sm_80": CUDA_80,
        "sm_90": CUDA_90,
        "gfx942": HIP_942,
        "wave": ("hip", "gfx942", 32),
    }.items():
        with target(*place):
            told[name] = described(call)
    assert causes(told["sm_80"], told["sm_90"]) == ["target sm_80 → sm_90"]
    assert causes(told["sm_90"], told["gfx942"]) == ["target cuda sm_90 → hip gfx942", "warp size 32 → 64"]
    assert causes(told["gfx942"], told["wave"])[0] == "warp size 64 → 32"
    with environment(monkeypatch, "TRITON_F32_DEFAULT", "ieee"):
        assert causes(told["sm_90"], call) == ["TRITON_F32_DEFAULT not set → 'ieee'"]
    with environment(monkeypatch, "TRITON_OVERRIDE_ARCH", "sm80"):
        assert "option arch 'sm90' → 'sm80'" in causes(told["sm_90"], call)
    with torch.device("meta"):
        assert causes(told["sm_90"], call) == ["default device cpu → meta"]


def test_the_table_of_access_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    call = launch(load(PLAIN)["kernel"])
    monkeypatch.setattr(wrap, "_KERNEL_ACCESS_OPS", {"tt.store": Op(write_indexes=wrap.get_kernel)}, raising=False)
    before = described(call)
    wrap._KERNEL_ACCESS_OPS["tt.load"] = Op(read_indexes=wrap.get_kernel)
    assert causes(before, call) == ["PyTorch's table of access operations changed for tt.load"]


def test_patches_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    call = launch(load(PLAIN)["kernel"])
    before = described(call)
    monkeypatch.setattr(triton.language, "load", triton.language.store)
    assert causes(before, call)[0] == (
        "Triton or PyTorch's analysis was rearranged in memory (a patch, or an alias that moved)"
    )


def toolchain(**changes: Any) -> Described:
    detail = {
        "torch": "2.13.0",
        "torch_git": "a",
        "analysis": "b",
        "analysis_files": {"_inductor/utils.py": "1", "utils/_triton.py": "2"},
        "triton": "3.7.1",
        "triton_files": "c",
        "python": "cpython 3.11",
        "in_memory": "d",
        **changes,
    }
    return Described({"toolchain": repr(sorted(detail.items()))}, {"toolchain": detail})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # A new version brings new files and another memory image, which are then no causes of their own.
        ({"triton": "3.8.0", "triton_files": "x", "in_memory": "y"}, ["triton 3.7.1 → 3.8.0"]),
        (
            {"torch": "2.14.1", "torch_git": "x", "analysis": "y", "analysis_files": {}, "in_memory": "z"},
            ["torch 2.13.0 → 2.14.1"],
        ),
        ({"torch": "2.14.1", "triton": "3.8.0"}, ["torch 2.13.0 → 2.14.1", "triton 3.7.1 → 3.8.0"]),
        ({"python": "cpython 3.12"}, ["python cpython 3.11 → cpython 3.12"]),
        ({"python": "cpython 3.11 -O"}, ["python cpython 3.11 → cpython 3.11 -O"]),
        ({"torch_git": "x"}, ["torch 2.13.0 was built from another commit"]),
        (
            {"analysis": "x", "analysis_files": {"_inductor/utils.py": "9", "utils/_triton.py": "2"}},
            ["the text of PyTorch's analysis changed: _inductor/utils.py"],
        ),
        ({"triton_files": "x", "in_memory": "y"}, ["the files of triton 3.7.1 changed"]),
    ],
)
def test_toolchains(changes: dict[str, Any], said: list[str]) -> None:
    assert causes(toolchain(), toolchain(**changes)) == said


def test_entries_of_an_older_version_name_the_function() -> None:
    """There a function was described by its name and one digest."""
    old = Described({"code": "a"}, {"code": [["m.kernel", "1"], ["m.helper", "2"]]})
    assert causes(old, Described({"code": "b"}, {"code": [["m.kernel", "3"], ["m.helper", "2"]]})) == [
        "kernel kernel changed"
    ]


def test_a_part_that_nothing_explains_is_still_named() -> None:
    for part, said in {
        "toolchain": "the toolchain (torch, triton or Python) changed",
        "target": "the target changed",
        "ops": "PyTorch's table of access operations changed",
        "arguments": "the arguments changed",
        "code": "the code changed",
        "weather": "the part 'weather' changed",
    }.items():
        assert differences(Described({part: "a"}, {}), Described({part: "b"}, {})) == [Difference(part, part, said)]
        assert differences(Described({}, {}), Described({part: "b"}, {})) == [Difference(part, part, said)]


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
token = st.recursive(
    st.sampled_from(["jit", "int", "float", "str", "tuple", "long", "has", "triton", "constexpr", "x"]) | plain,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
node = st.fixed_dictionaries(
    {},
    optional={
        "name": token,
        "body": plain,
        "parameters": st.lists(st.lists(token, max_size=4), max_size=3) | plain,
        "names": st.lists(st.lists(token, min_size=3, max_size=5), max_size=3) | plain,
        "all_names": plain,
        "alike": plain,
    },
)
detail = st.fixed_dictionaries(
    {},
    optional={
        "toolchain": plain | st.dictionaries(st.sampled_from(["torch", "triton", "analysis_files", "analysis"]), plain),
        "target": plain | st.dictionaries(st.sampled_from(["arch", "backend", "options"]), token),
        "ops": plain,
        "arguments": st.lists(st.lists(token, max_size=4), max_size=4) | plain,
        "code": st.lists(node | plain, max_size=4) | plain,
    },
)


@given(detail, detail)
def test_nothing_in_a_description_can_break_it(old: dict[str, Any], new: dict[str, Any]) -> None:
    parts = ("toolchain", "target", "ops", "arguments", "code")
    told = differences(Described(dict.fromkeys(parts, "a"), old), Described(dict.fromkeys(parts, "b"), new))
    assert {difference.part for difference in told} == set(parts)
    assert all(type(difference.text) is str and type(difference.field) is str for difference in told)
