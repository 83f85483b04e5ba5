"""`tritonstore clear`"""

from __future__ import annotations

import sys

import click

from tritonstore.cli.console import count, note, progress, say, size
from tritonstore.cli.options import examples, opened, store_option, yes_option
from tritonstore.maintenance.prune import clear

__all__ = ["command"]


@click.command(
    "clear",
    short_help="Remove every entry.",
    epilog=examples("tritonstore clear", "tritonstore clear --yes --store file:///tmp/store"),
)
@store_option
@yes_option
def command(url: str | None, yes: bool) -> int:
    """Remove every entry of every tier, damaged ones too.

    Anything else that lies there stays: lock files, other versions' entries, files that are not tritonstore's. The
    records of past runs stay as well. Where nobody can be asked, --yes is needed.
    """
    with opened(url, write=True) as (_, backends):
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("nobody can be asked here; add --yes")
            names = " and ".join(backend.url for backend in backends)
            if not click.confirm(f"Remove every entry of {names}?", err=True):
                note("nothing was removed")
                return 1
        for backend in backends:
            with progress("clearing") as step:
                outcome = clear(backend, step=step)
            say(f"{backend.url}: removed {count(outcome.removed, 'entry')}, {size(outcome.removed_size)}")
    return 0
