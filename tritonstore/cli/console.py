"""How commands speak: data to stdout, talk to stderr; plain in a pipe and with NO_COLOR.

On a terminal a table is cut to its width; in a pipe nothing is cut, so that other programs get whole values. Whatever
comes out of a store is shown through `plain`: whoever can write to a store must not steer this terminal.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    *("age", "complain", "count", "is_terminal", "note", "plain", "progress", "say", "say_json", "size"),
    *("styled", "table", "width"),
]

_SLOW = 1.0  # seconds until a progress bar appears
_EVERY = 0.1  # seconds between its steps
_GAP = "  "


def is_terminal(file: TextIO | None = None) -> bool:
    """Whether a person looks at `file` (default: stdout as it is now)."""
    return (file or sys.stdout).isatty()


def width() -> int | None:
    """Columns of the terminal on stdout; None in a pipe, where nothing is cut or wrapped."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def say(text: str = "", style: str = "") -> None:
    """A line of data on stdout; on a terminal in `style` (``bold``, ``red``, …) and wrapped at words."""
    _line(sys.stdout, ((text, style),))


def styled(*parts: tuple[str, str]) -> None:
    """A line of data on stdout, of parts with a style each."""
    _line(sys.stdout, parts)


def say_json(value: Any) -> None:
    """One JSON object on a line of stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")


def note(text: str, style: str = "") -> None:
    """A line of talk on stderr."""
    _line(sys.stderr, ((text, style),))


def complain(text: str) -> None:
    """An error, on stderr: `tritonstore: error: …`."""
    _line(sys.stderr, (("tritonstore: ", ""), ("error: ", "bold red"), (text, "")))


def _line(file: TextIO, parts: Sequence[tuple[str, str]]) -> None:
    if not is_terminal(file):  # without rich, whose import takes longer than most commands
        file.write("".join(plain(text) for text, _ in parts) + "\n")
        return
    from rich.text import Text

    to = _console(file)
    with to.capture() as captured:
        to.print(Text.assemble(*((plain(text), style) for text, style in parts)))
    # Where rich wraps a line it leaves the space at its end.
    file.write("".join(line.rstrip(" ") + "\n" for line in captured.get().splitlines()))


def _console(file: TextIO) -> Console:
    from rich.console import Console

    made = Console(file=file, highlight=False, markup=False, emoji=False)
    if made.no_color:  # rich keeps bold and dim; NO_COLOR is set where escapes are unwelcome
        made = Console(file=file, highlight=False, markup=False, emoji=False, color_system=None)
    return made


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows under their headings on stdout; nothing at all without rows.

    A heading that starts with ``>`` is aligned to the right; the column whose heading starts with ``*`` is cut where
    a terminal is too narrow.
    """
    cells = [[plain(str(cell)) for cell in row] for row in rows]
    if not cells:
        return
    names = [column.lstrip(">*") for column in columns]
    widths = [max(_cells(name), *(_cells(row[at]) for row in cells)) for at, name in enumerate(names)]
    room = width()
    if room is not None:
        surplus = sum(widths) + len(_GAP) * (len(widths) - 1) - room
        for at, column in enumerate(columns):
            if column.startswith("*") and surplus > 0:
                widths[at] = max(len(names[at]), 8, widths[at] - surplus)
    right = [column.startswith(">") for column in columns]
    say(_row(names, widths, right), "bold")
    for row in cells:
        sys.stdout.write(_row(row, widths, right) + "\n")


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    out = []
    for cell, wide, to_right in zip(row, widths, right, strict=True):
        space = wide - _cells(cell)
        if space < 0:
            while _cells(cell) > wide - 1:
                cell = cell[:-1]
            cell += "…" if sys.stdout.encoding.lower().startswith("utf") else "~"
            space = wide - _cells(cell)
        out.append(" " * space + cell if to_right else cell + " " * space)
    return _GAP.join(out).rstrip()


def _cells(text: str) -> int:
    """Columns that `text` takes: a kernel may be named in any script."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


@contextmanager
def progress(what: str, total: float | None = None, *, cost: bool = False) -> Iterator[Any]:
    """Yield `step(n=1)` to call as work gets done; a bar on stderr appears after a second, on a terminal only.

    With `cost`, `total` and `n` are seconds that the work once took, and the bar tells the time left.
    """
    if not is_terminal(sys.stderr):
        yield _no_step
        return
    to = _console(sys.stderr)
    started = time.monotonic()
    done = 0.0
    bar: Any = None
    task: Any = None
    last = started

    def step(n: float = 1) -> None:
        nonlocal done, bar, task, last
        done += n
        now = time.monotonic()
        if now - last < _EVERY:
            return
        last = now
        if bar is None and now - started >= _SLOW:
            bar = _bar(to, total, cost)
            task = bar.add_task(what, total=total)
            bar.start()
        if bar is not None:
            bar.update(task, completed=done)

    try:
        yield step
    finally:
        if bar is not None:
            bar.stop()


def _no_step(n: float = 1) -> None:
    """What `progress` yields where nobody looks."""


def _bar(to: Console, total: float | None, cost: bool) -> Any:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    counted: ProgressColumn = MofNCompleteColumn() if total is not None else TextColumn("{task.completed:,.0f}")
    if cost:
        counted = TimeRemainingColumn()
    return Progress(
        TextColumn("{task.description}"), BarColumn(), counted, TimeElapsedColumn(), console=to, transient=True
    )


def plain(text: str) -> str:
    """`text` with every control character, line ends included, spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def size(count: float) -> str:
    """Bytes for people: ``812 B``, ``4.1 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def age(seconds: float) -> str:
    """A span for people, in its largest unit: ``40 s``, ``3 h``, ``12 d``."""
    if seconds < 0:
        return "in the future"
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (129600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} d"


def count(number: int, one: str, many: str = "") -> str:
    """``1 entry``, ``2,000 entries``."""
    word = one if number == 1 else many or (one[:-1] + "ies" if one.endswith("y") else one + "s")
    return f"{number:,} {word}"
