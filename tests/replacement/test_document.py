"""The example of docs/replacement.md does what the document says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def test_the_example_prints_what_is_said(root: Path, tmp_path: Path) -> None:
    text = (root / "docs" / "replacement.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (printed,) = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    program = "\n".join([*blocks, "assert [r.node for r in planned.rows if r.target] == ['silu', 'topk']\n"])
    (tmp_path / "example.py").write_text(program)
    environment = os.environ | {
        "TRITONSTORE_TARGET": "cuda:90:32",
        "PYTHONPATH": os.pathsep.join([str(root), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == printed
