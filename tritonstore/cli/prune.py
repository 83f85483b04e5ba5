"""`tritonstore prune`"""

from __future__ import annotations

import click

from tritonstore.backends.base import Backend
from tritonstore.cli.console import count, note, progress, say, say_json, size
from tritonstore.cli.options import AGE, SIZE, examples, filter_options, json_option, opened, store_option
from tritonstore.maintenance.inventory import Filter
from tritonstore.maintenance.prune import Installed, Outcome, Plan, installed_toolchain, prune, sweep
from tritonstore.settings import Settings

__all__ = ["command"]


@click.command(
    "prune",
    short_help="Remove old, stale or surplus entries.",
    epilog=examples(
        "tritonstore prune                            down to the configured limits",
        "tritonstore prune --max-age 30d --dry-run    how much would go",
        "tritonstore prune --stale-toolchains         after an upgrade of torch",
        "tritonstore prune --kernel 'old_*'           all entries of these kernels",
    ),
)
@store_option
@click.option("--max-size", type=SIZE, metavar="SIZE", help="Then the least recently used, until SIZE is left.")
@click.option("--max-age", type=AGE, metavar="AGE", help="What has not been used for longer, as in 12h or 30d.")
@click.option("--stale-toolchains", is_flag=True, help="What another version of torch or triton than this one made.")
@click.option("--drop-recipes", is_flag=True, help="Of these, also the questions that have no newer answer yet.")
@filter_options
@click.option("--dry-run", "-n", is_flag=True, help="Remove nothing, and say what would go.")
@json_option
def command(
    url: str | None,
    max_size: int | None,
    max_age: float | None,
    stale_toolchains: bool,
    drop_recipes: bool,
    kernels: tuple[str, ...],
    toolchains: tuple[str, ...],
    targets: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Remove old, stale or surplus entries, and what killed processes left behind.

    Without any option the store's own limits count (TRITONSTORE_MAX_SIZE, TRITONSTORE_MAX_AGE). A filter (--kernel,
    --toolchain, --target) narrows everything else to the entries that it takes; with no limit beside it they all go.
    Times of last use are kept to the hour.

    --stale-toolchains keeps the newest entry of each question that the torch and Triton at hand have not answered:
    `tritonstore prewarm` asks it again. Limits and --drop-recipes take these, too.
    """
    if drop_recipes and not stale_toolchains:
        raise click.UsageError("--drop-recipes goes with --stale-toolchains")
    only = Filter(kernels, toolchains, targets)
    limits = max_size is not None or max_age is not None or stale_toolchains
    with opened(url, write=not dry_run) as (settings, backends):
        if not limits and not only:
            max_size, max_age = settings.max_size, settings.max_age
        stale = _installed() if stale_toolchains else None
        plan = Plan(max_size or 0, max_age or 0.0, stale, only, not drop_recipes)
        for backend in backends:
            with progress(f"{'looking' if dry_run else 'pruning'}") as step:
                outcome = prune(backend, plan, dry_run=dry_run, step=step)
            left = 0 if dry_run else sweep(backend)
            if left:
                note(f"removed {count(left, 'temporary file')} of killed processes")
            if as_json:
                say_json({"store": backend.url, "dry_run": dry_run, **vars(outcome)})
            else:
                say(_sentence(backend, outcome, dry_run))
        if not dry_run and not only:
            _compact_runs(settings)
    return 0


def _installed() -> Installed:
    installed = installed_toolchain()
    if installed.torch is None or installed.triton is None:
        missing = "torch" if installed.torch is None else "triton"
        raise click.UsageError(f"--stale-toolchains needs the environment to compare with; there is no {missing} here")
    return installed


def _sentence(backend: Backend, outcome: Outcome, dry_run: bool) -> str:
    verb = "would remove" if dry_run else "removed"
    reasons = [f"{number:,} {name}" for name in ("old", "stale", "surplus") if (number := getattr(outcome, name))]
    why = f" ({', '.join(reasons)})" if reasons else ""
    kept = f"; {count(outcome.recipes, 'stale entry')} kept for prewarm" if outcome.recipes else ""
    return (
        f"{backend.url}: {verb} {outcome.removed:,} of {count(outcome.entries, 'entry')}{why}, "
        f"{size(outcome.removed_size)} of {size(outcome.size)}{kept}"
    )


def _compact_runs(settings: Settings) -> None:
    from tritonstore.maintenance.runs import compact

    compacted = compact(settings)
    if compacted.merged:
        note(f"merged {count(compacted.merged, 'record')} of past runs into {compacted.into:,}")
