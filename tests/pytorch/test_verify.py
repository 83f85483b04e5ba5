"""TRITONSTORE_VERIFY: a share of the hits is analysed again, and a difference ends the use of the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch._higher_order_ops.triton_kernel_wrap as wrap

import tritonstore
from tests.pytorch.conftest import TARGET, counted, entries, tensors
from tritonstore.pytorch.answers import same_answer
from tritonstore.pytorch.call import VerificationError

Ask = Callable[..., Any]


def falsify(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is looked up says that nothing is read or written."""
    from tritonstore.store import AnalysisStore

    lookup = AnalysisStore.lookup

    def false(store: Any, key: Any) -> Any:
        found = lookup(store, key)
        reads = None if found is None or found.reads is None else ()
        return found and type(found)(reads, (), None if reads is None else False)

    monkeypatch.setattr(AnalysisStore, "lookup", false)


def test_verification_passes_true_answers(ask: Ask, kernels: Any, url: str) -> None:
    with tritonstore.installed(url=url, target=TARGET, verify=0.5):
        for _ in range(9):  # a miss and eight hits
            ask(kernels.swap, tensors(n=7))
        assert counted("analyses", "publishes") == [5, 1]
        assert sum(tritonstore.stats()["hits"].values()) == 8


def test_verification_stops_a_store_that_lies(
    ask: Ask, kernels: Any, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        true = ask(kernels.swap, tensors(n=7))
    falsify(monkeypatch)
    with tritonstore.installed(url=url, target=TARGET, verify=1, strict=False):
        with pytest.warns(RuntimeWarning, match="verification: the stored answer"):
            assert same_answer(ask(kernels.swap, tensors(n=7)), true)
        assert same_answer(ask(kernels.swap, tensors(n=7)), true)
        assert tritonstore.stats()["bypasses"] == {"stopped": 1}
        assert tritonstore.stats()["faults"] == {"pytorch-verify": 1}
    assert entries(url) == 0


def test_strict_verification_raises(ask: Ask, kernels: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        ask(kernels.swap, tensors(n=7))
    falsify(monkeypatch)
    with tritonstore.installed(url=url, target=TARGET, verify=1), pytest.raises(VerificationError, match="swap"):
        ask(kernels.swap, tensors(n=7))


def test_verification_says_nothing_where_pytorch_fails_now(
    ask: Ask, kernels: Any, url: str, monkeypatch: pytest.MonkeyPatch, seam: Any
) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        ask(kernels.swap, tensors(n=7))
    original = getattr(wrap, seam.entry)
    monkeypatch.setattr(wrap, seam.entry, lambda *question: original(kernels.broken, *question[1:]))
    with tritonstore.installed(url=url, target=TARGET, verify=1):
        ask(kernels.swap, tensors(n=7))
        assert tritonstore.stats()["unproven"] == {"failure-path": 1}
    assert entries(url) == 1
