"""Was a dict changed since it was last looked at? Asked of the interpreter, without looking into the dict.

Triton's front end is some two thousand names in seventy namespaces. Comparing them with a copy touches every object
that they name, which costs ten microseconds in a tight loop and hundreds inside an export, whose own work has driven
them out of the processor's caches. PyTorch's guards have the same need, and answer it by a number for each dict that
every change of the dict renews (`torch._C._dynamo.guards.dict_version`: CPython's version tag up to 3.11, a dict
watcher from 3.12 on). Equal numbers prove that nothing was set or removed. A new number proves nothing, and the
contents are compared.

The function is PyTorch's own affair, so it is believed only after it was seen, in this process, to notice each way of
changing a dict. Without it every check compares the contents.
"""

from __future__ import annotations

import gc
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

Numbers = list[int] | None


def _dict_version() -> Callable[[Any], int] | None:
    try:
        from torch._C._dynamo.guards import dict_version
    except ImportError:
        return None
    # Without the interpreter's lock, its tables are not safe in threads.
    locked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return dict_version if locked() and notices_changes(dict_version) else None


def notices_changes(version: Callable[[Any], int]) -> bool:
    """Whether `version` gives another number after each way of changing a dict, the same one after none, and no two
    dicts the same.
    """
    plain: dict[str, Any] = {"a": 1, "b": 2, "c": 3, "d": 4}
    module = types.ModuleType("probe")
    owner = type("Probe", (), {"present": 1})
    instance = owner()
    instance.present = 2
    held = [plain_dict(each) for each in (plain, vars(module), vars(owner), vars(instance))]
    changes: tuple[Callable[[], Any], ...] = (
        lambda: plain.__setitem__("a", 2),
        lambda: plain.__setitem__("new", 1),
        lambda: plain.update(b=3),
        lambda: plain.__ior__({"b": 4}),
        lambda: plain.setdefault("newer", 1),
        lambda: plain.__delitem__("a"),
        lambda: plain.pop("b"),
        lambda: plain.popitem(),
        lambda: exec("name = 1", vars(module)),
        lambda: setattr(module, "name", 2),
        lambda: delattr(module, "name"),
        lambda: setattr(owner, "present", 3),
        lambda: setattr(owner, "new", 3),
        lambda: delattr(owner, "new"),
        lambda: setattr(instance, "present", 4),
        lambda: setattr(instance, "new", 4),
        lambda: delattr(instance, "new"),
        lambda: plain.clear(),
    )
    try:
        before = [version(each) for each in held]
        copies = [dict(each) for each in held]
        if len({*before, *map(version, copies)}) < 2 * len(held):
            return False
        for change in changes:
            if [version(each) for each in held] != before:
                return False
            change()
            after = [version(each) for each in held]
            if after == before:
                return False
            before = after
    except Exception:
        return False
    return True


def plain_dict(namespace: Any) -> Any:
    """The dict that a class's read-only view shows; any other dict itself."""
    if type(namespace) is types.MappingProxyType:
        (namespace,) = gc.get_referents(namespace)
    return namespace


_version = _dict_version()


class Versions:
    """What was last known of some dicts: of these, and of those that these owners now hold as their ``__dict__``.

    No two dicts ever have one number, so a dict that takes another's place in an owner is seen as well. A check goes::

    now = versions.now()             # before looking, so that a change in between is seen by the next check
    if versions.known(now): all of them are as they were
    else: compare the contents, and if they are the same, versions.keep(now)
    """

    __slots__ = ("_empty", "_filled", "_known", "_owners")

    def __init__(self, namespaces: Iterable[Any], owners: Iterable[Any] = ()) -> None:
        dicts = {id(each): each for each in map(plain_dict, namespaces)}.values()
        self._owners = list(owners)
        owned = list(map(_held, self._owners))
        usable = _version is not None and all(type(each) is dict for each in (*dicts, *owned)) and all(owned)
        self._filled = [each for each in dicts if each] if usable else []
        # PyTorch's watcher does not see that an empty dict takes another one over as a whole.
        self._empty = [each for each in dicts if not each] if usable else [_NEVER]
        self._known: Numbers = None

    def now(self) -> Numbers:
        """The present numbers; None where they prove nothing."""
        if _version is None or any(self._empty):
            return None
        numbers = list(map(_version, self._filled))
        numbers += map(_version, map(_held, self._owners))
        return numbers

    def known(self, now: Numbers) -> bool:
        """Whether no dict was changed since the last `keep`."""
        return now is not None and now == self._known

    def keep(self, now: Numbers) -> None:
        """The contents were found unchanged, by a look that began after `now` was asked for."""
        self._known = now


_held = operator.attrgetter("__dict__")
_NEVER = {"": None}
