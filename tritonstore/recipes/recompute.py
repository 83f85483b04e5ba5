"""Ask PyTorch again for stored entries, and compare: what `tritonstore verify --recompute` does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from tritonstore.backends.base import Backend
from tritonstore.entry import Entry
from tritonstore.errors import FormatError, StoreError
from tritonstore.maintenance.inventory import check
from tritonstore.maintenance.verify import chosen
from tritonstore.recipes.prewarm import workers_for
from tritonstore.recipes.recipe import Recipe, of_entry
from tritonstore.recipes.workers import Result
from tritonstore.settings import Settings
from tritonstore.store import open_settings

__all__ = ["Recomputation"]


class Recomputation:
    """One pass over some tiers. `undescribed` counts, afterwards, the entries that hold no recipe."""

    def __init__(self, settings: Settings, backends: Sequence[Backend], sample: int | None = None) -> None:
        self._settings = settings._replace(target=None)  # each entry is asked under its own
        self._backends = backends
        self._sample = sample
        self.undescribed = 0

    def results(self, jobs: int | None, path: list[str]) -> Iterator[Result]:
        """What became of each entry that can be read: see `asking`. Raises StoreError and WorkerError."""
        most = jobs or os.cpu_count() or 1
        # How many entries there are is not known before the end; a worker too many costs seconds of start.
        workers = workers_for(self._settings, "recompute", most, range(self._sample or most), path)
        yield from workers.results(self._recipes())

    def quarantine(self, digests: Iterable[str]) -> str:
        """Set wrong answers aside, for every process with this cache folder; the folder where their bytes lie."""
        store = open_settings(self._settings._replace(mode="readwrite"))
        try:
            kept = [store.quarantine(digest) for digest in digests]
        finally:
            store.close()
        return os.path.dirname(next(filter(None, kept), ""))

    def _recipes(self) -> Iterator[Recipe]:
        for backend in self._backends:
            for record in chosen(backend, self._sample):
                entry = _read(backend, record.digest)
                if entry is None:
                    continue  # damaged, or gone: what `verify` without this looks for
                recipe = of_entry(entry)
                if recipe is None:
                    self.undescribed += 1
                else:
                    yield recipe


def _read(backend: Backend, digest: str) -> Entry | None:
    try:
        data = backend.get(digest)
        return None if data is None else check(digest, data)
    except (FormatError, StoreError):
        return None
