"""Environment: the target, Triton's switches, the default device and the table of operations; and what bypasses."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import pytest
import torch
import torch._higher_order_ops.triton_kernel_wrap as wrap
import triton
from triton.backends import backends
from triton.backends.compiler import BaseBackend

from tests.support.analysis import CUDA_75, CUDA_80, CUDA_90, CUDA_100, HIP_942, no_target, target
from tests.support.calls import Call, answer, digest, outcome
from tests.support.sources import load
from tests.support.switch import launch, switch
from tritonstore.keys import target as part

DOT = """
@triton.jit
def kernel(x, y):
    r = tl.arange(0, 16)
    tile = tl.load(x + r[:, None] * 16 + r[None, :])
    tl.store(y + r[:, None] * 16 + r[None, :], tl.dot(tile, tile))
"""
FP8 = "@triton.jit\ndef kernel(x, y):\n    tl.store(y, tl.load(x).to(tl.float32))\n"
INFO = "from triton.language.target_info import is_hip, cuda_capability_geq\n"


def fp8_call() -> Call:
    return Call(load(FP8)["kernel"], {"x": torch.zeros(4).to(torch.float8_e4m3fn), "y": torch.zeros(4)})


def plain() -> Call:
    return launch(load("@triton.jit\ndef kernel(x, y):\n    tl.store(y, tl.load(x))\n")["kernel"])


TARGETS = {
    "backend": (CUDA_90, HIP_942, "is_hip()"),
    "arch": (CUDA_80, CUDA_90, "cuda_capability_geq(9, 0)"),
    "older arch": (CUDA_75, CUDA_80, "cuda_capability_geq(8, 0)"),
    "newer arch": (CUDA_90, CUDA_100, "cuda_capability_geq(10, 0)"),
}


@pytest.mark.parametrize(("left", "right", "condition"), TARGETS.values(), ids=TARGETS.keys())
def test_a_target_that_the_kernel_asks_for_changes_the_key(left: Any, right: Any, condition: str) -> None:
    call = launch(switch(condition, "", INFO))
    seen = []
    for place in (left, right, left):
        with target(*place):
            seen.append((answer(call), digest(call)))
    assert seen[0] == seen[2]
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]


def test_warp_size_and_the_type_of_the_arch_change_the_key() -> None:
    call = plain()
    keys = []
    for place in (("cuda", 90, 32), ("cuda", 90, 64), ("hip", "gfx942", 64), ("hip", "gfx942", 32)):
        with target(*place):
            keys.append(digest(call))
    with target("cuda", "90", 32):
        keys.append(outcome(call))
    assert len(set(keys)) == len(keys)


def test_override_arch_changes_the_options_but_not_target_info(monkeypatch: pytest.MonkeyPatch) -> None:
    fp8, asking = fp8_call(), launch(switch("cuda_capability_geq(9, 0)", "", INFO))
    before = [(answer(call), digest(call)) for call in (fp8, asking)]
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", "sm80")
    assert answer(fp8).failed
    assert not before[0][0].failed
    assert digest(fp8) != before[0][1]
    assert answer(asking) == before[1][0]
    with target(*CUDA_80):
        real = digest(asking)
    assert len({digest(asking), before[1][1], real}) == 3
    monkeypatch.delenv("TRITON_OVERRIDE_ARCH")
    assert [(answer(call), digest(call)) for call in (fp8, asking)] == before


def test_the_fp32_default_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    call = launch(load(DOT)["kernel"])
    precise, key = answer(call), digest(call)
    monkeypatch.setenv("TRITON_F32_DEFAULT", "no such precision")
    assert answer(call).failed
    assert not precise.failed
    assert outcome(call) != key
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    ieee = digest(call)
    monkeypatch.delenv("TRITON_F32_DEFAULT")
    assert digest(call) == key != ieee


def test_a_knob_set_from_python_counts_like_its_variable(fresh_triton_knobs: Any) -> None:
    call = plain()
    before = digest(call)
    fresh_triton_knobs.language.fp32_default = "ieee"
    assert digest(call) != before
    fresh_triton_knobs.compilation.allow_non_constexpr_globals = True
    assert outcome(call) == "bypass: non-constexpr-globals"


@pytest.fixture
def fresh_triton_knobs() -> Any:
    with triton.knobs.language.scope(), triton.knobs.compilation.scope():
        yield triton.knobs


SWITCHES = {
    "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS": ("1", "non-constexpr-globals"),
    "TRITON_INTERPRET": ("1", "interpret"),
    "TRITON_PLUGIN_PATHS": ("/nowhere/plugin.so", "plugins"),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_that_bypass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = plain()
    before = digest(call)
    value, reason = SWITCHES[name]
    monkeypatch.setenv(name, value)
    assert outcome(call) == f"bypass: {reason}"
    monkeypatch.delenv(name)
    assert digest(call) == before


def test_non_constexpr_globals_flip_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    call = launch(switch("PLAIN == 1", "", "PLAIN = 1"))
    assert answer(call).failed
    monkeypatch.setenv("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", "1")
    assert answer(call).writes == ("x",)


def test_without_a_driver_there_is_no_key() -> None:
    call = plain()
    with no_target():
        assert answer(call).failed
        assert outcome(call) == "bypass: no-target"
    assert not answer(call).failed


def test_an_unknown_backend_has_no_key() -> None:
    with target("quantum", 1, 1):
        assert outcome(plain()) == "bypass: backend"


def test_a_backend_from_outside_triton_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia = backends["nvidia"].compiler

    class Foreign(nvidia):  # type: ignore[misc, valid-type]
        """Built on Triton's own, and could still do anything."""

        @staticmethod
        def supports_target(target: Any) -> bool:
            return bool(target.backend == "foreign")

    entry = types.SimpleNamespace(compiler=Foreign, driver=None)
    assert issubclass(Foreign, BaseBackend)
    monkeypatch.setitem(backends, "foreign", entry)
    with target("foreign", 90, 32):
        assert outcome(plain()) == "bypass: backend"


def test_a_backend_that_is_replaced_after_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    call = plain()
    said, before = answer(call), digest(call)

    class Failing(backends["nvidia"].compiler):  # type: ignore[misc]
        def get_codegen_implementation(self, options: Any) -> Any:
            raise RuntimeError("no code")

    monkeypatch.setitem(backends, "nvidia", dataclasses.replace(backends["nvidia"], compiler=Failing))
    assert answer(call) != said
    assert outcome(call) == "bypass: backend"
    monkeypatch.undo()
    assert (answer(call), digest(call)) == (said, before)


def test_a_backend_that_is_instrumented_after_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    call = plain()
    before = digest(call)
    monkeypatch.setattr(backends["nvidia"].compiler, "instrumentation", object())
    assert [outcome(call), outcome(call)] == ["bypass: backend"] * 2
    monkeypatch.undo()
    assert digest(call) == before


@pytest.mark.parametrize("back", [False, True], ids=["and stays", "and is unset"])
def test_a_variable_that_another_thread_sets_while_the_target_is_worked_out(
    back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part made of it must not stand for the environment before, to which the process returns."""
    call = launch(load(DOT)["kernel"])
    before = digest(call)
    make, pack = part.make_backend, part.part_digest

    def setting(place: Any) -> Any:
        monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
        return make(place)

    def unsetting(name: str, record: Any) -> str:
        if back:
            monkeypatch.delenv("TRITON_F32_DEFAULT")
        return pack(name, record)

    monkeypatch.setenv("UNRELATED", "1")  # so it is worked out again
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, "make_backend", setting)
        patch.setattr(part, "part_digest", unsetting)
        assert digest(call) != before
    monkeypatch.delenv("TRITON_F32_DEFAULT", raising=False)
    assert digest(call) == before


def test_a_default_device_that_fails_is_not_remembered_as_precise() -> None:
    """PyTorch makes stand-ins for FakeTensors on the default device; on one that is absent, every analysis fails."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        call = plain()._replace(kwargs={"x": torch.zeros(4), "y": torch.zeros(4)})
    before = answer(call), digest(call)
    with torch.device("xla"):
        assert answer(call).failed
        assert not before[0].failed
        assert outcome(call) != before[1]
    assert (answer(call), digest(call)) == before


@dataclasses.dataclass(frozen=True)
class Op:
    """An entry as torch 2.14's table has them."""

    read_indexes: Any = None
    write_indexes: Any = None
    is_tma_store: bool = False
    ignore_if: Any = None


def test_the_table_of_access_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    call = plain()
    own = wrap.get_kernel
    monkeypatch.setattr(wrap, "_KERNEL_ACCESS_OPS", {"tt.store": Op(write_indexes=own)}, raising=False)
    keys = [digest(call)]
    wrap._KERNEL_ACCESS_OPS["tt.load"] = Op(read_indexes=own)
    keys.append(digest(call))
    wrap._KERNEL_ACCESS_OPS["tt.load"] = Op(write_indexes=own)
    keys.append(digest(call))
    wrap._KERNEL_ACCESS_OPS["tt.load"] = Op(read_indexes=own, is_tma_store=True)
    keys.append(digest(call))
    assert len(set(keys)) == 4
    wrap._KERNEL_ACCESS_OPS["tt.mine"] = Op(read_indexes=lambda op: [0])
    assert outcome(call) == "bypass: access-ops"
    del wrap._KERNEL_ACCESS_OPS["tt.mine"]
    assert digest(call) == keys[3]
