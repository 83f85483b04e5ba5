"""Links and other users in a file store: no write leads out of it, and nobody else's store is trusted unasked."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.backends.contract import digest
from tritonstore.backends import files
from tritonstore.backends.files import FilesBackend
from tritonstore.backends.folders import TEMPORARY, make_folders
from tritonstore.errors import StoreError, StoreUnavailable
from tritonstore.maintenance.prune import sweep

OLD = ".host.1.00000000000000ff.tmp"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Somebody's folder, with files that look as if a store might remove them; all of them old."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in (OLD, ".host.1.ff.tmp", "work.tmp", digest(1), digest(2)):
        (folder / name).write_bytes(b"mine")
        os.utime(folder / name, (1000, 1000))
    return folder


@pytest.mark.parametrize("link", ["shard", "v1"])
def test_no_write_follows_a_link(tmp_path: Path, elsewhere: Path, link: str) -> None:
    root = tmp_path / "store"
    shard = root / "v1" / digest(1)[:2]
    if link == "shard":
        shard.parent.mkdir(parents=True, mode=0o700)
        shard.symlink_to(elsewhere)
    else:
        root.mkdir(mode=0o700)
        (tmp_path / "v").mkdir()
        elsewhere.rename(tmp_path / "v" / digest(1)[:2])
        (root / "v1").symlink_to(tmp_path / "v")
        elsewhere = tmp_path / "v" / digest(1)[:2]
    before = sorted(os.listdir(elsewhere))
    backend = FilesBackend(str(root), max_size=1, max_age=1.0)
    for call in (lambda: backend.put(digest(1), b"x"), lambda: backend.delete(digest(1))):
        with pytest.raises(StoreError, match="is a link, which is not followed; remove it"):
            call()
    assert sweep(backend) == 0
    assert sorted(os.listdir(elsewhere)) == before
    assert (elsewhere / digest(1)).read_bytes() == b"mine"
    assert link == "v1" or list(backend.scan()) == []


def test_only_files_named_as_a_put_names_them_are_swept(tmp_path: Path, elsewhere: Path) -> None:
    backend = FilesBackend(str(tmp_path / "store"), max_size=256)
    backend.put(digest(1), b"x" * 256)
    shard = tmp_path / "store" / "v1" / digest(1)[:2]
    for name in (OLD, ".host.1.ff.tmp", "work.tmp"):
        (elsewhere / name).rename(shard / name)
    backend.put(digest(1), b"x" * 256)
    assert sorted(os.listdir(shard)) == sorted([".host.1.ff.tmp", "work.tmp", digest(1)])


def test_the_names_that_a_put_makes_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def look(temporary: str, *rest: Any) -> None:
        names.append(temporary)

    monkeypatch.setattr(files, "_replace", look)
    FilesBackend(str(tmp_path)).put(digest(1), b"x")
    assert TEMPORARY.match(names[0])


@pytest.mark.parametrize("writable", ["", "v1"])
@pytest.mark.parametrize("operation", ["get", "put"])
def test_a_private_store_that_everybody_can_write_is_refused(tmp_path: Path, writable: str, operation: str) -> None:
    root = tmp_path / "store"
    FilesBackend(str(root)).put(digest(1), b"x")
    (root / writable).chmod(0o777)
    backend = FilesBackend(str(root))
    with pytest.raises(StoreUnavailable, match=r"can be written by everybody \(mode 777\).*add shared=true"):
        backend.get(digest(1)) if operation == "get" else backend.put(digest(1), b"x")
    assert FilesBackend(str(root), shared=True).get(digest(1)) == b"x"
    (root / writable).chmod(0o755)
    assert backend.get(digest(1)) == b"x"


def test_a_private_store_of_another_user_is_refused_but_not_of_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FilesBackend(str(tmp_path)).put(digest(1), b"x")
    lstat = os.lstat
    owner = [12345]

    def owned(path: Any, **options: Any) -> os.stat_result:
        found = list(lstat(path, **options))
        found[4] = owner[0]
        return os.stat_result(found)

    monkeypatch.setattr(os, "lstat", owned)
    with pytest.raises(StoreUnavailable, match="belongs to another user"):
        FilesBackend(str(tmp_path)).get(digest(1))
    assert FilesBackend(str(tmp_path), shared=True).get(digest(1)) == b"x"
    owner[0] = 0
    assert FilesBackend(str(tmp_path)).get(digest(1)) == b"x"


def test_shared_folders_are_closed_to_others_writing_and_shared_from_the_root_down(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        FilesBackend(str(tmp_path / "above" / "store"), shared=True).put(digest(1), b"x")
    finally:
        os.umask(before)
    root = tmp_path / "above" / "store"
    shard = root / "v1" / digest(1)[:2]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (root.parent, root, root / "v1", shard, shard / digest(1))]
    assert modes == [0o755, 0o2775, 0o2775, 0o2775, 0o664]
    make_folders(str(tmp_path / "private" / "folder"))
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700
