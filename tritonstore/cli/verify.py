"""`tritonstore verify`"""

from __future__ import annotations

import click

from tritonstore.cli.console import count, is_terminal, note, progress, say, say_json, size
from tritonstore.cli.options import examples, json_option, opened, say_if_missing, store_option
from tritonstore.maintenance.verify import findings

__all__ = ["command"]


@click.command(
    "verify",
    short_help="Check every entry for damage.",
    epilog=examples("tritonstore verify", "tritonstore verify --sample 1000", "tritonstore verify --fix"),
)
@store_option
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Look at N entries of each tier, by chance.")
@click.option("--fix", is_flag=True, help="Remove damaged entries. They are made anew when they are needed.")
@json_option
def command(url: str | None, sample: int | None, fix: bool, as_json: bool) -> int:
    """Check every entry: checksum, structure, and that its name is the digest of its key's parts.

    Damage is never used, verified or not: an entry that fails these checks is a miss. The exit code is 1 if there is
    damage that was not removed.
    """
    left = 0
    with opened(url, write=fix) as (_, backends):
        for backend in backends:
            looked = total = bad = removed = 0
            with progress("verifying", sample) as step:
                for finding in findings(backend, sample=sample, fix=fix, step=step):
                    looked += 1
                    total += finding.size
                    if not finding.problem:
                        continue
                    bad += 1
                    removed += finding.removed
                    if as_json:
                        say_json({"store": backend.url, **finding._asdict()})
                    else:
                        digest = finding.digest[:12] if is_terminal() else finding.digest
                        say(f"{digest} {finding.problem}{'; removed' if finding.removed else ''}")
            left += bad - removed
            if not looked:
                say_if_missing(backend)
                continue
            fixed = f", {removed:,} of them removed" if fix and bad else ""
            sentence = f"{backend.url}: {count(looked, 'entry')}, {size(total)}, {bad:,} damaged{fixed}"
            (note if as_json else say)(sentence)
    if left and not fix:
        note("tritonstore verify --fix removes damaged entries")
    return 1 if left else 0
