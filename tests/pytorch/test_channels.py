"""PyTorch's own channels: Dynamo's counters, and the structured trace that tlparse reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch._dynamo.utils

import tritonstore
from tests.pytorch.conftest import TARGET, tensors
from tests.support.records import PROGRAM
from tests.support.terminal import ROOT


@pytest.fixture(autouse=True)
def _counters_put_back() -> Any:
    torch._dynamo.utils.counters.pop("tritonstore", None)
    yield
    torch._dynamo.utils.counters.pop("tritonstore", None)


def test_dynamo_counters(url: str, kernels: Any, ask: Callable[..., Any]) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        for _ in range(3):
            ask(kernels.copy, tensors(n=1, BLOCK=64))
        ask(kernels.heuristic, tensors(n=1))
        ask(kernels.broken, tensors())
        assert dict(torch._dynamo.utils.counters["tritonstore"]) == {
            "hit": 2,
            "miss": 2,
            "analysis": 3,
            "bypass": 1,
            "bypass: kernel-type": 1,
            "unproven": 1,
            "unproven: failure-path": 1,
        }
        torch._dynamo.utils.counters.clear()  # as torch._dynamo.reset() and tests do
        ask(kernels.copy, tensors(n=1, BLOCK=64))
        assert dict(torch._dynamo.utils.counters["tritonstore"]) == {"hit": 1}


def test_dynamo_is_not_imported_for_its_counters() -> None:
    code = "import sys, tritonstore.pytorch.observer as o; o.channels.count('hit'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=_environ(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def _environ(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **more}


def test_the_structured_trace(tmp_path: Path) -> None:
    """In a process of its own, as TORCH_TRACE is read at the import of torch."""
    script = tmp_path / "export.py"
    # torch 2.11 writes its trace through `logging`, as far as that is not switched off.
    program = "".join(line for line in PROGRAM.splitlines(keepends=True) if not line.startswith("logging.disable"))
    script.write_text(program + "    ask(3)\n    ask(2, kernel='heuristic')\n")
    environ = _environ(TORCH_TRACE=str(tmp_path / "trace"), TRITONSTORE_CACHE_FOLDER=str(tmp_path / "cache"))
    for _ in range(2):
        text = script.read_text().replace('url="memory:"', f'url="file://{tmp_path}/store"')
        script.write_text(text)
        subprocess.run([sys.executable, str(script)], env=environ, timeout=280, check=True, capture_output=True)
    first, second = (artifacts(path) for path in sorted((tmp_path / "trace").iterdir(), key=os.path.getmtime))
    assert [name for name, _ in first] == ["tritonstore_miss", "tritonstore_bypass"]
    assert [name for name, _ in second] == ["tritonstore_hit", "tritonstore_bypass"]
    miss, bypass = first[0][1], first[1][1]
    assert (miss["kernel"], miss["key"]["arguments"][3][:2]) == (
        "model.kernels.copy",
        ["BLOCK", ["constexpr", ["int", 64]]],
    )
    assert (bypass["reason"], "Heuristics" in bypass["detail"]) == ("kernel-type", True)
    hit = second[0][1]
    assert (hit["tier"], hit["digest"], hit["seconds_saved"] > 0) == ("file", miss["digest"], True)


def artifacts(path: Path) -> list[tuple[str, Any]]:
    """(name, content) of ours in a trace: a line of metadata, then the payload, each line of it after a tab."""
    found: list[tuple[str, Any]] = []
    payload: list[str] | None = None
    for line in path.read_text().splitlines():
        if line.startswith("\t"):
            if payload is not None:
                payload.append(line[1:])
            continue
        payload = None
        metadata = json.loads(line[line.index("{") :])
        name = metadata.get("artifact", {}).get("name", "")
        if name.startswith("tritonstore"):
            payload = []
            found.append((name, payload))
    return [(name, json.loads("\n".join(lines))) for name, lines in found]
