"""A preflight only looks: the same plan in any order, on any copy, any number of times; one that edits is named."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tritonstore.replacement import Registry, Verdict, apply, optional, plan, shipped
from tritonstore.replacement.call import Call
from tritonstore.replacement.planning import graph_modules

from . import ops
from .conftest import export, photograph
from .models import Plain, example, length


@pytest.fixture(scope="module")
def plain() -> Any:
    return export(Plain(), *example(), dynamic_shapes=({1: length()},))


def test_twice_and_on_a_deep_copy_the_plan_is_the_same(plain: Any) -> None:
    before = photograph(plain)
    first = plan(plain)
    assert photograph(plain) == before
    assert len(first.rows) == 7
    assert plan(plain) == first == plan(copy.deepcopy(plain))
    assert str(first) == str(plan(copy.deepcopy(plain)))


def test_in_another_order_the_decisions_are_the_same(plain: Any) -> None:
    registry = shipped()
    rows = {row.node: row for row in plan(plain).rows}
    nodes = [node for _, module in graph_modules(plain) for node in module.graph.nodes if node.name in rows]
    random.shuffle(nodes)
    for node in [*nodes, *reversed(nodes)]:
        planner = registry.find(str(node.target))
        assert planner is not None
        decision = planner.preflight(Call(node))
        row = rows[node.name]
        assert (decision.verdict, decision.reason, decision.target) == (row.verdict, row.reason, row.target)


Edit = Callable[[Any, Any], None]


def _set_argument(graph: Any, node: Any) -> None:
    next(iter(node.users)).args = (node.args[0],)


def _add_node(graph: Any, node: Any) -> None:
    with graph.inserting_after(node):
        graph.call_function(torch.ops.aten.relu.default, (node,))


def _add_two(graph: Any, node: Any) -> None:
    _add_node(graph, node)
    _add_node(graph, node.next)


def _replace(graph: Any, node: Any) -> None:
    """What a pass would do, in the preflight."""
    with graph.inserting_before(node):
        new = graph.call_function(torch.ops.aten.sigmoid.default, node.args)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _erase_view(graph: Any, node: Any) -> None:
    output = graph.output_node()
    kept = next(user for user in node.users if user is not output)
    output.args = (tuple(item for item in output.args[0] if item is not kept),)
    graph.erase_node(kept)


def _erase_and_insert(graph: Any, node: Any) -> None:
    """At the place of what was erased, whose own links still name its old neighbours."""
    place = next(user for user in node.users if user.op != "output").next
    _erase_view(graph, node)
    with graph.inserting_before(place):
        graph.call_function(torch.ops.aten.sigmoid.default, (node,))


def _erase_two_neighbours(graph: Any, node: Any) -> None:
    """The place of the one is found by the other."""
    output = graph.output_node()
    views = [n for n in graph.nodes if n.target is torch.ops.aten.t.default]
    views = views[-2:]
    assert views[0].next is views[1]
    output.args = (tuple(item for item in output.args[0] if item not in views),)
    for view in views:
        graph.erase_node(view)


def _move(graph: Any, node: Any) -> None:
    graph.output_node().prepend(next(user for user in node.users if user.op != "output"))


def _rename(graph: Any, node: Any) -> None:
    node.name = "other"


def _retarget(graph: Any, node: Any) -> None:
    node.target = torch.ops.aten.sigmoid.default


def _add_metadata(graph: Any, node: Any) -> None:
    node.meta["seen"] = True


def _drop_metadata(graph: Any, node: Any) -> None:
    del node.meta["val"]


def _edit_metadata(graph: Any, node: Any) -> None:
    """Inside a value that is still the same object."""
    node.meta["nn_module_stack"]["more"] = ("more", "more")


def _edit_list_in_metadata(graph: Any, node: Any) -> None:
    node.meta["custom"]["a list"].append("more")


def _new_metadata(graph: Any, node: Any) -> None:
    node.meta = dict(node.meta)


def _users(graph: Any, node: Any) -> None:
    first = next(iter(node.users))
    del node.users[first]
    node.users[first] = None


EDITS = {
    _set_argument: "has other arguments",
    _add_node: "is new",
    _add_two: "is new",
    _replace: "is gone",
    _erase_view: "is gone",
    _erase_and_insert: "is gone",
    _erase_two_neighbours: "is gone",
    _move: "another order",
    _rename: "has another name",
    _retarget: "has another target",
    _add_metadata: "has other metadata",
    _drop_metadata: "has other metadata",
    _edit_metadata: "has other metadata",
    _edit_list_in_metadata: "has other metadata",
    _new_metadata: "has other metadata",
    _users: "has other users",
}


@pytest.mark.parametrize("raises", [False, True], ids=["", "and raises"])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_an_edit_is_undone_and_named(ten: Any, edit: Edit, raises: bool) -> None:
    """The other calls get the decisions that they get without the edit."""
    registry = Registry()

    @registry.planner("aten.relu.default")
    def editor(call: Any) -> Any:
        if call.node.name == "relu_2":
            edit(call.node.graph, call.node)
            if raises:
                raise ValueError("after an edit")
        return optional("a test", ops.relu._opoverload, call.arguments["self"])

    before = photograph(ten)
    planned = plan(ten, registry)
    assert photograph(ten) == before
    assert [row.node for row in planned.rows if row.verdict is Verdict.UNSUPPORTED] == ["relu_2"]
    (wrong,) = (row for row in planned.rows if row.node == "relu_2")
    assert wrong.reason.startswith("the planner editor edited the graph: ")
    assert EDITS[edit] in wrong.reason
    assert "editor" in str(planned)


def test_a_preflight_that_raises_is_named(ten: Any) -> None:
    registry = Registry()

    @registry.planner("aten.relu.default")
    def broken(call: Any) -> Any:
        if call.node.name == "relu_1":
            raise ValueError("no luck\nand a second line")
        return None if call.node.name == "relu_2" else optional("a test", ops.relu._opoverload, call.arguments["self"])

    rows = {row.node: row for row in plan(ten, registry).rows}
    assert rows["relu_1"].reason == "the planner broken raised ValueError: no luck"
    assert rows["relu_2"].reason == "the planner broken returned NoneType, not a Decision"
    assert rows["relu_1"].verdict is rows["relu_2"].verdict is Verdict.UNSUPPORTED
    assert rows["relu_3"].verdict is Verdict.OPTIONAL


class Open(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.relu(x)


def test_a_preflight_that_fixes_a_symbolic_size_is_named() -> None:
    """A plain comparison with a size adds a guard, after which the program is a narrower one than was exported."""
    registry = Registry()

    @registry.planner("aten.relu.default")
    def curious(call: Any) -> Any:
        assert call.value("self").shape[0] < 100
        return optional("a test", ops.relu._opoverload, call.arguments["self"])

    program = export(Open(), torch.randn(8, 4), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=500)},))
    (node,) = (n for n in program.graph.nodes if n.op == "placeholder")
    shape_env = node.meta["val"].fake_mode.shape_env
    before = ([str(g.expr) for g in shape_env.guards], dict(shape_env.replacements), dict(shape_env.var_to_range))
    for _ in range(2):  # PyTorch remembers the answer of the first time
        (row,) = plan(program, registry).rows
        assert row.verdict is Verdict.UNSUPPORTED
        assert row.reason.startswith("the planner curious raised Guarded: it fixes a symbolic size: ")
    after = ([str(g.expr) for g in shape_env.guards], dict(shape_env.replacements), dict(shape_env.var_to_range))
    assert after == before
    apply(plan(program, registry))
    assert program.module()(torch.randn(300, 4)).shape == (300, 4)
