"""One call through the installed store, with the real analysis: hits, misses, bypasses, faults and modes."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._higher_order_ops.triton_kernel_wrap as wrap

import tritonstore
from tests.pytorch.conftest import TARGET, counted, entries, tensors
from tests.support.analysis import CUDA_80, CUDA_90, devices, no_target, target
from tests.support.switch import launch, switch
from tritonstore import keys
from tritonstore.errors import StoreUnavailable
from tritonstore.pytorch.answers import same_answer

Ask = Callable[..., Any]


def launches(kernels: Any) -> list[tuple[Any, dict[str, Any]]]:
    return [
        (kernels.copy, tensors(n=7, BLOCK=64)),
        (kernels.swap, tensors(n=7)),
        (kernels.tuned, tensors(n=7)),
        (kernels.swap, {"n": 1 << 40, **tensors()}),
        (kernels.swap, {**tensors(n=2), "y": torch.zeros(4, dtype=torch.float16)}),
    ]


def test_miss_hit_and_another_process_answer_as_pytorch_alone(ask: Ask, kernels: Any, url: str) -> None:
    with target("cuda", 90, 32):
        alone = [ask(kernel, dict(kwargs)) for kernel, kwargs in launches(kernels)]
    # The tuned kernel with its first configuration asks what the plain kernel with BLOCK=64 asks.
    for analyses in (len(alone) - 1, 0):  # the second store object knows only what is on disk
        with tritonstore.installed(url=url, target=TARGET):
            first = [ask(kernel, dict(kwargs)) for kernel, kwargs in launches(kernels)]
            assert counted("analyses", "publishes") == [analyses, analyses]
            again = [ask(kernel, dict(kwargs)) for kernel, kwargs in launches(kernels)]
            assert counted("analyses", "calls") == [analyses, 2 * len(alone)]
        for expected, missed, hit in zip(alone, first, again, strict=True):
            assert same_answer(missed, expected)
            assert same_answer(hit, expected)
            assert hit is not missed


@pytest.mark.parametrize(
    ("declared", "option"), [("hip:gfx942:64", "waves_per_eu"), ("cuda:90:32", "maxnreg"), ("cuda:90:32", "num_warps")]
)
@pytest.mark.parametrize("kind", ["swap", "tuned"])
def test_the_callers_dict_ends_the_same(
    ask: Ask, kernels: Any, url: str, declared: str, option: str, kind: str
) -> None:
    """PyTorch pops backend options of a plain kernel out of the caller's own dict."""
    kernel = getattr(kernels, kind)
    backend, arch, warp = declared.split(":")

    def left() -> list[str]:
        kwargs = tensors(**{option: 2}, n=7)
        ask(kernel, kwargs)
        return list(kwargs)

    with target(backend, int(arch) if arch.isdigit() else arch, int(warp)):
        alone = left()
    assert (option in alone) is (kind == "tuned")
    with tritonstore.installed(url=url, target=declared):
        missed, hit = left(), left()
        assert tritonstore.stats()["hits"] == {"memory": 1}
    assert alone == missed == hit


def test_an_option_of_the_other_backend_is_pytorchs_failure_path(ask: Ask, kernels: Any, url: str) -> None:
    with tritonstore.installed(url=url, target="cuda:90:32"):
        for _ in range(2):
            ask(kernels.swap, tensors(n=7, waves_per_eu=2))
        assert counted("hits", "publishes") == [{}, 0]


def test_answers_are_fresh_and_may_be_changed(ask: Ask, kernels: Any, url: str) -> None:
    def spoil(answer: Any) -> None:
        (answer if isinstance(answer, list) else answer.read_writes.reads).clear()

    with tritonstore.installed(url=url, target=TARGET):
        expected = ask(kernels.swap, tensors(n=7))
        spoil(ask(kernels.swap, tensors(n=7)))
        assert same_answer(ask(kernels.swap, tensors(n=7)), expected)


def test_a_failed_analysis_is_never_stored(ask: Ask, kernels: Any, url: str) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        for _ in range(2):
            ask(kernels.broken, tensors())
        assert counted("publishes", "analyses") == [0, 2]
        assert tritonstore.stats()["unproven"] == {"failure-path": 2}
    assert entries(url) == 0


def test_no_driver_then_a_driver_gives_the_precise_answer(ask: Ask, kernels: Any, url: str) -> None:
    with no_target(), tritonstore.installed(url=url):
        poor = ask(kernels.copy, tensors(n=7, BLOCK=64))
        assert counted("publishes", "hits") == [0, {}]
        assert sum(tritonstore.stats()["bypasses"].values()) == 1
    with target("cuda", 90, 32):
        alone = ask(kernels.copy, tensors(n=7, BLOCK=64))
        with tritonstore.installed(url=url):
            rich = ask(kernels.copy, tensors(n=7, BLOCK=64))
    assert same_answer(rich, alone)
    assert not same_answer(rich, poor)


def test_each_device_of_a_driver_has_its_own_answers(ask: Ask, url: str) -> None:
    """The current device changes between two calls, under one driver and one store; nothing else does."""
    info = "from triton.language.target_info import cuda_capability_geq\n"
    kernel, arguments = launch(switch("cuda_capability_geq(9, 0)", "", info))[:2]
    with devices(CUDA_80, CUDA_90) as use:
        alone = []
        for index in (0, 1):
            use(index)
            alone.append(ask(kernel, dict(arguments)))
        assert not same_answer(*alone)
        for analyses in (2, 0):  # the second store object knows only what is on disk
            with tritonstore.installed(url=url, target="cuda:75:32"):  # what is declared pushes no real driver aside
                for index in (0, 1, 0, 1, 1, 0):
                    use(index)
                    assert same_answer(ask(kernel, dict(arguments)), alone[index])
                assert counted("analyses", "publishes", "calls") == [analyses, analyses, 6]


def test_a_bypass_is_counted_under_its_reason(ask: Ask, kernels: Any, url: str) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        expected = ask(kernels.heuristic, tensors(n=7))
        bypasses = tritonstore.stats()["bypasses"]
        assert sum(bypasses.values()) == 1
        assert counted("calls", "misses", "analyses") == [1, 0, 1]
    with target("cuda", 90, 32):
        assert same_answer(ask(kernels.heuristic, tensors(n=7)), expected)


def test_a_key_that_changes_during_the_analysis_is_not_stored(
    ask: Ask, kernels: Any, url: str, monkeypatch: pytest.MonkeyPatch, seam: Any
) -> None:
    original = getattr(wrap, seam.entry)

    def rebinding(*question: Any) -> Any:
        kernels.namespace["SCALE"] = type(kernels.SCALE)(kernels.namespace["SCALE"].value + 1)
        return original(*question)

    monkeypatch.setattr(wrap, seam.entry, rebinding)
    with tritonstore.installed(url=url, target=TARGET):
        ask(kernels.copy, tensors(n=7, BLOCK=64))
        assert tritonstore.stats()["unproven"] == {"key-changed": 1}
        assert counted("publishes") == [0]


def test_a_global_that_was_another_for_a_while_is_not_stored(
    ask: Ask, kernels: Any, url: str, monkeypatch: pytest.MonkeyPatch, seam: Any
) -> None:
    """As another thread does that sets a module's switch, exports, and puts it back: both keys are the same."""
    original = getattr(wrap, seam.entry)
    kept = kernels.namespace["SCALE"]
    others = [type(kept)(kept.value + 1)]

    def rebinding(*question: Any) -> Any:
        if not others:
            return original(*question)
        kernels.namespace["SCALE"] = others.pop()
        answer = original(*question)
        kernels.namespace["SCALE"] = kept
        return answer

    monkeypatch.setattr(wrap, seam.entry, rebinding)
    with tritonstore.installed(url=url, target=TARGET):
        ask(kernels.copy, tensors(n=7, BLOCK=64))
        assert tritonstore.stats()["unproven"] == {"key-changed": 1}
        assert counted("publishes") == [0]
        ask(kernels.copy, tensors(n=7, BLOCK=64))
        assert counted("publishes") == [1]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("readwrite", (1, 1)), ("readonly", (1, 0)), ("refresh", (1, 1)), ("off", (2, 0))],
)
def test_modes(ask: Ask, kernels: Any, url: str, mode: str, expected: tuple[int, int]) -> None:
    with tritonstore.installed(url=url, target=TARGET, mode=mode):
        for _ in range(2):
            ask(kernels.swap, tensors(n=7))
        assert counted("analyses")[0] == expected[0]
    assert entries(url) == expected[1]


def test_refresh_asks_again_and_readonly_reads(ask: Ask, kernels: Any, url: str) -> None:
    def analyses(mode: str) -> int:
        with tritonstore.installed(url=url, target=TARGET, mode=mode):
            ask(kernels.swap, tensors(n=7))
            return int(tritonstore.stats()["analyses"])

    assert [analyses(mode) for mode in ("readwrite", "readonly", "refresh", "off")] == [1, 0, 1, 1]


class Fault(Exception):
    """Of ours, on purpose."""


def fault(*args: Any, **kwargs: Any) -> Any:
    raise Fault


@contextlib.contextmanager
def faulty_claim(*args: Any) -> Iterator[Any]:
    yield "analyse", None
    raise Fault


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "key": (keys, "call_key", fault),
    "lookup": ("tritonstore.store.AnalysisStore", "lookup", fault),
    "claim": ("tritonstore.store.AnalysisStore", "claim", fault),
    "release": ("tritonstore.store.AnalysisStore", "claim", faulty_claim),
    "publish": ("tritonstore.store.AnalysisStore", "publish", fault),
    "verdict": ("tritonstore.pytorch.outcome.Watch", "verdict", fault),
    "options": (keys, "popped_options", fault),
    "build": ("tritonstore.pytorch.call.Call", "_same_key", fault),
    "open": ("tritonstore.store", "open_settings", fault),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_of_ours_is_counted_and_pytorch_answers(
    ask: Ask, kernels: Any, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with target("cuda", 90, 32):
        alone = ask(kernels.swap, tensors(n=7))
    where, attribute, replacement = FAULTS[name]
    place = where if not isinstance(where, str) else f"{where}.{attribute}"
    with caplog.at_level(logging.WARNING, "tritonstore"):
        if isinstance(place, str):
            monkeypatch.setattr(place, replacement)
        else:
            monkeypatch.setattr(place, attribute, replacement)
        with tritonstore.installed(url=url, target=TARGET, strict=False):
            for _ in range(3):
                assert same_answer(ask(kernels.swap, tensors(n=7)), alone)
            assert sum(tritonstore.stats()["faults"].values()) >= 1
            assert counted("calls") == [3]
    assert len([r for r in caplog.records if r.name == "tritonstore"]) == 1
    with tritonstore.installed(url=f"{url}-2", target=TARGET, strict=True):
        if name == "options":  # asked for at a hit only
            ask(kernels.swap, tensors(n=7))
        with pytest.raises(Fault):
            ask(kernels.swap, tensors(n=7))


def test_a_store_that_cannot_be_used_warns_once(
    ask: Ask, kernels: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    bad = f"file://{tmp_path}/file"
    with target("cuda", 90, 32):
        alone = ask(kernels.swap, tensors(n=7))
    with tritonstore.installed(url=bad, target=TARGET, strict=False), caplog.at_level(logging.WARNING, "tritonstore"):
        assert same_answer(ask(kernels.swap, tensors(n=7)), alone)
        assert same_answer(ask(kernels.swap, tensors(n=8)), alone)
    assert len([r for r in caplog.records if r.name == "tritonstore"]) == 1
    with tritonstore.installed(url=bad, target=TARGET, strict=True), pytest.raises(StoreUnavailable):
        ask(kernels.swap, tensors(n=7))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), MemoryError()])
def test_exceptions_of_pytorch_pass_through_untouched(
    ask: Ask, kernels: Any, url: str, monkeypatch: pytest.MonkeyPatch, seam: Any, error: BaseException
) -> None:
    def stop(kernel: Any, kwargs: Any, tma_descriptor_metadata: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(wrap, seam.entry, stop)
        with tritonstore.installed(url=url, target=TARGET, strict=False):
            for asked in (kernels.swap, kernels.heuristic):
                with pytest.raises(type(error)) as caught:
                    ask(asked, tensors(n=7))
                assert caught.value is error
            assert counted("faults") == [{}]
    with tritonstore.installed(url=url, target=TARGET):  # no claim was left behind
        ask(kernels.swap, tensors(n=7))
        assert counted("publishes", "lease_waits") == [1, 0]


def test_signs_that_disagree_end_the_storing(
    ask: Ask, kernels: Any, url: str, monkeypatch: pytest.MonkeyPatch, seam: Any
) -> None:
    import copy

    original = getattr(wrap, seam.entry)

    def other(kernel: Any, kwargs: Any, tma_descriptor_metadata: Any) -> Any:
        answer = copy.deepcopy(original(kernel, kwargs, tma_descriptor_metadata))
        return answer[:-1] if isinstance(answer, list) else answer

    monkeypatch.setattr(wrap, seam.entry, other)
    with tritonstore.installed(url=url, target=TARGET):
        with pytest.warns(RuntimeWarning, match="stores no more answers"):
            ask(kernels.swap, tensors(n=7))
        with warnings.catch_warnings(record=True) as warned:
            ask(kernels.swap, tensors(n=7))
        assert warned == []
        assert counted("publishes") == [0]
        assert tritonstore.stats()["unproven"] == {"signs-disagree": 1}
    assert entries(url) == 0
