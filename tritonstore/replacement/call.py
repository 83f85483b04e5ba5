"""One call of an ATen op, as a preflight sees it. Everything here only reads."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from tritonstore.replacement.capability import device_supports
from tritonstore.replacement.verdicts import Signature

__all__ = ["Call", "bound", "order", "same", "static"]


class Call:
    """A node of an exported graph whose target is an op.

    node        the node; must not be changed
    op          the op's name, such as "aten.topk.default"
    arguments   by name, defaults included; tensors as the nodes that compute them
    """

    def __init__(self, node: Any) -> None:
        self.node = node
        self.op = str(node.target)
        self.arguments: dict[str, Any] = {}
        for index, argument in enumerate(node.target._schema.arguments):
            if index < len(node.args):
                self.arguments[argument.name] = node.args[index]
            elif argument.name in node.kwargs:
                self.arguments[argument.name] = node.kwargs[argument.name]
            else:
                self.arguments[argument.name] = argument.default_value

    def value(self, name: str) -> Any:
        """The argument `name`: of a node, what it computes (a fake tensor, a symbolic number)."""
        return values(self.arguments[name])

    @property
    def output(self) -> Any:
        """What the call computes: a fake tensor, or several."""
        return self.node.meta["val"]

    @property
    def device(self) -> torch.device:
        """The device of the call's first output."""
        first = self.output[0] if isinstance(self.output, (list, tuple)) else self.output
        return torch.device(first.device)

    def supports(self, min_capability: int) -> bool:
        """Whether a kernel that needs `min_capability` (80 is 8.0) can run where this call is exported for."""
        return device_supports(min_capability, self.device)

    @property
    def signature(self) -> Signature:
        tensors, scalars = [], []
        for name in self.arguments:
            value = self.value(name)
            for suffix, part in _parts(value):
                if isinstance(part, torch.Tensor):
                    shape, strides = (tuple(map(str, numbers)) for numbers in (part.shape, part.stride()))
                    dtype = str(part.dtype).removeprefix("torch.")
                    tensors.append((name + suffix, shape, dtype, strides, str(part.device)))
            if not any(isinstance(part, torch.Tensor) for _, part in _parts(value)):
                scalars.append((name, str(value)))
        return Signature(self.op, tuple(tensors), tuple(scalars))


def values(argument: Any) -> Any:
    """`argument` with what nodes compute in their place."""
    return torch.fx.map_arg(argument, lambda node: node.meta["val"])


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    return [("", value)]


def static(number: Any) -> int | None:
    """A number that is known at export; None for a symbolic one. Asking adds no guard."""
    if isinstance(number, torch.SymInt):
        expression = number.node.expr
        return int(expression) if expression.is_number else None
    return int(number)


def bound(number: Any) -> int | None:
    """The largest value that a number can take; None if it has no bound."""
    known = static(number)
    if known is not None:
        return known
    upper = number.node.shape_env.bound_sympy(number.node.expr).upper
    return int(upper) if upper.is_Integer and upper < 2**31 else None


def same(left: Any, right: Any) -> bool:
    """Whether two numbers, or two lists of numbers, are equal for certain."""
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(statically_known_true(left == right))


def order(tensor: Any) -> list[int] | None:
    """The dimensions of a dense tensor as they lie in memory, the slowest first; None if it is not dense.

    Symbolic strides are compared by structure, so nothing is guarded.
    """
    left = list(range(tensor.dim()))
    found: list[int] = []
    expected: Any = 1
    while left:
        # Of several that fit (a dimension of size 1), the last: so that contiguous stays contiguous.
        fits = [dim for dim in left if same(tensor.stride(dim), expected) or same(tensor.shape[dim], 1)]
        if not fits:
            return None
        found.insert(0, fits[-1])
        left.remove(fits[-1])
        expected = expected * tensor.shape[fits[-1]]
    return found
