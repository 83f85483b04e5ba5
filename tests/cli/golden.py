"""What commands print, piped and in a terminal of 80 columns: `python -m tests.cli.golden` writes tests/golden/cli.

The store stands in a folder whose name has always the same length, so that nothing is cut or wrapped elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from tests.support.synthetic import entry, fill, place
from tests.support.terminal import on_terminal, piped

GOLDEN = Path(__file__).parents[1] / "golden" / "cli"
SHOWN = "/tmp/ts_xxxxxxxx"  # as long as the real one's name

# name → (arguments, on a terminal?); all after one another, on one store
COMMANDS: dict[str, tuple[list[str], bool]] = {
    "help": (["--help"], True),
    "ls": (["ls"], False),
    "ls-terminal": (["ls"], True),
    "ls-json": (["ls", "--json", "--sort", "digest"], False),
    "ls-filtered": (["ls", "--kernel", "*swiglu", "--sort", "cost", "--limit", "2"], True),
    "ls-nothing": (["ls", "--kernel", "nothing"], True),
    "show": (["show", "DIGEST"], True),
    "show-json": (["show", "DIGEST", "--json"], False),
    "verify": (["verify"], True),
    "verify-damage": (["verify"], True),
    "prune-dry": (["prune", "--max-age", "36h", "--dry-run"], True),
    "prune": (["prune", "--kernel", "_rms_norm"], True),
    "verify-fix": (["verify", "--fix"], True),
    "save": (["save", "BUNDLE"], True),
    "load": (["load", "BUNDLE"], True),
    "load-damage": (["load", "DAMAGED"], True),
    "clear": (["clear", "--yes"], True),
    "ls-empty": (["ls"], True),
    "usage": (["ls", "--older", "soon"], True),
}


def outputs() -> dict[str, str]:
    """name → exit code and everything that was seen, with what differs from run to run made equal."""
    root = tempfile.mkdtemp(prefix="ts_", dir="/tmp")
    assert len(root) == len(SHOWN), root
    try:
        return _outputs(root)
    finally:
        shutil.rmtree(root)


def _outputs(root: str) -> dict[str, str]:
    store, bundle, damaged = (os.path.join(root, name) for name in ("store", "made.tsb", "torn.tsb"))
    entries = [
        entry(0, kernel="_rms_norm"),
        entry(1, kernel="_rms_norm", arch=80),
        entry(2, kernel="a_kernel_with_a_rather_long_name_swiglu", torch="2.11.0", triton="3.6.0"),
        entry(3, kernel="Layer._swiglu"),
        entry(4, kernel="evil\x1b[2J\nname"),
    ]
    digests = fill(store, entries, used=time.time() - 600, apart=86400.0)
    environment = {"NO_COLOR": "1", "TRITONSTORE_URL": f"file://{store}", "HOME": root, "XDG_CACHE_HOME": root}
    words = {"DIGEST": digests[0][:8], "BUNDLE": bundle, "DAMAGED": damaged}
    seen = {}
    for name, (arguments, terminal) in COMMANDS.items():
        if name == "verify-damage":
            Path(place(store, digests[3])).write_bytes(b"\x8fTSE\r\n\x1a\ntorn")
        if name == "load-damage":
            Path(damaged).write_bytes(Path(bundle).read_bytes()[:-1])
        arguments = [words.get(word, word) for word in arguments]
        if terminal:
            code, text = on_terminal(*arguments, environ=environment)
        else:
            done = piped(*arguments, environ=environment)
            code, text = done.returncode, done.stdout + done.stderr
        text = re.sub(r'"used": \d+', '"used": 0', text)
        text = re.sub(r"made \d+ s ago", "made 0 s ago", text)
        seen[name] = f"$ tritonstore {' '.join(arguments)}\n{text}[exit code {code}]\n".replace(root, SHOWN)
    return seen


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, text in outputs().items():
        (GOLDEN / f"{name}.txt").write_text(text)
