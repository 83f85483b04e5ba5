"""The arguments of a call that was seen before, read at the speed of C.

`argument_tokens` is the definition; here is only its short cut. For arguments of certain types at certain places, a
`Plan` says what the tokens still depend on: the element types of tensors and the values of compile-time arguments.
Calls of one plan that agree in these have equal tokens, so the key that was worked out for one serves for the other. A
plan reads no argument whose token needs more than that (functions, lists, floats at compile time, integers beyond 32
bits): such calls go the long way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from tritonstore.keys.arguments import OTHER, SCALARS_BY_TYPE, STAND_IN, SYMBOL, TENSOR, kind_of

_MAX_PLANS = 256
"""Kept per kernel; past that calls of further types go the long way."""

# Equal objects of one of these types give equal tokens; 0.0 == -0.0, so float is not one of them.
_BY_VALUE = frozenset({bool, int, str, type(None)})

_Getter = Callable[[Sequence[Any]], Sequence[Any]]
_dtype = operator.attrgetter("dtype")


class Plan:
    """How to read the arguments of one kernel where they have certain types, in the order of its parameters."""

    __slots__ = ("_integers", "_real", "_tensors", "_values")

    def __init__(self, tensors: list[int], real: list[int], integers: list[int], values: list[int]) -> None:
        self._tensors = _getter(tensors)
        self._real = _getter(real) if real else None
        self._integers = _getter(integers) if integers else None
        self._values = _getter(values)

    def read(self, arguments: Sequence[Any]) -> tuple[Any, ...] | None:
        """What the tokens of these arguments depend on, hashable; None where the long way must tell."""
        if self._integers is not None:
            integers = self._integers(arguments)
            if min(integers) < -(2**31) or max(integers) >= 2**31:
                return None
        if self._real is not None:
            for tensor in self._real(arguments):
                tensor.data_ptr()  # raises where there is none
        return (self, *map(_dtype, self._tensors(arguments)), *self._values(arguments))


class Reader:
    """The plans of one kernel, as long as its parameters are what they were when it was made (see `watch`)."""

    __slots__ = ("_constexprs", "_names", "_pick", "_plans")

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._names = [parameter.name for parameter in parameters]
        self._constexprs = [bool(parameter.is_constexpr) for parameter in parameters]
        self._pick: Callable[[Any], Sequence[Any]] = _getter(self._names)
        self._plans: dict[tuple[type, ...], Plan | None] = {}

    def read(self, arguments: dict[str, Any]) -> tuple[Any, ...] | None:
        """What the tokens of these arguments depend on, hashable; None where `argument_tokens` must tell."""
        try:
            values = self._pick(arguments)
            kinds = tuple(map(type, values))
            plan = self._plans.get(kinds)
            if plan is None:
                if kinds in self._plans or len(self._plans) >= _MAX_PLANS:
                    return None
                plan = self._plans[kinds] = self._plan(values)
            return None if plan is None else plan.read(values)
        except Exception:
            return None  # and the long way says what is wrong

    def _plan(self, values: Sequence[Any]) -> Plan | None:
        tensors, real, integers, by_value = [], [], [], []
        for position, (value, constexpr) in enumerate(zip(values, self._constexprs, strict=True)):
            family, kind = kind_of(value), type(value)
            if family == SYMBOL:
                continue
            if constexpr or (not SCALARS_BY_TYPE and family == OTHER):
                if kind not in _BY_VALUE:
                    return None
                by_value.append(position)
            elif family in (STAND_IN, TENSOR):
                tensors.append(position)
                if family == TENSOR:
                    real.append(position)
            elif kind is int:
                integers.append(position)
            elif kind not in (float, bool, type(None)):
                return None
        return Plan(tensors, real, integers, by_value)


def _getter(places: Sequence[Any]) -> _Getter:
    """The items at these places, always as a tuple."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    if not places:
        return lambda arguments: ()
    (place,) = places
    return lambda arguments: (arguments[place],)
