"""A process that is killed, interrupted or terminated at any step, and each call of the system that fails.

A part of what `scripts/faults` tries: each moment at which the disk or a lock changes, and two errors at each call.
"""

from __future__ import annotations

import pytest

from tests.faults.conftest import lines_of, python
from tests.support.fault_attempts import ATTEMPTS
from tests.support.fault_operations import OPERATIONS


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_any_step(name: str) -> None:
    line = lines_of("kill")[name]
    assert line["wrong"] == []
    assert line["kills"] >= 8
    assert line["ended before"] <= 2


def test_kills_do_leave_litter() -> None:
    """Or they came when nothing was under way."""
    lines = lines_of("kill")
    assert all(lines[name]["left litter"] for name in ("publish", "backfill", "run-record", "bundle-load"))


@pytest.mark.parametrize("name", OPERATIONS)
def test_interrupted_and_terminated_at_any_step(name: str) -> None:
    line = lines_of("interrupt")[name]
    assert line["wrong"] == []
    assert line["interrupted"] >= 0.9 * line["signals"] > 10


@pytest.mark.parametrize("name", ATTEMPTS)
def test_each_call_fails(name: str) -> None:
    line = lines_of("errors")[name]
    assert line["wrong"] == []
    assert line["injected"] >= min(line["calls"], 60)
    assert line["calls"] >= 10
    assert len(line["by error"]) >= 11


def test_what_is_not_there_is_said() -> None:
    done = python("-m", "tests.support.faults", "kill", "--only", "publish,nothing")
    assert done.returncode == 1
    assert "there is no nothing; there are publish, publish-first, " in done.stderr
