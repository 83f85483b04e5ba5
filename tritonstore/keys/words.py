"""Tokens of a key in words, for people. What comes in may be any plain data; nothing is raised."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["as_list", "as_map", "change", "last_name", "show"]

_LONGEST = 60  # characters of one value


def as_list(value: Any) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return value if type(value) is list else []


def as_map(value: Any) -> Mapping[str, Any]:
    """`value` if it is a map, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def last_name(full: Any) -> str:
    """``read`` of ``package.module.make.<locals>.read``."""
    return str(full).rpartition(":")[2].rpartition(".")[2]


def change(before: Any, after: Any, *, plain: bool = False, unset: bool = False) -> str:
    """``64 → 128``. Where two different tokens read the same, their types stand with them.

    `plain` leaves text without quotes; `unset` says "not set" for None.
    """
    left, right = (_word(value, plain, unset) for value in (before, after))
    if left == right:
        left, right = f"{_kind(before)} {left}", f"{_kind(after)} {right}"
    if left == right:
        return f"{right}, with other properties"
    return f"{left} → {right}"


def _word(value: Any, plain: bool, unset: bool) -> str:
    if value is None and unset:
        return "not set"
    return value if plain and type(value) is str else show(value)


def _kind(token: Any) -> str:
    first = token[0] if type(token) is list and token else None
    return first if type(first) is str else type(token).__name__


def show(token: Any) -> str:
    """A token or a plain value, as a person would write it."""
    text = _show(token, 0)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _show(token: Any, depth: int) -> str:
    if type(token) is not list or not token or type(token[0]) is not str:
        return repr(token) if isinstance(token, (str, int, float, bytes, type(None))) else "…"
    kind, rest = token[0], token[1:]
    held = rest[0] if rest else None
    if kind == "none":
        return "None"
    if kind in ("constexpr", "constant", "tl.constexpr", "bare"):
        return _show(held, depth)
    if kind in ("tuple", "list") and depth < 8:
        inside = ", ".join(_show(item, depth + 1) for item in rest)
        return f"[{inside}]" if kind == "list" else f"({inside},)" if len(rest) == 1 else f"({inside})"
    return _ATOMS.get(kind, _other)(kind, rest)


def _other(kind: str, rest: list[Any]) -> str:
    return " ".join([kind, *(str(item) for item in rest if isinstance(item, (str, int)))])


def _float(kind: str, rest: list[Any]) -> str:
    try:
        return repr(struct.unpack(">d", bytes.fromhex(rest[0]))[0])
    except (IndexError, TypeError, ValueError, struct.error):
        return "a float"


def _text(kind: str, rest: list[Any]) -> str:
    return repr(rest[0]) if rest and type(rest[0]) is str else "a text"


def _first(kind: str, rest: list[Any]) -> str:
    return str(rest[0]) if rest and isinstance(rest[0], (str, int)) else kind


_ATOMS: dict[str, Callable[[str, list[Any]], str]] = {
    "int": _first,
    "bool": _first,
    "float": _float,
    "str": _text,
    "dtype": lambda kind, rest: f"tl.{_first(kind, rest)}",
    "torch.dtype": lambda kind, rest: f"torch.{_first(kind, rest)}",
    "pointer": _first,
    "scalar": _first,
    "triton": lambda kind, rest: f"Triton's {last_name(_first(kind, rest))}",
    "jit": lambda kind, rest: "a function",
    "changed": lambda kind, rest: " typed as ".join(_show(item, 4) for item in rest),
    "lookup-fails": lambda kind, rest: "something a kernel may not read",
    "evaluated": lambda kind, rest: "something that can be evaluated",
    "has": lambda kind, rest: "there" if rest[:1] == [True] else "not there",
    "long": lambda kind, rest: f"a long {_first(kind, rest)}",
}
