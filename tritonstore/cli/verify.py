"""`tritonstore verify`"""

from __future__ import annotations

from collections.abc import Sequence

import click

from tritonstore.backends.base import Backend
from tritonstore.cli.console import count, is_terminal, note, progress, say, say_json, size
from tritonstore.cli.options import (
    examples,
    jobs_option,
    json_option,
    opened,
    path_option,
    say_if_missing,
    search_path,
    store_option,
)
from tritonstore.maintenance.verify import findings
from tritonstore.settings import Settings
from tritonstore.signing import keys_of

__all__ = ["command"]


@click.command(
    "verify",
    short_help="Check every entry for damage.",
    epilog=examples(
        "tritonstore verify",
        "tritonstore verify --sample 1000 --fix",
        "tritonstore verify --recompute    ask PyTorch again, and compare",
    ),
)
@store_option
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Look at N entries of each tier, by chance.")
@click.option("--fix", is_flag=True, help="Remove damaged entries. They are made anew when they are needed.")
@click.option("--recompute", is_flag=True, help="Also ask PyTorch again. Imports the kernels.")
@jobs_option
@path_option
@json_option
def command(
    url: str | None,
    sample: int | None,
    fix: bool,
    recompute: bool,
    jobs: int | None,
    path: tuple[str, ...],
    as_json: bool,
) -> int:
    """Check every entry: checksum, structure, and that its name is the digest of its key's parts.

    Damage is never used, verified or not: an entry that fails these checks is a miss. The exit code is 1 if there is
    damage that was not removed.

    With --recompute, the entries of the torch and Triton at hand are asked again, each under its own target, and the
    answers compared; this imports the kernels, in processes of their own. A wrong answer makes the exit code 1, and
    --fix puts it into quarantine: no process uses that digest again.
    """
    left = wrong = 0
    with opened(url, write=fix) as (settings, backends):
        signing = keys_of(settings)
        for backend in backends:
            looked = total = bad = removed = 0
            with progress("verifying", sample) as step:
                for finding in findings(backend, sample=sample, fix=fix, step=step, signing=signing):
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
        if recompute:
            wrong = _recompute(settings, backends, sample, jobs, search_path(path), fix=fix, as_json=as_json)
    if (left or wrong) and not fix:
        note("tritonstore verify --fix removes damaged entries" + ", and wrong ones" * bool(wrong))
    return 1 if left or wrong else 0


def _recompute(
    settings: Settings,
    backends: Sequence[Backend],
    sample: int | None,
    jobs: int | None,
    path: list[str],
    *,
    fix: bool,
    as_json: bool,
) -> int:
    """Ask again; the number of wrong answers."""
    from tritonstore.cli.prewarm import why
    from tritonstore.recipes.prewarm import Summary
    from tritonstore.recipes.recompute import Recomputation

    again = Recomputation(settings, backends, sample)
    summary = Summary()
    wrong: set[str] = set()
    with progress("asking PyTorch", sample) as step:
        for result in again.results(jobs, path):
            step()
            summary.add(result)
            if as_json:
                facts = {"digest": result.recipe.digest, "kernel": result.recipe.kernel}
                say_json({**facts, "status": result.status, "text": result.text})
            if result.status == "differs":
                wrong.add(result.recipe.digest)
                if not as_json:
                    digest = result.recipe.digest[:12] if is_terminal() else result.recipe.digest
                    say(f"{digest} {result.recipe.kernel}: the stored answer is wrong; {result.text}", "red")
    kept = again.quarantine(wrong) if fix and wrong else ""
    same, elsewhere = (summary.by_status.get(name, 0) for name in ("same", "elsewhere"))
    rest = summary.done - same - elsewhere - len(wrong)
    (note if as_json else say)(
        f"asked PyTorch again for {summary.done - elsewhere:,}: {same:,} the same, {len(wrong):,} wrong, "
        f"{rest:,} not comparable; {elsewhere:,} made by another torch or Triton"
    )
    for line in why(each for each in summary.trouble if each.status != "differs"):
        note(line)
    if again.undescribed:
        note(f"{count(again.undescribed, 'entry')} of an older format cannot be asked again")
    if kept:
        note(f"the wrong entries lie in {kept}, and no process with this cache folder uses them again")
    return len(wrong)
