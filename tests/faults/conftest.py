"""Runs of `scripts/faults`, one for each command and test run, in a process with one thread and without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def python(*arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Python with this project, and with the settings of a user: not strict."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRITONSTORE")}
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "scripts")]), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**ours, **paths, **(environ or {})},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@lru_cache(None)
def lines_of(command: str, *options: str) -> dict[str, dict[str, Any]]:
    """The lines of the short form of this command, by their names."""
    done = python("-m", "tests.support.faults", command, "--short", "--json", "/dev/fd/2", *options)
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert lines, done.stdout + done.stderr
    return {line["name"]: line for line in lines}
