"""What scripts/check does: ruff, mypy, and the documents against the files and options that they name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
SCRIPTS = ("bench", "cache", "demo", "faults", "fuzz", "gpu", "test", "check")
NAMED_FILE = re.compile(r"(?<![\w/.-])((?:scripts|tests|tritonstore|\.ci)/[\w/.-]*\w)")
NAMED_OPTION = re.compile(r"scripts/demo[^`\n]*?(--[a-z][a-z-]*)")


def documents() -> list[str]:
    """One sentence for each file, option or setting that a document names and that does not exist."""
    wrong = []
    settings = (ROOT / "tritonstore" / "settings.py").read_text()
    options = '"--help"' + "".join(path.read_text() for path in (ROOT / "scripts" / "demo_lib").glob("*.py"))
    for name in DOCUMENTS:
        text = (ROOT / name).read_text()
        wrong += [f"{name}: there is no {path}" for path in NAMED_FILE.findall(text) if not (ROOT / path).exists()]
        wrong += [f"{name}: scripts/demo has no {o}" for o in NAMED_OPTION.findall(text) if f'"{o}"' not in options]
        for variable in sorted(set(re.findall(r"\bTRITONSTORE[A-Z_]*\b", text))):
            if variable not in settings:
                wrong.append(f"{name}: tritonstore/settings.py reads no {variable}")
    wrong += [f"scripts/{name} cannot be run" for name in SCRIPTS if not os.access(ROOT / "scripts" / name, os.X_OK)]
    return wrong


def main() -> int:
    python = [sys.executable, "-m"]
    scripts = [f"scripts/{name}" for name in SCRIPTS]
    commands = (
        [*python, "ruff", "check", ".", *scripts],
        [*python, "ruff", "format", "--check", ".", *scripts],
        [
            *python,
            "mypy",
            "--config-file",
            "setup.cfg",
            "tritonstore",
            "scripts/demo_lib",
            "scripts/bench_lib",
            "scripts/gpu_lib",
            "scripts/lib",
        ],
    )
    failed = []
    for command in commands:
        print("check:", " ".join(command[2:]), flush=True)
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(" ".join(command[2:]))
    wrong = documents()
    for sentence in wrong:
        print(f"check: {sentence}")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
