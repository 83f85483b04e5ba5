"""TRITONSTORE_VERIFY meets wrong entries that pass every check, as whoever can write to the store can make them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._higher_order_ops.triton_kernel_wrap as wrap
from torch.compiler._cache import CacheArtifactManager

import tritonstore
from tests.pytorch.conftest import TARGET, counted, entries, tensors
from tests.pytorch.test_autoload import KERNEL, machine
from tests.support.sources import load
from tests.test_store import SimpleKey, without_seconds
from tritonstore.access import AccessResult
from tritonstore.entry import Entry, decode, encode
from tritonstore.pytorch import artifacts
from tritonstore.pytorch import session as sessions
from tritonstore.pytorch.answers import same_answer
from tritonstore.pytorch.call import VerificationError
from tritonstore.pytorch.session import Session
from tritonstore.settings import Settings
from tritonstore.store import open_store

__all__ = ["machine"]

Ask = Callable[..., Any]


def falsified(folder: Path) -> Entry:
    """The only entry of a file store, which now says that nothing is read or written."""
    (path,) = (folder / "v1").glob("??/*")
    entry = decode(path.read_bytes())
    reads = None if entry.access.reads is None else ()
    false = entry._replace(access=AccessResult(reads, (), None if reads is None else False))
    path.write_bytes(encode(false))
    return false


def key_of(entry: Entry) -> SimpleKey:
    return SimpleKey(entry.digest, entry.parts, entry.detail)


@pytest.fixture
def false(ask: Ask, kernels: Any, url: str, tmp_path: Path) -> Entry:
    with tritonstore.installed(url=url, target=TARGET):
        ask(kernels.swap, tensors(n=7))
    return falsified(tmp_path / "store")


@pytest.fixture
def set_aside() -> Path:
    return Path(Settings.load().cache_folder) / "quarantine"


def test_a_wrong_entry_ends_the_use_of_the_store_and_is_set_aside(
    ask: Ask, kernels: Any, url: str, false: Entry, set_aside: Path, seam: Any, tmp_path: Path
) -> None:
    true = getattr(wrap, seam.entry)(kernels.swap, tensors(n=7), {})
    with tritonstore.installed(url=url, target=TARGET):
        assert not same_answer(ask(kernels.swap, tensors(n=7)), true)  # it would be believed
    with tritonstore.installed(url=url, target=TARGET, verify=1, strict=False):
        with pytest.warns(RuntimeWarning, match="verification: the stored answer .* swap .* docs/trust.md"):
            assert same_answer(ask(kernels.swap, tensors(n=7)), true)
        assert same_answer(ask(kernels.swap, tensors(n=7)), true)
        assert tritonstore.stats()["bypasses"] == {"stopped": 1}
    assert entries(url) == 0
    assert decode((set_aside / false.digest).read_bytes()) == false
    with tritonstore.installed(url=url, target=TARGET):  # this process has done with it
        assert same_answer(ask(kernels.swap, tensors(n=7)), true)
        assert counted("analyses", "bypasses") == [1, {"stopped": 1}]
    with tritonstore.installed(url=f"file://{tmp_path}/another", target=TARGET):
        ask(kernels.copy, tensors(n=7, BLOCK=64))
        assert counted("publishes") == [1]


def test_strict_raises_and_says_where_it_lies(ask: Ask, kernels: Any, url: str, false: Entry, set_aside: Path) -> None:
    with (
        pytest.warns(RuntimeWarning, match="verification"),
        tritonstore.installed(url=url, target=TARGET, verify=1),
        pytest.raises(VerificationError, match=f"The entry lies in {set_aside / false.digest}"),
    ):
        ask(kernels.swap, tensors(n=7))
    assert entries(url) == 0
    assert (set_aside / false.digest).stat().st_mode & 0o777 == 0o600


@pytest.mark.filterwarnings("ignore:tritonstore. verification")
@pytest.mark.parametrize("back", ["another tier", "another worker", "a bundle", "a read-only store"])
def test_it_does_not_come_back(
    ask: Ask, kernels: Any, url: str, false: Entry, tmp_path: Path, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = f"file://{tmp_path}/far?write=none"
    if back == "another tier":
        url = f"{url},{far}"
        open_store(f"file://{tmp_path}/far").tiers.put(false.digest, encode(false))
    mode = "readonly" if back == "a read-only store" else "readwrite"
    with tritonstore.installed(url=url, target=TARGET, verify=1, strict=False, mode=mode):
        ask(kernels.swap, tensors(n=7))
    monkeypatch.setattr(sessions, "_distrusted", set())  # another process of this user
    near = tmp_path / "store" / "v1" / false.digest[:2] / false.digest
    assert near.exists() is (back == "a read-only store")
    store = open_store(url)
    if back == "another worker":  # whose cache folder knows nothing of it
        open_store(url, cache_folder=tmp_path / "elsewhere").publish(key_of(false), false.access, 1.0)
        assert near.exists()
    elif back == "a bundle":
        assert store.adopt(false.digest, encode(false)) is False
        store.publish(key_of(false), false.access, 1.0)
    assert store.lookup(key_of(false)) is None
    assert without_seconds(store)["faults"] == {"quarantined": 1}
    if back in ("a bundle", "another tier"):
        assert not near.exists()  # nothing filled it, and nothing was published
    with tritonstore.installed(url=url, target=TARGET, strict=False):
        for _ in range(2):
            ask(kernels.swap, tensors(n=7))
        assert counted("analyses", "hits", "misses") == [2, {}, 2]


@pytest.mark.filterwarnings("ignore:tritonstore. verification")
def test_pytorchs_own_bundle_does_not_carry_it(ask: Ask, kernels: Any, url: str, false: Entry) -> None:
    CacheArtifactManager.clear()
    try:
        with tritonstore.installed(url=url, target=TARGET, verify=1, strict=False):
            ask(kernels.swap, tensors(n=7))
        saved = torch.compiler.save_cache_artifacts()
        assert saved is None or false.digest not in saved[1].artifacts.get(artifacts.TYPE, [])
    finally:
        CacheArtifactManager.clear()


@pytest.mark.filterwarnings("ignore:tritonstore. verification")
def test_a_record_that_cannot_be_written_stops_nothing(
    ask: Ask, kernels: Any, url: str, false: Entry, set_aside: Path
) -> None:
    set_aside.parent.mkdir(parents=True, exist_ok=True)
    set_aside.write_text("a file in its place")
    with tritonstore.installed(url=url, target=TARGET, verify=1, strict=False):
        ask(kernels.swap, tensors(n=7))
        assert tritonstore.stats()["faults"] == {"pytorch-verify": 1, "quarantine": 1}
    assert entries(url) == 0


def test_another_question_by_now_is_no_difference(
    ask: Ask, kernels: Any, url: str, false: Entry, seam: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(wrap, seam.entry)

    def rebinding(*question: Any) -> Any:
        answer = original(*question)
        kernels.namespace["helper"] = kernels.copy  # as another thread might
        return answer

    monkeypatch.setattr(wrap, seam.entry, rebinding)
    with tritonstore.installed(url=url, target=TARGET, verify=1):
        ask(kernels.swap, tensors(n=7))
        assert tritonstore.stats()["unproven"] == {"key-changed": 1}
        assert tritonstore.stats()["faults"] == {}
    assert entries(url) == 1


@pytest.mark.parametrize(("hits", "processes"), [(1, 1000), (50, 100), (1000, 1), (10_000, 1)])
def test_one_in_a_hundred_also_of_short_processes(hits: int, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = iter([(number * 2**48 // processes).to_bytes(6, "big") for number in range(processes)])
    monkeypatch.setattr(os, "urandom", lambda count: next(places))
    settings = Settings.load(url="memory:", verify=0.01)
    verified = 0
    for _ in range(processes):
        session = Session.__new__(Session)
        session.settings = settings
        session._after_fork()
        verified += sum(session._verify_this() for _ in range(hits))
    assert verified == pytest.approx(hits * processes / 100, abs=1)


def test_in_processes_of_their_own(machine: Any, tmp_path: Path, ask: Ask) -> None:
    """The first one is told the truth and says so on stderr; the next one is not even asked to verify."""
    url = f"file://{tmp_path}/s"
    with tritonstore.installed(url=url, target=TARGET):
        ask(load(KERNEL)["kernel"], tensors(n=1))
    falsified(tmp_path / "s")
    on = {**machine.on, "TRITONSTORE_URL": url, "TRITONSTORE_STRICT": "0"}
    program = """
        import json, tritonstore
        from ask import written
        print(json.dumps([written(), tritonstore.stats()["analyses"], tritonstore.stats()["hits"]]))
        """
    done = machine.run(program, **on, TRITONSTORE_VERIFY="1")
    assert json.loads(done.stdout) == [["y"], 1, {"file": 1}]
    assert "verification: the stored answer" in done.stderr
    done = machine.run(program, **on)
    assert json.loads(done.stdout) == [["y"], 1, {}]
