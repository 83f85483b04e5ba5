"""Tokens of the plain values that a kernel can see at compile time, by exact type.

1, True and 1.0 are equal to Python, and a kernel that branches on them takes three ways; so every token names the
type. What a token cannot hold (an object with behaviour of its own) bypasses the store: its ``__eq__``, ``__bool__``
or attributes could answer differently tomorrow.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl

from tritonstore.errors import Bypass

Token = tuple[Any, ...]

MAX_DEPTH = 16
"""A list that contains itself would otherwise recurse until the interpreter gives up."""


def exact_token(value: Any, jit_token: Callable[[Any], Token] | None = None, depth: int = 0) -> Token:
    """As `value_token`, where 1 is not ``tl.constexpr(1)``: f-strings and the text of tuples tell them apart.

    Of a global it does not matter: one that is neither a constexpr nor code cannot be read at all.
    """
    token = value_token(value, jit_token, depth)
    return ("tl.constexpr", token) if type(value) is tl.constexpr else token


def value_token(value: Any, jit_token: Callable[[Any], Token] | None = None, depth: int = 0) -> Token:
    """The token of a compile-time value: None, bool, int, float, str, dtype, tuple or list of these, JITFunction; of a
    ``tl.constexpr`` that of what it holds.

    ``jit_token`` turns a JITFunction into a token; without it one is refused. Raises Bypass("value-type").
    """
    kind = type(value)
    if kind is int:
        return ("int", value)
    if kind is bool:
        return ("bool", value)
    if kind is str:
        return ("str", value)
    if value is None:
        return ("none",)
    if kind is float:
        if depth and value != value:
            raise Bypass("value-type", "a NaN in a tuple or list, where Python finds it by identity")
        # A float as a dictionary key would merge 0.0 with -0.0 and never find a NaN again.
        return ("float", struct.pack(">d", value).hex())
    if kind is tl.constexpr:
        if vars(value).keys() != {"value", "type"} or type(value.type) is not tl.core.constexpr_type:
            raise Bypass("value-type", "a tl.constexpr with attributes of its own")
        held, named = value.value, value.type.value
        token = value_token(held, jit_token, depth)
        # Triton runs helpers by the value and names them by the type, so one whose value was changed later has both.
        return token if named is held else ("changed", token, value_token(named, jit_token, depth))
    if kind is tl.dtype:
        name = vars(value).get("name")
        if type(name) is not str or name not in _DTYPES or not _equal(vars(value), _dtype_holds(name)):
            raise Bypass("value-type", f"a tl.dtype {name} whose attributes were changed")
        # A copy (unpickled, or of the user's making) is equal to Triton's own, and is not the same object.
        return ("dtype", name) if is_tritons_dtype(value) else ("dtype", name, "copy")
    if kind is torch.dtype:
        return ("torch.dtype", str(value).removeprefix("torch."))
    if kind is tuple or kind is list:
        if depth >= MAX_DEPTH:
            raise Bypass("value-type", f"a {kind.__name__} is nested deeper than {MAX_DEPTH} levels")
        return (kind.__name__, *(exact_token(item, jit_token, depth + 1) for item in value))
    if jit_token is not None and kind.__name__ == "JITFunction":
        return jit_token(value)
    raise Bypass("value-type", f"a compile-time value of type {kind.__module__}.{kind.__qualname__}")


_DTYPES = {each.name: each for each in vars(tl.core).values() if type(each) is tl.dtype}


def is_tritons_dtype(value: Any) -> bool:
    """Whether it is one of Triton's own dtypes, of each of which there is one object."""
    return type(value) is tl.dtype and _DTYPES.get(value.name) is value


@functools.lru_cache(maxsize=64)
def _dtype_holds(name: str) -> dict[str, Any]:
    return dict(vars(tl.dtype(name)))


def _equal(held: dict[str, Any], made: dict[str, Any]) -> bool:
    return held.keys() == made.keys() and all(
        type(held[name]) is type(made[name]) and held[name] == made[name] for name in made
    )


def is_frozen(value: Any) -> bool:
    """Whether the same object always gives the same token, so that its identity is proof enough."""
    kind = type(value)
    if kind is tuple:
        return all(is_frozen(item) for item in value)
    return value is None or kind in (bool, int, float, str, torch.dtype)
