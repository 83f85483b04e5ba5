"""Remove entries: old ones, stale ones, the least recently used beyond a size, or all.

Constant memory, whatever the store's size. A limit on bytes takes two passes: the first adds them up by the hour of
last use (which is all that a store keeps), the second deletes. So does the removal of stale entries: a question whose
answer nobody has renewed yet keeps its newest entry, as the recipe for `tritonstore prewarm`. Each deletion is one
atomic step, so a process that is killed on the way leaves a smaller store and a sound one.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tritonstore.backends.base import Backend, Record
from tritonstore.backends.folders import TEMPORARY
from tritonstore.entry import Entry
from tritonstore.errors import FormatError
from tritonstore.maintenance.inventory import Filter, check, entries, innermost, patient, toolchain_of
from tritonstore.recipes.newest import Newest

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
    `keep_recipes` spares the stale entries that hold a question's newest recipe, from `stale` but from no limit.
    """

    max_size: int = 0
    max_age: float = 0.0
    stale: Installed | None = None
    only: Filter = field(default_factory=Filter)
    keep_recipes: bool = True

    @property
    def limited(self) -> bool:
        return bool(self.max_size or self.max_age or self.stale)


@dataclass
class Outcome:
    """How many entries and bytes were there and were removed, and why; `recipes` are stale ones that were kept."""

    entries: int = 0
    size: int = 0
    removed: int = 0
    removed_size: int = 0
    old: int = 0
    stale: int = 0
    surplus: int = 0
    recipes: int = 0


def prune(backend: Backend, plan: Plan, *, dry_run: bool = False, step: Step = _no_step) -> Outcome:
    """Remove what `plan` says from one tier, or only count it. Raises StoreError."""
    with contextlib.closing(Newest()) as newest:
        if plan.stale is not None and plan.keep_recipes:
            for _, entry in entries(backend):
                step()
                if isinstance(entry, Entry):
                    newest.add(entry, current=not plan.stale.is_stale(entry))
        return _prune(backend, plan, newest, dry_run=dry_run, step=step)


def _prune(backend: Backend, plan: Plan, newest: Newest, *, dry_run: bool, step: Step) -> Outcome:
    now = time.time()
    outcome = Outcome()
    surplus = _Surplus(plan.max_size)
    if plan.max_size:
        for record, reason in _judged(backend, plan, newest, now, step):
            if reason in (None, "recipe"):
                surplus.count(record)
        surplus.settle()
    for record, reason in _judged(backend, plan, newest, now, step):
        outcome.entries += 1
        outcome.size += record.size
        if reason in (None, "recipe") and surplus.takes(record):
            reason = "surplus"
        outcome.recipes += reason == "recipe"
        if reason in (None, "recipe"):
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
    """Remove what killed processes have left in one tier: temporary files and folders, an hour old. The number of them.

    Never raises: one that cannot be removed now is removed later.
    """
    root = getattr(innermost(backend), "root", None)
    if root is None:
        return 0
    removed = 0
    now = time.time()
    version, shard = "v[0-9]*", "[0-9a-f][0-9a-f]"
    for inside in ((version, shard), (version,), (), ("..",)):  # folders of a shared store are made in the one above
        for path in glob.iglob(os.path.join(glob.escape(root), *inside, ".*.tmp")):
            above, name = os.path.split(path)
            # A link could lead to a folder of somebody else's.
            linked = os.path.islink(above) or os.path.islink(os.path.dirname(above))
            if not TEMPORARY.match(name) or (linked and len(inside) > 1):
                continue
            with contextlib.suppress(OSError):
                found = os.lstat(path)
                # No live writer takes so long. Either direction: a clock that was wrong may have dated it ahead.
                if abs(now - found.st_mtime) > _HOUR and stat.S_ISDIR(found.st_mode) is not (len(inside) == 2):
                    (os.unlink if len(inside) == 2 else os.rmdir)(path)
                    removed += 1
    return removed


def _judged(
    backend: Backend, plan: Plan, newest: Newest, now: float, step: Step
) -> Iterator[tuple[Record, str | None]]:
    """Every record that `plan` looks at, with the reason to remove it if age, toolchain or filter give one; "recipe"
    is the reason to keep a stale one."""
    get = patient(backend)  # what cannot be read is not judged by its content, and is no reason to stop
    for record in backend.scan():
        step()
        entry: Entry | None = None
        if plan.only or plan.stale:
            try:
                data = get(record.digest)
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
            yield record, "recipe" if newest.holds(entry) else "stale"
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
