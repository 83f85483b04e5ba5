"""Before a pure op is replaced, the store is asked what the kernels of the replacement write."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tritonstore
from tritonstore import entry
from tritonstore.replacement import Registry, Verdict, apply, optional, plan, required

from . import ops
from .conftest import TARGET, export


class Relu(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.relu(x)


@pytest.fixture(scope="module")
def relu() -> Any:
    return export(Relu(), torch.randn(3, 4))


def registry_for(operator: Any, decide: Any = optional) -> Registry:
    registry = Registry()

    @registry.planner("aten.relu.default")
    def test_planner(call: Any) -> Any:
        return decide("a test", getattr(operator, "_opoverload", operator), call.arguments["self"])

    return registry


@pytest.mark.parametrize("decide", [optional, required], ids=["optional", "required"])
@pytest.mark.parametrize("operator", ops.WRONG, ids=lambda operator: operator._name)
def test_a_replacement_that_is_wrong_is_unsupported(relu: Any, operator: Any, decide: Any) -> None:
    program = copy.deepcopy(relu)
    planned = plan(program, registry_for(operator, decide))
    (row,) = planned.rows
    assert row.verdict is Verdict.UNSUPPORTED
    assert ops.WRONG[operator] in row.reason
    apply(planned)
    assert str(program.graph) == str(relu.graph)


def test_a_replacement_that_is_right_is_not(relu: Any) -> None:
    (row,) = plan(relu, registry_for(ops.relu)).rows
    assert (row.verdict, row.reason) == (Verdict.OPTIONAL, "a test")


def test_one_that_writes_a_copy_of_its_input_is_right(relu: Any) -> None:
    (row,) = plan(relu, registry_for(ops.in_a_copy)).rows
    assert (row.verdict, row.reason) == (Verdict.OPTIONAL, "a test")


def test_a_function_is_no_operator(relu: Any) -> None:
    (row,) = plan(relu, registry_for(torch.sin)).rows
    assert "is no operator" in row.reason


def test_arguments_that_do_not_fit_are_named(relu: Any) -> None:
    registry = Registry()

    @registry.planner("aten.relu.default")
    def test_planner(call: Any) -> Any:
        return optional("a test", ops.relu._opoverload, call.arguments["self"], 1, 2)

    (row,) = plan(relu, registry).rows
    assert "tritonstore_tests.relu.default cannot be opened with these arguments: " in row.reason


def test_an_operator_that_fixes_a_size_is_named() -> None:
    program = export(Relu(), torch.randn(8, 4), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=500)},))
    (row,) = plan(program, registry_for(ops.fixes_size)).rows
    assert "Guarded: it fixes a symbolic size" in row.reason


class InPlace(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.sin().relu_()


def test_a_call_that_writes_its_argument_is_never_replaced() -> None:
    registry = Registry()

    @registry.planner("aten.relu_.default")
    def test_planner(call: Any) -> Any:
        return optional("a test", ops.relu._opoverload, call.arguments["self"])

    (row,) = plan(export(InPlace(), torch.randn(3, 4)), registry).rows
    assert row.reason == "aten.relu_.default writes its arguments, and only pure calls are replaced"


def test_the_store_answers(relu: Any) -> None:
    """A cold plan analyses once for each kernel, a warm one never; and export asks the very same questions."""
    store = tritonstore.open_store("memory:", target=TARGET)
    first = plan(relu, registry_for(ops.relu), store=store)
    assert store.counters.snapshot()["analyses"] == 1
    program = copy.deepcopy(relu)
    with tritonstore.installed(store):
        assert plan(program, registry_for(ops.relu)) == first
        apply(dataclasses.replace(first, program=program))
        program.run_decompositions({}, decompose_custom_triton_ops=True)
        stats = tritonstore.stats()
    assert stats["analyses"] == 1
    assert sum(stats["hits"].values()) >= 2
    store.close()


def test_what_the_store_says_decides(relu: Any, tmp_path: Path) -> None:
    """The answer comes from the store: one that was changed there changes the verdict."""
    store = tritonstore.open_store((tmp_path / "store").as_uri(), target=TARGET)
    assert plan(relu, registry_for(ops.relu), store=store).rows[0].verdict is Verdict.OPTIONAL
    store.close()
    (path,) = (path for path in (tmp_path / "store").rglob("*") if path.is_file() and len(path.name) == 64)
    good = entry.decode(path.read_bytes())
    fusable = None if good.access.reads is None else False
    bad = good.access._replace(writes=("x_ptr",), can_fuse_epilogue=fusable)
    path.write_bytes(entry.encode(good._replace(access=bad)))
    store = tritonstore.open_store((tmp_path / "store").as_uri(), target=TARGET)
    (row,) = plan(relu, registry_for(ops.relu), store=store).rows
    assert row.reason == "kernel relu_kernel writes x_ptr, which is an input of the op"
    assert store.counters.snapshot()["analyses"] == 0
    store.close()


class Layers(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        for _ in range(5):
            x = torch.relu(x * 2)
        return x, torch.relu(y)


def test_equal_calls_are_checked_once() -> None:
    """A model has many layers; opening the operator for each would take longer than the store saves."""
    program = export(Layers(), torch.randn(3, 4), torch.randn(4, 4))
    rows = plan(program, registry_for(ops.relu)).rows
    assert [row.verdict for row in rows] == [Verdict.OPTIONAL] * 6
    assert tritonstore.stats()["calls"] == 2
    rows = plan(program, registry_for(ops.other_strides)).rows
    assert [row.verdict for row in rows] == [Verdict.UNSUPPORTED] * 6
    assert "(1, 3) instead of (4, 1)" in rows[0].reason
    assert "(1, 4) instead of (4, 1)" in rows[5].reason
