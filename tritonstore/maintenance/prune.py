"""Remove entries: old ones, stale ones, the least recently used beyond a size, or all.

Constant memory, whatever the store's size. A limit on bytes takes two passes: the first adds them up by the hour of
last use (which is all that a store keeps), the second deletes. Each deletion is one atomic step, so a process that is
killed on the way leaves a smaller store and a sound one.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tritonstore.backends.base import Backend, Record
from tritonstore.backends.files import TEMPORARY
from tritonstore.entry import Entry
from tritonstore.errors import FormatError
from tritonstore.maintenance.inventory import Filter, check, innermost, toolchain_of

__all__ = ["Installed", "Outcome", "Plan", "clear", "installed_toolchain", "prune", "sweep"]

_HOUR = 3600.0
Step = Callable[[], object]


def _no_step() -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Installed:
    """The versions of torch and triton in this environment; None where one is not installed."""

    torch: str | None
    triton: str | None

    def is_stale(self, entry: Entry) -> bool:
        """Whether `entry` was made by another torch or triton. One that does not say is not called stale."""
        torch, triton = toolchain_of(entry)
        return (torch != "?" and torch != self.torch) or (triton != "?" and triton != self.triton)


@dataclass(frozen=True)
class Plan:
    """What to remove. `max_size` bytes and `max_age` seconds are no limit at 0.

    `only` narrows everything: what it does not take is neither counted nor removed. With a filter and no limit all
    that it takes goes; with neither, nothing does. A damaged entry is taken by no filter, and is not stale.
    """

    max_size: int = 0
    max_age: float = 0.0
    stale: Installed | None = None
    only: Filter = field(default_factory=Filter)

    @property
    def limited(self) -> bool:
        return bool(self.max_size or self.max_age or self.stale)


@dataclass
class Outcome:
    """How many entries and bytes were there and were removed, and why."""

    entries: int = 0
    size: int = 0
    removed: int = 0
    removed_size: int = 0
    old: int = 0
    stale: int = 0
    surplus: int = 0


def prune(backend: Backend, plan: Plan, *, dry_run: bool = False, step: Step = _no_step) -> Outcome:
    """Remove what `plan` says from one tier, or only count it. Raises StoreError."""
    now = time.time()
    outcome = Outcome()
    surplus = _Surplus(plan.max_size)
    if plan.max_size:
        for record, reason in _judged(backend, plan, now, step):
            if reason is None:
                surplus.count(record)
        surplus.settle()
    for record, reason in _judged(backend, plan, now, step):
        outcome.entries += 1
        outcome.size += record.size
        if reason is None and surplus.takes(record):
            reason = "surplus"
        if reason is None:
            continue
        if not dry_run and not backend.delete(record.digest):
            continue  # gone meanwhile
        outcome.removed += 1
        outcome.removed_size += record.size
        if reason != "all":
            setattr(outcome, reason, getattr(outcome, reason) + 1)
    return outcome


def clear(backend: Backend, *, step: Step = _no_step) -> Outcome:
    """Remove every entry of one tier, readable or not; nothing else that may lie there. Raises StoreError."""
    outcome = Outcome()
    for record in backend.scan():
        step()
        outcome.entries += 1
        outcome.size += record.size
        if backend.delete(record.digest):
            outcome.removed += 1
            outcome.removed_size += record.size
    return outcome


def sweep(backend: Backend) -> int:
    """Remove what killed processes have left in one tier: temporary files, an hour old. How many there were.

    Never raises: one that cannot be removed now is removed later.
    """
    root = getattr(innermost(backend), "root", None)
    if root is None:
        return 0
    removed = 0
    before = time.time() - _HOUR  # no live writer takes so long
    for path in glob.iglob(os.path.join(glob.escape(root), "v[0-9]*", "[0-9a-f][0-9a-f]", ".*.tmp")):
        shard, name = os.path.split(path)
        # A link could lead to a folder of somebody else's.
        if not TEMPORARY.match(name) or os.path.islink(shard) or os.path.islink(os.path.dirname(shard)):
            continue
        with contextlib.suppress(OSError):
            if os.lstat(path).st_mtime < before:
                os.unlink(path)
                removed += 1
    return removed


def _judged(backend: Backend, plan: Plan, now: float, step: Step) -> Iterator[tuple[Record, str | None]]:
    """Every record that `plan` looks at, with the reason to remove it if age, toolchain or filter give one."""
    for record in backend.scan():
        step()
        entry: Entry | None = None
        if plan.only or plan.stale:
            data = backend.get(record.digest)
            try:
                entry = None if data is None else check(record.digest, data)
            except FormatError:
                entry = None
            if plan.only and (entry is None or not plan.only.takes(entry)):
                continue
        if not plan.limited:
            yield record, "all" if plan.only else None
        elif plan.max_age and abs(now - record.used) > plan.max_age:  # one dated far ahead would outlive every limit
            yield record, "old"
        elif plan.stale is not None and entry is not None and plan.stale.is_stale(entry):
            yield record, "stale"
        else:
            yield record, None


class _Surplus:
    """Which entries go so that the rest fits: whole hours of last use, oldest first, and a part of one hour."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._hours: dict[int, int] = {}
        self._excess = 0
        self._whole: int | None = None
        self._part: int | None = None

    def count(self, record: Record) -> None:
        hour = int(record.used // _HOUR)
        self._hours[hour] = self._hours.get(hour, 0) + record.size

    def settle(self) -> None:
        """Everything has been counted: find the hours."""
        self._excess = sum(self._hours.values()) - self._max_size
        for hour in sorted(self._hours):
            if self._excess <= 0:
                break
            if self._hours[hour] > self._excess:
                self._part = hour
                break
            self._whole = hour
            self._excess -= self._hours[hour]

    def takes(self, record: Record) -> bool:
        hour = int(record.used // _HOUR)
        if self._whole is not None and hour <= self._whole:
            return True
        if hour == self._part and self._excess > 0:
            self._excess -= record.size
            return True
        return False


def installed_toolchain() -> Installed:
    """The torch and triton that an import would find here, by reading their version files; imports neither."""
    return Installed(
        _version("torch", "version.py", r"^__version__ *(?::[^=]*)?= *'([^']+)'"),
        _version("triton", "__init__.py", r"^__version__ *= *['\"]([^'\"]+)['\"]"),
    )


def _version(package: str, file: str, pattern: str) -> str | None:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a broken finder, or a module without a spec
        return None
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        try:
            with open(os.path.join(folder, file), encoding="utf-8") as lines:
                match = re.search(pattern, lines.read(), re.MULTILINE)
        except (OSError, ValueError):
            continue
        return match[1] if match else None
    return None
