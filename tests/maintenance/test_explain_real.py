"""From a real launch to the sentence that explains it: real kernels, PyTorch's own analysis, a store on disk.

Each kind of change of docs/keys.md: the first state is asked and stored in one run, the second state in another, and
what `explain` says of the second run's miss is the change that was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._higher_order_ops.triton_kernel_wrap as wrap

import tritonstore
from tests.keys import test_rows_arguments as rows_arguments
from tests.keys import test_rows_code as rows_code
from tests.keys.test_diff import ARGUMENTS, CODE
from tests.support.analysis import CUDA_80, CUDA_90, SEAM, target
from tests.support.calls import Call
from tests.support.sources import load
from tests.support.switch import launch, switch
from tritonstore.keys.reasons import reason_of
from tritonstore.maintenance import runs
from tritonstore.maintenance.explain import explain
from tritonstore.maintenance.inventory import open_backends
from tritonstore.runrecord import RunRecord
from tritonstore.settings import Settings

Ask = Callable[[str, Call], RunRecord]


@pytest.fixture(autouse=True)
def declared_target() -> Iterator[None]:
    with target(*CUDA_90):
        yield


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask PyTorch once, in a run of its own: the record that this leaves."""

    def ask(name: str, call: Call) -> RunRecord:
        monkeypatch.setenv("TRITONSTORE_RUN", name)
        cache = tmp_path / name
        with tritonstore.installed(url=f"file://{tmp_path}/store", cache_folder=cache):
            getattr(wrap, SEAM)(call.kernel, dict(call.kwargs), {})
        (record,) = runs.load(Settings.load(cache_folder=cache))
        assert record.run == name
        return record

    return ask


@pytest.fixture
def cause(tmp_path: Path) -> Callable[[RunRecord], str]:
    """The sentence about the only miss of a run, from the entry of the run before it, or from that run's record where
    PyTorch's analysis of the first state fails, so that nothing was stored."""

    def cause(record: RunRecord) -> str:
        (before,) = runs.load(Settings.load(cache_folder=tmp_path / "before"))
        stored = before.misses[0].outcome == "published"
        (told,) = explain(record, open_backends(Settings.load(url=f"file://{tmp_path}/store")), [before])
        assert told.kind == ("differs" if stored else "seen")
        return told.text.removesuffix(" (the entry that it differs from is not in the store any more)")

    return cause


def state(row: rows_code.Row, side: str) -> Call:
    namespace = load(row.source)
    exec(getattr(row, side), namespace)
    return rows_code.call_of(namespace)


@pytest.mark.parametrize("name", [name for name in CODE if name in rows_code.ROWS])
def test_a_change_of_code(name: str, ask: Ask, cause: Callable[[RunRecord], str]) -> None:
    row = rows_code.ROWS[name]
    ask("before", state(row, "left"))
    assert cause(ask("after", state(row, "right"))) == CODE[name]


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name in rows_arguments.ROWS])
def test_a_change_of_an_argument(name: str, ask: Ask, cause: Callable[[RunRecord], str]) -> None:
    row = rows_arguments.ROWS[name]
    kernel = switch(row.condition, row.parameters)
    ask("before", launch(kernel, v=row.left))
    assert cause(ask("after", launch(kernel, v=row.right))) == ARGUMENTS[name]


PLAIN = "@triton.jit\ndef kernel(x, y):\n    tl.store(y, tl.load(x))\n"


def test_a_change_of_the_target(ask: Ask, cause: Callable[[RunRecord], str]) -> None:
    call = launch(load(PLAIN)["kernel"])
    with target(*CUDA_80):
        ask("before", call)
    assert cause(ask("after", call)) == "target sm_80 → sm_90"


def test_a_change_of_an_element_type(ask: Ask, cause: Callable[[RunRecord], str]) -> None:
    kernel = load(PLAIN)["kernel"]
    ask("before", Call(kernel, {"x": torch.zeros(4, dtype=torch.float16), "y": torch.zeros(4)}))
    assert cause(ask("after", launch(kernel))) == "x *fp16 → *fp32"


def test_a_change_of_the_environment(
    ask: Ask, cause: Callable[[RunRecord], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = launch(load(PLAIN)["kernel"])
    ask("before", call)
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    assert cause(ask("after", call)) == "TRITON_F32_DEFAULT not set → 'ieee'"


def test_a_bypass_says_what_would_help(ask: Ask) -> None:
    row = rows_code.ROWS["global named like a builtin appears"]
    record = ask("only", state(row, "right"))
    (bypass,) = record.bypasses
    assert (bypass.reason, record.misses) == ("value-type", [])
    assert "builtin_function_or_method" in bypass.detail
    assert reason_of(bypass.reason).remedy


def test_the_same_again_is_a_hit(ask: Ask) -> None:
    call = launch(load(PLAIN)["kernel"])
    ask("before", call)
    after: Any = ask("after", call)
    assert (after.misses, after.kernels[0].hits) == ([], {"file": 1})
