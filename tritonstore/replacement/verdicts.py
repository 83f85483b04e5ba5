"""What a planner says of one call: a verdict, a reason, and what would take the call's place."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Decision", "Ref", "Signature", "Verdict", "optional", "required", "unsupported"]


class Verdict(enum.Enum):
    """OPTIONAL may be skipped; REQUIRED must succeed, because the regular lowering cannot compile the call."""

    OPTIONAL = "OPTIONAL"
    REQUIRED = "REQUIRED"
    UNSUPPORTED = "UNSUPPORTED"


@dataclass(frozen=True)
class Decision:
    """A verdict with its reason; unless UNSUPPORTED, the operator to call instead, with its arguments.

    Arguments are plain values and nodes of the graph, alone or in lists.
    """

    verdict: Verdict
    reason: str
    target: Any = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def optional(reason: str, target: Any, *args: Any, **kwargs: Any) -> Decision:
    """The call gains from `target(*args, **kwargs)`, and can do without."""
    return Decision(Verdict.OPTIONAL, reason, target, args, kwargs)


def required(reason: str, target: Any, *args: Any, **kwargs: Any) -> Decision:
    """The regular lowering cannot compile the call; `target(*args, **kwargs)` can take its place."""
    return Decision(Verdict.REQUIRED, reason, target, args, kwargs)


def unsupported(reason: str) -> Decision:
    """Nothing can take the call's place."""
    return Decision(Verdict.UNSUPPORTED, reason)


@dataclass(frozen=True)
class Ref:
    """A node by its name: a plan holds no node, so it is plain data and holds for a deep copy as well."""

    name: str

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True)
class Signature:
    """The call: its op, its tensors (each with name, shape, dtype, strides, device), its other arguments."""

    op: str
    tensors: tuple[tuple[str, tuple[str, ...], str, tuple[str, ...], str], ...] = ()
    scalars: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        shown = [f"{name}: {dtype}[{', '.join(shape)}] strides ({', '.join(strides)}) {device}"
                 for name, shape, dtype, strides, device in self.tensors]  # fmt: skip
        shown += [f"{name}={value}" for name, value in self.scalars]
        return f"{self.op}({', '.join(shown)})"
