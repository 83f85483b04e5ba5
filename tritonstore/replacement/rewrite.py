"""Do what a plan says, all of it or nothing.

    apply(plan) -> Applied      edits the plan's program in place

Each call is one transaction: insert the new node, carry the metadata over, rewire the users, erase the old node, take
over its name. A step that fails undoes those before it. Then an OPTIONAL call keeps its regular lowering, with a
warning; a REQUIRED one undoes the whole pass and raises ReplacementError.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from tritonstore.errors import ReplacementError
from tritonstore.replacement.planning import Plan, Row, graph_modules
from tritonstore.replacement.verdicts import Ref, Verdict

__all__ = ["Applied", "ReplacementWarning", "apply"]


_Names = dict[str, dict[str, Any]]  # path of a graph -> name -> node


class ReplacementWarning(UserWarning):
    """An OPTIONAL call could not be replaced; it keeps its regular lowering."""


@dataclass(frozen=True)
class Applied:
    """The program, edited in place; the rows of the calls that were replaced, and of those that could not be."""

    program: Any
    replaced: tuple[Row, ...]
    kept: tuple[Row, ...]


def apply(plan: Plan) -> Applied:
    """Replace what `plan` says is OPTIONAL or REQUIRED in its program, in place.

    Raises ReplacementError, with the program exactly as it was, if the program is not the planned one any more, if a
    REQUIRED call cannot be replaced, if a call is UNSUPPORTED whose op the caller named as required, or if the program
    would not be valid afterwards.
    """
    from tritonstore.replacement.snapshot import Snapshot

    for row in plan.rows:
        if row.needed and row.verdict is Verdict.UNSUPPORTED:
            raise ReplacementError(f"{_named(row)} cannot be replaced: {row.reason}", row.node, row.signature)
    modules = dict(graph_modules(plan.program))
    snapshots = [Snapshot(module.graph) for module in modules.values()]
    names = {path: {node.name: node for node in module.graph.nodes} for path, module in modules.items()}
    replaced: list[Row] = []
    kept: list[tuple[Row, Exception]] = []
    fault = _fault(plan.program, modules)
    try:
        for row in plan.rows:
            if row.verdict is not Verdict.UNSUPPORTED:
                _attempt(names, row, replaced, kept)
        _validate(plan.program, modules, fault)
    except BaseException:
        for snapshot in snapshots:
            snapshot.restore()
            snapshot.graph.owning_module.recompile()
        raise
    for row, error in kept:
        text = f"{_named(row)} keeps its regular lowering, because replacing it failed: {type(error).__name__}: {error}"
        warnings.warn(text, ReplacementWarning, stacklevel=2)
    return Applied(plan.program, tuple(replaced), tuple(row for row, _ in kept))


def _attempt(names: _Names, row: Row, replaced: list[Row], kept: list[tuple[Row, Exception]]) -> None:
    path, dot, name = row.node.rpartition(".")
    nodes = names.get(path + dot, {})
    old = _planned(nodes.get(name), row)
    try:
        nodes[name] = Rewrite(nodes, old, row).run()
        replaced.append(row)
    except Exception as error:
        if row.verdict is Verdict.REQUIRED:
            text = f"{_named(row)} must be replaced, and that failed: {type(error).__name__}: {error}"
            raise ReplacementError(f"{text}. The program is as it was", row.node, row.signature) from error
        kept.append((row, error))


def _planned(node: Any, row: Row) -> Any:
    """The node, which must be the one of the row. ReplacementError if the program is not the planned one."""
    from tritonstore.replacement.call import Call

    if node is None or str(node.target) != row.op or Call(node).signature != row.signature:
        text = f"the program is not as it was when it was planned: {row.node} is not {row.signature}. Plan it again"
        raise ReplacementError(text, row.node, row.signature)
    return node


class Rewrite:
    """The transaction of one call. The steps are methods, so that a test can make each of them fail."""

    def __init__(self, nodes: dict[str, Any], old: Any, row: Row) -> None:
        self.nodes = nodes
        self.graph = old.graph
        self.old = old
        self.row = row
        self.new: Any = None

    def run(self) -> Any:
        """The new node."""
        from tritonstore.replacement.snapshot import Snapshot

        users = list(self.old.users)
        around = [self.old, *users, *self.old.all_input_nodes, *(n for user in users for n in user.all_input_nodes)]
        around += self._operands()
        before = Snapshot(self.graph, dict.fromkeys(around))
        last = self.old.prev
        try:
            self.insert()
            self.carry_metadata()
            self.rewire()
            self.erase()
            self.rename()
        except BaseException:
            # What a failing step has left behind stands between the old node and what came before it.
            added, node = [], last.next
            while node is not before.records[0].next and node is not self.old:
                added.append(node)
                node = node.next
            before.restore(added)
            raise
        return self.new

    def _operands(self) -> list[Any]:
        nodes: list[Any] = []
        self._resolved((self.row.args, self.row.kwargs), nodes)
        return nodes

    def _resolved(self, value: Any, nodes: list[Any]) -> Any:
        """`value` with the nodes that its Refs name, which are also added to `nodes`."""
        if isinstance(value, Ref):
            node = self.nodes[value.name]
            nodes.append(node)
            return node
        if isinstance(value, dict):
            return {key: self._resolved(item, nodes) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._resolved(item, nodes) for item in value)
        return value

    def insert(self) -> None:
        args, kwargs = self._resolved((self.row.args, self.row.kwargs), [])
        with self.graph.inserting_before(self.old):
            self.new = self.graph.create_node("call_function", self.row.target, args, kwargs, type_expr=self.old.type)

    def carry_metadata(self) -> None:
        """All of it: the values were compared when the plan was made, and the source is still the same line."""
        self.new.meta = dict(self.old.meta)

    def rewire(self) -> None:
        for user in list(self.old.users):
            user.replace_input_with(self.old, self.new)

    def erase(self) -> None:
        self.graph.erase_node(self.old)

    def rename(self) -> None:
        """Under the old name, the signature, the call graph and other plans of the program still hold."""
        self.new.name = self.old.name


def _validate(program: Any, modules: dict[str, Any], before: str | None) -> None:
    """Raise ReplacementError if the pass has made the program invalid; not if it was so `before`.

    (PyTorch 2.13 gives an argument called `input` another name in a deep copy, which is then invalid by itself.)
    """
    for module in modules.values():
        module.recompile()
    fault = _fault(program, modules)
    if fault is not None and fault != before:
        raise ReplacementError(f"the program would not be valid any more: {fault}. It is as it was")


def _fault(program: Any, modules: dict[str, Any]) -> str | None:
    """Why PyTorch's own checks refuse the program; None if they do not."""
    try:
        for module in modules.values():
            module.graph.lint()
        program.validate()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _named(row: Row) -> str:
    return f"{row.node}, {row.signature},"
