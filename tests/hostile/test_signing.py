"""TRITONSTORE_HMAC_KEY_FILE: what nobody with a key has signed is a miss, and whoever has none is not disturbed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.conftest import MakeKey
from tests.support.servers import s3_url
from tests.support.synthetic import entry, fill, place
from tests.test_store import SimpleKey, forget, without_seconds
from tritonstore.backends.memory import MemoryBackend
from tritonstore.entry import MAGIC, MAX_SIZE, TAG_MAGIC, TAG_SIZE, Entry, decode, encode, split_tag
from tritonstore.errors import FormatError, SettingsError
from tritonstore.settings import Settings
from tritonstore.signing import Keys, Unsigned, keys_of
from tritonstore.store import open_store

A, B = Keys([b"a" * 4 + bytes(range(33, 65))]), Keys([b"b" * 4 + bytes(range(33, 65))])
MADE = entry(1)
DATA = encode(MADE)


def asked(about: Entry = MADE) -> SimpleKey:
    return SimpleKey(about.digest, about.parts, about.detail)


# Tags


def test_a_tag_holds_for_every_byte_and_only_under_its_key() -> None:
    signed = A.sign(DATA)
    assert signed[:-TAG_SIZE] == DATA
    assert decode(signed) == MADE
    A.check(signed)
    Keys([*B._keys, *A._keys]).check(signed)
    for keys, data in ((B, signed), (A, DATA), (A, B.sign(DATA))):
        with pytest.raises(Unsigned):
            keys.check(data)
    for position in range(len(signed)):
        changed = bytearray(signed)
        changed[position] ^= 1
        if position < len(DATA) + len(TAG_MAGIC):
            with pytest.raises(FormatError):
                decode(bytes(changed))
        with pytest.raises(Unsigned):
            A.check(bytes(changed))
    assert A.sign(B.sign(DATA)) == signed


def test_a_tag_of_one_entry_is_none_of_another() -> None:
    tag = A.sign(DATA)[-TAG_SIZE:]
    with pytest.raises(Unsigned, match="altered"):
        A.check(encode(entry(2)) + tag)


def test_what_looks_like_a_tag_inside_a_payload_is_none() -> None:
    payload_end = TAG_MAGIC + b"x" * 32
    data = MAGIC + b"\1" + (len(payload_end)).to_bytes(4, "big") + bytes(32) + payload_end
    assert split_tag(data) == (data, None)
    assert split_tag(b"") == (b"", None)


@pytest.mark.parametrize("tail", [TAG_MAGIC, TAG_MAGIC + b"x" * 31, TAG_MAGIC + b"x" * 33, b"x" * 40])
def test_half_a_tag_is_damage(tail: bytes) -> None:
    with pytest.raises(FormatError, match="another length"):
        decode(DATA + tail)


def test_the_largest_entry_has_room_for_a_tag() -> None:
    fixed = len(encode(Entry(MADE.digest, MADE.parts, MADE.access, {"x": "y" * 70_000}, MADE.provenance))) - 70_000
    longest = MAX_SIZE - TAG_SIZE - fixed
    for length, fits in ((longest, True), (longest + 1, False)):
        made = Entry(MADE.digest, MADE.parts, MADE.access, {"x": "y" * length}, MADE.provenance)
        if fits:
            assert decode(A.sign(encode(made))) == made
        else:
            with pytest.raises(FormatError, match="larger"):
                encode(made)


# Stores


def load(path: str) -> Keys | None:
    return keys_of(Settings.load({"HOME": "/h", "TRITONSTORE_HMAC_KEY_FILE": path}))


def misses_and_heals(url: str, key_file: MakeKey) -> None:
    """What is not signed is a counted miss that stays until it is made anew, in any kind of store."""
    with_a, with_b = key_file("a", name="a"), key_file("b", name="b")
    stores = {name: open_store(url, hmac_key_file=name or None) for name in ("", with_a, with_b)}
    plain, one, other = stores[""], stores[with_a], stores[with_b]
    plain.publish(asked(), MADE.access, 1.0)
    for _ in range(3):
        assert one.lookup(asked()) is None
    assert without_seconds(one) == {"calls": 3, "misses": 3, "faults": {"unsigned": 1}}
    forget(plain)
    assert plain.lookup(asked()) == MADE.access  # it is still there for those without a key
    one.publish(asked(), MADE.access, 1.0)
    forget(one)
    assert one.lookup(asked()) == MADE.access
    for store in (plain, other):
        forget(store)
    assert plain.lookup(asked()) == MADE.access
    assert other.lookup(asked()) is None
    assert without_seconds(other)["faults"] == {"unsigned": 1}
    forget(one)
    assert one.lookup(asked()) == MADE.access  # another key's reader leaves it alone
    other.publish(asked(), MADE.access, 1.0)  # and its writer takes its place
    forget(other)
    assert other.lookup(asked()) == MADE.access
    for store in stores.values():
        store.close()


def test_in_files(tmp_path: Path, key_file: MakeKey) -> None:
    misses_and_heals(f"file://{tmp_path}/store", key_file)


def test_in_redis(redis_port: int, redis_client: Any, key_file: MakeKey) -> None:
    misses_and_heals(f"redis://127.0.0.1:{redis_port}/0", key_file)


def test_in_an_object_store_that_overwrites_nothing(
    s3_port: int, s3_credentials: None, tmp_path: Path, key_file: MakeKey
) -> None:
    misses_and_heals(s3_url(s3_port, tmp_path.name), key_file)


def test_a_near_tier_without_a_tag_is_filled_from_a_far_one_with_it(tmp_path: Path, key_file: MakeKey) -> None:
    keys = key_file("a")
    near, far = f"file://{tmp_path}/near", f"file://{tmp_path}/far"
    open_store(near).publish(asked(), MADE.access, 1.0)
    open_store(far, hmac_key_file=keys).publish(asked(), MADE.access, 1.0)
    both = open_store(f"{near},{far}", hmac_key_file=keys)
    assert both.lookup(asked()) == MADE.access
    assert without_seconds(both)["hits"] == {"file-2": 1}
    assert open_store(near, hmac_key_file=keys).lookup(asked()) == MADE.access


def test_a_forged_entry_is_not_used(tmp_path: Path, key_file: MakeKey) -> None:
    """All checks but the tag are passed by whoever can write to the store."""
    keys = key_file("a")
    false = Entry(MADE.digest, MADE.parts, type(MADE.access)((), (), False), MADE.detail, MADE.provenance)
    fill(f"{tmp_path}/store", [false])
    assert open_store(f"{tmp_path}/store").lookup(asked()) == false.access
    assert open_store(f"{tmp_path}/store", hmac_key_file=keys, mode="readonly").lookup(asked()) is None


def test_a_file_of_keys_that_cannot_be_used_opens_no_store(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="hmac_key_file"):
        open_store(str(tmp_path), hmac_key_file=str(tmp_path / "missing"))


def test_adopting(tmp_path: Path, key_file: MakeKey) -> None:
    """As PyTorch's own bundle of artifacts brings them."""
    keys = load(key_file("keys"))
    assert keys is not None
    store = open_store(f"file://{tmp_path}/s", hmac_key_file=key_file("keys"))
    with pytest.raises(Unsigned, match="not signed"):
        store.adopt(MADE.digest, DATA)
    assert store.adopt(MADE.digest, keys.sign(DATA))
    assert Path(place(f"{tmp_path}/s", MADE.digest)).read_bytes() == keys.sign(DATA)
    open_store(f"file://{tmp_path}/p").adopt(MADE.digest, keys.sign(DATA))
    assert Path(place(f"{tmp_path}/p", MADE.digest)).read_bytes() == keys.sign(DATA)


# The command line


@pytest.fixture
def mixed(tmp_path: Path, key_file: MakeKey, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of three signed entries and one that is not, and the key in the environment."""
    store = open_store(f"file://{tmp_path}/store", hmac_key_file=key_file("k"))
    for number in range(3):
        made = entry(number)
        store.publish(asked(made), made.access, 1.0)
    fill(f"{tmp_path}/store", [entry(3)])
    monkeypatch.setenv("TRITONSTORE_HMAC_KEY_FILE", key_file("k"))
    return tmp_path / "store"


def test_verify_reports_and_never_removes_what_is_not_signed(mixed: Path, cli: Any) -> None:
    for arguments in (["verify"], ["verify", "--fix"]):
        done = cli(*arguments)
        assert done.code == 1
        assert f"{entry(3).digest} is not signed" in done.out
        assert "4 entries" in done.out
        assert "1 damaged" in done.out
    assert os.path.exists(place(str(mixed), entry(3).digest))


def test_a_bundle_carries_tags_and_is_refused_without(
    mixed: Path, tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, key_file: MakeKey
) -> None:
    signed, all_of_them = str(tmp_path / "signed.tsb"), str(tmp_path / "all.tsb")
    done = cli("save", signed)
    assert (done.code, "3 entries" in done.out, "1 damaged entry left out" in done.err) == (0, True, True)
    assert cli("load", signed, "--store", f"file://{tmp_path}/other").code == 0
    assert open_store(f"file://{tmp_path}/other", hmac_key_file=key_file("k")).lookup(asked()) == MADE.access
    monkeypatch.delenv("TRITONSTORE_HMAC_KEY_FILE")
    assert cli("save", all_of_them).code == 0  # without a key all are carried
    assert cli("load", all_of_them, "--store", f"file://{tmp_path}/plain").code == 0
    monkeypatch.setenv("TRITONSTORE_HMAC_KEY_FILE", key_file("k"))
    done = cli("load", all_of_them, "--store", f"file://{tmp_path}/third")
    assert done.code == 4
    assert "is not signed" in done.err
    assert not (tmp_path / "third").exists()
    done = cli("load", all_of_them, "--partial", "--store", f"file://{tmp_path}/third")
    assert done.code == 1
    assert "3 new stored" in done.out
    done = cli("load", signed, "--store", f"file://{tmp_path}/plain")
    assert "3 known" in done.out
    for made in (entry(0), entry(1)):  # what stands there without a tag is put anew
        fill(f"{tmp_path}/plain", [made])
    assert "2 new stored" in cli("load", signed, "--store", f"file://{tmp_path}/plain").out


def test_every_other_reader_reads_signed_entries(mixed: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        assert len(cli("ls", "--json").out.splitlines()) == 4
        assert '"_kernel_1"' in cli("ls", "--json").out
        assert MADE.digest in cli("show", MADE.digest).out
        assert "would remove 4 of 4" in cli("prune", "--kernel", "*", "--dry-run").out
        monkeypatch.delenv("TRITONSTORE_HMAC_KEY_FILE", raising=False)
    done = cli("verify")
    assert (done.code, "0 damaged" in done.out) == (0, True)


def test_doctor_says_whether_entries_are_signed(mixed: Path, cli: Any, key_file: MakeKey) -> None:
    assert "entries are signed, and others are not used" in cli("doctor", "--quick").out
    os.chmod(key_file("k"), 0o644)
    done = cli("doctor", "--quick")
    assert done.code == 1
    assert "no store is used: hmac_key_file" in done.out


def test_keys_in_memory_only_are_enough_for_a_store(tmp_path: Path) -> None:
    """Tiers need no key: bytes are bytes."""
    backend = MemoryBackend()
    backend.put(MADE.digest, A.sign(DATA))
    assert decode(backend.get(MADE.digest) or b"") == MADE
