"""Triton in memory against Triton on disk: whatever is patched in is noticed at the next call, and named."""

from __future__ import annotations

import functools
import subprocess
import sys
import unittest.mock
from collections.abc import Callable
from typing import Any

import pytest
import torch._higher_order_ops.triton_kernel_wrap as analysis
import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.language import core, semantic
from triton.runtime.jit import JITFunction

from tritonstore.errors import Bypass
from tritonstore.keys.integrity import snapshot
from tritonstore.keys.members import own_object


def patched(original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def patch(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    return patch


FOREIGN = {
    "a function of tl": (tl, "load"),
    "the same in core": (core, "load"),
    "a tensor method": (core.tensor, "__add__"),
    "a rule of the semantic": (semantic.TritonSemantic, "add"),
    "a step of code generation": (CodeGenerator, "visit_If"),
    "how a kernel finds its globals": (JITFunction, "get_capture_scope"),
    "PyTorch's generation of TTIR": (analysis, "generate_ttir"),
    "PyTorch's reading of TTIR": (analysis, "ttir_to_functions"),
}


@pytest.mark.parametrize(("owner", "name"), FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_function_bypasses_until_it_is_gone(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot().digest
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, patched(getattr(owner, name)))
        for _ in range(2):
            with pytest.raises(Bypass, match=name) as caught:
                snapshot()
            assert caught.value.reason == "patched"
    assert snapshot().digest == before


def test_a_new_foreign_method_bypasses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.tensor, "brand_new", lambda self: self, raising=False)
    with pytest.raises(Bypass, match="brand_new"):
        snapshot()


def test_a_foreign_callable_object_bypasses(monkeypatch: pytest.MonkeyPatch) -> None:
    class Callable_:
        def __call__(self) -> None: ...

    monkeypatch.setattr(tl, "load", Callable_())
    with pytest.raises(Bypass, match=r"triton\.language\.load is a .*Callable_ from elsewhere"):
        snapshot()


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (core, "TRITON_MAX_TENSOR_NUMEL", 1 << 30),
        (tl, "load", core.store),
        (tl, "load", None),
    ],
    ids=["a constant", "one of Triton's own in another place", "nothing at all"],
)
def test_what_triton_holds_in_another_arrangement_is_another_toolchain(
    owner: Any, name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot().digest
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, value)
        assert snapshot().digest != before
    assert snapshot().digest == before


def test_a_removed_name_is_another_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot().digest
    monkeypatch.delattr(core.tensor, "__add__")
    assert snapshot().digest != before


def test_a_value_that_cannot_be_compared_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    class Incomparable:
        __module__ = "triton.language.core"

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no comparison")

        __hash__ = object.__hash__

    before = snapshot().digest
    with monkeypatch.context() as patch:
        patch.setattr(core, "TRITON_MAX_TENSOR_NUMEL", Incomparable())
        snapshot()
    assert snapshot().digest == before


def test_own_objects_are_known_by_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_object(tl.load) == "triton.language.core:load"
    assert own_object(tl.sum) == "triton.language.standard:sum"
    assert own_object(patched(tl.load)) is None
    assert own_object(len) is None
    assert own_object(3) is None

    def impostor() -> None: ...

    impostor.__module__, impostor.__qualname__ = "triton.language.core", "load"
    assert own_object(impostor) is None
    monkeypatch.setattr(core, "load", impostor)
    with pytest.raises(Bypass, match="which is not Triton's"):
        own_object(impostor)


def test_the_digest_is_the_same_in_every_process() -> None:
    code = "from tritonstore.keys.integrity import snapshot; print(snapshot().digest)"
    seen = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "TRITON_CACHE_DIR": "/nonexistent"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert seen == {snapshot().digest}


def test_a_foreign_function_in_tritons_own_wrapper_bypasses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tl, "load", core.builtin(lambda pointer, _semantic=None: pointer))
    with pytest.raises(Bypass, match=r"triton\.language\.load is a function of"):
        snapshot()


@pytest.mark.parametrize(
    "disguise", [unittest.mock.MagicMock, functools.partial, functools.lru_cache, staticmethod, property]
)
def test_a_foreign_function_in_a_standard_disguise_bypasses(
    disguise: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.tensor, "atomic_add", disguise(lambda *args: None))
    with pytest.raises(Bypass, match="atomic_add"):
        snapshot()


def test_a_foreign_function_compiled_from_text_bypasses(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {}
    exec(compile("def load(self): return self", "<somebody>", "exec"), namespace)
    monkeypatch.setattr(core.tensor, "load", namespace["load"], raising=False)
    with pytest.raises(Bypass, match="<somebody>"):
        snapshot()
