"""A run record in lines of words and numbers: for `stats`, for `run`, and for the report."""

from __future__ import annotations

from typing import Any, NamedTuple

from tritonstore.runrecord import KernelFacts, RunRecord

__all__ = ["Line", "by_cost", "hits", "lines", "name_of", "seconds", "share", "short_names", "sum_of"]


class Line(NamedTuple):
    """``hits   346   91.1 %   memory 312, file 34``"""

    label: str
    value: str
    share: str = ""
    detail: str = ""


def lines(record: RunRecord) -> list[Line]:
    """What a person asks first: how many calls, what became of them, what it saved and cost. All lines, always."""
    counters = record.counters
    calls = counters.get("calls", 0)
    found = [
        Line("calls", f"{calls:,}"),
        Line("hits", f"{hits(record):,}", share(hits(record), calls), _table(counters.get("hits"))),
        Line("misses", f"{counters.get('misses', 0):,}", share(counters.get("misses", 0), calls), _shared(counters)),
        Line("bypasses", f"{sum_of(counters, 'bypasses'):,}", share(sum_of(counters, "bypasses"), calls)),
        Line("analyses", f"{counters.get('analyses', 0):,}", "", _unstored(counters)),
        Line("saved", seconds(counters.get("seconds_saved", 0.0))),
        Line("spent", seconds(_spent(counters)), "", _spent_on(counters)),
    ]
    found[3] = found[3]._replace(detail=_table(counters.get("bypasses")))
    if sum_of(counters, "faults"):
        found.append(Line("faults", f"{sum_of(counters, 'faults'):,}", "", _table(counters.get("faults"))))
    if record.dropped:
        found.append(Line("not kept", f"{sum(record.dropped.values()):,}", "", _table(record.dropped)))
    return found


def hits(record: RunRecord) -> int:
    """Lookups answered, by any tier."""
    return sum_of(record.counters, "hits")


def sum_of(counters: dict[str, Any], table: str) -> int:
    """All that a table of the counters holds."""
    found: int = sum(counters.get(table, {}).values())
    return found


def share(part: int, whole: int) -> str:
    """``91.1 %``; nothing of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else ""


def seconds(value: float) -> str:
    """A span for people: ``840 µs``, ``12.3 ms``, ``1.86 s``, ``8 min 42 s``."""
    if value >= 100:
        return f"{int(value) // 60} min {int(value) % 60} s"
    if value >= 1 or value == 0:
        return f"{value:.3g} s" if value < 9.995 else f"{value:.1f} s"
    return f"{value * 1e3:.3g} ms" if value >= 0.9995e-3 else f"{value * 1e6:.0f} µs"


def by_cost(record: RunRecord) -> list[KernelFacts]:
    """The kernels, the one that cost or saved most first."""
    return sorted(record.kernels, key=lambda k: (-(k.seconds_saved + k.seconds_analysing), -k.calls, k.module, k.name))


def short_names(kernels: list[KernelFacts]) -> dict[tuple[str, str], str]:
    """(module, name) → the kernel's own name, with its module where two kernels have the same."""
    owners: dict[str, set[tuple[str, str]]] = {}
    for kernel in kernels:
        owners.setdefault(name_of(kernel.name), set()).add(kernel[:2])
    return {
        (k.module, k.name): name_of(k.name) if len(owners[name_of(k.name)]) == 1 else f"{k.module}.{name_of(k.name)}"
        for k in kernels
    }


def name_of(qualified: str) -> str:
    """``kernel`` of ``make.<locals>.kernel``."""
    return qualified.rpartition(".<locals>.")[2] or qualified


def _table(table: Any) -> str:
    rows = sorted((table or {}).items(), key=lambda row: (-row[1], row[0]))
    return ", ".join(f"{name} {number:,}" for name, number in rows)


def _shared(counters: dict[str, Any]) -> str:
    shared = counters.get("shared", 0)
    return f"{shared:,} answered by another worker meanwhile" if shared else ""


def _unstored(counters: dict[str, Any]) -> str:
    unproven = counters.get("unproven", {})
    return f"not stored: {_table(unproven)}" if unproven else ""


def _spent(counters: dict[str, Any]) -> float:
    return float(sum(counters.get(f"seconds_{step}", 0.0) for step in ("analysing", "key", "store")))


def _spent_on(counters: dict[str, Any]) -> str:
    words = {"analysing": "analyses", "key": "keys", "store": "store"}
    return ", ".join(f"{word} {seconds(counters.get(f'seconds_{step}', 0.0))}" for step, word in words.items())
