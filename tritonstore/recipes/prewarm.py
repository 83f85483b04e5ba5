"""Answer recorded questions under the toolchain and the sources of today, in several processes at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

from tritonstore.errors import SettingsError
from tritonstore.maintenance.bundle import Bundle
from tritonstore.maintenance.inventory import open_backends
from tritonstore.recipes.sources import Plan, from_bundle, from_run, from_store
from tritonstore.recipes.workers import Result, Workers
from tritonstore.settings import Settings
from tritonstore.signing import keys_of

__all__ = ["PATIENCE", "Prewarm", "Summary", "prewarm", "workers_for"]

PATIENCE = 600.0
"""Seconds that one question may take: longer than any analysis seen, and an end for a module that never comes back."""


@dataclass
class Summary:
    """What a prewarm came to: questions by status (see `asking`), PyTorch's seconds, and the results that are not
    well, each with its kernel."""

    total: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    trouble: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """Count one more."""
        self.by_status[result.status] = self.by_status.get(result.status, 0) + 1
        self.seconds += result.seconds
        if result.status not in ("known", "answered", "same", "elsewhere"):
            self.trouble.append(result)

    @property
    def done(self) -> int:
        return sum(self.by_status.values())


def _order(settings: Settings, purpose: str) -> dict[str, Any]:
    """What a worker is told at its start."""
    values = settings._asdict()
    for name in ("origins", "enabled", "prewarm"):
        del values[name]
    values["target"] = None
    # A target that is declared for where there is no GPU is not one to ask for in place of what was recorded.
    if settings.target is not None and (settings.prefer_target or settings.origins["target"].startswith("argument")):
        values["target"] = ":".join(map(str, settings.target))
    values["urls"] = list(settings.urls)
    return {"settings": values, "purpose": purpose}


def workers_for(settings: Settings, purpose: str, jobs: int, plan: Sized, path: list[str]) -> Workers:
    """No more processes than questions."""
    return Workers(_order(settings, purpose), max(1, min(jobs, len(plan))), path, PATIENCE)


class Prewarm:
    """The questions of a store, or of one `run` (``last``) or `bundle`, to be asked as they are asked today.

    Raises SettingsError, StoreError, BundleError, OSError for the bundle, TritonStoreError for an unknown run.
    """

    def __init__(
        self, settings: Settings, *, run: str | None = None, bundle: str | os.PathLike[str] | None = None
    ) -> None:
        if run is not None and bundle is not None:
            text = "a prewarm takes its questions from a run or a bundle, not from both"
            raise SettingsError(text, "run", "argument run")
        if settings.mode in ("readonly", "off"):
            origin = settings.origins["mode"]
            raise SettingsError(f"mode = {settings.mode} (from {origin}): nothing could be stored", "mode", origin)
        self._settings = settings
        self._backends = open_backends(settings)
        self.summary = Summary()
        self.plan = self._plan(run, bundle)
        self.summary.total = len(self.plan)

    def _plan(self, run: str | None, bundle: str | os.PathLike[str] | None) -> Plan:
        if run is not None:
            return from_run(self._settings, self._backends, run)
        if bundle is None:
            return from_store(self._settings, self._backends)
        with open(bundle, "rb") as file:
            return from_bundle(Bundle(file, signing=keys_of(self._settings)))

    def results(self, jobs: int | None, path: list[str]) -> Iterator[Result]:
        """What became of each question, counted in `summary`. Raises WorkerError."""
        workers = workers_for(self._settings, "prewarm", jobs or os.cpu_count() or 1, self.plan, path)
        try:
            for result in workers.results(self.plan):
                self.summary.add(result)
                yield result
        finally:
            for backend in self._backends:
                backend.close()


def prewarm(
    *,
    run: str | None = None,
    bundle: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    path: Sequence[str] | None = None,
    **settings: Any,
) -> Summary:
    """Answer recorded questions under the toolchain and the sources of today; what became of them.

    They come from the store, or from one `run` (``last``) or `bundle`. Kernels are imported, in `jobs` processes of
    their own (default: one for each CPU) whose sys.path is `path` (default: this one's). `settings` are those of
    `Settings.load`; a ``target`` takes the place of the recorded ones. What is answered already is not asked again.
    Raises as `Prewarm`, and WorkerError.
    """
    warm = Prewarm(Settings.load(**settings), run=run, bundle=bundle)
    for _ in warm.results(jobs, list(sys.path if path is None else path)):
        pass
    return warm.summary
