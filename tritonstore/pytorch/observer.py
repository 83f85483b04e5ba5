"""What a session's counters report, passed on: to the journal of this process, and to PyTorch's own channels."""

from __future__ import annotations

import os
import sys
from typing import Any

from tritonstore.counters import Counters
from tritonstore.forks import reset_in_children
from tritonstore.journal import Bypassed, Journal
from tritonstore.pytorch import channels
from tritonstore.settings import Settings, redact_url, run_id

__all__ = ["Observer", "kernel_name"]

_MAX_TRACED = 5_000  # keys and bypasses that a trace holds an artifact of

_observers: dict[str, Observer] = {}


class Observer:
    """One for each cache folder: its run record tells of all sessions that use it. Raises nothing."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._after_fork()
        reset_in_children(self)

    def _after_fork(self) -> None:
        self._traced: set[Any] = set()

    @classmethod
    def of(cls, settings: Settings) -> Observer:
        """The observer for the cache folder of `settings`."""
        folder = os.path.join(settings.cache_folder, "runs")
        known = _observers.get(folder)
        if known is None:
            journal = Journal(folder, run_id(), tuple(map(redact_url, settings.urls)), settings.mode)
            known = _observers.setdefault(folder, cls(journal))
        return known

    def watch(self, counters: Counters) -> None:
        """Hear what these counters count from now on."""
        counters.observer = self
        self.journal.attach(counters)

    def close(self, *counters: Counters, keep: bool) -> None:
        """A session is over: leave a record of what is known. `keep` where its counters may go on counting."""
        for each in () if keep else counters:
            self.journal.detach(each)
        self.journal.write()

    def hit(self, key: Any, tier: str, seconds: float) -> None:
        try:
            first = self.journal.hit(key, tier, seconds)
            dynamo = sys.modules.get(channels.DYNAMO)  # this one event is hot: no call
            if dynamo is not None:
                dynamo.counters["tritonstore"]["hit"] += 1
            if first:
                self._trace("hit", key.digest, lambda: {**_named(key), "tier": tier, "seconds_saved": seconds})
        except Exception:
            self.journal.fault()

    def miss(self, key: Any) -> None:
        try:
            self.journal.miss(key)
            channels.count("miss")
            self._trace("miss", key.digest, lambda: {**_named(key), "key": key.describe()})
        except Exception:
            self.journal.fault()

    def share(self, key: Any, seconds: float) -> None:
        try:
            self.journal.share(key, seconds)
            channels.count("shared")
        except Exception:
            self.journal.fault()

    def bypass(self, what: Bypassed) -> None:
        try:
            self.journal.bypass(what)
            channels.count("bypass", f"bypass: {what.reason}")
            said = {"kernel": ".".join(what.kernel), "reason": what.reason, "detail": what.detail}
            self._trace("bypass", what, lambda: said)
        except Exception:
            self.journal.fault()

    def analysis(self, subject: Any, seconds: float) -> None:
        try:
            self.journal.analysis(subject, seconds)
            channels.count("analysis")
        except Exception:
            self.journal.fault()

    def unproven(self, key: Any, reason: str) -> None:
        try:
            self.journal.unproven(key, reason)
            channels.count("unproven", f"unproven: {reason}")
        except Exception:
            self.journal.fault()

    def publish(self, key: Any) -> None:
        try:
            self.journal.publish(key)
        except Exception:
            self.journal.fault()

    def _trace(self, name: str, subject: Any, payload: Any) -> None:
        """Once for each subject, as far as there is room; a hit that follows a miss is no news."""
        if subject not in self._traced and len(self._traced) < _MAX_TRACED:
            self._traced.add(subject)
            channels.artifact(name, payload)


def _named(key: Any) -> dict[str, Any]:
    return {"kernel": ".".join(key.kernel), "digest": key.digest, "parts": dict(key.parts)}


def kernel_name(kernel: Any) -> tuple[str, str]:
    """(module, qualified name) of whatever stands where a kernel is expected. Never raises."""
    try:
        for _ in range(8):  # autotuners and heuristics, one inside the other
            inner = getattr(kernel, "fn", None)
            if inner is None:
                break
            kernel = inner
        module, name = getattr(kernel, "__module__", None), getattr(kernel, "__qualname__", None)
    except Exception:
        return "?", "?"
    return str(module or "?"), str(name or type(kernel).__qualname__)
