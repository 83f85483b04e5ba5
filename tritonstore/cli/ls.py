"""`tritonstore ls`"""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from tritonstore.backends.base import Backend
from tritonstore.cli.console import age, count, note, progress, say_json, size, table
from tritonstore.cli.options import AGE, examples, filter_options, json_option, opened, say_if_missing, store_option
from tritonstore.errors import FormatError
from tritonstore.maintenance.inventory import Filter, Row, entries, row_of

__all__ = ["command"]

# --sort → (key, whether the largest comes first)
_ORDERS: dict[str, tuple[Callable[[Row], Any], bool]] = {
    "used": (lambda row: row.used, True),
    "created": (lambda row: row.created, True),
    "size": (lambda row: row.size, True),
    "cost": (lambda row: row.seconds, True),
    "kernel": (lambda row: (row.kernel, row.module, row.digest), False),
    "digest": (lambda row: row.digest, False),
}


@click.command(
    "ls",
    short_help="List the entries.",
    epilog=examples(
        "tritonstore ls --kernel '*rms*' --sort cost     the dearest ones first",
        "tritonstore ls --older 30d --limit 20           what prune would take first",
        "tritonstore ls --json | jq -r .kernel | sort -u",
    ),
)
@store_option
@filter_options
@click.option("--older", type=AGE, metavar="AGE", help="Only entries unused for longer, as in 12h or 30d.")
@click.option("--newer", type=AGE, metavar="AGE", help="Only entries used since.")
@click.option("--sort", "order", type=click.Choice(list(_ORDERS)), help="The order. [default: used]")
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most N entries.")
@json_option
def command(
    url: str | None,
    kernels: tuple[str, ...],
    toolchains: tuple[str, ...],
    targets: tuple[str, ...],
    older: float | None,
    newer: float | None,
    order: str | None,
    reverse: bool,
    limit: int | None,
    as_json: bool,
) -> int:
    """List the entries, the last used first.

    With --json one object a line; unless an order is asked for it streams, whatever the store's size.
    """
    only = Filter(kernels, toolchains, targets)
    now = time.time()
    damaged: list[str] = []
    with opened(url) as (_, backends), progress("reading entries") as step:
        rows: Iterable[Row] = (
            row
            for row in _rows(backends, only, damaged, step)
            if (older is None or now - row.used > older) and (newer is None or now - row.used <= newer)
        )
        if order or not as_json:
            key, largest_first = _ORDERS[order or "used"]
            largest_first ^= reverse
            if limit:
                rows = (heapq.nlargest if largest_first else heapq.nsmallest)(limit, rows, key)
            else:
                rows = sorted(rows, key=key, reverse=largest_first)
        shown = _say_json(rows, limit) if as_json else _say(list(rows), now)
        if not shown and not damaged and not only and older is None and newer is None:
            for backend in backends:
                say_if_missing(backend)
        elif not shown and not damaged:
            note("no entry matches")
    if damaged:
        note(f"{count(len(damaged), 'damaged entry')} left out; tritonstore verify names them")
    return 0


def _rows(backends: list[Backend], only: Filter, damaged: list[str], step: Callable[[], object]) -> Iterator[Row]:
    seen: set[str] = set()
    for backend in backends:
        for record, entry in entries(backend):
            step()
            if len(backends) > 1:
                if record.digest in seen:
                    continue
                seen.add(record.digest)
            if isinstance(entry, FormatError):
                damaged.append(record.digest)
            elif only.takes(entry):
                row = row_of(record, entry)
                # A store of 100,000 entries has some hundred names.
                kernel, module, torch, triton, target = map(sys.intern, row[1:6])
                yield row._replace(kernel=kernel, module=module, torch=torch, triton=triton, target=target)


def _say(rows: list[Row], now: float) -> int:
    table(
        ("digest", "*kernel", "target", "torch", "triton", ">size", ">cost", ">used"),
        (
            (
                row.digest[:12],
                row.kernel,
                row.target,
                row.torch,
                row.triton,
                size(row.size),
                f"{row.seconds * 1000:.0f} ms",
                age(now - row.used),
            )
            for row in rows
        ),
    )
    if rows:
        total = sum(row.size for row in rows)
        note(f"{count(len(rows), 'entry')}, {size(total)}")
    return len(rows)


def _say_json(rows: Iterable[Row], limit: int | None) -> int:
    shown = 0
    for row in rows:
        say_json({**row._asdict(), "used": int(row.used), "seconds": round(row.seconds, 6)})
        shown += 1
        if shown == limit:
            break
    return shown
