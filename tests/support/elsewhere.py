"""Run Python in a process of its own: another hash seed, another folder, another interpreter flag."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_python(
    code: str,
    *arguments: str,
    flags: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    path: Sequence[Path] = (),
) -> str:
    """What the code prints, with the project importable (first from `path`). Raises AssertionError with its stderr."""
    entries = [*map(str, path), str(ROOT)]
    ours = {"PYTHONPATH": os.pathsep.join(entries), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *flags, "-W", "ignore", "-c", code, *arguments],
        env={**os.environ, **ours, **(environ or {})},
        cwd=folder or ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
