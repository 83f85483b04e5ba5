"""Look at every call of a known op and decide, without touching the program.

plan(program) -> Plan       one row a call: node, op, verdict, reason
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tritonstore.replacement.planners import shipped
from tritonstore.replacement.registry import Planner, Registry
from tritonstore.replacement.verdicts import Decision, Ref, Signature, Verdict, unsupported

__all__ = ["Plan", "Row", "plan"]


@dataclass(frozen=True)
class Row:
    """The decision about one call. `node` is its name, after the path of its graph where that is a nested one."""

    node: str
    op: str
    verdict: Verdict
    reason: str
    planner: str
    signature: Signature
    target: Any = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    needed: bool = False
    """The regular lowering cannot compile the op, the caller says."""


@dataclass(frozen=True)
class Plan:
    """What `apply` will do. Plans are equal if their rows are; `program` is only what they are about."""

    rows: tuple[Row, ...]
    program: Any = field(compare=False, repr=False)

    def __str__(self) -> str:
        """A table: node, op, verdict, reason."""
        lines = [("node", "op", "verdict", "reason")]
        lines += [(row.node, row.op, row.verdict.value, row.reason) for row in self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(3)]
        padded = ("  ".join([*map(str.ljust, line, widths), line[3]]).rstrip() for line in lines)
        return "\n".join(padded)


def plan(program: Any, planners: Registry | None = None, *, store: Any = None, required: tuple[str, ...] = ()) -> Plan:
    """What can be replaced in an ExportedProgram, by `planners` (default: the shipped ones). Changes nothing.

    The kernels' access answers come from `store` (an AnalysisStore), else from the installed store, else from the one
    that the settings name. `required`: ops, as "aten.topk.default", that the caller's own lowering cannot compile:
    OPTIONAL becomes REQUIRED for them. A preflight that raises, edits the graph or fixes a symbolic size is undone,
    and its calls are UNSUPPORTED, with its name.
    """
    from tritonstore.replacement.snapshot import Snapshot

    planners = shipped() if planners is None else planners
    snapshots = [Snapshot(module.graph) for _, module in graph_modules(program)]
    found = [(path, node, planner) for path, node, planner in _calls(program, planners)]
    with _answering(store):
        decided = [_decide(node, planner) for _, node, planner in found]
        if any(snapshot.change() for snapshot in snapshots):
            _restore(snapshots)
            decided = [_decide(node, planner, snapshots) for _, node, planner in found]
        known: dict[Any, str | None] = {}
        rows = [_row(*call, decision, required, known) for call, decision in zip(found, decided, strict=True)]
    return Plan(tuple(rows), program)


def graph_modules(program: Any) -> Iterator[tuple[str, Any]]:
    """The program's graph and those nested in it (the branches of torch.cond), each with its path and a dot."""
    import torch

    for path, module in program.graph_module.named_modules():
        if isinstance(module, torch.fx.GraphModule):
            yield (f"{path}." if path else ""), module


def _calls(program: Any, planners: Registry) -> Iterator[tuple[str, Any, Planner]]:
    import torch

    for path, module in graph_modules(program):
        for node in module.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                planner = planners.find(str(node.target))
                if planner is not None:
                    yield path, node, planner


def _decide(node: Any, planner: Planner, snapshots: Any = ()) -> Decision:
    """The planner's decision. With `snapshots`, an edit of the graph is undone and takes the decision's place."""
    from tritonstore.replacement.call import Call
    from tritonstore.replacement.guards import no_new_guards

    named = f"the planner {planner.name}"
    try:
        with contextlib.ExitStack() as stack:
            for shape_env in _shape_envs(node):
                stack.enter_context(no_new_guards(shape_env))
            decision = planner.preflight(Call(node))
        if not isinstance(decision, Decision):
            decision = unsupported(f"{named} returned {type(decision).__name__}, not a Decision")
    except Exception as error:
        decision = unsupported(f"{named} raised {type(error).__name__}: {_line(error)}")
    edits = [change for change in (snapshot.change() for snapshot in snapshots) if change]
    if edits:
        _restore(snapshots)
        decision = unsupported(f"{named} edited the graph: {edits[0]}")
    return decision


def _restore(snapshots: Any) -> None:
    for snapshot in snapshots:
        snapshot.restore()
        snapshot.graph.owning_module.recompile()


def _shape_envs(node: Any) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves([other.meta.get("val") for other in (node, *node.all_input_nodes)])
    modes = (getattr(value, "fake_mode", None) for value in leaves)
    return list({id(mode.shape_env): mode.shape_env for mode in modes if mode is not None}.values())


def _row(
    path: str, node: Any, planner: Planner, decision: Decision, required: tuple[str, ...], known: dict[Any, str | None]
) -> Row:
    from tritonstore.replacement.call import Call

    call = Call(node)
    if decision.verdict is not Verdict.UNSUPPORTED:
        why = _objection(call, decision, known)
        if why:
            decision = unsupported(why)
    if decision.verdict is Verdict.OPTIONAL and call.op in required:
        decision = dataclasses.replace(decision, verdict=Verdict.REQUIRED)
    args, kwargs = _by_name((decision.args, decision.kwargs))
    return Row(
        node=path + node.name,
        op=call.op,
        verdict=decision.verdict,
        reason=decision.reason,
        planner=planner.name,
        signature=call.signature,
        target=decision.target,
        args=args,
        kwargs=kwargs,
        needed=call.op in required,
    )


def _objection(call: Any, decision: Decision, known: dict[Any, str | None]) -> str | None:
    """What the access check says; `known` has what it said of equal calls, of which each layer of a model has one."""
    from tritonstore.replacement.writes import objection, question

    if call.node.target._schema.is_mutable:
        return f"{call.op} writes its arguments, and only pure calls are replaced"
    asked = question(decision.target, decision.args, decision.kwargs, call.output)
    if asked not in known:
        try:
            known[asked] = objection(decision.target, decision.args, decision.kwargs, call.output)
        except Exception as error:
            why = f"{type(error).__name__}: {_line(error)}"
            known[asked] = f"{decision.target} cannot be opened with these arguments: {why}"
    return known[asked]


def _by_name(value: Any) -> Any:
    """`value` with a Ref for each node, lists as they are."""
    import torch

    if isinstance(value, torch.fx.Node):
        return Ref(value.name)
    if isinstance(value, dict):
        return {key: _by_name(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return (tuple if isinstance(value, tuple) else list)(map(_by_name, value))
    return value


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]


@contextlib.contextmanager
def _answering(store: Any) -> Iterator[None]:
    """Let a store answer PyTorch's questions for the block."""
    from tritonstore.pytorch.install import active, installed

    if store is None and active() is not None:
        yield
        return
    with installed(store):
        yield
