"""One HTML page about a run, for people who would rather look than read. It needs nothing from anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import tritonstore
from tritonstore.keys.reasons import reason_of
from tritonstore.maintenance.explain import Explanation
from tritonstore.maintenance.report_style import STYLE
from tritonstore.maintenance.summary import by_cost, hits, lines, name_of, seconds, share, short_names, sum_of
from tritonstore.runrecord import KernelFacts, RunRecord, Timeline

__all__ = ["page"]

_COLUMNS = 72  # bars of a chart over time
_BARS = 24  # kernels with a bar
_ROWS = 400  # of a table
_KINDS = (
    ("hits", "hits"),
    ("analysed", "analysed"),
    ("shared", "answered by another worker"),
    ("bypassed", "bypassed"),
)


def page(record: RunRecord, explanations: Sequence[Explanation], title: str) -> str:
    """The whole page. Everything that a record holds is escaped: names and reasons come from other programs."""
    body = "\n".join(
        [
            _head(record, title),
            _tiles(record),
            _section("Where the time went", _time_bar(record) + _kernel_bars(record)),
            _section("Over the run's time", _over_time(record.timeline)),
            _section("What became of the calls", _outcomes(record)),
            _section("Kernels", _kernel_table(record)),
            _section("Why calls missed", _misses(explanations)),
            _section("Why calls bypassed the store", _bypasses(record)),
            _foot(record),
        ]
    )
    return _PAGE.format(title=escape(title), style=STYLE, body=body)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _head(record: RunRecord, title: str) -> str:
    facts = [record.command] if record.command else []
    facts.append("1 process" if record.processes == 1 else f"{record.processes:,} processes")
    facts.append(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(max(0, min(record.started, 253402300799)))))
    facts.append(f"{seconds(max(0.0, record.ended - record.started))} long")
    if record.ending not in ("exit", "several", "running"):
        facts.append(f"ended by {record.ending}")
    facts += [f"{name} {record.versions[name]}" for name in ("torch", "triton") if name in record.versions]
    return f"<header><h1>{escape(title)}</h1><p>{' · '.join(map(escape, facts))}</p></header>"


def _tiles(record: RunRecord) -> str:
    counters = record.counters
    calls = counters.get("calls", 0)
    tiles = (
        ("hit rate", share(hits(record), calls) or "-", f"{hits(record):,} of {calls:,} calls"),
        ("time saved", seconds(counters.get("seconds_saved", 0.0)), "analyses that hits spared"),
        ("time spent", seconds(counters.get("seconds_analysing", 0.0)), f"{counters.get('analyses', 0):,} analyses"),
        ("bypassed", share(sum_of(counters, "bypasses"), calls) or "-", f"{sum_of(counters, 'bypasses'):,} calls"),
    )
    cells = "".join(
        f"<div class=tile><span>{label}</span><strong>{escape(value)}</strong><small>{escape(detail)}</small></div>"
        for label, value, detail in tiles
    )
    return f"<div class=tiles>{cells}</div>"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content or '<p class=none>Nothing.</p>'}</section>"


class _Piece(NamedTuple):
    kind: str
    label: str
    value: float


def _time_bar(record: RunRecord) -> str:
    counters = record.counters
    pieces = [
        _Piece("saved", "saved by hits", counters.get("seconds_saved", 0.0)),
        _Piece("analysed", "analyses", counters.get("seconds_analysing", 0.0)),
        _Piece("key", "working out keys", counters.get("seconds_key", 0.0)),
        _Piece("store", "reading and writing the store", counters.get("seconds_store", 0.0)),
    ]
    total = sum(piece.value for piece in pieces)
    if not total:
        return ""
    bars = "".join(
        f'<i class="{p.kind}" style="flex-grow:{p.value / total:.5f}" title="{p.label}: {seconds(p.value)}"></i>'
        for p in pieces
        if p.value
    )
    legend = _legend((piece.kind, f"{piece.label} {seconds(piece.value)}") for piece in pieces)
    said = ", ".join(f"{piece.label} {seconds(piece.value)}" for piece in pieces)
    return f'<div class=bar role=img aria-label="{escape(said)}">{bars}</div>{legend}'


def _legend(items: Iterable[tuple[str, str]]) -> str:
    return "<ul class=legend>" + "".join(f'<li><i class="{k}"></i>{escape(text)}</li>' for k, text in items) + "</ul>"


def _kernel_bars(record: RunRecord) -> str:
    ordered = [k for k in by_cost(record) if k.seconds_saved + k.seconds_analysing > 0]
    shown, rest = ordered[:_BARS], ordered[_BARS:]
    names = short_names(record.kernels)
    most = max((k.seconds_saved + k.seconds_analysing for k in shown), default=0.0)
    out = "".join(
        f'<div class=row><span class=name title="{escape(k.module)}.{escape(k.name)}">'
        f"{escape(names[k.module, k.name])}</span>"
        f'<div class=thin><i class=saved style="width:{100 * k.seconds_saved / most:.2f}%"></i>'
        f'<i class=analysed style="width:{100 * k.seconds_analysing / most:.2f}%"></i></div>'
        f"<small>{seconds(k.seconds_saved)} saved</small><small>{seconds(k.seconds_analysing)} spent</small></div>"
        for k in shown
    )
    if rest:
        saved, spent = seconds(sum(k.seconds_saved for k in rest)), seconds(sum(k.seconds_analysing for k in rest))
        out += f"<p class=none>{len(rest):,} other kernels: {saved} saved, {spent} spent</p>"
    return out


def _over_time(timelines: Sequence[Timeline]) -> str:
    if not timelines:
        return ""
    start = min(line.start for line in timelines)
    end = max(line.start + line.width * len(line.hits) for line in timelines)
    width = max(end - start, 1e-3) / _COLUMNS
    counts = {kind: [0.0] * _COLUMNS for kind, _ in _KINDS}
    spent = [0.0] * _COLUMNS
    for line in timelines:
        for kind, _ in _KINDS:
            _pour(line, getattr(line, kind), counts[kind], start, width)
        _pour(line, line.seconds, spent, start, width)
    calls = _chart("calls", [[(kind, counts[kind][at]) for kind, _ in _KINDS] for at in range(_COLUMNS)], _number)
    time_spent = _chart("seconds of analysis", [[("analysed", value)] for value in spent], seconds)
    marks = "".join(f"<span>{escape(seconds(at))}</span>" for at in (0.0, (end - start) / 2, end - start))
    axis = f"<div class=axis>{marks}</div>"
    legend = _legend((kind, words) for kind, words in _KINDS)
    return f"{legend}{calls}{axis}{time_spent}{axis}"


def _pour(line: Timeline, values: Sequence[float], into: list[float], start: float, width: float) -> None:
    """Add a timeline's buckets to the columns that they overlap, each in its part."""
    for index, value in enumerate(values):
        if not value:
            continue
        left = (line.start + index * line.width - start) / width
        right = left + line.width / width
        at = max(0, int(left))
        while at < min(right, len(into)):
            into[at] += value * (min(right, at + 1) - max(left, at)) / (right - left)
            at += 1


def _chart(what: str, columns: list[list[tuple[str, float]]], show: object) -> str:
    most = max((sum(value for _, value in column) for column in columns), default=0.0)
    if not most:
        return ""
    say = show if callable(show) else str
    out = []
    for column in columns:
        pieces = "".join(
            f'<i class="{kind}" style="height:{100 * value / most:.2f}%"></i>' for kind, value in column if value
        )
        told = ", ".join(f"{kind} {say(value)}" for kind, value in column if value)
        out.append(f'<b title="{escape(told)}">{pieces}</b>' if pieces else "<b></b>")
    top = say(most)
    return (
        f"<figure><figcaption>{what}, at most {top} in a column</figcaption>"
        f'<div class=chart role=img aria-label="{what} over time, at most {top}">{"".join(out)}</div></figure>'
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _outcomes(record: RunRecord) -> str:
    rows = [[line.label, line.value, line.share, line.detail] for line in lines(record)]
    return _table(("", "", "share", "of these"), rows, numbers=(1, 2))


def _kernel_table(record: RunRecord) -> str:
    names = short_names(record.kernels)
    rows = [_kernel_row(kernel, names[kernel.module, kernel.name]) for kernel in by_cost(record)]
    heads = ("kernel", "calls", "hits", "misses", "bypasses", "analyses", "saved", "spent")
    return _table(heads, rows, numbers=range(1, 8))


def _kernel_row(kernel: KernelFacts, name: str) -> list[str]:
    counts = (kernel.calls, sum(kernel.hits.values()), kernel.misses, sum(kernel.bypasses.values()), kernel.analyses)
    return [name, *(f"{n:,}" for n in counts), seconds(kernel.seconds_saved), seconds(kernel.seconds_analysing)]


def _misses(explanations: Sequence[Explanation]) -> str:
    groups: dict[tuple[str, str], list[Explanation]] = {}
    for each in explanations:
        groups.setdefault((name_of(each.miss.name), each.text), []).append(each)
    rows = []
    for (name, text), group in groups.items():
        outcomes = sorted({each.miss.outcome for each in group})
        spent = sum(each.miss.seconds for each in group)
        rows.append((spent, [name, text, f"{sum(e.miss.times for e in group):,}", seconds(spent), ", ".join(outcomes)]))
    rows.sort(key=lambda row: -row[0])
    return _table(("kernel", "cause", "misses", "spent", "answer"), [row for _, row in rows], numbers=(2, 3))


def _bypasses(record: RunRecord) -> str:
    ordered = sorted(record.bypasses, key=lambda each: (-each.seconds, each.reason, each.name))
    rows = []
    for each in ordered:
        words = reason_of(each.reason)
        detail = each.detail or words.call
        rows.append(
            [each.reason, name_of(each.name), detail, words.remedy or "-", f"{each.times:,}", seconds(each.seconds)]
        )
    return _table(("reason", "kernel", "what", "cacheable with", "calls", "spent"), rows, numbers=(4, 5))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    if not rows:
        return ""
    right = set(numbers)
    marks = [" class=n" if at in right else "" for at in range(len(heads))]
    head = "".join(f"<th{mark}>{escape(text)}</th>" for mark, text in zip(marks, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{escape(cell)}</td>" for mark, cell in zip(marks, row, strict=True)) + "</tr>"
        for row in rows[:_ROWS]
    )
    more = f"<p class=none>and {len(rows) - _ROWS:,} more</p>" if len(rows) > _ROWS else ""
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"


def _foot(record: RunRecord) -> str:
    parts = [f"Run {record.run}", f"tritonstore {tritonstore.__version__}", *record.urls]
    if record.dropped:
        kept = ", ".join(f"{number:,} {what}" for what, number in record.dropped.items())
        parts.append(f"no room in the record for {kept}")
    return f"<footer>{' · '.join(map(escape, parts))}</footer>"
