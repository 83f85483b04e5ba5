"""`tritonstore explain`"""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import Any

import click

from tritonstore.backends.base import Backend
from tritonstore.cli.console import age, complain, note, progress, say, say_json, styled
from tritonstore.cli.options import examples, json_option, opened, store_option
from tritonstore.cli.stats import chosen, heading, run_options
from tritonstore.errors import StoreError
from tritonstore.keys.reasons import reason_of
from tritonstore.maintenance import runs
from tritonstore.maintenance.explain import DIFFERS, Explanation, explain
from tritonstore.maintenance.summary import name_of, seconds
from tritonstore.runrecord import BypassFacts, RunRecord
from tritonstore.settings import Settings

__all__ = ["command", "explained"]


@click.command(
    "explain",
    short_help="Why calls missed or bypassed the store.",
    epilog=examples(
        "tritonstore explain                  the last run",
        "tritonstore explain my_kernel        only this kernel; * and ? match",
        "tritonstore explain --run 20260131-093000-1a2b3c --json",
    ),
)
@click.argument("kernel", required=False)
@run_options
@store_option
@json_option
def command(kernel: str | None, run_id: str | None, last: bool, every: bool, url: str | None, as_json: bool) -> int:
    """Why calls missed: what was nearest in the store, and exactly what differs; why calls bypassed the store, and what
    would make them cacheable."""

    def wanted(module: str, name: str) -> bool:
        short = name_of(name)
        return kernel is None or any(fnmatchcase(text, kernel) for text in (short, name, f"{module}.{name}"))

    with opened(url) as (settings, backends):
        record = chosen(settings, run_id, last, every)
        if record is None:
            return 0 if run_id is None else 1
        if kernel is not None and not any(wanted(each.module, each.name) for each in record.kernels):
            complain(f"no kernel {kernel} was asked about in run {record.run}")
            return 1
        told = explained(settings, backends, record, wanted)
    bypasses = [each for each in record.bypasses if wanted(each.module, each.name)]
    if as_json:
        for explanation in told:
            say_json(_plain(explanation))
        for bypass in bypasses:
            say_json(_plain_bypass(bypass))
        return 0
    heading(record, every)
    _say_misses(told)
    _say_bypasses(bypasses)
    if not told and not bypasses:
        say("no call missed, and none bypassed the store")
    for what in ("misses", "bypasses"):
        if record.dropped.get(what):
            note(f"{record.dropped[what]:,} further {what} had no room in the record")
    return 0


def explained(settings: Settings, backends: list[Backend], record: RunRecord, wanted: Any) -> list[Explanation]:
    """What explains the misses of these kernels; where the store cannot be read, past runs alone do."""
    if not any(wanted(miss.module, miss.name) for miss in record.misses):
        return []
    earlier = (each for each in runs.load(settings) if each.run != record.run and each.started < record.started)
    with progress("comparing") as step:
        try:
            return explain(record, backends, earlier, wanted, step)
        except StoreError as error:
            note(f"{error}; only the records of past runs are compared")
            return explain(record, [], runs.load(settings), wanted)


def _say_misses(told: list[Explanation]) -> None:
    """By kernel, those with one cause together; what cost most first."""
    kernels: dict[tuple[str, str], dict[str, list[Explanation]]] = {}
    for each in told:
        kernels.setdefault((each.miss.module, each.miss.name), {}).setdefault(each.text, []).append(each)
    now = time.time()
    for (module, name), causes in sorted(kernels.items(), key=lambda item: -_cost(*item[1].values())):
        say()
        styled((name_of(name), "bold"), (f"  {module}", "dim"))
        for text, group in causes.items():
            times = sum(each.miss.times for each in group)
            much = f"{times:,} misses" if times > 1 else "miss"
            styled((f"  {much}: ", "dim"), (text, ""), (f"  {seconds(_cost(group))}", "dim"))
            near = group[0]
            if near.kind == DIFFERS:
                styled((f"    nearest entry {near.near[:16]}, made {age(now - near.created)} ago", "dim"))
            unstored = {each.miss.outcome for each in group if each.miss.outcome.startswith("unproven")}
            for outcome in sorted(unstored):
                say(f"    PyTorch's answer was not stored: {outcome.partition(': ')[2]}")


def _cost(*groups: list[Explanation]) -> float:
    return sum(each.miss.seconds for group in groups for each in group)


def _say_bypasses(bypasses: list[BypassFacts]) -> None:
    reasons: dict[str, list[BypassFacts]] = {}
    for each in bypasses:
        reasons.setdefault(each.reason, []).append(each)
    for reason, group in sorted(reasons.items(), key=lambda item: -sum(each.seconds for each in item[1])):
        words = reason_of(reason)
        times = sum(each.times for each in group)
        say()
        much = f"{times:,} bypasses" if times > 1 else "1 bypass"
        styled((reason, "bold"), (f"  {much}, {seconds(sum(each.seconds for each in group))}", "dim"))
        for each in sorted(group, key=lambda each: -each.seconds):
            styled((f"  {name_of(each.name)}: ", ""), (each.detail or words.call, ""))
        styled(("  cacheable with: ", "dim"), (words.remedy or "nothing that tritonstore knows", ""))


def _plain(each: Explanation) -> dict[str, Any]:
    miss = each.miss
    return {
        "event": "miss",
        "kernel": f"{miss.module}.{miss.name}",
        "digest": miss.digest,
        "at": miss.at,
        "times": miss.times,
        "seconds": miss.seconds,
        "outcome": miss.outcome,
        "kind": each.kind,
        "text": each.text,
        "differences": [difference._asdict() for difference in each.differences],
        "nearest": each.near or None,
    }


def _plain_bypass(each: BypassFacts) -> dict[str, Any]:
    words = reason_of(each.reason)
    return {
        "event": "bypass",
        "kernel": f"{each.module}.{each.name}",
        "reason": each.reason,
        "detail": each.detail,
        "times": each.times,
        "at": each.at,
        "seconds": each.seconds,
        "remedy": words.remedy or None,
    }
