"""A cheap proof, call by call, that everything a code record was read from is still the same.

Reading is by identity: the watch holds the objects, so an equal identity is the same object, and a new object under an
old name is always noticed. ``==`` would not do: a ``tl.constexpr`` answers it with another constexpr, a tensor with a
tensor, and 1 == True. What stands in a dict is only looked at again where the dict was changed (``versions``).
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime.jit import JITFunction

from tritonstore.errors import Bypass
from tritonstore.keys.members import replaceable
from tritonstore.keys.values import Token, is_frozen, value_token
from tritonstore.keys.versions import Numbers, Versions

ABSENT: Any = type("_Absent", (), {"__repr__": lambda self: "<absent>"})()


class Watch:
    """What one record depends on. Filled while the record is built; ``holds()`` afterwards."""

    __slots__ = (
        *("_attributes", "_cells", "_checks", "_flags", "_functions", "_hints", "_items", "_kinds", "_lists"),
        *("_marked", "_modules", "_namespaces", "_owned", "_owners", "_seen", "_users", "_versions", "__weakref__"),
    )

    def __init__(self) -> None:
        # In dicts: the module globals, and what JITFunctions and parameters (the owners) hold themselves.
        self._namespaces: list[dict[str, Any]] = []
        self._owners: list[Any] = []
        self._owned: list[dict[str, Any]] = []
        self._items: list[tuple[Callable[..., Any], str, Any]] = []
        self._functions: list[tuple[Any, tuple[Any, ...]]] = []
        self._flags: list[tuple[Any, Any]] = []
        self._hints: list[tuple[Any, tuple[Any, ...]]] = []
        # Elsewhere, so looked at on each call.
        self._kinds: list[type] = []  # of the owners
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._attributes: tuple[list[Any], list[str], list[Any]] = ([], [], [])
        self._cells: list[tuple[Any, Any]] = []
        self._checks: list[Callable[[], bool]] = []
        self._modules: list[types.ModuleType] = []
        self._seen: set[tuple[int, str]] = set()
        self._marked: set[tuple[int, str, int]] = set()
        self._versions: Versions | None = None
        self._users: Versions | None = None

    def item(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        """``namespace[name]`` is ``value`` (ABSENT: has no such name)."""
        mark = (id(namespace), name)
        if mark not in self._seen:
            self._seen.add(mark)
            self._items.append((namespace.get, name, value))
            self._namespaces.append(namespace)

    def cell(self, cell: types.CellType, value: Any) -> None:
        """A closure cell still holds ``value``."""
        self._cells.append((cell, value))

    def attribute(self, owner: Any, name: str) -> bool:
        """Whether ``owner`` has an attribute; looked up again each time, since an object may gain some.

        Looked up without running it: a property of somebody's global is none of our business. Raises
        Bypass("value-type") where only the object itself could tell.
        """
        if hasattr(type(owner), "__getattr__"):
            raise Bypass("value-type", f"a {type(owner).__qualname__} makes its attribute {name} on demand")
        found = inspect.getattr_static(owner, name, ABSENT)
        present = found is not ABSENT
        worked_out = (property, functools.cached_property, types.MemberDescriptorType)
        if isinstance(found, worked_out) or inspect.isfunction(type(owner).__getattribute__):
            raise Bypass("value-type", f"a {type(owner).__qualname__} works out its attribute {name}")
        if not is_frozen(owner):
            self._checks.append(
                lambda: (
                    (inspect.getattr_static(owner, name, ABSENT) is not ABSENT) is present
                    and not hasattr(type(owner), "__getattr__")
                )
            )
        return present

    def kind(self, module: types.ModuleType) -> None:
        """A module is still of the plain kind, whose attributes are what its dict holds."""
        if not any(known is module for known in self._modules):
            self._modules.append(module)

    def value(self, value: Any, token: Token) -> None:
        """A compile-time value still has this token. Immutable values and functions are watched where they stand."""
        if is_frozen(value) or type(value) is JITFunction:
            return
        inner = value.value if type(value) is tl.constexpr else value
        if inner is not value and (is_frozen(inner) or type(inner) is JITFunction) and value.type.value is inner:
            self._checks.append(
                lambda: (
                    type(value) is tl.constexpr
                    and value.value is inner
                    and value.type.value is inner
                    and len(vars(value)) == 2
                )
            )
        else:
            self._checks.append(lambda: _same_token(value, token))

    def member(self, owner: Any, name: str) -> None:
        """An object still has this attribute that it has now."""
        self._attribute(owner, name, getattr(owner, name))

    def inside(self, own: Any) -> None:
        """One of Triton's own objects still has the code and text that it had."""
        for owner, attribute, value in replaceable(own):
            self._attribute(owner, attribute, value)

    def _attribute(self, owner: Any, attribute: str, value: Any) -> None:
        mark = (id(owner), attribute, id(value))
        if mark not in self._marked:
            self._marked.add(mark)
            for column, each in zip(self._attributes, (owner, attribute, value), strict=True):
                column.append(each)

    def _owner(self, owner: Any) -> None:
        self._owners.append(owner)
        self._owned.append(vars(owner))
        self._kinds.append(type(owner))

    def function(self, function: Any) -> None:
        """A JITFunction still has the source, parameters and flags that were read."""
        self._functions.append((function, _state(function)))
        self._flags.append((function, getattr(function, _MUST_USE, False)))
        self._owner(function)
        for attribute in _OF_PYTHON:
            self._attribute(function.fn, attribute, getattr(function.fn, attribute))
        self._lists += [(each, list(each)) for each in (function.params, function.arg_names)]
        for parameter in function.params:
            self._hints.append((parameter, _hints(parameter)))
            self._owner(parameter)

    def moment(self) -> Numbers:
        """Numbers that are others once a user's module was changed, also where all of it is as before again.

        Triton's and PyTorch's own modules are left out: the analysis imports parts of them when it first needs them.
        """
        if self._users is None:
            self._users = Versions(each for each in self._namespaces if _is_users(each))
        return self._users.now()

    def holds(self) -> bool:
        """Whether all of it is unchanged. Raises nothing: what cannot be compared has changed."""
        try:
            versions = self._versions
            if versions is None:
                versions = self._versions = Versions(self._namespaces, self._owners)
            now = versions.now()
            if not versions.known(now):
                if not self._dicts_hold():
                    return False
                versions.keep(now)
            return self._others_hold()
        except Exception:
            return False

    def _dicts_hold(self) -> bool:
        if not all(map(operator.is_, map(vars, self._owners), self._owned)):  # which can be replaced as a whole
            return False
        for get, name, value in self._items:
            if get(name, ABSENT) is not value:
                return False
        for function, state in self._functions:
            if not _identical(_state(function), state) or not OVERRIDES.isdisjoint(function.__dict__):
                return False
        for function, must_use in self._flags:
            if getattr(function, _MUST_USE, False) is not must_use:
                return False
        return all(_identical(_hints(parameter), hints) for parameter, hints in self._hints)

    def _others_hold(self) -> bool:
        # No bytecode for each of them: this is asked on every call.
        if not all(map(operator.is_, map(type, self._owners), self._kinds)):
            return False
        owners, names, values = self._attributes
        if not all(map(operator.is_, map(getattr, owners, names), values)):
            return False
        for live, copy in self._lists:
            if live != copy:
                return False
        for module in self._modules:
            if type(module) is not types.ModuleType:
                return False
        for cell, value in self._cells:
            if cell.cell_contents is not value:
                return False
        return all(check() for check in self._checks)


def _is_users(namespace: Any) -> bool:
    name = str(namespace.get("__name__", ""))
    return namespace is not sys.modules and name.partition(".")[0] not in ("triton", "torch")


_MUST_USE = "_must_use_result"

# What code generation checks about a parameter, and what its arguments are read by.
_hints = operator.attrgetter(
    "name", "is_constexpr", "do_not_specialize", "do_not_specialize_on_alignment", "is_const", "_param"
)

# What code generation and the analysis read off the Python function in a JITFunction.
_OF_PYTHON = ("__code__", "__defaults__", "__name__", "__qualname__")

# Attributes that the values in a kernel have by themselves: tensors, their types, constexprs, tuples, descriptors,
# numbers and texts. A JITFunction has none of them, but for its type, which says no more than which function it is.
OF_VALUES = (
    frozenset(
        name
        for kind in (*vars(tl.core).values(), int, float, str, tuple, list)
        if isinstance(kind, type)
        and issubclass(kind, (tl.core.base_value, tl.core.base_type, tl.slice, tl.range, int, float, str, tuple, list))
        for name in dir(kind)
        if not name.startswith("_")
    )
    | {"address_space", "const", "desc", "dtype", "element_ty", "exponent_bias", "fp_mantissa_width", "handle"}
    | {"int_bitwidth", "int_signedness", "itemsize", "name", "numel", "primitive_bitwidth", "shape", "start", "step"}
    | {"stop", "strides", "type", "types", "value", "values"}
) - {"format", "format_map", "mangle"}

# An operator is looked up on the object itself.
_OPERATORS = frozenset(
    name for kind in (int, float, str, tuple, dict) for name in dir(kind) if name.startswith("__")
) - frozenset(vars(tl.standard.cdiv))

# Methods of a JITFunction that code generation calls; an attribute of that name on the object itself hides one.
OVERRIDES = frozenset({"get_capture_scope", "is_gluon", "mangle", "parse", "repr", "src"}) | OF_VALUES | _OPERATORS

# What they read off the JITFunction itself.
_state = operator.attrgetter(
    "_src",
    "fn",
    "module",
    "params",
    "arg_names",
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
