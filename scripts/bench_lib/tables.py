"""Figures → the tables of docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Figures = dict[str, Any]

_X = "\N{MULTIPLICATION SIGN}"


MARKS = "<!-- scripts/bench --table -->", "<!-- end of scripts/bench --table -->"


def placed(shown: str, document: str) -> str:
    """`document` with `shown` between its marks. Raises ValueError where it has none."""
    before, start, rest = document.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not start or not end:
        raise ValueError(f"the document needs the lines {MARKS[0]} and {MARKS[1]}")
    return f"{before}{start}\n\n{shown}\n{end}{after}"


def tables(figures: Figures) -> str:
    """All tables, as Markdown."""
    parts = [_environment(figures)]
    makers = {"calls": _calls, "start": _start, "export": _export, "scale": _scale, "reach": _reach, "growth": _growth}
    for name, make in makers.items():
        if name in figures["sections"]:
            parts.append(f"### {name.capitalize()}\n\n" + make(figures["sections"][name]))
    return "\n\n".join(parts) + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _us(figure: Any, part: str = "median_us") -> str:
    return _time(figure[part]) if figure else "-"


def _time(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} µs"


def _times(ratio: float) -> str:
    return f"{ratio:.2f} {_X}"


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def _environment(figures: Figures) -> str:
    told = figures["environment"]
    rows = [[name.replace("_", " "), str(value)] for name, value in told.items()]
    rows.append(["seconds of the run", f"{sum(figures['seconds'].values()):.0f}"])
    if figures["scale"] != 1:
        rows.append(["share of the usual time", str(figures["scale"])])
    return "### Environment\n\n" + _table(["what", "value"], rows)


def _calls(section: Figures) -> str:
    sizes = list(section)
    head = ["", *(f"{size} arguments" for size in sizes)]
    names = list(dict.fromkeys(name for size in sizes for name in section[size]["hits"]))
    hits = [[name, *(_us(section[size]["hits"].get(name)) for size in sizes)] for name in names]
    out = ["A known question, key and fresh answer included:", _table(head, hits)]
    for what, part in (("Bytes of one entry, read:", "stored"), ("Bytes of one entry, stored:", "publishes")):
        names = list(section[sizes[0]][part])
        out += [what, _table(head, [[name, *(_us(section[size][part][name]) for size in sizes)] for name in names])]
    misses = [
        ["analysis", *(_time(section[size]["miss"]["analysis_us"]) for size in sizes)],
        ["all else", *(_time(section[size]["miss"]["overhead_us"]) for size in sizes)],
        ["share", *(f"{100 * section[size]['miss']['share']:.1f} %" for size in sizes)],
    ]
    out += ["A new question:", _table(head, misses)]
    largest = section[sizes[-1]]
    medians = {name: figure["median_us"] for name, figure in {**largest["hits"], **largest["stored"]}.items()}
    memory, exact = medians["memory"], medians["exact dict"]
    files = largest["hits"]["files"]["median_us"]
    floor = memory + medians["bare open, read, SHA-256"]
    publish = {name: figure["median_us"] for name, figure in largest["publishes"].items()}
    budgets = [
        ["memory hit / exact dict", _times(memory / exact), f"2 {_X}", _verdict(memory <= 2 * exact)],
        ["files hit / (memory hit + bare read)", _times(files / floor), f"2 {_X}", _verdict(files <= 2 * floor)],
        _ratio("files backend / diskcache, read", medians["files backend"], medians["diskcache"], 1)
        if "diskcache" in largest["stored"]
        else [],
        _ratio("files backend / bare write, rename", publish["files backend"], publish["bare write, rename"], 2),
        _ratio("publish / bare write, rename", publish["publish"], publish["bare write, rename"], 2),
        _ratio("publish / diskcache, set", publish["publish"], publish["diskcache"], 0.5),
        [
            "new question, all but the analysis",
            f"{100 * largest['miss']['share']:.1f} %",
            "1 %",
            _verdict(largest["miss"]["share"] <= 0.01),
        ],
    ]
    out += [f"Budgets, {sizes[-1]} arguments:", _table(["what", "seen", "budget", ""], filter(None, budgets))]
    return "\n\n".join(out)


def _ratio(what: str, ours: float, theirs: float, most: float) -> list[str]:
    return [what, _times(ours / theirs), f"{most:g} {_X}", _verdict(ours <= most * theirs)]


def _start(section: Figures) -> str:
    names = list(section["steps"]["warm"])
    rows = [[name, *(_us(section["steps"][kind][name]) for kind in section["steps"])] for name in names]
    rows += [
        ["at `import torch`, store off", _us(section["activate"]["off"]), ""],
        ["at `import torch`, store on", _us(section["activate"]["on"]), ""],
        *(
            [f"`tritonstore {name}`" if "python" not in name else name, _us(told), ""]
            for name, told in section["cli"].items()
        ),
    ]
    added, stats = section["added_ms"], section["cli"]["stats"]["median_us"] / 1e6
    budgets = [
        ["added to the first call, warm", f"{added:.1f} ms", "20 ms", _verdict(added <= 20)],
        ["`tritonstore stats`", f"{stats:.2f} s", "0.25 s", _verdict(stats <= 0.25)],
    ]
    return "\n\n".join(
        [_table(["step", *section["steps"]], rows), "Budgets:", _table(["what", "seen", "budget", ""], budgets)]
    )


def _export(section: Figures) -> str:
    rows = [[name, _us(figure)] for name, figure in section["seconds"].items()]
    warm = section["warm_to_floor"]
    inside = section["in_export"]
    cold = [
        [
            line["name"], str(line["workers"]), str(line["analyses"]), f"{line['analysis_seconds']:.2f}",
            f"{line['export_seconds']:.2f}", f"{line['wall_seconds']:.1f}", "yes" if line["identical"] else "NO",
        ]
        for line in section["cold"]
    ]  # fmt: skip
    return "\n\n".join(
        [
            "One process, the same export in turns:",
            _table(["export", "median"], rows),
            _table(
                ["what", "seen", "budget", ""],
                [
                    ["warm / floor, median of pairs", _times(warm), f"1.02 {_X}", _verdict(warm <= 1.02)],
                    ["PyTorch alone / floor", _times(section["alone_to_floor"]), "", ""],
                ],
            ),
            "One hit among the export's own work:",
            _table(["asked first", "median", "p99"], [[n, _us(f), _us(f, "p99_us")] for n, f in inside.items()]),
            "Fresh processes:",
            _table(["run", "workers", "analyses", "asking s", "export s", "wall s", "identical"], cold),
        ]
    )


def _scale(section: Figures) -> str:
    sizes = [size for size in section if size != "writers"]
    first = section[sizes[0]]
    rows = [["look-up", *(_us(section[size]["lookup"]) for size in sizes)]]
    rows += [
        [
            f"publish into a full store, {part.removesuffix('_us')}",
            *(_us(section[size]["publish"], part) for size in sizes),
        ]
        for part in ("median_us", "p99_us", "max_us")
    ]
    commands = []
    for name in [*first["commands"], "prune"]:
        told = [section[size]["commands"].get(name) or section[size]["prune"] for size in sizes]
        label = "`prune` to a half" if name == "prune" else f"`{name}`"
        commands.append([label, *(f"{each['per_second']:,.0f}/s, {each['peak_mib']:.0f} MiB" for each in told)])
    ratio = section[sizes[-1]]["lookup"]["median_us"] / first["lookup"]["median_us"]
    writers = [
        [what, *(_us(figure, part) for part in ("median_us", "p99_us", "max_us"))]
        for what, figure in section["writers"].items()
    ]
    scanned = section[sizes[-1]]["commands"]["prune --dry-run"]["per_second"]
    eight, bare = section["writers"]["publish, 8 at once"], section["writers"]["bare, 8 at once"]
    head = ["", *(f"{int(size):,} entries" for size in sizes)]
    return "\n\n".join(
        [
            _table(head, rows),
            "Entries a second and peak memory of a whole process:",
            _table(head, commands),
            "Writers:",
            _table(["writers", "median", "p99", "max"], writers),
            "Budgets:",
            _table(
                ["what", "seen", "budget", ""],
                [
                    [
                        f"look-up, {int(sizes[-1]):,} / {int(sizes[0]):,}",
                        _times(ratio),
                        f"1.2 {_X}",
                        _verdict(ratio <= 1.2),
                    ],
                    _ratio("8 writers, p99 / median", eight["p99_us"], eight["median_us"], 10),
                    ["the same, bare", _times(bare["p99_us"] / bare["median_us"]), "", ""],
                    [
                        "entries that `prune` looks at a second",
                        f"{scanned:,.0f}",
                        "20,000",
                        _verdict(scanned >= 20_000),
                    ],
                ],
            ),
        ]
    )


def _reach(section: Figures) -> str:
    count = section["questions"]
    parts = [f"{count} questions, seconds for all of them:"]
    rows = [
        [kind, f"{float(latency) * 1e3:g} ms", *(_time(seconds * 1e6) for seconds in told.values())]
        for kind in ("redis", "s3")
        for latency, told in section[kind].items()
    ]
    steps = list(next(iter(section["redis"].values())))
    return "\n\n".join([*parts, _table(["store", "latency", *steps], rows)])


def _growth(section: Figures) -> str:
    seen = section["resident_mib"]
    rows = [
        ["hits", f"{section['hits']:,} over {section['digests']:,} digests"],
        ["resident before, after each tenth", ", ".join(f"{each:.0f}" for each in (seen[0], *seen[1:])) + " MiB"],
        ["answers made, answers held", f"{section['answers_made']:,}, {section['answers_held']:,}"],
        ["`memory:` tier holds", f"{section['tier_values']:,} values, {section['tier_bytes'] / 2**20:.0f} MiB"],
        ["resident at the end", f"{section['resident_after_more_mib']:.0f} MiB"],
    ]
    return _table(["what", "seen"], rows)
