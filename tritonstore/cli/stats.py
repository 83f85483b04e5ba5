"""`tritonstore stats`"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from tritonstore.backends.base import Backend
from tritonstore.cli.console import age, complain, count, note, say, say_json, size, styled, table
from tritonstore.cli.options import examples, json_option, opened, store_option
from tritonstore.errors import FormatError
from tritonstore.maintenance import runs
from tritonstore.maintenance.inventory import entries, toolchain_of
from tritonstore.maintenance.summary import by_cost, hits, lines, seconds, short_names
from tritonstore.runrecord import RunRecord
from tritonstore.settings import Settings

__all__ = ["chosen", "command", "heading", "run_options", "summary"]

SAMPLE = 2_000  # entries that are opened to see their toolchain; digests are random, so these stand for all


def run_options(function: Any) -> Any:
    """--run, --last, --all: which run is meant."""
    function = click.option("--all", "every", is_flag=True, help="All runs on record together.")(function)
    function = click.option("--last", is_flag=True, help="The last run. This is the default.")(function)
    return click.option("--run", "run_id", metavar="ID", help="This run.")(function)


def chosen(settings: Settings, run_id: str | None, last: bool, every: bool) -> RunRecord | None:
    """The records that are meant, as one; None (and a word on stderr) where there are none.

    Raises click.UsageError where more than one run is asked for.
    """
    if sum((run_id is not None, last, every)) > 1:
        raise click.UsageError("--run, --last and --all exclude one another")
    damaged: list[str] = []
    wanted = None if every else run_id or runs.last_run(settings)
    records = list(runs.load(settings, wanted, damaged)) if every or wanted else []
    if damaged:
        note(f"{count(len(damaged), 'run record')} cannot be read and {'is' if len(damaged) == 1 else 'are'} left out")
    if records:
        return runs.merge(records)
    if run_id is None:
        note(f"no run has left a record in {runs.folder_of(settings)}")
    else:
        complain(f"no run {run_id} is on record in {runs.folder_of(settings)}")
    return None


@click.command(
    "stats",
    short_help="What past runs did, and what it saved.",
    epilog=examples(
        "tritonstore stats                    the last run, and what the store holds",
        "tritonstore stats --all --by-kernel  all runs on record, kernel by kernel",
        "tritonstore stats --json | jq .hit_rate",
    ),
)
@run_options
@click.option("--by-kernel", is_flag=True, help="A line for each kernel.")
@store_option
@json_option
def command(run_id: str | None, last: bool, every: bool, by_kernel: bool, url: str | None, as_json: bool) -> int:
    """What past runs did, and what it saved; then what the store holds, by toolchain."""
    with opened(url) as (settings, backends):
        record = chosen(settings, run_id, last, every)
        if record is None and run_id is not None:
            return 1
        held = [_holdings(backend) for backend in backends]
    if as_json:
        say_json({"run": None if record is None else _plain(record, by_kernel), "stores": [h.plain() for h in held]})
        return 0
    if record is not None:
        heading(record, every)
        summary(record, lambda label, rest: styled((f"{label:<10}", "dim"), (rest, "")))
        if by_kernel:
            _say_kernels(record)
        say()
    for each in held:
        each.say()
    return 0


def heading(record: RunRecord, every: bool = False) -> None:
    """Which run it is, of which program, when, and on what."""
    name = "All runs" if every else f"Run {record.run}"
    facts = [record.command] if not every and record.command else []
    facts += [count(record.processes, "process", "processes"), f"{age(time.time() - record.started)} ago"]
    facts += [] if every else [f"{seconds(record.ended - record.started)} long"]
    if record.ending not in ("exit", "several", "running"):
        facts.append(f"ended by {record.ending}")
    styled((name, "bold"), ("  " + ", ".join(facts), "dim"))
    versions = [f"{name} {record.versions[name]}" for name in ("torch", "triton") if name in record.versions]
    if versions and not every:
        styled((", ".join(versions), "dim"))


def summary(record: RunRecord, put: Callable[[str, str], None]) -> None:
    """The lines about a run, each as (label, the rest)."""
    found = lines(record)
    wide = max(len(line.value) for line in found)
    for line in found:
        put(line.label, f"{line.value:>{wide}}  {line.share:>7}  {line.detail}".rstrip())


def _say_kernels(record: RunRecord) -> None:
    say()
    names = short_names(record.kernels)
    table(
        ("*kernel", ">calls", ">hits", ">misses", ">bypasses", ">analyses", ">saved", ">spent"),
        (
            (
                names[kernel.module, kernel.name],
                f"{kernel.calls:,}",
                f"{sum(kernel.hits.values()):,}",
                f"{kernel.misses:,}",
                f"{sum(kernel.bypasses.values()):,}",
                f"{kernel.analyses:,}",
                seconds(kernel.seconds_saved),
                seconds(kernel.seconds_analysing),
            )
            for kernel in by_cost(record)
        ),
    )


def _plain(record: RunRecord, by_kernel: bool) -> dict[str, Any]:
    calls = record.counters.get("calls", 0)
    plain: dict[str, Any] = {
        "run": record.run,
        "command": record.command,
        "processes": record.processes,
        "started": record.started,
        "ended": record.ended,
        "ending": record.ending,
        "mode": record.mode,
        "versions": record.versions,
        "stores": record.urls,
        "hit_rate": hits(record) / calls if calls else None,
        "counters": record.counters,
        "not_kept": record.dropped,
    }
    if by_kernel:
        plain["kernels"] = [kernel._asdict() | {"calls": kernel.calls} for kernel in by_cost(record)]
    return plain


@dataclass
class _Group:
    """Entries of one toolchain; times are Unix seconds of the making."""

    entries: int = 0
    size: int = 0
    oldest: float = float("inf")
    newest: float = 0.0


@dataclass
class _Holdings:
    url: str
    entries: int
    size: int
    damaged: int
    opened: int
    groups: dict[str, _Group]

    @property
    def exact(self) -> bool:
        return self.opened == self.entries

    def plain(self) -> dict[str, Any]:
        return {
            "store": self.url,
            "entries": self.entries,
            "size": self.size,
            "damaged": self.damaged,
            "exact": self.exact,
            "toolchains": {name: vars(group) for name, group in self.groups.items()},
        }

    def say(self) -> None:
        styled(("Store ", "bold"), (f"{self.url}: {count(self.entries, 'entry')}, {size(self.size)}", ""))
        now = time.time()
        about = "" if self.exact else "~"
        ordered = sorted(self.groups.items(), key=lambda group: -group[1].newest)
        table(
            ("*toolchain", ">entries", ">size", ">oldest", ">newest"),
            (
                (name, f"{about}{g.entries:,}", f"{about}{size(g.size)}", age(now - g.oldest), age(now - g.newest))
                for name, g in ordered
            ),
        )
        if not self.exact:
            note(f"by toolchain: estimated from {self.opened:,} entries")
        if self.damaged:
            note(f"{count(self.damaged, 'damaged entry')}; tritonstore verify --fix removes what is damaged")


def _holdings(backend: Backend) -> _Holdings:
    """Count all entries, and open as many as a glance may take."""
    groups: dict[str, _Group] = {}
    damaged = looked_at = 0
    sample = entries(backend)
    for record, entry in islice(sample, SAMPLE):
        looked_at += 1
        if isinstance(entry, FormatError):
            damaged += 1
            continue
        group = groups.setdefault("torch {}, triton {}".format(*toolchain_of(entry)), _Group())
        group.entries += 1
        group.size += record.size
        group.oldest = min(group.oldest, entry.provenance.created)
        group.newest = max(group.newest, entry.provenance.created)
    total, whole = _count(backend) if looked_at == SAMPLE else (looked_at, None)
    if whole is None:
        whole = sum(group.size for group in groups.values())
    for group in groups.values():
        group.entries = group.entries * total // max(looked_at, 1)
        group.size = group.size * total // max(looked_at, 1)
    return _Holdings(backend.url, total, whole, damaged, looked_at, groups)


def _count(backend: Backend) -> tuple[int, int]:
    number = total = 0
    for record in _scan(backend):
        number += 1
        total += record.size
    return number, total


def _scan(backend: Backend) -> Iterator[Any]:
    from tritonstore.cli.console import progress

    with progress("counting") as step:
        for record in backend.scan():
            step()
            yield record
