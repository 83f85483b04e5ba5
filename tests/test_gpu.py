"""scripts/gpu: what it makes of the figures of its runs, which takes no GPU."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_lib.__main__ import asked, compared, loading

METHODS = ["a", "b", "c"]


def runs(**differs: list[str]) -> list[dict[str, Any]]:
    return [{"name": name, "differs": found} for name, found in {"pytorch": [], **differs}.items()]


def test_only_what_pytorch_alone_generates_alike_twice_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    lines = runs(again=["a"], cold=["a", "b"], warm=["a"])
    assert compared(lines, METHODS) == ["cold: the generated code of b is not PyTorch's"]
    assert [line["identical"] for line in lines] == [True, False, False, True]
    said = capsys.readouterr().out
    assert said == "generated code: 2 of 3 methods compared; PyTorch alone does not generate alike twice: a\n"


def test_equal_code_is_all_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(runs(again=[], cold=[]), METHODS) == []
    assert capsys.readouterr().out == "generated code: 3 of 3 methods compared\n"


def test_a_comparison_of_nothing_is_a_failure() -> None:
    lines = runs(again=METHODS, cold=[])
    assert compared(lines, METHODS) == ["no method's generated code could be compared"]
    assert not lines[2]["identical"]


def test_without_a_second_run_of_pytorch_nobody_knows_who_differs() -> None:
    (said,) = compared(runs(cold=["b"]), METHODS)
    assert said.startswith("cold: the generated code of b is not PyTorch's; add `again` to --runs")


def test_every_run_is_asked_by_the_same_parts_of_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    callers = {"functionalization": 4, "lowering": 2, "mutation propagation": 2}
    assert asked([{"name": "pytorch", "callers": callers}, {"name": "cold", "callers": dict(callers)}]) == []
    assert capsys.readouterr().out == "callers: functionalization 4, lowering 2, mutation propagation 2\n"
    fewer = {"functionalization": 4}
    assert asked([{"name": "pytorch", "callers": fewer}, {"name": "cold", "callers": callers}]) == [
        "no call came from PyTorch's mutation propagation",
        "no call came from PyTorch's lowering",
        f"cold: asked by {callers}",
    ]


def test_packages_are_loaded_or_it_is_said_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    good = {"a": [0, "", 1e-9], "b": [0, "", 2e-9]}
    assert loading([{"name": "pytorch", "loads": good}, {"name": "cold", "loads": good}]) == []
    assert capsys.readouterr().out == "packages: all 4 load and give eager PyTorch's numbers; largest 2.0e-09\n"
    bad = {**good, "b": [1, "not close", None]}
    assert loading([{"name": "pytorch", "loads": good}, {"name": "cold", "loads": bad}]) == [
        "cold: b: [1, 'not close', None]"
    ]
    dies = {"a": [-11, "a signal", None], "b": [-11, "a signal", None]}
    assert loading([{"name": "pytorch", "loads": dies}, {"name": "cold", "loads": dies}]) == []
    assert "cannot load its own here (signal 11)" in capsys.readouterr().out
