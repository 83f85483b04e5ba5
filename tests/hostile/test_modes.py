"""What a process leaves on disk is private, whatever the umask is, and whichever part of it comes first."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.records import full_record
from tests.test_store import ANSWER, key
from tritonstore import runrecord
from tritonstore.keys.filestat import FileDigests
from tritonstore.runrecord import FileName
from tritonstore.settings import Settings
from tritonstore.store import open_store


def leave_digests() -> None:
    digests = FileDigests.load()
    digests.sha256(__file__)
    digests.save()


def leave_a_record() -> None:
    record = full_record()
    folder = os.path.join(Settings.load().cache_folder, "runs")
    runrecord.write(folder, FileName(1, record.run, "host-1-ff"), runrecord.encode(record))


def leave_entries() -> None:
    store = open_store()
    for number in (1, 2):
        with store.claim(key(number)):
            store.publish(key(number), ANSWER, 1.0)


def leave_a_wrong_entry() -> None:
    open_store("memory:").quarantine(key(2).digest)


LEFT = {
    leave_digests: {"tritonstore"},
    leave_a_record: {"tritonstore", "runs"},
    leave_entries: {"tritonstore", "store", "v1", "locks", key(1).digest[:2], key(2).digest[:2]},
    leave_a_wrong_entry: {"tritonstore", "quarantine"},
}


@pytest.mark.parametrize("leave", list(LEFT), ids=lambda leave: leave.__name__)
def test_whatever_the_umask_all_that_is_left_is_private(
    leave: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "there"))
    before = os.umask(0)
    try:
        leave()
    finally:
        os.umask(before)
    found = {path: path.lstat().st_mode for path in tmp_path.rglob("*")}
    assert {path.name for path, mode in found.items() if stat.S_ISDIR(mode)} == {"not", "there", *LEFT[leave]}
    assert {stat.S_IMODE(mode) for mode in found.values() if stat.S_ISDIR(mode)} == {0o700}
    assert {stat.S_IMODE(mode) for mode in found.values() if stat.S_ISREG(mode)} == {0o600}
