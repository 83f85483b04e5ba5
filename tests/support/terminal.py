"""The command line as a person meets it: in a terminal of 80 columns, or in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 80


def environment(**changes: str) -> dict[str, str]:
    """This environment with the project importable, and without what would decide about colour or width."""
    names = {"NO_COLOR", "FORCE_COLOR", "CLICOLOR", "COLUMNS", "LINES", "PYTHONWARNINGS"}
    ours = {name: value for name, value in os.environ.items() if name not in names}
    return {**ours, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "TERM": "xterm-256color", **changes}


def piped(
    *arguments: str, environ: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """`python -m tritonstore arguments` with pipes on all sides."""
    return subprocess.run(
        [sys.executable, "-m", "tritonstore", *arguments],
        env=environment(**(environ or {})),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def on_terminal(
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    typed: str = "",
    prompt: str = "",
    insist: bool = False,
    command: Sequence[str] = (sys.executable, "-m", "tritonstore"),
) -> tuple[int, str]:
    """The exit code, and all that a terminal of 80 columns and 24 lines gets to see.

    `typed` is typed at the `prompt`; with `insist` each second until the end, as people press Ctrl-C:
    a signal that comes just before Python starts to read is only noticed after the read.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    with subprocess.Popen(
        [*command, *arguments],
        env=environment(**(environ or {})),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while True:
                if insist and prompt.encode() in seen:
                    while not select.select([ours], [], [], 1.0)[0]:
                        os.write(ours, typed.encode())
                part = _read(ours)
                if not part:
                    break
                seen += part
                if typed and not insist and prompt.encode() in seen:
                    os.write(ours, typed.encode())
                    typed = ""
            code = process.wait(timeout=240)
        finally:
            process.kill()
            os.close(ours)
    return code, seen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux: EIO when the last process has closed the terminal
        return b""
