"""Look at symbolic shapes without deciding what they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["Guarded", "no_new_guards"]

_TABLES = ("guards", "replacements", "var_to_range", "axioms")


class Guarded(RuntimeError):
    """Something asked for the value of a symbolic number, which would fix it for the whole exported program."""


@contextlib.contextmanager
def no_new_guards(shape_env: Any) -> Iterator[None]:
    """Raise Guarded if the block guards on a symbol of `shape_env` (None: there are none); no guard stays."""
    if shape_env is None:
        yield
        return
    before = {name: getattr(shape_env, name).copy() for name in _TABLES if hasattr(shape_env, name)}
    number = len(shape_env.guards)
    try:
        yield
    finally:
        added = [str(guard.expr) for guard in shape_env.guards[number:]]
        if added:
            for name, table in before.items():
                getattr(shape_env, name).clear()
                (getattr(shape_env, name).extend if name == "guards" else getattr(shape_env, name).update)(table)
            _forget(shape_env)
    if added:
        raise Guarded(f"it fixes a symbolic size: {', '.join(added[:3])}")


def _forget(shape_env: Any) -> None:
    """Empty PyTorch's memos, which would answer the same question next time without a guard that could be seen."""
    shape_env._version_counter += 1
    for name in ("evaluate_expr", "_inner_evaluate_expr"):  # the first in torch 2.11, the second in 2.13
        function = getattr(type(shape_env), name, None)
        while function is not None:
            getattr(function, "cache_clear", lambda: None)()
            function = getattr(function, "__wrapped__", None)
