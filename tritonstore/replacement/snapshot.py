"""What a graph was, to compare it with what it is, and to put it back exactly: the same nodes at the same places.

A snapshot holds, of each node, what the graph's text, order and users follow from (op, name, target, arguments, type,
users) and its metadata, containers in it included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Snapshot"]

_FIELDS = ("op", "name", "target", "type")


class _Frozen:
    """A value of the metadata: containers by content and identity, everything else by identity."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.items: Any = None
        if type(value) is dict:
            self.items = {key: _Frozen(item) for key, item in value.items()}
        elif type(value) in (list, tuple):
            self.items = [_Frozen(item) for item in value]

    def holds(self, value: Any) -> bool:
        if value is not self.value:
            return False
        if isinstance(self.items, dict):
            return list(value) == list(self.items) and all(i.holds(value[k]) for k, i in self.items.items())
        if self.items is not None:
            return len(value) == len(self.items) and all(map(_Frozen.holds, self.items, value))
        return True

    def restored(self) -> Any:
        """The same object, with the content that it had."""
        if isinstance(self.items, dict):
            content = {key: item.restored() for key, item in self.items.items()}
            self.value.clear()
            self.value.update(content)
        elif self.items is not None:
            again = [item.restored() for item in self.items]
            if type(self.value) is list:
                self.value[:] = again
        return self.value


@dataclass
class _Record:
    node: Any
    fields: tuple[Any, ...]
    args: Any
    kwargs: Any
    meta: _Frozen
    users: list[Any]
    next: Any

    @classmethod
    def of(cls, node: Any) -> _Record:
        fields = tuple(getattr(node, name) for name in _FIELDS)
        return cls(node, fields, node.args, node.kwargs, _Frozen(node.meta), list(node.users), node.next)

    def change(self) -> str | None:
        """What of the node is not what it was."""
        node = self.node
        if node._erased:
            return "is gone"
        for name, was in zip(_FIELDS, self.fields, strict=True):
            if getattr(node, name) is not was and getattr(node, name) != was:
                return f"has another {name}"
        if node.args != self.args or node.kwargs != self.kwargs:
            return "has other arguments"
        return None if self.meta.holds(node.meta) else "has other metadata"


class Snapshot:
    """What `nodes` of `graph` are now; without `nodes`, the whole graph."""

    def __init__(self, graph: Any, nodes: Iterable[Any] | None = None) -> None:
        self.graph = graph
        self.whole = nodes is None
        self.records = [_Record.of(node) for node in (graph.nodes if nodes is None else nodes)]
        names = graph._graph_namespace
        self._names = [(table, table.copy()) for table in vars(names).values() if isinstance(table, (dict, set))]

    def change(self) -> str | None:
        """What is not as it was, in words; None if everything is. Only for a snapshot of the whole graph."""
        for record in self.records:
            found = record.change()
            if found:
                return f"node {record.fields[1]} {found}"
        now = list(self.graph.nodes)
        known = {record.node for record in self.records}
        more = [node.name for node in now if node not in known]
        if more:
            return f"node {more[0]} is new"
        if now != [record.node for record in self.records]:
            return "the nodes are in another order"
        # Last, because other changes bring this one with them, and say more.
        users = [record.node.name for record in self.records if list(record.node.users) != record.users]
        return f"node {users[0]} has other users" if users else None

    def restore(self, added: Iterable[Any] = ()) -> None:
        """Make the graph what it was. A snapshot of some nodes needs to be told which ones were `added` since."""
        for record in reversed(self.records):
            if record.node._erased:
                _revive(self.graph, record)
        if self.whole:
            known = {record.node for record in self.records}
            added = [node for node in self.graph.nodes if node not in known]
        for record in reversed(self.records):
            if record.node.next is not record.next and record.node.op != "root":
                record.next.prepend(record.node)
        for record in self.records:
            node = record.node
            for name, was in zip(_FIELDS, record.fields, strict=True):
                if getattr(node, name) is not was:
                    setattr(node, name, was)
            if node.args != record.args:
                node.args = record.args
            if node.kwargs != record.kwargs:
                node.kwargs = record.kwargs
            node.meta = record.meta.restored()
        for node in reversed([node for node in added if not node._erased]):
            for user in list(node.users):  # only other added nodes are left
                user.args, user.kwargs = (), {}
            self.graph.erase_node(node)
        for record in self.records:
            if list(record.node.users) != record.users:
                record.node.users.clear()
                record.node.users.update(dict.fromkeys(record.users))
        for table, was in self._names:
            table.clear()
            table.update(was)


def _revive(graph: Any, record: _Record) -> None:
    """Undo `Graph.erase_node`: FX has no call for it, so this repeats its steps backwards (torch 2.11, 2.13)."""
    node = record.node
    node._erased = False
    # What it was linked to may have gone; unlinked, it can be put in like a new node.
    node._prev = node._next = node
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    record.next.prepend(node)
