"""`tritonstore prewarm`"""

from __future__ import annotations

from collections.abc import Iterable

import click

from tritonstore.cli.console import complain, count, note, progress, say, say_json
from tritonstore.cli.options import examples, jobs_option, json_option, path_option, search_path, store_option
from tritonstore.recipes.prewarm import Prewarm, Summary
from tritonstore.recipes.workers import Result
from tritonstore.settings import Settings

__all__ = ["command", "why"]

_WORDS = {
    "unproven": "PyTorch's analysis fails, so there is nothing to store",
    "quarantined": "its answer was found to be wrong and is not used (docs/trust.md)",
    "bypass": "today the call has no key",
    "failed": "PyTorch or the store failed",
    "died": "the worker process did not survive it",
    "lost: main": "defined in the program itself (__main__)",
    "lost: local": "defined inside a function",
    "lost: import": "the module cannot be imported",
    "lost: gone": "the kernel is gone",
    "lost: no-kernel": "no @triton.jit function any more",
    "lost: signature": "changed signature",
    "lost: value": "an argument has no value here",
}


@click.command(
    "prewarm",
    short_help="Answer recorded questions before an export asks them.",
    epilog=examples(
        "tritonstore prewarm                       after an upgrade of torch",
        "tritonstore prewarm --from-run last       what the last run asked",
        "tritonstore prewarm --target cuda:100:32  for a new GPU",
    ),
)
@store_option
@click.option("--from-store", is_flag=True, help="The questions of all entries. [default]")
@click.option("--from-run", "run", metavar="ID", help="The questions of this run; 'last' is the last one.")
@click.option(
    "--from-bundle", "bundle", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="Those in FILE."
)
@jobs_option
@click.option("--target", metavar="GPU", help="This GPU in place of the recorded ones, as in cuda:100:32.")
@path_option
@json_option
def command(
    url: str | None,
    from_store: bool,
    run: str | None,
    bundle: str | None,
    jobs: int | None,
    target: str | None,
    path: tuple[str, ...],
    as_json: bool,
) -> int:
    """Ask PyTorch the questions of past exports again, with the torch, Triton and kernels that are installed now.

    Kernels are imported, in processes of their own, from the current folder, --path and PYTHONPATH. The longest
    analysis comes first. What is answered already is not asked again, so a prewarm that was interrupted goes on where
    it was. The exit code is 1 if a question could not be answered.
    """
    if from_store + (run is not None) + (bundle is not None) > 1:
        raise click.UsageError("--from-store, --from-run and --from-bundle exclude each other")
    settings = Settings.load(url=url, target=target)
    warm = Prewarm(settings, run=run, bundle=bundle)
    try:
        with progress("prewarming", warm.plan.seconds, cost=True) as step:
            for result in warm.results(jobs, search_path(path)):
                step(result.recipe.seconds)
    except KeyboardInterrupt:
        complain(f"interrupted; {_sentence(warm.summary)}; the same command goes on from here")
        return 130
    if as_json:
        shown = [
            {"kernel": each.recipe.kernel, "status": each.status, "text": each.text} for each in warm.summary.trouble
        ]
        say_json({**vars(warm.summary), "undescribed": warm.plan.undescribed, "trouble": shown})
    else:
        say(_sentence(warm.summary))
        for line in why(warm.summary.trouble):
            note(line)
    if warm.plan.undescribed:
        note(f"{count(warm.plan.undescribed, 'entry')} of an older format cannot be asked again")
    return 1 if warm.summary.trouble else 0


def why(trouble: Iterable[Result]) -> list[str]:
    """One line for each kernel and cause."""
    lines: dict[str, int] = {}
    for result in trouble:
        words = _WORDS.get(result.status, result.status)
        text = f"{result.recipe.kernel}: {words}{f' ({result.text})' if result.text else ''}"
        lines[text] = lines.get(text, 0) + 1
    return [text if times == 1 else f"{text}, {times:,} times" for text, times in lines.items()]


def _sentence(summary: Summary) -> str:
    answered, known = (summary.by_status.get(name, 0) for name in ("answered", "known"))
    lost = len(summary.trouble)
    return (
        f"{count(answered, 'question')} answered in {summary.seconds:.1f} s of analysis, {known:,} known already, "
        f"{lost:,} not answered{'' if summary.done == summary.total else f', {summary.total - summary.done:,} left'}"
    )
