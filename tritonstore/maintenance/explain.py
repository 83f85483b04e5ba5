"""Why the calls of a run missed: what was nearest to each of them when it was asked, and what differs.

A miss is explained by what could have answered it: an entry that was in the store before. Only where there was none do
questions of the same run, or of runs on record whose entries are gone, say what it differs from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tritonstore.backends.base import Backend
from tritonstore.entry import Entry
from tritonstore.keys.diff import Described, Difference, differences
from tritonstore.maintenance.inventory import entries, kernel_of
from tritonstore.runrecord import MissFacts, RunRecord

__all__ = [
    *("AGAIN", "DIFFERS", "FIRST", "LOST", "REFRESH", "SEEN", "UNREAD", "UNTOLD", "VARIANT"),
    *("Explanation", "explain"),
]

DIFFERS = "differs"  # from a stored entry
REFRESH = "refresh"  # asked again on purpose
UNREAD = "unread"  # the very answer stood in the store, which did not hand it out
LOST = "lost"  # this very answer was used by an earlier run, and was not in the store any more
AGAIN = "again"  # an earlier run asked the very same, and its answer was not stored
SEEN = "seen"  # differs from a question of an earlier run, whose entry is not in the store
VARIANT = "variant"  # first time seen, and differs from an earlier question of its own run
FIRST = "first"  # first time seen
UNTOLD = "untold"  # the record had no room to describe it

_MOST = 10_000  # candidates kept in memory
_CLOSE = 32  # of which so many are compared field by field for one miss


class _Candidate(NamedTuple):
    described: Described
    digest: str
    created: float


class Explanation(NamedTuple):
    """`near` is the digest of what the miss differs from, made at `created` (Unix seconds); `run` is the earlier run
    that used a lost answer."""

    miss: MissFacts
    kind: str
    differences: list[Difference]
    near: str = ""
    created: float = 0.0
    run: str = ""

    @property
    def text(self) -> str:
        """The cause in a line."""
        if self.kind == LOST:
            return f"stored before (run {self.run} used it), and was not in the store any more"
        said = "; ".join(difference.text for difference in self.differences)
        return {
            DIFFERS: said,
            SEEN: f"{said} (the entry that it differs from is not in the store any more)",
            AGAIN: "asked before, and not stored then either",
            REFRESH: "asked again on purpose (mode refresh)",
            UNREAD: "its answer stands in the store, which did not hand it out; the faults of the run may say why",
            UNTOLD: "not described: the run's record had no room",
            VARIANT: f"first time seen; nearest earlier call: {said}",
        }.get(self.kind, "first time seen")


def explain(
    run: RunRecord,
    backends: Sequence[Backend],
    earlier: Iterable[RunRecord] = (),
    wanted: Callable[[str, str], bool] = lambda module, name: True,
    step: Callable[[], object] = lambda: None,
) -> list[Explanation]:
    """One explanation for each miss of `run` whose kernel is `wanted(module, name)`, in the order of time.

    `earlier` are the records of runs before it; `step` is called for each entry that was looked at. Raises StoreError.
    """
    misses = [miss for miss in run.misses if wanted(miss.module, miss.name)]
    kernels = {miss.name for miss in misses}
    used: dict[str, str] = {}
    seen: dict[str, list[_Candidate]] = {}
    for record in earlier:
        used.update(dict.fromkeys(record.used, record.run))
        for miss in record.misses:
            if miss.name in kernels and miss.detail:
                _keep(seen, miss.name, _Candidate(Described(miss.parts, miss.detail), miss.digest, miss.at))
    own = {miss.digest for miss in run.misses}
    present: dict[str, float] = {}
    stored: dict[str, list[_Candidate]] = {}
    for backend in backends if misses else ():
        for _, entry in entries(backend):
            step()
            if isinstance(entry, Entry) and entry.digest in own:
                present[entry.digest] = float(entry.provenance.created)
            elif isinstance(entry, Entry):
                name = kernel_of(entry)[1]
                if name in kernels:
                    made = float(entry.provenance.created)
                    _keep(stored, name, _Candidate(Described(entry.parts, entry.detail), entry.digest, made))
    here = {miss.digest: _Candidate(Described(miss.parts, miss.detail), miss.digest, miss.at) for miss in run.misses}
    told = []
    for miss in misses:
        if run.mode == "refresh":
            told.append(Explanation(miss, REFRESH, []))
        elif miss.digest in present and present[miss.digest] + 1 < miss.at:  # entries tell whole seconds
            told.append(Explanation(miss, UNREAD, [], miss.digest, present[miss.digest]))
        else:
            told.append(_one(miss, used, stored, seen, list(here.values())))
    return told


def _keep(table: dict[str, list[_Candidate]], kernel: str, candidate: _Candidate) -> None:
    if sum(map(len, table.values())) < _MOST:
        table.setdefault(kernel, []).append(candidate)


def _one(
    miss: MissFacts,
    used: dict[str, str],
    stored: dict[str, list[_Candidate]],
    seen: dict[str, list[_Candidate]],
    own: list[_Candidate],
) -> Explanation:
    if miss.digest in used:
        return Explanation(miss, LOST, [], miss.digest, run=used[miss.digest])
    if not miss.detail:
        return Explanation(miss, UNTOLD, [])
    question = Described(miss.parts, miss.detail)
    before = [each for each in stored.get(miss.name, ()) if each.created <= miss.at]
    asked = [each for each in seen.get(miss.name, ()) if each.created < miss.at]
    if any(each.digest == miss.digest for each in asked):
        return Explanation(miss, AGAIN, [], miss.digest)
    siblings = [
        each
        for each in own
        if each.created < miss.at and each.described.detail and each.described.detail.get("kernel") == miss.kernel
    ]
    for kind, candidates in ((DIFFERS, before), (SEEN, asked), (VARIANT, siblings)):
        nearest = _nearest(question, candidates)
        if nearest is not None:
            told, found = nearest
            return Explanation(miss, kind, told, found.digest, found.created)
    return Explanation(miss, FIRST, [])


def _nearest(question: Described, candidates: list[_Candidate]) -> tuple[list[Difference], _Candidate] | None:
    """The candidate with the fewest differing parts, then the fewest differences, then the newest."""

    def parts(candidate: _Candidate) -> int:
        ours, theirs = candidate.described.parts, question.parts
        return sum(ours.get(part) != theirs.get(part) for part in {*ours, *theirs})

    close = sorted(candidates, key=lambda each: (parts(each), -each.created))[:_CLOSE]
    best: tuple[list[Difference], _Candidate] | None = None
    for candidate in close:
        if best is not None and parts(candidate) > parts(best[1]):
            break
        told = differences(candidate.described, question)
        if best is None or len(told) < len(best[0]):
            best = told, candidate
    return best
