"""Who else can write to a store, to the folders above it, and to the links on the way; and what follows from that."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.contract import digest
from tests.test_store import ANSWER, key
from tritonstore.backends import trust
from tritonstore.backends.diskcache import DiskcacheBackend
from tritonstore.backends.files import FilesBackend
from tritonstore.backends.trust import Trust
from tritonstore.errors import StoreError, StoreUnavailable
from tritonstore.store import open_store

OTHER = 54_321
GiveAway = Callable[[Path], None]


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> GiveAway:
    """Make a file or folder another user's: really where we may, else in what lstat says."""
    given: set[str] = set()
    lstat = os.lstat

    def told(path: Any, **options: Any) -> os.stat_result:
        found = list(lstat(path, **options))
        found[4] = OTHER if os.fspath(path) in given else found[4]
        return os.stat_result(found)

    def give_away(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, OTHER, -1, follow_symlinks=False)
        else:
            given.add(str(path))
            monkeypatch.setattr(os, "lstat", told)

    return give_away


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with one entry in it, two folders down."""
    root = tmp_path / "above" / "store"
    FilesBackend(str(root)).put(digest(1), b"x")
    return root


def operations(root: Path, **options: Any) -> list[Callable[[], Any]]:
    def fresh() -> FilesBackend:
        return FilesBackend(str(root), **options)

    return [
        lambda: fresh().get(digest(1)),
        lambda: fresh().put(digest(1), b"x"),
        lambda: fresh().delete(digest(2)),
        lambda: list(fresh().scan()),
    ]


def refused(root: Path, why: str) -> None:
    """Nothing is read or written there, and there are no leases."""
    for operation in operations(root):
        with pytest.raises(StoreUnavailable, match=why):
            operation()
    assert FilesBackend(str(root)).lease(digest(1)) is None


def used(root: Path, **options: Any) -> None:
    for operation in operations(root, **options):
        operation()
    assert FilesBackend(str(root), **options).lease(digest(1)) is not None


def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group of everything is one that others are in."""
    monkeypatch.setattr(trust, "_is_private", lambda group: False)


@pytest.mark.parametrize("where", ["", "..", "v1"])
def test_a_folder_that_everybody_can_write(root: Path, where: str) -> None:
    used(root)
    (root / where).chmod(0o777)
    refused(root, r"can be written by everybody \(mode 777\); whoever .*add shared=true")
    used(root, shared=True)
    (root / where).chmod(0o755)
    used(root)


@pytest.mark.parametrize("where", ["", "..", "v1"])
def test_a_folder_that_a_group_can_write(root: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / where).chmod(0o770)
    used(root)  # root's own group, or the one that this user has alone
    strangers(monkeypatch)
    refused(root, r"can be written by group [0-9]+ \(mode 770\)")
    used(root, shared=True)


def test_a_shard_that_others_can_write_or_own(root: Path, give_away: GiveAway) -> None:
    shard = root / "v1" / digest(1)[:2]
    backend = FilesBackend(str(root))
    shard.chmod(0o777)
    for operation in operations(root)[:2]:
        with pytest.raises(StoreUnavailable, match=f"{shard} can be written by everybody"):
            operation()
    shard.chmod(0o700)
    assert backend.get(digest(1)) == b"x"
    give_away(shard)
    with pytest.raises(StoreUnavailable, match=f"{shard} belongs to another user"):
        FilesBackend(str(root)).get(digest(1))


def test_a_folder_above_that_does_not_exist_yet_is_looked_at_as_well(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(StoreUnavailable, match="can be written by everybody"):
        FilesBackend(str(tmp_path / "a" / "b")).put(digest(1), b"x")
    assert os.listdir(tmp_path) == []


def test_in_a_sticky_folder_only_what_is_ours(tmp_path: Path, root: Path, give_away: GiveAway) -> None:
    root.parent.chmod(0o1777)
    used(root)
    give_away(root)
    give_away(root / "v1")
    refused(root, "store belongs to another user; whoever")


def test_a_folder_above_of_another_user(root: Path, give_away: GiveAway) -> None:
    give_away(root.parent)
    refused(root, "above belongs to another user; whoever")


def test_a_store_of_another_user_is_only_read(root: Path, give_away: GiveAway) -> None:
    path = root / "v1" / digest(1)[:2] / digest(1)
    for each in (root, root / "v1", path.parent, path):
        give_away(each)
    os.utime(path, (1000, 1000))
    get, put, delete, scan = operations(root)
    assert get() == b"x"
    assert [record.digest for record in scan()] == [digest(1)]
    for operation in (put, delete):
        with pytest.raises(StoreUnavailable, match=r"belongs to another user, and is only read; .*shared=true"):
            operation()
    assert FilesBackend(str(root)).lease(digest(1)) is None
    assert path.stat().st_mtime == 1000
    used(root, shared=True)


def test_an_export_goes_on_where_a_store_is_only_read(root: Path, give_away: GiveAway) -> None:
    made = open_store(str(root))
    made.publish(key(1), ANSWER, 1.0)
    for each in [root, *root.rglob("*")]:
        give_away(each)
    store = open_store(str(root), strict=False)
    assert store.lookup(key(1)) == ANSWER
    with store.claim(key(2)) as (verb, _):
        assert verb == "analyse"
        store.publish(key(2), ANSWER, 1.0)
    assert store.lookup(key(2)) == ANSWER
    assert store.counters.snapshot()["faults"] == {"file-put": 1}


# Links


def test_links_on_the_way_are_followed_if_they_are_ours(root: Path, tmp_path: Path, give_away: GiveAway) -> None:
    (tmp_path / "relative").symlink_to("above/../above")
    (tmp_path / "absolute").symlink_to(tmp_path / "relative")
    linked = tmp_path / "absolute" / "store"
    used(linked)
    root.parent.chmod(0o777)  # what a link leads to is looked at
    refused(linked, "above can be written by everybody")
    root.parent.chmod(0o700)
    give_away(tmp_path / "relative")
    refused(linked, "relative is a link of another user, which is not followed; name the folder itself")
    with pytest.raises(StoreUnavailable, match="is a link of another user"):
        FilesBackend(str(linked), shared=True).get(digest(1))


def test_links_that_lead_nowhere_end(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a").symlink_to("b/x")
    (tmp_path / "b").symlink_to("a/x")
    for name in ("loop", "a"):
        assert Trust(str(tmp_path / name), str(tmp_path / name / "v1"), shared=False).refusal() == ""
        with pytest.raises(StoreError):
            FilesBackend(str(tmp_path / name)).put(digest(1), b"x")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("where", ["v1", "shard"])
def test_no_reader_follows_a_link_inside(root: Path, tmp_path: Path, where: str, shared: bool) -> None:
    inside = root / "v1" if where == "v1" else root / "v1" / digest(1)[:2]
    inside.rename(tmp_path / "elsewhere")
    inside.symlink_to(tmp_path / "elsewhere")
    backend = FilesBackend(str(root), shared=shared)
    with pytest.raises(StoreUnavailable, match=f"{inside} is a link, which is not followed; remove it"):
        backend.get(digest(1))
    if where == "v1":
        with pytest.raises(StoreUnavailable, match="is a link"):
            list(backend.scan())
    else:
        assert list(backend.scan()) == []


def test_diskcache_is_looked_at_as_well(tmp_path: Path, give_away: GiveAway) -> None:
    root = tmp_path / "above" / "store"
    DiskcacheBackend(str(root)).put(digest(1), b"x")
    root.parent.chmod(0o777)
    backend = DiskcacheBackend(str(root))
    for call in (lambda: backend.get(digest(1)), lambda: backend.put(digest(1), b"y"), lambda: list(backend.scan())):
        with pytest.raises(StoreUnavailable, match=r"can be written by everybody .*; use a folder of this user's own"):
            call()
    root.parent.chmod(0o700)
    assert backend.get(digest(1)) == b"x"
    give_away(root)
    with pytest.raises(StoreUnavailable, match="belongs to another user"):
        DiskcacheBackend(str(root)).get(digest(1))


# Cost and modes


def test_what_was_looked_at_is_not_looked_at_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FilesBackend(str(root))
    assert backend.get(digest(1)) == b"x"

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("looked again")

    for name in ("lstat", "stat", "readlink"):
        monkeypatch.setattr(os, name, fail)
    assert backend.get(digest(1)) == b"x"


def test_a_group_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import grp
    import pwd
    from types import SimpleNamespace

    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="me"))
    groups = {1002: ("me", []), 1003: ("me", ["me", "you"]), 1004: ("team", [])}

    def getgrgid(gid: int) -> Any:
        name, members = groups[gid]
        return SimpleNamespace(gr_name=name, gr_mem=members)

    monkeypatch.setattr(grp, "getgrgid", getgrgid)
    assert [trust._is_private(gid) for gid in (0, 1001, 1002, 1003, 1004, 1005)] == [True] * 3 + [False] * 3
