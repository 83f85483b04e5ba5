"""Triton and PyTorch patched in memory: what code generation would run is no longer what the files say."""

from __future__ import annotations

from typing import Any

import pytest
import torch._higher_order_ops.triton_kernel_wrap as wrap
import triton
import triton.language as tl
import triton.language.extra.cuda as cuda
from triton.backends import backends
from triton.language import target_info

from tests.support.analysis import SEAM
from tests.support.calls import Call, answer, digest, outcome
from tests.support.sources import load
from tests.support.switch import launch, switch

INFO = "from triton.language.target_info import cuda_capability_geq\n"


def plain() -> Call:
    return launch(load("@triton.jit\ndef kernel(x, y):\n    tl.store(y, tl.load(x))\n")["kernel"])


def other_load(*arguments: Any, **others: Any) -> Any:
    """Not Triton's load."""
    return tl.zeros((), tl.float32)


def always(*arguments: Any, **others: Any) -> bool:
    return True


class Builtin:
    """As users write one: the wrapper that Triton's decorator makes is Triton's own code, what it wraps is not."""

    load = staticmethod(tl.core.builtin(other_load))


PATCHES: dict[str, tuple[Any, str, Any]] = {
    "a function of tl": (tl, "load", Builtin.load),
    "a function of tl.core": (tl.core, "load", Builtin.load),
    "a tensor method": (tl.tensor, "to", other_load),
    "a constexpr method": (tl.constexpr, "__bool__", always),
    "a dtype method": (tl.dtype, "is_floating", always),
    "the code generator": (triton.compiler.code_generator.CodeGenerator, "visit_Name", always),
    "the code generator's entry": (triton.compiler.code_generator, "ast_to_ttir", always),
    "the semantics": (tl.semantic.TritonSemantic, "load", other_load),
    "the jit module": (triton.runtime.jit.JITCallable, "parse", always),
    "PyTorch's generation": (wrap, "generate_ttir", always),
    "PyTorch's walk": (wrap, "ttir_to_functions", always),
    "the backend's code generation": (backends["nvidia"].compiler, "get_codegen_implementation", always),
    "PyTorch's operation": (wrap, "Op", always),
    "PyTorch's parameter": (wrap, "Param", always),
    "PyTorch's reading of descriptors": (wrap, "maybe_unpack_tma_stable_metadata", always),
    "the backend's conversion of types": (cuda, "convert_custom_float8_sm80", always),
    "what the target is said to be": (target_info, "current_target", always),
}


@pytest.mark.parametrize(("owner", "name", "value"), PATCHES.values(), ids=PATCHES.keys())
def test_a_patched_triton_or_torch_has_no_key(
    owner: Any, name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = launch(switch("cuda_capability_geq(9, 0)", "", INFO))
    before = digest(call)
    monkeypatch.setattr(owner, name, value)
    assert outcome(call) == "bypass: patched"
    monkeypatch.undo()
    assert digest(call) == before


def test_a_builtin_in_the_place_of_tritons_own_flips_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    call = plain()
    before = answer(call)
    monkeypatch.setattr(tl, "load", Builtin.load)
    assert answer(call) != before
    assert outcome(call) == "bypass: patched"


def test_the_text_of_tritons_own_functions_counts() -> None:
    """`tl.cdiv` is a JIT function like a user's, and its text can be replaced in the same way."""
    call = launch(switch("tl.cdiv(3, 2) == 2", ""))
    said, key, text = answer(call), digest(call), tl.cdiv._src
    try:
        tl.cdiv._unsafe_update_src("def cdiv(x, div):\n    tl.static_assert(False)")
        assert answer(call) != said
        assert outcome(call) != key
    finally:
        tl.cdiv._unsafe_update_src(text)
    assert (answer(call), digest(call)) == (said, key)


def test_the_code_of_a_triton_function_replaced_in_place_counts() -> None:
    call = launch(switch("cuda_capability_geq(9, 0)", "", INFO))
    said, key = answer(call), digest(call)
    function = target_info.cuda_capability_geq.fn
    code = function.__code__
    try:
        function.__code__ = (lambda major, minor=0: False).__code__
        assert answer(call) != said
        assert outcome(call) != key
    finally:
        function.__code__ = code
    assert (answer(call), digest(call)) == (said, key)


def test_wrapping_the_entry_is_no_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another cache may sit on the seam; what it returns is judged by where the result came from."""
    call = plain()
    before = digest(call)
    original = getattr(wrap, SEAM)
    monkeypatch.setattr(wrap, SEAM, lambda *arguments: original(*arguments))
    assert digest(call) == before
