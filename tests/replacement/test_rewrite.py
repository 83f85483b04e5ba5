"""The rewrite of a node is a transaction, and so is the pass where it must be: whatever fails, nothing is half done."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node

from tritonstore.errors import ReplacementError
from tritonstore.replacement import ReplacementWarning, Verdict, apply, plan
from tritonstore.replacement.rewrite import Rewrite

from . import ops
from .conftest import export, photograph

STEPS = ("insert", "carry_metadata", "rewire", "erase", "rename")
NODES = ("relu", "relu_2", "relu_9")


class Fault(Exception):
    pass


def fail_at(patch: pytest.MonkeyPatch, step: str, when: str, name: str, error: type[BaseException] = Fault) -> None:
    """Let `step` of the rewrite of `name` fail, before it has done anything or after it has done everything."""
    original = getattr(Rewrite, step)

    def faulty(self: Any) -> None:
        if self.row.node == name and when == "before":
            raise error(step)
        original(self)
        if self.row.node == name and when == "after":
            raise error(step)

    patch.setattr(Rewrite, step, faulty)


def fail_inside(patch: pytest.MonkeyPatch, what: str, name: str) -> None:
    """Let FX itself fail in the middle of a step, the second time that it is asked about the node `name`."""
    kind, method, position = {
        "create_node": (Graph, "create_node", None),
        "replace_input_with": (Node, "replace_input_with", 1),
        "erase_node": (Graph, "erase_node", 1),
    }[what]
    original = getattr(kind, method)
    seen = []

    def faulty(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if position is None or args[position].name == name:
            seen.append(method)
            if len(seen) == (1 if what == "erase_node" else 2):
                raise Fault(what)
        return result

    patch.setattr(kind, method, faulty)


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_required_undoes_the_whole_pass(
    ten_required: Any, monkeypatch: pytest.MonkeyPatch, step: str, when: str, name: str
) -> None:
    before = photograph(ten_required.program)
    with monkeypatch.context() as patch:
        fail_at(patch, step, when, name)
        with pytest.raises(ReplacementError) as caught:
            apply(ten_required)
    assert photograph(ten_required.program) == before
    assert caught.value.node == name
    assert caught.value.signature.op == "aten.relu.default"
    assert isinstance(caught.value.__cause__, Fault)
    assert str(caught.value).startswith(
        f"{name}, aten.relu.default(self: float32[3, 4] strides (4, 1) cpu), must be replaced, and that failed: Fault"
    )


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_optional_keeps_the_one_call(
    ten_optional: Any, monkeypatch: pytest.MonkeyPatch, step: str, when: str, name: str
) -> None:
    """What is left is what a pass without that call gives, and the call itself is the very node that it was."""
    rows = ten_optional
    program, other = copy.deepcopy(rows.program), copy.deepcopy(rows.program)
    (kept,) = (node for node in program.graph.nodes if node.name == name)
    was = (dict(kept.meta), kept.args, [user.name for user in kept.users])
    fail_at(monkeypatch, step, when, name)
    with pytest.warns(
        ReplacementWarning, match=rf"{name}, aten.relu.default.* keeps its regular lowering.*Fault: {step}"
    ):
        applied = apply(dataclasses.replace(rows, program=program))
    assert [row.node for row in applied.kept] == [name]
    assert len(applied.replaced) == 9
    without = dataclasses.replace(rows, program=other, rows=tuple(row for row in rows.rows if row.node != name))
    apply(without)
    assert str(program.graph) == str(other.graph)
    assert [node.name for node in program.graph.nodes] == [node.name for node in other.graph.nodes]
    assert [list(map(str, n.users)) for n in program.graph.nodes] == [
        list(map(str, n.users)) for n in other.graph.nodes
    ]
    assert kept in list(program.graph.nodes)
    assert (dict(kept.meta), kept.args, [user.name for user in kept.users]) == was


@pytest.mark.parametrize("what", ["create_node", "replace_input_with", "erase_node"])
def test_fx_fails_in_the_middle_of_a_step(ten_required: Any, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    before = photograph(ten_required.program)
    with monkeypatch.context() as patch:
        fail_inside(patch, what, "relu_2")
        with pytest.raises(ReplacementError, match=what):
            apply(ten_required)
    assert photograph(ten_required.program) == before
    assert len(apply(dataclasses.replace(ten_required, program=copy.deepcopy(ten_required.program))).replaced) == 10


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_leaves_nothing_half_done(ten_required: Any, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    before = photograph(ten_required.program)
    with monkeypatch.context() as patch:
        fail_at(patch, step, "after", "relu_2", KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            apply(ten_required)
    assert photograph(ten_required.program) == before


@pytest.mark.parametrize("check", ["lint", "validate"])
@pytest.mark.parametrize("verdict", ["ten_optional", "ten_required"])
def test_a_program_that_would_be_invalid_is_undone(
    ten: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, check: str, verdict: str
) -> None:
    planned = request.getfixturevalue(verdict)
    before = photograph(ten)

    def refuse(*_: Any) -> None:
        """Once the pass has done something."""
        if any(node.target is ops.relu._opoverload for node in ten.graph.nodes):
            raise Fault("no")

    with monkeypatch.context() as patch:
        patch.setattr(*((Graph, "lint", refuse) if check == "lint" else (type(ten), "validate", refuse)))
        with pytest.raises(ReplacementError, match="would not be valid any more: Fault: no"):
            apply(planned)
    assert photograph(ten) == before


def test_a_program_that_was_invalid_before_is_not_refused_for_that(relus: Any) -> None:
    """A deep copy of a program with an argument called `input` is one: PyTorch gives the argument another name."""
    program = copy.deepcopy(export(torch.nn.ReLU(), torch.randn(3, 4)))
    assert len(apply(plan(program, relus)).replaced) == 1


def test_after_a_failure_the_same_plan_can_be_applied(ten_required: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = dataclasses.replace(ten_required, program=copy.deepcopy(ten_required.program))
    x = torch.randn(3, 4)
    expected = copied.program.module()(x)
    with monkeypatch.context() as patch:
        fail_at(patch, "erase", "after", "relu_2")
        with pytest.raises(ReplacementError):
            apply(copied)
    applied = apply(copied)
    assert len(applied.replaced) == 10
    assert [str(n.target) for n in copied.program.graph.nodes].count("tritonstore_tests.relu.default") == 10
    torch.testing.assert_close(copied.program.module()(x), expected)


def test_what_is_applied_keeps_names_and_metadata(ten: Any, relus: Any) -> None:
    program = copy.deepcopy(ten)
    before = {node.name: (dict(node.meta), sorted(map(str, node.users))) for node in program.graph.nodes}
    signature = str(program.graph_signature)
    apply(plan(program, relus))
    assert {node.name: (dict(node.meta), sorted(map(str, node.users))) for node in program.graph.nodes} == before
    assert str(program.graph_signature) == signature
    assert "relu_9" in program.graph_signature.user_outputs


def test_a_plan_of_another_state_is_refused(ten: Any, relus: Any) -> None:
    program = copy.deepcopy(ten)
    planned = plan(program, relus)
    apply(planned)
    before = photograph(program)
    with pytest.raises(ReplacementError, match=r"not as it was when it was planned: relu is not aten\.relu\.default"):
        apply(planned)
    assert photograph(program) == before
    assert plan(program, relus).rows == ()


def test_a_call_that_must_be_replaced_and_cannot_be(ten: Any, relus: Any) -> None:
    from tritonstore.replacement import unsupported

    @relus.planner("aten.relu.default", replace=True)
    def never(call: Any) -> Any:
        return unsupported("a test")

    planned = plan(ten, relus, required=("aten.relu.default",))
    assert {row.verdict for row in planned.rows} == {Verdict.UNSUPPORTED}
    before = photograph(ten)
    with pytest.raises(ReplacementError, match=r"^relu, aten.relu.default.* cannot be replaced: a test"):
        apply(planned)
    assert photograph(ten) == before
    apply(plan(ten, relus))  # not named as required: nothing to do
    assert photograph(ten) == before
