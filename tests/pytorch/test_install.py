"""Patching: all or nothing, exactly undone, in peace with other caches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch._higher_order_ops.triton_kernel_wrap as wrap

import tritonstore
from tests.pytorch.conftest import TARGET, tensors
from tests.support.analysis import target
from tritonstore.errors import SeamError, SettingsError
from tritonstore.pytorch import install as installing
from tritonstore.pytorch.answers import same_answer
from tritonstore.pytorch.seam import Seam, find

Ask = Callable[..., Any]


def test_install_and_uninstall_restore_exactly(seam: Seam, url: str) -> None:
    before = dict(vars(wrap))
    walk = dict(vars(getattr(wrap, seam.inner)))
    tritonstore.install(url=url)
    changed = {name for name, value in vars(wrap).items() if value is not before.get(name)}
    assert changed == {seam.entry, *seam.observed}
    tritonstore.uninstall()
    assert dict(vars(wrap)) == before
    assert all(vars(wrap)[name] is value for name, value in before.items())
    assert vars(getattr(wrap, seam.inner)) == walk
    tritonstore.uninstall()  # nothing is installed: nothing happens


def test_the_entry_looks_like_pytorchs(seam: Seam, url: str) -> None:
    original = getattr(wrap, seam.entry)
    with tritonstore.installed(url=url):
        entry = getattr(wrap, seam.entry)
        assert entry.__name__ == original.__name__
        assert entry.__wrapped__ is original
        with pytest.raises(TypeError):
            entry()


def test_nothing_is_on_disk_before_the_first_question(url: str, tmp_path: Path) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        assert tritonstore.stats()["calls"] == 0
    assert list(tmp_path.iterdir()) == []


class Refusing:
    """Stands for PyTorch's module and refuses the n-th change."""

    def __init__(self, module: Any, refuse: int) -> None:
        self.__dict__.update(vars(module))
        self.__dict__["_changes"] = 0
        self.__dict__["_refuse"] = refuse

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["_changes"] += 1
        if self.__dict__["_changes"] == self.__dict__["_refuse"]:
            raise RuntimeError("refused")
        self.__dict__[name] = value


def test_a_failing_step_undoes_those_before_it(seam: Seam, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = len(seam.observed) + 1
    for refuse in range(1, steps + 1):
        module = Refusing(wrap, refuse)
        before = dict(vars(module))
        monkeypatch.setattr(installing, "_module", lambda module=module: module)
        with pytest.raises(RuntimeError, match="refused"):
            tritonstore.install(url=url)
        assert tritonstore.stats() == {}
        assert {**vars(module), "_changes": 0} == before
    module = Refusing(wrap, steps + 1)
    monkeypatch.setattr(installing, "_module", lambda: module)
    tritonstore.install(url=url)
    module.__dict__["_refuse"] = 0
    tritonstore.uninstall()


def test_an_unknown_pytorch_is_refused_and_left_alone(seam: Seam, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(wrap, seam.inner)
    before = dict(vars(wrap))
    with pytest.raises(SeamError, match=seam.inner) as caught:
        tritonstore.install(url=url)
    assert seam.inner in caught.value.missing
    assert dict(vars(wrap)) == before
    assert tritonstore.stats() == {}


def test_no_module_at_all_is_a_seam_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonstore.pytorch.install.ANALYSIS_MODULE", "torch._higher_order_ops.not_there")
    with pytest.raises(SeamError, match="not_there"):
        tritonstore.install(url=url)


@pytest.mark.parametrize(
    "settings", [{"url": "ftp-not-known://x"}, {"target": "cuda"}, {"mode": "sometimes"}, {"no_such": 1}]
)
def test_bad_settings_change_nothing(settings: dict[str, Any], ask: Ask, kernels: Any) -> None:
    before = dict(vars(wrap))
    try:
        with tritonstore.installed(**settings):  # an unknown scheme shows at the first question
            ask(kernels.swap, tensors(n=7))
    except SettingsError as error:
        assert str(next(iter(settings.values()))) in str(error) or "no_such" in str(error)  # noqa: PT017
    else:
        pytest.fail("accepted")
    assert dict(vars(wrap)) == before


def test_the_same_again_does_nothing(seam: Seam, url: str) -> None:
    tritonstore.install(url=url)
    entry, session = getattr(wrap, seam.entry), installing._installer.session
    tritonstore.install(url=url)
    assert getattr(wrap, seam.entry) is entry
    assert installing._installer.session is session
    tritonstore.install(url=f"{url}-other")
    assert getattr(wrap, seam.entry) is entry
    assert installing._installer.session is not session
    tritonstore.uninstall()


def test_a_store_of_ones_own_is_used_and_stays_open(ask: Ask, kernels: Any, url: str) -> None:
    store = tritonstore.open_store(url, target=TARGET)
    tritonstore.install(store)
    tritonstore.install(store)
    ask(kernels.swap, tensors(n=7))
    assert tritonstore.stats() == store.counters.snapshot()
    tritonstore.uninstall()
    with tritonstore.installed(store, verify=1):
        ask(kernels.swap, tensors(n=7))
        assert tritonstore.stats()["hits"] == {"memory": 1}
        assert tritonstore.stats()["analyses"] == 2
    store.close()


def test_nested_installs_give_back_what_was_before(ask: Ask, kernels: Any, url: str) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        ask(kernels.swap, tensors(n=7))
        outer = tritonstore.stats()
        with tritonstore.installed(url=f"{url}-inner", target="hip:gfx942:64"):
            ask(kernels.swap, tensors(n=7))
            assert tritonstore.stats()["publishes"] == 1
        assert tritonstore.stats() == outer
        ask(kernels.swap, tensors(n=7))
        assert tritonstore.stats()["hits"] == {"memory": 1}
    assert tritonstore.stats() == {}


def test_another_cache_patched_over_ours(ask: Ask, kernels: Any, url: str, seam: Seam) -> None:
    original = getattr(wrap, seam.entry)
    tritonstore.install(url=url, target=TARGET)
    ours = getattr(wrap, seam.entry)
    asked = []

    def theirs(kernel: Any, kwargs: Any, tma_descriptor_metadata: Any) -> Any:
        asked.append(kernel)
        return ours(kernel, kwargs, tma_descriptor_metadata)

    setattr(wrap, seam.entry, theirs)
    try:
        ask(kernels.swap, tensors(n=7))
        assert tritonstore.stats()["publishes"] == 1
        with pytest.warns(RuntimeWarning, match=f"{seam.entry}: patched over"):
            tritonstore.uninstall()
        assert getattr(wrap, seam.entry) is theirs
        assert getattr(wrap, seam.inner) is find(wrap).module.__dict__[seam.inner]
        with target("cuda", 90, 32):
            expected = original(kernels.swap, tensors(n=7), {})
            assert same_answer(ask(kernels.swap, tensors(n=7)), expected)  # passed on by ours
            with tritonstore.installed(url=url):  # on top of theirs
                assert same_answer(ask(kernels.swap, tensors(n=7)), expected)
                assert tritonstore.stats()["hits"] == {"file": 1}
        assert getattr(wrap, seam.entry) is theirs
        assert len(asked) == 2
    finally:
        setattr(wrap, seam.entry, original)


@pytest.mark.parametrize("copies", [False, True])
def test_another_cache_patched_under_ours(
    ask: Ask, kernels: Any, url: str, seam: Seam, monkeypatch: pytest.MonkeyPatch, copies: bool
) -> None:
    """A cache in memory with exact argument values as its key, as ExecuTorch's is."""
    original = getattr(wrap, seam.entry)
    kept: dict[Any, Any] = {}

    def theirs(*args: Any, **kwargs: Any) -> Any:
        key = (id(args[0]), args[1]["n"])
        if key not in kept:
            kept[key] = original(*args, **kwargs)
        return kept[key]

    monkeypatch.setattr(wrap, seam.entry, theirs)
    if copies:
        with target("cuda", 90, 32):
            theirs(kernels.swap, tensors(n=7), {})
    with tritonstore.installed(url=url, target=TARGET):
        ask(kernels.swap, tensors(n=7))
        if copies:  # theirs answered, so nothing is proven
            assert tritonstore.stats()["unproven"] == {"no-analysis": 1}
            ask(kernels.swap, tensors(n=8))
        assert tritonstore.stats()["publishes"] == 1
        # Another value, which misses their cache; torch 2.11 hands it to the kernel, so there it is another question.
        ask(kernels.swap, tensors(n=9 if seam.kind == "accesses" else 7 + copies))
        assert tritonstore.stats()["hits"] == {"memory": 1}
        assert len(kept) == 1 + copies
    assert getattr(wrap, seam.entry) is theirs


def test_another_cache_patched_over_the_walk_stays(seam: Seam, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrap, seam.inner, getattr(wrap, seam.inner))  # put back at the end
    tritonstore.install(url=url)
    ours = getattr(wrap, seam.inner)

    def theirs(*args: Any) -> Any:
        return ours(*args)

    setattr(wrap, seam.inner, theirs)
    with pytest.warns(RuntimeWarning, match=seam.inner):
        tritonstore.uninstall()
    assert getattr(wrap, seam.inner) is theirs
