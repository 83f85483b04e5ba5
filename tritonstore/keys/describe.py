"""What a key's code part was made of, as plain data, so that a later difference can be named (see `diff`).

A node's digest says only *that* something changed. The description keeps apart what people change apart: the body, the
parameters, and the value of each name that the function uses. Nothing here is part of a key.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tritonstore.keys.encoding import encode

NamedNode = tuple[str, tuple[str, ...], tuple[Any, ...]]
"""A function's full name, the names of its closure variables, and its node (see `code`)."""

_SHORT = 32
"""Hex digits of the digests here: they are compared for equality, never trusted."""

_MAX_SPELLED = 1024
"""Bits of an integer that is written in decimal; a wider one is written in hex."""

_MAX_TOKEN, _MAX_DEPTH = 512, 6
"""Bytes and nesting of a name's value that is kept as it is; a larger one is kept as its digest."""


class Nodes:
    """The nodes of one CODE part, described when somebody asks, once."""

    __slots__ = ("_described", "named")

    def __init__(self, named: tuple[NamedNode, ...]) -> None:
        self.named = named
        self._described: list[dict[str, Any]] | None = None

    def described(self) -> list[dict[str, Any]]:
        """One description a function; the same objects each time, so not to be changed."""
        if self._described is None:
            self._described = [describe_node(*each) for each in self.named]
        return self._described


def describe_node(full_name: str, closure: tuple[str, ...], node: tuple[Any, ...]) -> dict[str, Any]:
    """One function of a CODE part as plain data.

    ``names`` holds ``[place, dotted name, token, "global" or "closure"]`` for each name that the function uses, less
    those that stand for Triton's own object of that name; ``all_names`` is a digest of all of them.
    """
    _, arguments, body, parameters, noinline, must_use, alike, names = node
    return {
        "name": full_name,
        "body": _short(body),
        "written": _short(arguments),
        "parameters": [
            [name, constexpr, _kept(default[0]) if default else None] for name, _, constexpr, _, default in parameters
        ],
        "all_parameters": _short(parameters),
        "noinline": noinline,
        "must_use": must_use,
        "alike": alike,
        "names": [
            [place, ".".join(dotted), _kept(token), "closure" if dotted[0] in closure else "global"]
            for place, dotted, token in names
            if not (token[0] == "triton" and _last(token[1]) == dotted[-1])
        ],
        "all_names": _short(names),
    }


def listed(value: Any) -> Any:
    """The same with fresh lists and dicts all the way down, as an entry holds it."""
    if isinstance(value, (tuple, list)):
        return [listed(item) for item in value]
    if isinstance(value, dict):
        return {name: listed(item) for name, item in value.items()}
    if type(value) is int and not -(2**63) <= value < 2**64:
        # An entry's integers end at 64 bits, constexpr integers do not, and Python spells out only so many digits.
        return str(value) if value.bit_length() < _MAX_SPELLED else hex(value)
    if type(value) is str and not value.isascii():
        # Text of Python's may hold lone surrogates, an entry's must not.
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def _kept(token: tuple[Any, ...]) -> list[Any]:
    data = encode(token)
    # An entry refuses text with lone surrogates and detail that is too deep: the answer would not be stored for it.
    if len(data) <= _MAX_TOKEN and _is_utf8(data) and _depth(token) <= _MAX_DEPTH:
        return list(listed(token))
    return ["long", str(token[0]), hashlib.sha256(data).hexdigest()[:_SHORT]]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _depth(value: Any) -> int:
    return 1 + max(map(_depth, value), default=0) if isinstance(value, tuple) else 0


def _short(value: Any) -> str:
    return hashlib.sha256(encode(value)).hexdigest()[:_SHORT]


def _last(identity: str) -> str:
    return identity.rpartition(":")[2].rpartition(".")[2]
