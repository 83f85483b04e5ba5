"""Which planner is asked about which op."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tritonstore.replacement.verdicts import Decision

__all__ = ["Planner", "Registry"]

Preflight = Callable[[Any], Decision]
"""Looks at one Call and decides. It must be pure: no change of the graph, no guard on a symbolic shape."""


@dataclass(frozen=True)
class Planner:
    """A preflight with its name and the ops, as "aten.topk.default", that it is asked about."""

    name: str
    ops: tuple[str, ...]
    preflight: Preflight


class Registry:
    """Op → planner, at most one each."""

    def __init__(self, planners: Iterable[Planner] = ()) -> None:
        self._planners: dict[str, Planner] = {}
        for planner in planners:
            self.register(planner)

    def register(self, planner: Planner, replace: bool = False) -> None:
        """Add a planner. ValueError for an op that already has one, unless `replace`."""
        taken = [op for op in planner.ops if op in self._planners]
        if taken and not replace:
            raise ValueError(f"{taken[0]} already has the planner {self._planners[taken[0]].name}; pass replace=True")
        self._planners.update(dict.fromkeys(planner.ops, planner))

    def planner(self, *ops: str, replace: bool = False) -> Callable[[Preflight], Preflight]:
        """A decorator: registers a preflight for `ops` under its own name."""

        def decorate(preflight: Preflight) -> Preflight:
            self.register(Planner(getattr(preflight, "__name__", str(preflight)), ops, preflight), replace)
            return preflight

        return decorate

    def find(self, op: str) -> Planner | None:
        return self._planners.get(op)

    def ops(self) -> list[str]:
        return sorted(self._planners)
