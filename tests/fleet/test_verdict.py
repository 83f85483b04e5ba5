"""What the demo says of several ranks, and of a store without leases."""

from __future__ import annotations

from typing import Any

import pytest
from demo_lib import ranks, runs


def line(name: str, **changes: Any) -> dict[str, Any]:
    analyses = {"pytorch": 64, "cold": 8}.get(name, 0)
    usual = {"name": name, "workers": 4, "calls": 64, "analyses": analyses, "distinct_keys": 8, "identical": True}
    return usual | {"analysis_seconds": 1.25, "export_seconds": 2.5} | changes


@pytest.mark.parametrize(
    ("changes", "leases", "message"),
    [
        ({}, True, None),
        ({"cold": {"analyses": 0}}, True, None),  # the store was warm
        ({"cold": {"analyses": 9}}, True, "cold: 9 analyses for 8 distinct keys"),
        ({"cold": {"analyses": 20}}, False, None),
        ({"cold": {"analyses": 64}}, False, "cold: 64 analyses, no fewer than PyTorch's 64"),
        ({"warm-moved": {"analyses": 1}}, False, "warm-moved: 1 analyses, not 0"),
        ({"pytorch": {"identical": False}}, True, "pytorch: the graphs are not those of PyTorch alone"),
    ],
)
def test_ranks(changes: dict[str, Any], leases: bool, message: str | None) -> None:
    wrong = ranks.verdict([line(name, **changes.get(name, {})) for name in ranks.RUNS], leases)
    assert wrong == ([] if message is None else [message])


def test_lines_of_ranks_are_summed_and_keys_united() -> None:
    found = [line("cold", workers=1, keys=["a", "b"]), line("cold", workers=1, keys=["b", "c"], identical=False)]
    merged = ranks.merged("cold", found)
    assert (merged["workers"], merged["analyses"], merged["distinct_keys"], merged["identical"]) == (2, 16, 3, False)
    assert ranks.merged("pytorch", [line("pytorch", keys=None)])["distinct_keys"] is None


def test_a_store_without_leases_may_analyse_more_and_never_less() -> None:
    lines = [line(name, **({"analyses": 13} if name == "cold" else {})) for name in runs.RUNS if name != "exact-dict"]
    lines.append(line("exact-dict", analyses=28))
    assert runs.verdict(lines, leases=False) == []
    assert len(runs.verdict(lines, leases=True)) == 1
    assert runs.excess(lines) == ("this store has no leases: workers made 5 more analyses than there are distinct keys")
    lines = [{**each, "analyses": 7} if each["name"] == "cold" else each for each in lines]
    assert len(runs.verdict(lines, leases=False)) == 1


@pytest.mark.parametrize(
    ("environ", "is_rank"),
    [({}, False), ({"RANK": "0"}, False), ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, True)],
)
def test_who_is_a_rank(environ: dict[str, str], is_rank: bool) -> None:
    assert ranks.is_rank(environ) is is_rank
