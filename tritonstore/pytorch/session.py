"""What one `install()` asked for, and the way of a call through it: bypass, hit, wait, or analysis.

The promise, in this order: PyTorch's answer exactly; no fault of ours reaches the caller (strict mode raises
it).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

from tritonstore import keys
from tritonstore.counters import Counters
from tritonstore.errors import Bypass, TritonStoreError
from tritonstore.forks import reset_in_children
from tritonstore.journal import Bypassed
from tritonstore.pytorch import artifacts
from tritonstore.pytorch.call import Call, Patched, Question, ask
from tritonstore.pytorch.notice import notice
from tritonstore.pytorch.observer import Observer, kernel_name
from tritonstore.pytorch.offline import DeclaredTarget
from tritonstore.settings import Settings

_distrusted: set[tuple[str, ...]] = set()
"""The URLs of stores that verification found a wrong answer in, in this process."""


class Session:
    """What one `install()` asked for: its settings, its store, and whether that may still be used."""

    def __init__(self, settings: Settings, store: Any = None, *, observed: bool = True) -> None:
        self.settings = settings
        self._store = store
        self._owned = store is None
        self._own_counters = Counters()
        self._target = DeclaredTarget(settings.target, settings.prefer_target) if settings.target else None
        self._stopped = "off" if settings.mode == "off" else "stopped" if settings.urls in _distrusted else ""
        self._observer = Observer.of(settings) if observed and settings.mode != "off" else None
        self._observe()
        artifacts.register()
        if store is not None:
            store.on_entry = artifacts.record
        self.storing = True
        self._after_fork()
        reset_in_children(self)

    def _after_fork(self) -> None:
        self._opening = threading.Lock()
        # By chance, or a fleet of processes with 50 hits each would never verify one in a hundred. Not from `random`,
        # whose numbers belong to the program.
        self._verified = int.from_bytes(os.urandom(6), "big") / (1 << 48)

    @property
    def counters(self) -> Counters:
        """The store's counters; own ones as long as there is no store."""
        counters: Counters = self._own_counters if self._store is None else self._store.counters
        return counters

    def same(self, other: Session) -> bool:
        """Whether `other` asks for the same store and settings."""
        mine = None if self._owned else self._store
        theirs = None if other._owned else other._store
        return mine is theirs and self.settings == other.settings

    def _observe(self) -> None:
        if self._observer is not None:
            self._observer.watch(self.counters)

    def close(self) -> None:
        """Give up the target, and the store if this session opened it. Calls still under way end well."""
        if self._target is not None:
            self._target.restore()
        if self._observer is not None:
            self._observer.close(self.counters, self._own_counters, keep=not self._owned)
        if self._owned and self._store is not None:
            with contextlib.suppress(TritonStoreError):
                self._store.close()

    def declare(self) -> None:
        """Make Triton use the declared target, if there is one."""
        if self._target is not None and not self._target.settled:
            with self.guard("target"):
                self._target.ensure()

    def answer(self, patch: Patched, question: Question) -> Any:
        """What PyTorch would answer to `question` now."""
        self.declare()
        store = None if self._stopped else self._opened()
        if store is None:
            return self._plain(patch, question, self._stopped or "no-store")
        try:
            key = self._key(question)
        except Bypass as bypass:
            if bypass.reason == "error":  # the key could not be worked out, perhaps by a bug of ours
                self.fault("key", bypass)
            return self._plain(patch, question, bypass.reason, bypass.detail)
        except Exception as error:
            self.fault("key", error)
            return self._plain(patch, question, "key-fault", type(error).__name__)
        try:
            found = store.lookup(key)
        except Exception as error:
            self.fault("lookup", error)
            return self._plain(patch, question, "store-fault", type(error).__name__)
        call = Call(self, patch, question, store, key)
        if found is not None:
            return call.verify(found) if self._verify_this() else call.deliver(found)
        # A nested question must not wait for a lease: this thread holds the analysis lock, and maybe that
        # very lease.
        if patch.watch.nested or not self.storing:
            return call.analyse()
        with call.claimed() as appeared:
            return call.analyse() if appeared is None else call.deliver(appeared)

    def adopt(self, digest: str, data: bytes) -> None:
        """Take over an entry from PyTorch's own bundle. A fault is counted, and raised only if strict."""
        store = None if self._stopped else self._opened()
        if store is not None:
            with self.guard("adopt"):
                store.adopt(digest, data)

    def stop_storing(self, why: str) -> None:
        """From now on nothing is stored by this process; what is stored already still answers."""
        first, self.storing = self.storing, False
        if first:
            notice(f"{why}. This process stores no more answers; PyTorch's own are used")

    def distrust(self, why: str) -> None:
        """From now on this process does not use this store at all, also where it is installed again."""
        first, self._stopped = not self._stopped, "stopped"
        _distrusted.add(self.settings.urls)
        if first:
            notice(f"{why}. This process does not use its store any more; docs/trust.md says what to do")

    def _opened(self) -> Any:
        """The store, opened at the first call; None, once and for all, where it cannot be."""
        if self._store is None:
            with self._opening:
                if self._store is None and not self._stopped:
                    with self.guard("open"):
                        self._store = _open(self.settings)
                    if self._store is None:
                        self._stopped = "no-store"
                    else:
                        self._store.on_entry = artifacts.record
                    self._observe()
        return self._store

    def _key(self, question: tuple[Any, Any, Any]) -> Any:
        started = time.perf_counter()
        try:
            return keys.call_key(*question)
        finally:
            self.counters.spend("key", time.perf_counter() - started)

    def _plain(self, patch: Patched, question: Question, reason: str, detail: str = "") -> Any:
        what = Bypassed(kernel_name(question[0]), reason, detail)
        self.counters.bypass(reason, what)
        answer, _, seconds = ask(patch, question)
        self.counters.analysis(seconds, what)
        return answer

    def _verify_this(self) -> bool:
        """Every 1/share-th hit, by counting from a place in the first of these stretches."""
        share = self.settings.verify
        if not share:
            return False
        with self._opening:
            before, self._verified = self._verified, self._verified + share
            return int(self._verified + 1e-9) > int(before + 1e-9)

    @contextlib.contextmanager
    def guard(self, kind: str) -> Iterator[None]:
        """Swallow and count a fault of ours; strict mode raises it."""
        try:
            yield
        except Exception as error:
            self.fault(kind, error)

    def fault(self, kind: str, error: Exception) -> None:
        text = f"PyTorch answers itself, because of a fault ({kind}): {type(error).__name__}: {error}"
        self.counters.fault(f"pytorch-{kind}", text)
        if self.settings.strict:
            raise error


def _open(settings: Settings) -> Any:
    from tritonstore.store import open_settings

    return open_settings(settings)
