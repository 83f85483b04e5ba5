"""Tell a real analysis from PyTorch's failure path, by two signs that must agree.

PyTorch swallows every exception of its analysis and answers "every tensor is read and written". That is a
property of the moment (no driver, out of memory), never a fact about the kernel, so it must not be stored. A
log handler is no sign: it sees nothing where the logger's level is ERROR.

* newer form: the answer *is* the object that the outermost walk returned, and `reads` is not the same set
  object as `writes` (the failure path shares one).
* older form: the outermost walk came to its end, and the answer equals the names of `generate_ttir` that it
  selects.

Where the two disagree, or PyTorch no longer calls our wrappers, nothing may be stored any more:
`Verdict.alarm`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tritonstore.pytorch.seam import Seam


class Verdict(NamedTuple):
    """`reason` is None for a proven success, else a short id. `alarm`: the signs are not to be trusted."""

    reason: str | None
    alarm: bool = False


PROVEN = Verdict(None)


class Observation:
    """What the wrappers saw during one original call of one thread."""

    __slots__ = ("completed", "depth", "disturbed", "generating", "names", "reentered", "result", "started")

    def __init__(self) -> None:
        self.depth = 0
        self.started = False
        self.completed = False
        self.result: Any = None
        self.generating = False
        self.names: tuple[str, ...] | None = None
        self.reentered = False
        self.disturbed = False


class Watch:
    """Wraps the walk (older form: and `generate_ttir`), and says after a call what its answer is worth."""

    def __init__(self, seam: Seam) -> None:
        self.seam = seam
        self._local = threading.local()
        # Sets of own tokens: add and discard are atomic, so that no lock can be left held by a fork.
        self._active: set[Observation] = set()
        self._strangers: set[tuple[int, object]] = set()
        self.wrappers: dict[str, Any] = {}

    def wrap(self, name: str, original: Any) -> Any:
        """The wrapper that stands for `original` under `name` in PyTorch's module."""
        wrapper = Walk(self, original) if name == self.seam.inner else self._generate(original)
        self.wrappers[name] = wrapper
        return wrapper

    @property
    def nested(self) -> bool:
        """Whether this thread is inside an original call right now."""
        return bool(self._stack())

    def _stack(self) -> list[Observation]:
        stack: list[Observation] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    @contextlib.contextmanager
    def observing(self) -> Iterator[Observation]:
        """Around one original call, made under the analysis lock."""
        stack = self._stack()
        for outer in stack:
            outer.reentered = True  # the inner call resets PyTorch's memo tables under the outer one
        seen = Observation()
        stack.append(seen)
        self._active.add(seen)
        seen.disturbed = any(pid == os.getpid() for pid, _ in tuple(self._strangers))
        try:
            yield seen
        finally:
            self._active.discard(seen)
            stack.pop()

    def walk(self, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call of the walk; PyTorch recurses through its module, so the inner ones come here too."""
        stack = self._stack()
        if not stack:
            return self._stranger(original, args, kwargs)
        seen = stack[-1]
        if seen.depth == 0:
            seen.started, seen.completed, seen.result = True, False, None
        seen.depth += 1
        try:
            result = original(*args, **kwargs)
        finally:
            seen.depth -= 1
        if seen.depth == 0:
            seen.completed, seen.result = True, result
        return result

    def _stranger(self, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Somebody kept PyTorch's entry from before install() and calls it without our lock: its walk shares
        # the memo tables with ours, so what is analysed at the same time is not trusted.
        token = (os.getpid(), object())
        self._strangers.add(token)
        for seen in tuple(self._active):
            seen.disturbed = True
        try:
            return original(*args, **kwargs)
        finally:
            self._strangers.discard(token)

    def _generate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def generate(*args: Any, **kwargs: Any) -> Any:
            stack = self._stack()
            if stack:
                stack[-1].generating, stack[-1].names = True, None
            result = original(*args, **kwargs)
            if stack:
                stack[-1].names = tuple(result[1])
            return result

        return generate

    def verdict(self, seen: Observation, answer: Any) -> Verdict:
        """What `answer`, returned by the original call that `seen` watched, is worth."""
        if seen.disturbed:
            return Verdict("disturbed")
        if seen.reentered:
            return Verdict("re-entrant")
        newer = self.seam.kind == "accesses"
        return self._accesses(seen, answer) if newer else self._mutations(seen, answer)

    def _accesses(self, seen: Observation, answer: Any) -> Verdict:
        try:
            failed = answer.read_writes.reads is answer.read_writes.writes
        except AttributeError:
            return Verdict("unknown-answer", alarm=True)
        if not seen.started:
            return Verdict("failure-path") if failed else self._unseen()
        same = seen.completed and answer is seen.result
        if same and not failed:
            return PROVEN
        return Verdict("signs-disagree", alarm=True) if same is failed else Verdict("failure-path")

    def _mutations(self, seen: Observation, answer: Any) -> Verdict:
        if not seen.started:
            return Verdict("failure-path") if seen.generating and self._in_place() else self._unseen()
        if not seen.completed:
            return Verdict("failure-path")
        if seen.names is None or len(seen.names) != len(seen.result):
            return Verdict("signs-disagree", alarm=True)
        selected = [name for name, written in zip(seen.names, seen.result, strict=True) if written]
        return PROVEN if answer == selected else Verdict("signs-disagree", alarm=True)

    def _unseen(self) -> Verdict:
        return Verdict("no-analysis") if self._in_place() else Verdict("wrapper-vanished", alarm=True)

    def _in_place(self) -> bool:
        return all(getattr(self.seam.module, name, None) is w for name, w in self.wrappers.items())


class Walk:
    """Stands for PyTorch's memoised walk: watches calls; all else (`reset`, `cache`, `fn`) is the walk's."""

    __slots__ = ("__weakref__", "_original", "_watch")

    def __init__(self, watch: Watch, original: Any) -> None:
        object.__setattr__(self, "_watch", watch)
        object.__setattr__(self, "_original", original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._watch.walk(self._original, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._original, name, value)
