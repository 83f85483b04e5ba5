"""Our entries in PyTorch's own bundle, between real processes."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.compiler._cache import CacheArtifactFactory, CacheArtifactManager

import tritonstore
from tests.pytorch.conftest import TARGET, counted, entries, tensors
from tests.pytorch.test_autoload import Machine
from tests.support.synthetic import entry
from tritonstore.entry import encode
from tritonstore.pytorch import artifacts
from tritonstore.store import open_store


@pytest.fixture(autouse=True)
def _no_artifacts() -> Iterator[None]:
    CacheArtifactManager.clear()
    yield
    CacheArtifactManager.clear()


def saved() -> tuple[bytes, list[str]]:
    """PyTorch's bundle, and the digests of our entries in it."""
    result = torch.compiler.save_cache_artifacts()
    assert result is not None
    return result[0], list(result[1].artifacts[artifacts.TYPE])


def test_what_was_used_travels(ask: Callable[..., Any], url: str, kernels: Any, tmp_path: Path) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        ask(kernels.copy, tensors(n=1, BLOCK=64))
        ask(kernels.swap, tensors(n=1))
    CacheArtifactManager.clear()
    with tritonstore.installed(url=url, target=TARGET):  # one of the two, from the store, several times
        for _ in range(3):
            ask(kernels.swap, tensors(n=1))
        data, digests = saved()
    assert len(digests) == 1
    other = f"file://{tmp_path}/elsewhere"
    with tritonstore.installed(url=other, target=TARGET):
        info = torch.compiler.load_cache_artifacts(data)
        assert info is not None
        assert entries(other) == 1
        ask(kernels.swap, tensors(n=1))
        assert counted("analyses") == [0]
        ask(kernels.copy, tensors(n=1, BLOCK=64))
        assert counted("analyses") == [1]


def test_what_was_made_travels(ask: Callable[..., Any], url: str, kernels: Any) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        ask(kernels.swap, tensors(n=1))
        assert len(saved()[1]) == 1


def load(digest: str, data: bytes) -> None:
    CacheArtifactFactory.create(artifacts.TYPE, digest, data).populate_cache()


@pytest.mark.parametrize(("digest", "data"), [(entry(1).digest, b"junk"), ("ab" * 32, encode(entry(1))), ("../x", b"")])
def test_what_is_not_sound_is_left_out(url: str, digest: str, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        load(digest, data)
    assert entries(url) == 0
    assert "was left out" in caplog.text


def test_what_is_there_stays(url: str) -> None:
    made = entry(1)
    store = open_store(url)
    store.tiers.put(made.digest, encode(made))

    newer = made._replace(provenance=made.provenance._replace(created=9))
    assert store.adopt(made.digest, encode(newer)) is False
    assert store.tiers.get(made.digest) == (encode(made), 0)
    store.close()


@pytest.mark.parametrize(("mode", "stored"), [("readwrite", 1), ("readonly", 0), ("refresh", 0), ("off", 0)])
def test_modes(url: str, mode: str, stored: int) -> None:
    with tritonstore.installed(url=url, target=TARGET, mode=mode):
        load(entry(1).digest, encode(entry(1)))
    assert entries(url) == stored


def test_without_a_store_it_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert artifacts.register()
    monkeypatch.delenv("TRITONSTORE", raising=False)
    load(entry(1).digest, encode(entry(1)))


def test_registered_once_and_never_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    assert artifacts.register()
    assert artifacts.register()
    for broken in (None, types.ModuleType("empty")):
        monkeypatch.setitem(sys.modules, "torch.compiler._cache", broken)  # type: ignore[arg-type]
        assert artifacts.register() is False
        artifacts.record("ab" * 32, b"x")


def test_between_machines(root: Path, tmp_path: Path) -> None:
    """Saved where the store is on; loaded in a fresh process under another path, and where no store is on."""
    machine = Machine(root, tmp_path)
    bundle = tmp_path / "bundle"
    machine.run(
        f"""
        import torch
        from ask import written
        assert written() == ["y"]
        data, info = torch.compiler.save_cache_artifacts()
        assert len(info.tritonstore_artifacts) == 1
        open({str(bundle)!r}, "wb").write(data)
        """,
        **machine.on,
        TRITONSTORE_URL=f"file://{tmp_path}/first",
    )
    machine.run(
        f"""
        import torch, tritonstore
        info = torch.compiler.load_cache_artifacts(open({str(bundle)!r}, "rb").read())
        assert len(info.tritonstore_artifacts) == 1
        from ask import written
        assert written() == ["y"]
        assert tritonstore.stats()["analyses"] == 0, tritonstore.stats()
        """,
        **machine.on,
        TRITONSTORE_URL=f"file://{tmp_path}/second",
    )
    assert len(list((tmp_path / "second").rglob("*"))) > 1
    machine.run(
        f"""
        import sys, torch
        early = "torch.compiler._cache" in sys.modules  # not so in torch 2.11: see artifacts.register
        info = torch.compiler.load_cache_artifacts(open({str(bundle)!r}, "rb").read())
        assert (info is not None) is early
        """
    )


def test_a_bundle_of_ours_needs_no_analysis_elsewhere(
    ask: Callable[..., Any], url: str, kernels: Any, tmp_path: Path
) -> None:
    """`save` here, `load` under another path: nothing is analysed after."""
    from tritonstore.cli.main import main

    bundle, other = str(tmp_path / "made.tsb"), f"file://{tmp_path}/another/place"
    questions = [
        (kernels.copy, {"n": 1, "BLOCK": 64}),
        (kernels.copy, {"n": 1, "BLOCK": 128}),
        (kernels.swap, {"n": 2**40}),
    ]
    with tritonstore.installed(url=url, target=TARGET):
        answers = [ask(kernel, tensors(**others)) for kernel, others in questions]
    assert main(["save", bundle, "--store", url]) == 0
    assert main(["load", bundle, "--store", other]) == 0
    with tritonstore.installed(url=other, target=TARGET):
        assert [ask(kernel, tensors(**others)) for kernel, others in questions] == answers
        assert counted("analyses", "misses") == [0, 0]
