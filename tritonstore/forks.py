"""What must not survive a fork.

A child inherits locks that a thread of its parent held, and that thread does not exist in the child: the
first `with lock` there would hang for ever. Objects with such state register themselves here and start afresh
in the child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Resettable", "reset_in_children"]


class Resettable(Protocol):
    """An object with state that belongs to one process."""

    def _after_fork(self) -> None:
        """Make locks new, and forget what only the parent's threads can finish. Runs in the child, alone."""


_objects: weakref.WeakSet[Resettable] = weakref.WeakSet()


def reset_in_children(target: Resettable) -> None:
    """Have `target._after_fork()` called in every forked child, for as long as `target` lives."""
    _objects.add(target)


def _reset() -> None:
    for target in list(_objects):
        target._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)
