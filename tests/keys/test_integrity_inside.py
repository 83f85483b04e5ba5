"""Inside Triton's objects: tables changed in place, functions given other code, and the modules they are taken from."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch._higher_order_ops.triton_kernel_wrap as analysis
import triton.language.random
from triton._utils import type_canonicalisation_dict
from triton.compiler.code_generator import CodeGenerator
from triton.language import core, semantic, target_info
from triton.runtime.jit import JITFunction

from tests.support.analysis import HIP_942, target
from tests.support.calls import Call, answer, digest, outcome
from tests.support.sources import load
from tests.support.switch import launch, switch, switch_source
from tritonstore.errors import Bypass
from tritonstore.keys.integrity import snapshot

TABLES = {
    "builtin functions": (CodeGenerator.builtin_namespace, "max", CodeGenerator.builtin_namespace["min"]),
    "a new builtin function": (CodeGenerator.builtin_namespace, "brand_new", core.load),
    "functions run at once": (
        CodeGenerator.statically_implemented_functions,
        len,
        CodeGenerator.statically_implemented_functions[int],
    ),
    "names of types": (type_canonicalisation_dict, "float32", "fp16"),
    "a class's list": (core.dtype.FP_TYPES, 0, "fp64"),
}


@pytest.mark.parametrize(("table", "key", "value"), TABLES.values(), ids=TABLES)
def test_a_table_changed_in_place_is_another_toolchain(
    table: Any, key: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot().digest
    with changed(table, key, value):
        after = snapshot().digest
        assert after != before
        assert snapshot().digest == after
    assert snapshot().digest == before


@pytest.mark.parametrize("name", ["builtin functions", "functions run at once"])
def test_a_foreign_function_in_a_table_bypasses(name: str) -> None:
    table, key, _ = TABLES[name]
    before = snapshot().digest
    with changed(table, key, lambda *args: None), pytest.raises(Bypass, match="not Triton's"):
        snapshot()
    assert snapshot().digest == before


@contextlib.contextmanager
def changed(table: Any, key: Any, value: Any) -> Iterator[None]:
    kept = table.copy()
    table[key] = value
    try:
        yield
    finally:
        table.clear()
        (table.update if isinstance(table, dict) else table.extend)(kept)


def test_a_builtin_of_the_code_generator_in_anothers_place() -> None:
    call = launch(switch("max(1, 2) == 2", ""))
    said, key = answer(call), digest(call)
    with changed(CodeGenerator.builtin_namespace, "max", CodeGenerator.builtin_namespace["min"]):
        assert answer(call) != said
        assert outcome(call) not in (key, "bypass: patched")
    assert digest(call) == key


def elsewhere(*args: Any, **others: Any) -> bool:
    return False


def inside(builtin: Any) -> Any:
    """The function in the wrapper that Triton's decorator makes."""
    return next(cell.cell_contents for cell in builtin.__closure__ if callable(cell.cell_contents))


INSIDES: dict[str, tuple[Any, str, Any]] = {
    "the code of a rule of the semantic": (semantic.TritonSemantic.add, "__code__", elsewhere.__code__),
    "the code of a step of code generation": (CodeGenerator.visit_If, "__code__", elsewhere.__code__),
    "the code of a step, for another of Triton's": (
        CodeGenerator.visit_If,
        "__code__",
        CodeGenerator.visit_While.__code__,
    ),
    "the code of a builtin, in its wrapper": (
        inside(core.load),
        "__code__",
        elsewhere.__code__,
    ),
    "the code behind a property": (JITFunction.type.fget, "__code__", elsewhere.__code__),
    "the code of a builtin tensor method": (inside(core.tensor.__add__), "__code__", elsewhere.__code__),
    "the code of a constexpr function": (target_info.cuda_capability_geq.fn, "__code__", elsewhere.__code__),
    "the defaults of a step": (JITFunction.__init__, "__defaults__", (1,) * 7),
    "the keyword defaults of a step": (CodeGenerator.__init__, "__kwdefaults__", {"is_kernel": True}),
    "the code of PyTorch's generation": (analysis.generate_ttir, "__code__", elsewhere.__code__),
    "the code of PyTorch's generation, for another of PyTorch's": (
        analysis.generate_ttir,
        "__code__",
        analysis.ttir_to_functions.__code__,
    ),
}


@pytest.mark.parametrize(("function", "attribute", "value"), INSIDES.values(), ids=INSIDES)
def test_what_is_replaced_in_place_is_noticed_at_the_next_new_key(
    function: Any, attribute: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking into a thousand functions at each call would cost more than the call."""
    before = digest(fresh())
    monkeypatch.setattr(function, attribute, value)
    after = outcome(fresh())
    assert after != before
    assert outcome(fresh()) == after
    monkeypatch.undo()
    assert digest(fresh()) == before


def fresh() -> Call:
    """A launch that has no key yet."""
    return launch(
        switch("cuda_capability_geq(9, 0)", "", "from triton.language.target_info import cuda_capability_geq\n")
    )


def test_a_default_replaced_in_place_shows_in_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cuda_capability_geq(8)` asks for 8.0; with another default it asks for more than the target has."""
    source = switch_source(
        "cuda_capability_geq(9)", "", "from triton.language.target_info import cuda_capability_geq\n"
    )
    said, key = answer(launch(load(source)["kernel"])), digest(launch(load(source)["kernel"]))
    monkeypatch.setattr(target_info.cuda_capability_geq.fn, "__defaults__", (9,))
    call = launch(load(source)["kernel"])
    assert answer(call) != said
    assert outcome(call) != key


RANDOM = "@triton.jit\ndef kernel(x, y):\n    tl.store(x, tl.sum(tl.rand(3, tl.arange(0, 4))))\n"


@pytest.mark.parametrize("value", [core.builtin(elsewhere), triton.language.random.randn], ids=["foreign", "own"])
def test_the_random_numbers_of_triton_are_watched(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = launch(load(RANDOM)["kernel"])
    said, key = answer(call), digest(call)
    monkeypatch.setattr(triton.language.random, "randint", value)
    assert answer(call) != said
    assert outcome(call) != key
    monkeypatch.undo()
    assert digest(call) == key


DEVICE = "@triton.jit\ndef kernel(x, y):\n    tl.store(x, {}(tl.load(y)))\n"
IMPORTS = {
    "of the module": ("from triton.language.extra import libdevice\n", "libdevice.rsqrt"),
    "of the function": ("from triton.language.extra.libdevice import rsqrt\n", "rsqrt"),
    "of the module's module": ("import triton.language.extra.libdevice\n", "tl.extra.libdevice.rsqrt"),
}


@pytest.mark.parametrize(("line", "name"), IMPORTS.values(), ids=IMPORTS)
@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_the_backends_device_functions_are_watched(
    line: str, name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"triton.language.extra.{backend}.libdevice")
    call = launch(load(line + DEVICE.format(name))["kernel"])
    with target(*HIP_942) if backend == "hip" else contextlib.nullcontext():
        said, key = answer(call), digest(call)
        assert not said.failed
        monkeypatch.setattr(module, "rsqrt", core.builtin(elsewhere))
        assert answer(call) != said or answer(call).reads is None
        assert outcome(call) == "bypass: patched"
        monkeypatch.undo()
        assert digest(call) == key


@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_the_code_of_a_device_function_replaced_in_place_is_noticed(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = importlib.import_module(f"triton.language.extra.{backend}.libdevice").rsqrt
    call = launch(load(IMPORTS["of the function"][0] + DEVICE.format("rsqrt"))["kernel"])
    key = digest(call)
    monkeypatch.setattr(inside(function), "__code__", elsewhere.__code__)
    assert outcome(call) != key
    monkeypatch.undo()
    assert digest(call) == key
