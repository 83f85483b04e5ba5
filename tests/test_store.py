from __future__ import annotations

import logging
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tritonstore.access import AccessResult
from tritonstore.backends.memory import MemoryBackend
from tritonstore.counters import Counters
from tritonstore.entry import decode, encode
from tritonstore.errors import FormatError, SettingsError, StoreUnavailable
from tritonstore.settings import Settings
from tritonstore.store import AnalysisStore, open_store
from tritonstore.tiers import Tiers


def sha(text: object) -> str:
    return sha256(str(text).encode()).hexdigest()


class SimpleKey(NamedTuple):
    digest: str
    parts: dict[str, str]
    detail: dict[str, Any] = {}  # noqa: RUF012

    def describe(self) -> dict[str, Any]:
        return self.detail


def key(name: object) -> SimpleKey:
    return SimpleKey(sha(name), {"arguments": sha(f"arguments {name}"), "code": sha("code")}, {"name": str(name)})


ANSWER = AccessResult(("x", "y"), ("out",), True)
OTHER = AccessResult(None, ("x", "out"), None)


def entry_path(root: Path, of: SimpleKey) -> Path:
    return root / "v1" / of.digest[:2] / of.digest


def forget(store: AnalysisStore) -> None:
    store._memory.clear()


def without_seconds(store: AnalysisStore) -> dict[str, Any]:
    return {
        name: value for name, value in store.counters.snapshot().items() if value and not name.startswith("seconds")
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_published_answer_is_found_in_memory_on_disk_and_by_others(root: Path) -> None:
    store = open_store(str(root))
    assert store.lookup(key(1)) is None
    store.publish(key(1), ANSWER, 0.5)
    assert store.lookup(key(1)) == ANSWER
    forget(store)
    assert store.lookup(key(1)) == ANSWER
    assert store.lookup(key(1)) == ANSWER
    assert without_seconds(store) == {
        "calls": 4,
        "hits": {"file": 1, "memory": 2},
        "misses": 1,
        "publishes": 1,
    }
    assert store.counters.snapshot()["seconds_saved"] == 1.5
    assert open_store(str(root)).lookup(key(1)) == ANSWER


def test_the_entry_holds_key_detail_and_provenance(root: Path) -> None:
    open_store(str(root)).publish(key(1), OTHER, 0.25)
    entry = decode(entry_path(root, key(1)).read_bytes())
    assert (entry.digest, entry.parts, entry.access) == (key(1).digest, key(1).parts, OTHER)
    assert entry.detail == {"name": "1"}
    assert entry.provenance.seconds == 0.25
    assert entry.provenance.writer == "tritonstore 0.1.0"


def test_a_memory_hit_touches_no_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(root))
    store.publish(key(1), ANSWER, 0.0)

    def fail(*arguments: object) -> None:
        raise AssertionError("touched the disk")

    for name in ("open", "stat", "utime"):
        monkeypatch.setattr(os, name, fail)
    assert store.lookup(key(1)) == ANSWER


def test_a_digest_alone_is_not_trusted_in_memory_nor_on_disk(root: Path) -> None:
    store = open_store(str(root))
    store.publish(key(1), ANSWER, 0.0)
    other = key(1)._replace(parts={**key(1).parts, "code": sha("edited")})
    assert store.lookup(other) is None
    assert without_seconds(store)["faults"] == {"mismatch": 1}
    forget(store)
    assert store.lookup(other) is None
    store.publish(other, OTHER, 0.0)
    assert store.lookup(other) == OTHER
    assert store.lookup(key(1)) is None


def test_an_entry_under_another_digest_is_a_miss(root: Path) -> None:
    store = open_store(str(root))
    store.publish(key(1), ANSWER, 0.0)
    entry_path(root, key(2)).parent.mkdir(exist_ok=True)
    os.rename(entry_path(root, key(1)), entry_path(root, key(2)))
    assert store.lookup(key(2)) is None
    assert without_seconds(store)["faults"] == {"mismatch": 1}


def test_every_flipped_byte_and_every_truncation_is_a_counted_miss_that_heals(root: Path) -> None:
    store = open_store(str(root))
    store.publish(key(1), ANSWER, 0.5)
    path = entry_path(root, key(1))
    good = path.read_bytes()
    flipped = [good[:n] + bytes([good[n] ^ 0x20]) + good[n + 1 :] for n in range(len(good))]
    for count, damaged in enumerate([*flipped, *(good[:n] for n in range(len(good))), good + b"\n"], start=1):
        path.write_bytes(damaged)
        forget(store)
        assert store.lookup(key(1)) is None
        assert not path.exists()
        assert store.counters.snapshot()["faults"] == {"format": count}
        assert store.counters.snapshot()["misses"] == count
        store.publish(key(1), ANSWER, 0.5)
        forget(store)
        assert store.lookup(key(1)) == ANSWER


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: os.mkfifo(path),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("/etc/hostname"),
        huge,
        lambda path: path.touch(),
    ],
    ids=["fifo", "folder", "link", "huge sparse file", "empty file"],
)
def test_something_strange_in_an_entrys_place_is_a_miss_that_heals(root: Path, make: Callable[[Path], Any]) -> None:
    path = entry_path(root, key(1))
    path.parent.mkdir(parents=True)
    make(path)
    store = open_store(str(root))
    assert store.lookup(key(1)) is None
    with store.claim(key(1)) as outcome:
        assert outcome == ("analyse", None)
        store.publish(key(1), ANSWER, 0.0)
    forget(store)
    assert store.lookup(key(1)) == ANSWER
    assert without_seconds(store)["misses"] == 1


def test_a_damaged_near_tier_is_healed_from_the_far_one(root: Path, tmp_path: Path) -> None:
    urls = [str(root), str(tmp_path / "far")]
    open_store(",".join(urls)).publish(key(1), ANSWER, 0.0)
    entry_path(root, key(1)).write_bytes(b"damage")
    store = open_store(",".join(urls))
    assert store.lookup(key(1)) == ANSWER
    assert without_seconds(store) == {"calls": 1, "hits": {"file-2": 1}, "faults": {"format": 1}}
    assert open_store(str(root)).lookup(key(1)) == ANSWER


# Modes


def test_readonly_changes_nothing_at_all(root: Path) -> None:
    open_store(str(root)).publish(key(1), ANSWER, 0.0)
    entry_path(root, key(2)).parent.mkdir(exist_ok=True)
    entry_path(root, key(2)).write_bytes(b"damage")
    os.utime(entry_path(root, key(1)), (1e9, 1e9))

    def picture() -> list[tuple[str, int, bytes]]:
        files = (path for path in sorted(root.rglob("*")) if path.is_file())
        return [(str(path), path.stat().st_mtime_ns, path.read_bytes()) for path in files]

    before = picture()
    store = open_store(str(root), mode="readonly")
    assert store.lookup(key(1)) == ANSWER
    assert store.lookup(key(2)) is None
    with store.claim(key(3)) as outcome:
        assert outcome == ("analyse", None)
        store.publish(key(3), ANSWER, 0.0)
    assert store.lookup(key(3)) == ANSWER  # in this process
    assert picture() == before
    assert without_seconds(store)["hits"] == {"file": 1, "memory": 1}
    assert "publishes" not in without_seconds(store)


def test_readonly_on_a_store_that_is_not_there(root: Path) -> None:
    assert open_store(str(root), mode="readonly").lookup(key(1)) is None
    assert not root.exists()


def test_refresh_asks_again_once_a_process_and_overwrites(root: Path) -> None:
    open_store(str(root)).publish(key(1), ANSWER, 0.0)
    store = open_store(str(root), mode="refresh")
    assert store.lookup(key(1)) is None
    with store.claim(key(1)) as outcome:
        assert outcome == ("analyse", None)
        store.publish(key(1), OTHER, 0.0)
    assert store.lookup(key(1)) == OTHER
    assert open_store(str(root)).lookup(key(1)) == OTHER


def test_off_does_nothing(root: Path) -> None:
    store = open_store(str(root), mode="off")
    assert store.lookup(key(1)) is None
    with store.claim(key(1)) as outcome, store.claim(key(1)) as again:
        assert outcome == again == ("analyse", None)
        store.publish(key(1), ANSWER, 0.0)
    assert store.lookup(key(1)) is None
    assert not root.exists()
    assert without_seconds(store) == {"calls": 2, "misses": 2}


# Claims


def test_a_claim_sees_what_came_between_lookup_and_claim(root: Path) -> None:
    store = open_store(str(root))
    assert store.lookup(key(1)) is None
    open_store(str(root)).publish(key(1), ANSWER, 0.75)
    with store.claim(key(1)) as outcome:
        assert outcome == ("answer", ANSWER)
    snapshot = store.counters.snapshot()
    assert (snapshot["misses"], snapshot["shared"], snapshot["hits"]) == (1, 1, {})
    assert snapshot["seconds_saved"] == 0.75


def test_a_failed_analysis_leaves_the_way_free(root: Path) -> None:
    store = open_store(str(root))
    with pytest.raises(ZeroDivisionError), store.claim(key(1)):
        raise ZeroDivisionError
    with open_store(str(root)).claim(key(1)) as outcome:
        assert outcome == ("analyse", None)


# Faults


BAD_PLACES = ["a file", "below a file", "/proc/tritonstore"]


def bad_place(kind: str, tmp_path: Path) -> str:
    (tmp_path / "file").write_text("a file")
    return {"a file": f"{tmp_path}/file", "below a file": f"{tmp_path}/file/below"}.get(kind, kind)


@pytest.mark.parametrize("kind", BAD_PLACES)
def test_a_store_that_cannot_be_used_costs_misses_and_one_warning(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = bad_place(kind, tmp_path)
    store = open_store(place, strict=False)
    with caplog.at_level(logging.WARNING, "tritonstore"):
        for n in range(5):
            assert store.lookup(key(n)) is None
            with store.claim(key(n)) as outcome:
                assert outcome == ("analyse", None)
                store.publish(key(n), ANSWER, 0.0)
            assert store.lookup(key(n)) == ANSWER  # this process remembers all the same
    assert len(caplog.records) == 1
    assert place.removesuffix("/below") in caplog.text
    snapshot = store.counters.snapshot()
    assert (snapshot["misses"], snapshot["hits"], snapshot["publishes"]) == (5, {"memory": 5}, 0)
    assert snapshot["faults"]["set-aside-write"] == 1


@pytest.mark.parametrize("kind", BAD_PLACES)
def test_strict_raises_instead(kind: str, tmp_path: Path) -> None:
    store = open_store(bad_place(kind, tmp_path), strict=True)
    with pytest.raises(StoreUnavailable):
        store.publish(key(1), ANSWER, 0.0)


def test_an_answer_that_cannot_be_written_is_a_counted_fault(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    odd = key(1)._replace(detail={"object": object()})
    store = open_store(str(root), strict=False)
    store.publish(odd, ANSWER, 0.0)
    store.publish(key(2), AccessResult((), (), True), 0.0)
    assert without_seconds(store) == {"faults": {"encode": 2}}
    assert store.lookup(key(2)) is None
    with pytest.raises(FormatError):
        open_store(str(root), strict=True).publish(odd, ANSWER, 0.0)


@pytest.mark.parametrize("url", ["", ",", "nonsense", "file://", "memory:,gopher://x", "file:///x?y=z"])
def test_a_malformed_url_is_one_clear_error(url: str) -> None:
    with pytest.raises(SettingsError, match=r"\(from argument url\) cannot be used"):
        open_store(url)


def test_the_environment_names_the_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONSTORE_URL", f"memory:,file://{root}")
    store = open_store()
    store.publish(key(1), ANSWER, 0.0)
    assert entry_path(root, key(1)).exists()
    assert store.tiers.names == ("memory", "file")
    store.close()
    store.close()


def test_remembered_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonstore.store._REMEMBERED", 10)
    store = AnalysisStore(Settings.load(url="memory:"), Tiers([MemoryBackend()]), Counters())
    for n in range(50):
        store.publish(key(n), ANSWER, 0.0)
    assert len(store._memory) == 10
    assert store.lookup(key(0)) == ANSWER
    assert len(store._memory) == 10


def test_counters_match_what_is_on_disk(root: Path) -> None:
    store = open_store(str(root))
    for n in [*range(20), *range(10)]:
        if store.lookup(key(n)) is None:
            store.publish(key(n), ANSWER, 0.0)
    records = list(store.tiers.backends[0].scan())
    snapshot = store.counters.snapshot()
    assert len(records) == snapshot["publishes"] == snapshot["misses"] == 20
    assert snapshot["hits"] == {"memory": 10}
    assert all(encode(decode(store.tiers.backends[0].get(record.digest) or b"")) for record in records)


def test_the_writer_is_this_version() -> None:
    import tritonstore
    from tritonstore.store import WRITER

    assert f"tritonstore {tritonstore.__version__}" == WRITER
