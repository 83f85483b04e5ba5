"""Where recipes come from: a store, one run, or a bundle. One for each question, the newest, longest analysis first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tritonstore.backends.base import Backend
from tritonstore.entry import Entry
from tritonstore.errors import FormatError, StoreError, TritonStoreError
from tritonstore.maintenance.bundle import Bundle
from tritonstore.maintenance.inventory import Filter, check, entries
from tritonstore.maintenance.runs import last_run, load
from tritonstore.recipes.recipe import Recipe, of_entry, of_miss, question
from tritonstore.settings import Settings
from tritonstore.signing import Keys, keys_of

__all__ = ["Plan", "from_bundle", "from_run", "from_store"]

Step = Callable[[], object]


def _no_step() -> None:
    """Nobody watches."""


class _Item(NamedTuple):
    made: float
    seconds: float
    digest: str
    recipe: Recipe | None


class Plan:
    """What to ask, longest first by what it cost before: the last to be started is then short, and nobody waits for it.

    A question that stands in a store is read again when its turn comes, so that a plan takes some hundred bytes for
    each. `undescribed` counts the entries that hold no recipe.
    """

    def __init__(self, backends: Sequence[Backend] = (), signing: Keys | None = None) -> None:
        self._backends = backends
        self._signing = signing
        self._items: dict[bytes, _Item] = {}
        self.undescribed = 0

    def add(self, recipe: Recipe | None, made: float, keep: bool) -> None:
        """`made` in Unix seconds; `keep` where it cannot be read again by its digest."""
        if recipe is None:
            self.undescribed += 1
            return
        name = question(recipe)
        known = self._items.get(name)
        if known is None or made >= known.made:
            self._items[name] = _Item(made, recipe.seconds, recipe.digest, recipe if keep else None)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def seconds(self) -> float:
        """What all of it cost before, one after the other."""
        return sum(item.seconds for item in self._items.values())

    def __iter__(self) -> Iterator[Recipe]:
        for item in sorted(self._items.values(), key=lambda each: -each.seconds):
            recipe = item.recipe or self._read(item.digest)
            if recipe is not None:
                yield recipe

    def _read(self, digest: str) -> Recipe | None:
        for backend in self._backends:
            entry = _entry(backend, digest, self._signing)
            if entry is not None:
                return of_entry(entry)
        return None  # removed since


def _entry(backend: Backend, digest: str, signing: Keys | None) -> Entry | None:
    try:
        data = backend.get(digest)
        return None if data is None else check(digest, data, signing)
    except (FormatError, StoreError):
        return None


def from_store(
    settings: Settings, backends: Sequence[Backend], only: Filter | None = None, step: Step = _no_step
) -> Plan:
    """Every question in these tiers that `only` takes. Raises StoreError."""
    plan = Plan(backends, keys_of(settings))
    for backend in backends:
        for _, entry in entries(backend):
            step()
            if isinstance(entry, Entry) and (only is None or only.takes(entry)):
                plan.add(of_entry(entry), entry.provenance.created, keep=False)
    return plan


def from_run(
    settings: Settings, backends: Sequence[Backend], run_id: str, only: Filter | None = None, step: Step = _no_step
) -> Plan:
    """The questions of one run (``last``: the last one), from the entries that it used and the misses on its record.

    Raises TritonStoreError where there is no record of it, StoreError where the store fails.
    """
    known = last_run(settings) if run_id == "last" else run_id
    records = [] if known is None else list(load(settings, known))
    if not records:
        raise TritonStoreError(f"there is no record of a run {run_id}; tritonstore stats --all lists the runs")
    signing = keys_of(settings)
    plan = Plan(backends, signing)
    seen: set[str] = set()
    for digest in {digest for record in records for digest in record.used}:
        step()
        entry = next(filter(None, (_entry(backend, digest, signing) for backend in backends)), None)
        if entry is not None:
            seen.add(digest)
            if only is None or only.takes(entry):
                plan.add(of_entry(entry), entry.provenance.created, keep=True)
    # Run records are not signed: where a key is asked for, they name no module to import.
    for record in records if signing is None else ():
        for miss in record.misses:
            if miss.digest not in seen and (only is None or only.takes_kernel(miss.module, miss.name)):
                plan.add(of_miss(miss), miss.at, keep=True)
    return plan


def from_bundle(bundle: Bundle, only: Filter | None = None, step: Step = _no_step) -> Plan:
    """The questions in a bundle, whose answers are not looked at; what the bundle finds wrong is left out.

    Raises BundleError.
    """
    plan = Plan()
    for digest, data, problem in bundle:
        step()
        if problem is None:
            entry = check(digest, data)
            if only is None or only.takes(entry):
                plan.add(of_entry(entry), entry.provenance.created, keep=True)
    return plan
