"""Exported programs, a store in memory with a declared target, and a photograph of a program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from triton.runtime import driver

import tritonstore
from tritonstore.replacement import Plan, Registry, optional, plan

from . import ops

TARGET = "cuda:90:32"


@pytest.fixture(autouse=True)
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A declared target, and a store of the test's own that answers by memory."""
    before = driver._active
    driver.set_active(None)
    monkeypatch.delenv("TRITONSTORE_TARGET", raising=False)
    with tritonstore.installed(url="memory:", target=TARGET):
        yield
    driver.set_active(before)


def export(model: nn.Module, *example: Any, **shapes: Any) -> Any:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return torch.export.export(model.eval(), example, **shapes)


class Function(nn.Module):
    """A function as a model, for PyTorch to export."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


class Ten(nn.Module):
    """Ten calls of relu, each with two users at least, one of them seen through a view; the last is an output."""

    def forward(self, x: Any) -> Any:
        kept = []
        for number in range(10):
            y = torch.relu(x + number)
            kept.append(y.t())
            x, before = y * x, x
            kept.append(before.t())  # so that the product is not the last user of its other factor
        return x, *kept, y, y.t(), x.t()


@pytest.fixture(scope="session")
def ten() -> Any:
    """To be changed by nobody: what is applied to it must fail and be undone, or be applied to a deep copy."""
    program = export(Ten(), torch.randn(3, 4))
    for node in program.graph.nodes:
        node.meta["custom"] = {"a list": [1, 2]}
    return program


@pytest.fixture
def relus() -> Registry:
    return relu_registry()


@pytest.fixture(scope="session")
def ten_required(ten: Any) -> Plan:
    """A plan of `ten` in which each relu is REQUIRED. Plans are not changed by being applied."""
    with tritonstore.installed(url="memory:", target=TARGET):
        return plan(ten, relu_registry(), required=("aten.relu.default",))


@pytest.fixture(scope="session")
def ten_optional(ten: Any) -> Plan:
    with tritonstore.installed(url="memory:", target=TARGET):
        return plan(ten, relu_registry())


def relu_registry() -> Registry:
    """A registry with one planner: relu by a Triton kernel."""
    registry = Registry()

    @registry.planner("aten.relu.default")
    def relu(call: Any) -> Any:
        return optional("a test", ops.relu._opoverload, call.arguments["self"])

    return registry


def photograph(program: Any) -> list[Any]:
    """Everything of a program that must be back after an undo, nodes and values by identity, found without our code."""
    module = program.graph_module
    taken: list[Any] = [module.code, str(program.graph_signature), str(program.module_call_graph), str(program)]
    for graph_module in [m for m in module.modules() if isinstance(m, torch.fx.GraphModule)]:
        graph = graph_module.graph
        taken.append(str(graph))
        taken.append(len(graph.nodes))
        for node in graph.nodes:
            taken.append((id(node), node.name, node.op, node.target, node.type, str(node.args), str(node.kwargs)))
            taken.append([(id(user), user.name) for user in node.users])
            taken.append((id(node.prev), id(node.next), [id(n) for n in node.all_input_nodes], node._erased))
            taken.append([(key, id(value), repr(value)) for key, value in node.meta.items()])
            found = graph.find_nodes(op=node.op, target=node.target if node.op == "call_function" else None)
            taken.append(sorted(n.name for n in found))
        taken.append(str({name: sorted(map(str, t)) for name, t in vars(graph._graph_namespace).items() if t}))
    return taken
