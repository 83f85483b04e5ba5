"""What past processes left: run records, by run; merged where many belong together; compacted where they are old.

Records lie in ``<cache folder>/runs``, one file for each process, named so that they sort by time and tell their run.
Nothing here takes a lock on them: a file is whole or not there, and a merged record names the files that it stands
for, so that a reader counts nothing twice whatever moment a compaction was killed at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tritonstore import runrecord
from tritonstore.backends.leases import FileLease
from tritonstore.errors import FormatError, StoreError
from tritonstore.journal import MAX_BYPASSES, MAX_DIGESTS, MAX_KERNELS, MAX_MISSES
from tritonstore.journal_parts import add_counts
from tritonstore.runrecord import BypassFacts, FileName, KernelFacts, MissFacts, RunRecord
from tritonstore.settings import Settings, new_run_id

__all__ = ["Compacted", "by_run", "compact", "digests_of", "folder_of", "last_run", "load", "merge", "new_run_id"]

MERGE_AFTER = 6 * 3600.0  # seconds since a run's last record: its processes have ended by then
FORGET_AFTER = 90 * 86400.0  # seconds until a run is only counted, in one record for all of them
OLDER = "older-runs"  # the run that those become
_TEMPORARY_AFTER = 3600.0
_MERGED = "merged"


def folder_of(settings: Settings) -> str:
    """Where the records lie."""
    return os.path.join(settings.cache_folder, "runs")


def load(settings: Settings, run_id: str | None = None, damaged: list[str] | None = None) -> Iterator[RunRecord]:
    """The records of one run, or of all, oldest first. The names of files that cannot be read go to `damaged`.

    Raises StoreError where there are records and the folder cannot be read.
    """
    folder = folder_of(settings)
    for _, record in _records(folder, _names(folder, run_id), [] if damaged is None else damaged):
        yield record


def last_run(settings: Settings, but: str = "") -> str | None:
    """The run, other than `but`, whose process started last; None where no process has left a record."""
    names = [name for name in _names(folder_of(settings)) if name.run not in (OLDER, but)]
    return names[-1].run if names else None


def digests_of(settings: Settings, run_id: str) -> set[str]:
    """The digests of the entries that a run used or published."""
    return {digest for record in load(settings, run_id) for digest in record.used}


def by_run(records: Iterable[RunRecord]) -> list[RunRecord]:
    """One merged record for each run, oldest first."""
    runs: dict[str, list[RunRecord]] = {}
    for record in records:
        runs.setdefault(record.run, []).append(record)
    return [merge(each) for each in runs.values()]


def merge(records: Sequence[RunRecord]) -> RunRecord:
    """Several records (at least one) as one, bounded as one is. Its `run` is the first one's."""
    if len(records) == 1:
        return records[0]
    first, last = min(records, key=lambda r: r.started), max(records, key=lambda r: r.ended)
    counters: dict[str, object] = {}
    dropped: dict[str, int] = {}
    kernels: dict[tuple[str, str], list[KernelFacts]] = {}
    misses: dict[str, MissFacts] = {}
    bypasses: dict[tuple[str, str, str, str], BypassFacts] = {}
    for record in records:
        add_counts(counters, record.counters)
        add_counts(dropped, record.dropped)
        for kernel in record.kernels:
            kernels.setdefault(kernel[:2], []).append(kernel)
        for miss in record.misses:
            misses[miss.digest] = _join_misses(misses.get(miss.digest), miss)
        for bypass in record.bypasses:
            bypasses[bypass[:4]] = _join_bypasses(bypasses.get(bypass[:4]), bypass)
    used = dict.fromkeys(digest for record in records for digest in record.used)
    return RunRecord(
        run=records[0].run,
        started=first.started,
        ended=last.ended,
        processes=sum(record.processes for record in records),
        command=first.command,
        host=first.host,
        pid=first.pid,
        ending=first.ending if len({record.ending for record in records}) == 1 else "several",
        mode=first.mode if len({record.mode for record in records}) == 1 else "several",
        versions=last.versions,
        urls=list(dict.fromkeys(url for record in records for url in record.urls)),
        counters=counters,
        kernels=_bounded([_join_kernels(each) for each in kernels.values()], MAX_KERNELS, "kernels", dropped),
        misses=_bounded(sorted(misses.values(), key=lambda m: m.at), MAX_MISSES, "misses", dropped),
        bypasses=_bounded(sorted(bypasses.values(), key=lambda b: b.at), MAX_BYPASSES, "bypasses", dropped),
        used=_bounded(list(used), MAX_DIGESTS, "digests", dropped),
        timeline=[timeline for record in records for timeline in record.timeline][:1_000],
        dropped=dropped,
    )


class Compacted(NamedTuple):
    """What `compact` did: files that were merged into others, files that these became, and runs that are only counted
    from now on. `busy`: another process was at it, and nothing was done."""

    merged: int
    into: int
    forgotten: int
    busy: bool = False


def compact(settings: Settings, now: float | None = None) -> Compacted:
    """Merge the records of each run that ended long ago into one, and old runs into one for all; remove left-overs.

    Whatever moment it is killed at, the next reader counts each process once. Raises StoreError.
    """
    now = time.time() if now is None else now
    folder = folder_of(settings)
    if not os.path.isdir(folder):
        return Compacted(0, 0, 0)
    # Only for two compactions at once, whose merged files could overlap; those who write records never wait.
    lease = FileLease(folder, ".compacting", folder, may_be_remote=True)
    if not lease.try_acquire():
        return Compacted(0, 0, 0, busy=True)
    try:
        return _compact(folder, now)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror or error}", folder, "compact") from error
    finally:
        lease.release()


def _compact(folder: str, now: float) -> Compacted:
    _remove_leftovers(folder, now)
    runs: dict[str, list[tuple[FileName, RunRecord]]] = {}
    for name, record in _records(folder, _names(folder), []):
        runs.setdefault(record.run, []).append((name, record))
    merged = into = forgotten = 0
    older = runs.pop(OLDER, [])
    settled: list[tuple[FileName, RunRecord]] = []
    for files in runs.values():
        ended = max(record.ended for _, record in files)
        if now - ended > FORGET_AFTER:
            settled += files
            forgotten += 1
        elif now - ended > MERGE_AFTER:
            # A process that was not heard to end may write its record once more.
            over = [file for file in files if file[1].ending != "running"]
            if len(over) > 1:
                merged += len(over)
                into += _put_merged(folder, over, merge([record for _, record in over]))
    if settled or len(older) > 1:
        counts = _counts_only(merge([record for _, record in older + settled]))
        merged += len(older) + len(settled)
        into += _put_merged(folder, older + settled, counts)
    return Compacted(merged, into, forgotten)


def _counts_only(record: RunRecord) -> RunRecord:
    """Without what explains and locates single calls: for runs that nobody asks about any more."""
    return RunRecord(
        run=OLDER,
        started=record.started,
        ended=record.ended,
        processes=record.processes,
        ending="several",
        counters=record.counters,
        kernels=record.kernels,
        dropped=record.dropped,
    )


def _put_merged(folder: str, files: list[tuple[FileName, RunRecord]], record: RunRecord) -> int:
    # Not by a look at each: one that cannot be looked at just now would be left, and counted twice.
    before = {name for _, each in files for name in each.sources} & set(os.listdir(folder))
    here = sorted({str(name) for name, _ in files} | before)
    # The same sources give the same name, and a name that is not among its own sources.
    owner = f"{_MERGED}-{hashlib.sha256(chr(0).join(here).encode()).hexdigest()[:16]}"
    name = FileName(int(record.started * 1000), record.run, owner)
    whole = replace(record, sources=here)
    try:
        data = runrecord.encode(whole)
    except FormatError:  # too large with all its misses: the counts are what must stay
        data = runrecord.encode(replace(whole, misses=[], timeline=[]))
    runrecord.write(folder, name, data)
    for source in here:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, source))
    return 1


def _remove_leftovers(folder: str, now: float) -> None:
    """Temporary files of processes that died, and files that a merged record stands for."""
    for entry in os.listdir(folder):
        path = os.path.join(folder, entry)
        with contextlib.suppress(OSError):
            if entry.endswith(".tmp") and abs(now - os.stat(path).st_mtime) > _TEMPORARY_AFTER:
                os.unlink(path)
    for name in _names(folder):
        if name.owner.startswith(_MERGED):
            with contextlib.suppress(OSError, FormatError):
                for source in _read(os.path.join(folder, str(name))).sources:
                    if FileName.parse(source) and source != str(name):
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(os.path.join(folder, source))


def _names(folder: str, run_id: str | None = None) -> list[FileName]:
    try:
        found = [parsed for name in os.listdir(folder) if (parsed := FileName.parse(name)) is not None]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror or error}", folder, "runs") from error
    return sorted(name for name in found if run_id is None or name.run == run_id)


def _records(folder: str, names: Sequence[FileName], damaged: list[str]) -> Iterator[tuple[FileName, RunRecord]]:
    superseded: set[str] = set()
    held: dict[FileName, RunRecord] = {}
    for name in names:  # merged ones first, as they say which others not to count
        if name.owner.startswith(_MERGED):
            record = _read_or_note(folder, name, damaged)
            if record is not None:
                held[name] = record
                superseded.update(source for source in record.sources if source != str(name))
    for name in names:
        if str(name) in superseded:
            continue
        record = held.pop(name, None) or (
            None if name.owner.startswith(_MERGED) else _read_or_note(folder, name, damaged)
        )
        if record is not None:
            yield name, record


def _read_or_note(folder: str, name: FileName, damaged: list[str]) -> RunRecord | None:
    try:
        return _read(os.path.join(folder, str(name)))
    except FileNotFoundError:
        return None  # compacted meanwhile
    except (OSError, FormatError):
        damaged.append(str(name))
        return None


def _read(path: str) -> RunRecord:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(path, flags), "rb") as file:
        return runrecord.decode(file.read(runrecord.MAX_SIZE + 1))


def _join_kernels(facts: list[KernelFacts]) -> KernelFacts:
    total: dict[str, object] = {}
    for each in facts:
        add_counts(total, dict(zip(KernelFacts._fields[2:], each[2:], strict=True)))
    return KernelFacts(*facts[0][:2], *total.values())  # type: ignore[arg-type]


def _join_misses(known: MissFacts | None, more: MissFacts) -> MissFacts:
    if known is None:
        return more
    # Of several workers one publishes; what it did says most.
    told = known if known.outcome == "published" or not more.detail else more
    return told._replace(
        at=min(known.at, more.at), times=known.times + more.times, seconds=known.seconds + more.seconds
    )


def _join_bypasses(known: BypassFacts | None, more: BypassFacts) -> BypassFacts:
    if known is None:
        return more
    return known._replace(
        times=known.times + more.times, at=min(known.at, more.at), seconds=known.seconds + more.seconds
    )


def _bounded(items: list, limit: int, what: str, dropped: dict[str, int]) -> list:  # type: ignore[type-arg]
    if len(items) > limit:
        dropped[what] = dropped.get(what, 0) + len(items) - limit
    return items[:limit]
