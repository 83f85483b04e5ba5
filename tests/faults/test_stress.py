"""Processes that get, publish, prune, verify, load, sweep and compact at once, on two stores; see `scripts/faults`."""

from __future__ import annotations

from tests.faults.conftest import lines_of


def test_all_at_once() -> None:
    line = lines_of("stress", "--processes", "4")["stress"]
    assert line["wrong"] == []
    assert line["entries"] > 300
    assert set(line["did"]) >= {"ask_kept", "ask_churned", "ask_crowd", "prune", "verify", "load", "sweep", "compact"}
