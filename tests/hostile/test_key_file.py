"""The file that TRITONSTORE_HMAC_KEY_FILE names: what is refused, with which words, and that no word is of a key."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from tests.hostile.conftest import MakeKey
from tests.hostile.test_signing import DATA, A, load
from tritonstore.errors import SettingsError
from tritonstore.signing import Unsigned


def test_the_first_key_signs_and_all_are_accepted(key_file: MakeKey) -> None:
    old, both = load(key_file("old")), load(key_file("new", "old", name="both"))
    assert old is not None
    assert both is not None
    assert (len(old), len(both)) == (1, 2)
    both.check(old.sign(DATA))
    with pytest.raises(Unsigned):
        old.check(both.sign(DATA))
    assert load("") is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no key; make one with"),
        (b"# a remark\n\n", "holds no key"),
        (b"short-secret\n", "key 1 is not 32 or more"),
        (b"0123456789abcdefghijklmnopqrstuv\nshort-secret\n", "key 2 is not 32 or more"),
        (b"a" * 64, "key 1 is not 32 or more printable characters of chance"),
        (b"\xff\xfe" + b"short-secret" * 4, "key 1 is not 32 or more printable"),
        (b"short-secret" * 10_000, "not a file of keys"),
    ],
)
def test_a_file_that_cannot_be_used(key_file: MakeKey, content: bytes, why: str) -> None:
    path = key_file()
    Path(path).write_bytes(content)
    with pytest.raises(SettingsError, match=why) as caught:
        load(path)
    assert path in str(caught.value)
    assert "environment TRITONSTORE_HMAC_KEY_FILE" in str(caught.value)
    assert "short-secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644, 0o666])
def test_a_file_that_others_can_read_or_change_is_refused(key_file: MakeKey, mode: int) -> None:
    path = key_file("a")
    os.chmod(path, mode)
    with pytest.raises(SettingsError, match=rf"mode {mode:03o}\); chmod 600"):
        load(path)
    os.chmod(path, 0o640)  # a group that shares the store shares its key
    assert load(path) is not None


def test_a_file_of_another_user_is_refused(key_file: MakeKey, monkeypatch: pytest.MonkeyPatch) -> None:
    path = key_file("a")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if os.stat(path).st_uid == 0:
        os.chown(path, 54321, -1)
    with pytest.raises(SettingsError, match="belongs to another user"):
        load(path)


def test_something_else_in_its_place(tmp_path: Path, key_file: MakeKey) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "link").symlink_to(key_file("a"))
    for name, why in (("pipe", "not a file of keys"), ("missing", "cannot be read: No such file")):
        with pytest.raises(SettingsError, match=why):
            load(str(tmp_path / name))
    with pytest.raises(SettingsError, match="not a file of keys"):
        load(str(tmp_path))
    assert load(str(tmp_path / "link")) is not None  # as secrets are mounted


def test_keys_are_neither_shown_nor_pickled() -> None:
    assert repr(A) == "Keys(1 of them)"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(A)
