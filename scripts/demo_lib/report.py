"""What a person sees: the progress while the demo works, and the table at the end."""

from __future__ import annotations

import os
import time
from typing import Any, TextIO

COLUMNS = (
    ("run", 11),
    ("calls", 7),
    ("analyses", 9),
    ("distinct keys", 14),
    ("analysis s", 11),
    ("export s", 9),
    ("identical", 10),
)


class Progress:
    """One line that is written over on a terminal, plain lines elsewhere. NO_COLOR is honoured."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self._live and not os.environ.get("NO_COLOR")
        self._name, self._total, self._steps, self._start = "", 0, 0, 0.0
        self._doing: dict[int, str] = {}

    def begin(self, name: str, total: int) -> None:
        self._name, self._total, self._steps, self._start = name, total, 0, time.monotonic()
        self._doing = {}
        if not self._live:
            self.say(f"{name}: {total} methods")
        self._draw()

    def at(self, worker: int, method: str) -> None:
        self._doing[worker] = method
        self._draw()

    def step(self) -> None:
        self._steps += 1
        self._draw()

    def end(self, line: dict[str, Any]) -> None:
        mark = "ok" if line["identical"] else "DIFFERENT GRAPHS"
        if self._colour:
            mark = f"\x1b[{32 if line['identical'] else 31}m{mark}\x1b[0m"
        seconds = time.monotonic() - self._start
        self.say(f"{line['name']}: {line['analyses']} analyses, {seconds:.0f} s in all, {mark}")

    def say(self, text: str) -> None:
        self.clear()
        self._stream.write(text + "\n")
        self._stream.flush()

    def clear(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _draw(self) -> None:
        if not self._live:
            return
        bar = ("#" * (20 * self._steps // max(1, self._total))).ljust(20, ".")
        doing = ", ".join(self._doing[worker] for worker in sorted(self._doing))
        text = f"{self._name:<10} [{bar}] {self._steps}/{self._total} {doing}"
        self._stream.write("\r" + text[:79] + "\x1b[K")
        self._stream.flush()


def table(lines: list[dict[str, Any]]) -> str:
    """The runs as a table of at most 80 columns."""
    rows = ["".join(name.ljust(width) if n == 0 else name.rjust(width) for n, (name, width) in enumerate(COLUMNS))]
    rows.append("-" * sum(width for _, width in COLUMNS))
    for line in lines:
        cells = [
            line["name"],
            str(line["calls"]),
            str(line["analyses"]),
            "-" if line["distinct_keys"] is None else str(line["distinct_keys"]),
            f"{line['analysis_seconds']:.2f}",
            f"{line['export_seconds']:.2f}",
            "yes" if line["identical"] else "NO",
        ]
        rows.append(
            "".join(
                cell.ljust(width) if n == 0 else cell.rjust(width)
                for n, (cell, (_, width)) in enumerate(zip(cells, COLUMNS, strict=True))
            )
        )
    return "\n".join(rows)
