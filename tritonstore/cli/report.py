"""`tritonstore report`"""

from __future__ import annotations

import os

import click

from tritonstore.backends.folders import write_whole
from tritonstore.cli.console import say, size
from tritonstore.cli.explain import explained
from tritonstore.cli.options import examples, opened, store_option
from tritonstore.cli.stats import chosen, run_options
from tritonstore.maintenance.report import page

__all__ = ["command"]


@click.command(
    "report",
    short_help="One HTML page about past runs.",
    epilog=examples(
        "tritonstore report report.html          the last run",
        "tritonstore report report.html --all    all runs on record together",
    ),
)
@click.argument("file", metavar="FILE.html", type=click.Path(dir_okay=False))
@run_options
@store_option
def command(file: str, run_id: str | None, last: bool, every: bool, url: str | None) -> int:
    """Write one self-contained HTML page about a run: where the time went, hits and misses over the run's time, by
    kernel and by reason. An existing FILE is replaced."""
    with opened(url) as (settings, backends):
        record = chosen(settings, run_id, last, every)
        if record is None:
            return 1
        told = explained(settings, backends, record, lambda module, name: True)
    title = "tritonstore: all runs" if every else f"tritonstore: run {record.run}"
    data = page(record, told, title).encode("utf-8", "replace")
    try:
        write_whole(os.path.abspath(file), data, mode=0o666)  # less what the umask takes, as any file of a user's
    except OSError as error:
        raise click.FileError(file, error.strerror or str(error)) from error
    say(f"{file}: {size(len(data))}")
    return 0
