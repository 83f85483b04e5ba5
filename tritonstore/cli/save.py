"""`tritonstore save`"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator

import click

from tritonstore.backends.base import Backend
from tritonstore.cli.console import complain, count, note, progress, say, say_json, size
from tritonstore.cli.options import examples, filter_options, json_option, opened, store_option
from tritonstore.errors import FormatError, TritonStoreError
from tritonstore.maintenance.bundle import write
from tritonstore.maintenance.inventory import Filter, check, patient
from tritonstore.settings import Settings
from tritonstore.signing import Keys, keys_of
from tritonstore.store import WRITER

__all__ = ["command"]


@click.command(
    "save",
    short_help="Write entries to a bundle, one portable file.",
    epilog=examples(
        "tritonstore save warm.tsb                       all that is there",
        "tritonstore save ci.tsb --run last              what the last run used",
        "tritonstore save rms.tsb --kernel '*rms*' --toolchain 'triton 3.7*'",
    ),
)
@click.argument("file", type=click.Path(dir_okay=False))
@store_option
@click.option("--run", "run_id", metavar="ID", help="Only entries that this run used; 'last' is the last one.")
@filter_options
@json_option
def command(
    file: str,
    url: str | None,
    run_id: str | None,
    kernels: tuple[str, ...],
    toolchains: tuple[str, ...],
    targets: tuple[str, ...],
    as_json: bool,
) -> int:
    """Write entries to FILE, a bundle that `tritonstore load` reads on any machine, under any path and user.

    FILE appears whole or not at all, and an older FILE stays until then. Damaged entries are left out, and so are those
    that are not signed where TRITONSTORE_HMAC_KEY_FILE is set.
    """
    only = Filter(kernels, toolchains, targets)
    damaged: list[str] = []
    with opened(url) as (settings, backends):
        wanted = None if run_id is None else _digests_of(settings, run_id)
        with progress("saving") as step:
            chosen = _chosen(backends, wanted, only, damaged, step, keys_of(settings))
            try:
                written = write(file, chosen, WRITER)
            except OSError as error:
                raise click.FileError(file, error.strerror or str(error)) from error
    if damaged:
        note(f"{count(len(damaged), 'damaged entry')} left out")
    if not written:
        complain("there is nothing to save, and no file was written")
        return 1
    length = os.path.getsize(file)
    if as_json:
        say_json({"file": file, "entries": written, "size": length, "damaged": len(damaged)})
    else:
        say(f"{file}: {count(written, 'entry')}, {size(length)}")
    return 0


def _digests_of(settings: Settings, run_id: str) -> Collection[str]:
    from tritonstore.maintenance.runs import digests_of, last_run

    known = last_run(settings) if run_id == "last" else run_id
    digests = set() if known is None else digests_of(settings, known)
    if not digests:
        raise TritonStoreError(f"there is no record of a run {run_id} that used an entry; tritonstore stats lists runs")
    return digests


def _chosen(
    backends: list[Backend],
    wanted: Collection[str] | None,
    only: Filter,
    damaged: list[str],
    step: Callable[[], object],
    signing: Keys | None,
) -> Iterator[tuple[str, bytes]]:
    """(digest, data) of each entry that is meant, once, from the nearest tier that holds it sound."""
    seen: set[str] = set()
    bad: set[str] = set()
    for backend in backends:
        get = patient(backend)
        digests = (record.digest for record in backend.scan()) if wanted is None else iter(wanted)
        for digest in digests:
            step()
            try:
                data = None if digest in seen else get(digest)
                if data is None:
                    continue
                entry = check(digest, data, signing)
            except FormatError:
                bad.add(digest)
                continue
            if only.takes(entry):
                seen.add(digest)
                yield digest, data
    damaged.extend(bad - seen)
