"""Every kind of kernel that people write: PyTorch alone, a cold store and a warm one say the same.

The product is asked as PyTorch asks it, through the module's own name for the seam.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch._higher_order_ops.triton_kernel_wrap as wrap

import tritonstore
from tests.support.analysis import CUDA_90, NEWER, SEAM, Answer, observe, pytorch_outcome, target
from tests.support.case import CACHEABLE, Case
from tests.support.elsewhere import run_python
from tests.support.kernels import CASES


@pytest.fixture(autouse=True)
def declared_target() -> Iterator[None]:
    with target(*CUDA_90):
        yield


def through_the_product(case: Case) -> tuple[Answer, tuple[str, ...]]:
    return observe(getattr(wrap, SEAM), case.kernel, case.kwargs(), case.tma)


def cold_and_warm(case: Case, folder: Path) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """What the product says first, and what it says with the store opened anew; each with its counters."""
    said, counted = [], []
    for _ in range(2):
        with tritonstore.installed(tritonstore.open_store(f"file://{folder}")):
            said.append(through_the_product(case))
            counted.append(tritonstore.stats())
    return said[0], said[1], counted[0], counted[1]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_alone_cold_and_warm_agree(case: Case, tmp_path: Path) -> None:
    alone = pytorch_outcome(case.kernel, case.kwargs(), case.tma)
    cold, warm, first, second = cold_and_warm(case, tmp_path / "store")
    assert cold == alone
    assert warm == alone
    if case.expect != CACHEABLE:
        assert first["bypasses"] == second["bypasses"] == {case.expect: 1}
        assert second["publishes"] == 0
        return
    assert first["bypasses"] == second["bypasses"] == {}
    # PyTorch's failure path says nothing about the kernel: it is never stored, and asked again.
    stored = not alone[0].failed
    assert (first["analyses"], second["analyses"]) == (1, 0 if stored else 1)
    assert first["publishes"] == (1 if stored else 0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_corpus_shows_what_it_says(case: Case) -> None:
    """A kernel that fails where it was to be analysed would agree with itself and prove nothing."""
    answer, _ = pytorch_outcome(case.kernel, case.kwargs(), case.tma)
    older_fails = {"tuple argument", "host TMA descriptors", "32-bit integer", "64-bit integer"}
    older_fails |= {"unsigned 64-bit integer"}
    precise = case.precise and (NEWER or case.name not in older_fails)
    assert answer.failed is not precise


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


WARM = """
import json, sys
import torch._higher_order_ops.triton_kernel_wrap as wrap
from tests.support.analysis import CUDA_90, SEAM, observe, target
from tests.support.kernels import CASES
import tritonstore
with target(*CUDA_90), tritonstore.installed(tritonstore.open_store(sys.argv[1])):
    asked = getattr(wrap, SEAM)
    said = {case.name: repr(observe(asked, case.kernel, case.kwargs(), case.tma)) for case in CASES}
    print(json.dumps([said, tritonstore.stats()]))
"""


def test_a_second_process_needs_no_analysis(tmp_path: Path) -> None:
    """Kernels that PyTorch fails on, or that have no key, are asked of PyTorch again; all others are not."""
    url = f"file://{tmp_path / 'store'}"
    alone = {}
    again: dict[str, int] = {}
    with tritonstore.installed(tritonstore.open_store(url)):
        for case in CASES:
            alone[case.name] = repr(through_the_product(case))
            if case.expect != CACHEABLE:
                again[case.expect] = again.get(case.expect, 0) + 1
        failed = tritonstore.stats()["unproven"]
    said, counted = json.loads(run_python(WARM, url, environ={"TRITONSTORE_STRICT": "1"}))
    assert said == alone
    assert counted["bypasses"] == again
    assert counted["unproven"] == failed
    assert counted["publishes"] == 0
    assert counted["analyses"] == sum(again.values()) + sum(failed.values())
