"""A cheap proof, call by call, that everything a code record was read from is still the same.

Reading is by identity: the watch holds the objects, so an equal identity is the same object, and a new object under an
old name is always noticed. ``==`` would not do: a ``tl.constexpr`` answers it with another constexpr, a tensor with a
tensor, and 1 == True.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime.jit import JITFunction

from tritonstore.errors import Bypass
from tritonstore.keys.members import replaceable
from tritonstore.keys.values import Token, is_frozen, value_token

ABSENT: Any = type("_Absent", (), {"__repr__": lambda self: "<absent>"})()


class Watch:
    """What one record depends on. Filled while the record is built; ``holds()`` afterwards."""

    __slots__ = ("_cells", "_checks", "_functions", "_insides", "_items", "_seen")

    def __init__(self) -> None:
        self._items: list[tuple[Callable[..., Any], str, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._checks: list[Callable[[], bool]] = []
        self._functions: list[tuple[Any, tuple[Any, ...], list[Any], list[str]]] = []
        self._insides: list[tuple[Any, str, Any]] = []
        self._seen: set[tuple[int, str]] = set()

    def item(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        """``namespace[name]`` is ``value`` (ABSENT: has no such name)."""
        mark = (id(namespace), name)
        if mark not in self._seen:
            self._seen.add(mark)
            self._items.append((namespace.get, name, value))

    def cell(self, cell: types.CellType, value: Any) -> None:
        """A closure cell still holds ``value``."""
        self._cells.append((cell, value))

    def attribute(self, owner: Any, name: str, present: bool) -> None:
        """``hasattr(owner, name)`` is ``present``; asked again each time, since an object may gain attributes."""
        if not is_frozen(owner):
            self._checks.append(lambda: hasattr(owner, name) is present)

    def value(self, value: Any, token: Token) -> None:
        """A compile-time value still has this token. Immutable values and functions are watched where they stand."""
        if is_frozen(value) or type(value) is JITFunction:
            return
        inner = value.value if type(value) is tl.constexpr else value
        if inner is not value and (is_frozen(inner) or type(inner) is JITFunction) and value.type.value is inner:
            self._checks.append(lambda: value.value is inner and value.type.value is inner)
        elif type(value) is tl.dtype:
            name = value.name
            self._checks.append(lambda: value.name is name)
        else:
            self._checks.append(lambda: _same_token(value, token))

    def inside(self, own: Any) -> None:
        """One of Triton's own objects still has the code and text that it had."""
        self._insides.extend(replaceable(own))

    def function(self, function: Any) -> None:
        """A JITFunction still has the source, parameters and flags that were read."""
        self._functions.append((function, _state(function), list(function.params), list(function.arg_names)))

    def holds(self) -> bool:
        """Whether all of it is unchanged. Raises nothing: what cannot be compared has changed."""
        for get, name, value in self._items:
            if get(name, ABSENT) is not value:
                return False
        try:
            for function, state, parameters, names in self._functions:
                if function.params != parameters or function.arg_names != names:
                    return False
                if not _identical(_state(function), state):
                    return False
            for own, attribute, value in self._insides:
                if getattr(own, attribute) is not value:
                    return False
            for cell, value in self._cells:
                if cell.cell_contents is not value:
                    return False
            for check in self._checks:
                if not check():
                    return False
        except Exception:
            return False
        return True


# What code generation and the analysis read off a JITFunction, and off the Python function in it.
_state = operator.attrgetter(
    "_src",
    "fn",
    "fn.__code__",
    "fn.__name__",
    "__globals__",
    "noinline",
    "signature",
    "__name__",
    "__module__",
    "__qualname__",
    "_fn_name",
    "_repr",
)


def _identical(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return all(map(operator.is_, left, right))


def _same_token(value: Any, token: Token) -> bool:
    try:
        return value_token(value, _no_functions) == token
    except Bypass:
        return False


def _no_functions(function: Any) -> Token:
    # A list that holds functions is read again by a whole new record instead.
    raise Bypass("value-type", "a function inside a mutable value")
