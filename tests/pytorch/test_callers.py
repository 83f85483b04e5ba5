"""Who asks PyTorch's analysis, told apart by `demo_lib.measure` for the figures of scripts/gpu."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from demo_lib.measure import CALLERS, Meter, caller, seam_name, wrapper_module
from torch.library import triton_op, wrap_triton

from tests.support.analysis import target


def test_functionalization_is_told_by_its_calls(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @triton_op("tritonstore_callers::copy", mutates_args={})
    def copy_op(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        wrap_triton(kernels.copy)[(1,)](x, y, x.numel(), BLOCK=64)
        return y

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return copy_op(copy_op(x))

    monkeypatch.setattr(wrapper_module(), seam_name(), getattr(wrapper_module(), seam_name()))  # put back at the end
    meter = Meter(None)
    meter.count_calls()
    with torch.no_grad(), target("cuda", 90, 32):
        torch.export.export(Model(), (torch.zeros(64),)).run_decompositions({}, decompose_custom_triton_ops=True)
    assert meter.callers == {"functionalization": meter.calls}
    assert meter.calls >= 2


def test_a_caller_that_is_not_known_keeps_its_own_name() -> None:
    def get_mutated_tensors() -> str:
        return caller(sys._getframe(0))

    def someone() -> str:
        return get_mutated_tensors()

    assert someone() == "test_callers.someone"
    assert caller(None) == "nobody"


def test_every_place_that_asks_in_this_pytorch_has_a_name() -> None:
    asking = {seam_name(), "get_mutated_tensors"}
    found = set()
    for path in Path(torch.__file__).parent.rglob("*.py"):
        text = path.read_text(errors="replace")
        if any(f"{name}(" in text for name in asking):
            found |= {(path.stem, function) for function in _functions_that_call(asking, ast.parse(text))}
    assert found - {("triton_kernel_wrap", "get_mutated_tensors")} == set(CALLERS)


def _functions_that_call(names: set[str], tree: ast.AST, function: str = "") -> Iterator[str]:
    """The innermost functions that call one of these, by its name or as a module's attribute."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            if name in names:
                yield function
        inner = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        yield from _functions_that_call(names, node, node.name if inner else function)  # type: ignore[attr-defined]
