"""`tritonstore load`"""

from __future__ import annotations

import time

import click

from tritonstore.cli.console import age, complain, count, note, progress, say, say_json, size
from tritonstore.cli.options import SIZE, examples, json_option, opened, store_option
from tritonstore.maintenance.bundle import Bundle, BundleError, Loaded, load
from tritonstore.settings import redact_url

__all__ = ["command"]

_SHOWN = 20  # refused entries that are named


@click.command(
    "load",
    short_help="Put a bundle's entries into the store.",
    epilog=examples(
        "tritonstore load warm.tsb",
        "tritonstore load https://example.org/warm.tsb",
        "tritonstore load warm.tsb --dry-run             what is new in it",
    ),
)
@click.argument("source", metavar="FILE|URL")
@store_option
@click.option("--partial", is_flag=True, help="Leave out entries that are not sound, instead of refusing the bundle.")
@click.option("--max-size", type=SIZE, metavar="SIZE", help="Refuse more than SIZE. [default: the store's own limit]")
@click.option("--dry-run", "-n", is_flag=True, help="Store nothing, and say what is new.")
@json_option
def command(source: str, url: str | None, partial: bool, max_size: int | None, dry_run: bool, as_json: bool) -> int:
    """Put the entries of a bundle into the store, all of them or none.

    The whole bundle is checked first. Entries that are there already stay as they are. Only load bundles of those whom
    you trust to run code: entries hold no code, and wrong ones make wrong exports.
    """
    from tritonstore.maintenance.fetch import opened_bundle
    from tritonstore.signing import keys_of

    shown = redact_url(source)
    with opened(url, write=not dry_run) as (settings, backends):
        limit = settings.max_size if max_size is None else max_size
        try:
            # A bundle is compressed; twice its entries' bytes leave room for the longest manifest.
            with (
                progress("fetching") as fetched,
                opened_bundle(source, 2 * limit + (1 << 20) if limit else 0, fetched) as file,
            ):
                bundle = Bundle(file, limit, keys_of(settings))
                with progress("loading", 2 * len(bundle)) as step:
                    result = load(bundle, backends, partial=partial, dry_run=dry_run, step=step)
        except BundleError as error:
            raise BundleError(f"{shown} is refused, and nothing was stored: {error.problem}") from error
    _say(shown, bundle, result, dry_run, as_json)
    return 1 if result.refused else 0


def _say(shown: str, bundle: Bundle, result: Loaded, dry_run: bool, as_json: bool) -> None:
    numbers = {"new": result.new, "known": result.known, "refused": len(result.refused)}
    if as_json:
        refused = [{"digest": digest, "problem": problem} for digest, problem in result.refused]
        say_json({"source": shown, "dry_run": dry_run, **numbers, "refused_entries": refused})
        return
    for digest, problem in result.refused[:_SHOWN]:
        complain(f"{digest[:16]}… {problem}")
    if len(result.refused) > _SHOWN:
        note(f"and {len(result.refused) - _SHOWN:,} more")
    made = age(max(0.0, time.time() - bundle.created))
    note(f"{shown}: {count(len(bundle), 'entry')}, made {made} ago by {bundle.writer}")
    verb = "would be stored" if dry_run else "stored"
    say(f"{result.new:,} new {verb} ({size(result.size)}), {result.known:,} known, {len(result.refused):,} refused")
