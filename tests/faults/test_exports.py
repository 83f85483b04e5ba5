"""Whole exports with real kernels while the store fails: they end, are those of PyTorch alone, and warn once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import lines_of, python
from tests.support.fault_trace import ERRORS

REAL = {  # warnings, answers from the store
    "full disk": (1, 0),
    "disk that fills up": (1, 0),
    "read-only, all there": (0, 3),
    "read-only, one missing": (1, 2),
    "RLIMIT_FSIZE": (1, 0),
    "RLIMIT_NOFILE": (1, 0),
    "RLIMIT_NOFILE, later": (1, 0),
    "store deleted": (0, 0),
    "store replaced by a file": (1, 0),
    "no home folder": (1, 0),
    "no passwd entry": (0, 0),
    "no passwd entry, warm": (0, 3),
    "clock jumps back": (0, 0),
    "all dated ahead": (0, 3),
}


@pytest.mark.parametrize("name", REAL)
def test_real_faults(name: str) -> None:
    line = lines_of("exports")[name]
    assert (line["identical"], line["wrong"]) == (True, [])
    assert (len(line["warnings"]), line["hits"]) == REAL[name], line["warnings"]
    assert all(" failed: " in warning and "Traceback" not in warning for warning in line["warnings"])


@pytest.mark.parametrize("error", ERRORS)
def test_errors_at_system_calls(error: str) -> None:
    (line,) = [line for name, line in lines_of("exports").items() if name.startswith(error)]
    assert line["wrong"] == []
    assert line["injected"] >= 1


ENDINGS = {  # exit code, run records with that of the next process
    "ctrl_c": (0, 2),
    "terminated": (-15, 2),
    "killed": (-9, 1),
    "left": (3, 1),
    "exited": (4, 2),
    "forked": (0, 2),
    "threads": (0, 2),
    "exit_while_a_thread_exports": (5, 2),
}


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("endings")
    done = python("-m", "tests.support.fault_endings", str(folder))
    assert done.returncode == 0, done.stderr
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", ENDINGS)
def test_ends_in_the_middle(endings: dict[str, dict[str, Any]], name: str) -> None:
    """With its code and without a word; the next process neither waits nor wonders, and nothing temporary is left."""
    line = endings[name]
    assert (line["code"], line["records"]) == ENDINGS[name], line["said"]
    assert line["said"] == ""
    assert line["litter"] == []
    assert line["next"]["identical"]
    assert (line["next"]["warnings"], line["next"]["faults"]) == ([], {})
    assert line["next"]["hits"] >= 1  # what was published before the end
