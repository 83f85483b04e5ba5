"""A store on a folder that a group shares, used by two users with different groups of their own and any umask."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_store_processes import ROOT
from tritonstore.backends.files import FilesBackend

TEAM = 54_321


class User(NamedTuple):
    uid: int
    gid: int
    umask: int


# Two users need root. Without it, this user plays both, which still shows what each mode comes to.
USERS = [(50_001, 50_001), (50_002, 50_002)] if os.geteuid() == 0 else [(os.geteuid(), os.getegid())] * 2
GROUP = TEAM if os.geteuid() == 0 else os.getegid()

# All is imported before the change of user, who may have no access to where Python lies.
PRELUDE = """
import contextlib, encodings.idna, os, sys, time
import filelock
from filelock import FileLock, SoftFileLease, Timeout
from tests.test_store import ANSWER, OTHER, key, forget
from tests.backends.contract import digest
from tritonstore.backends.files import FilesBackend
from tritonstore.store import open_store
uid, gid, group, umask = map(int, sys.argv[1:5])
root = sys.argv[5]
os.umask(umask)
if os.geteuid() == 0:
    os.setgroups([group])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
backend = FilesBackend(root, shared=True)
"""


@contextlib.contextmanager
def group_folder() -> Iterator[Path]:
    """What an administrator makes: chgrp team; chmod 2770."""
    parent = Path(tempfile.mkdtemp(prefix="tritonstore-shared-"))  # pytest's own folders are closed to other users
    parent.chmod(0o711)
    root = parent / "store"
    root.mkdir()
    if os.geteuid() == 0:
        os.chown(root, -1, GROUP)
    root.chmod(0o2770)
    yield root
    shutil.rmtree(parent)


@pytest.fixture
def root() -> Iterator[Path]:
    with group_folder() as folder:
        yield folder


def run(user: User, root: Path, code: str, *, wait: bool = True) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + code, *map(str, (user.uid, user.gid, GROUP, user.umask)), str(root)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if wait:
        _, trouble = process.communicate(timeout=240)
        assert process.returncode == 0, trouble
    return process


@pytest.fixture(
    params=[(0o022, 0o022), (0o077, 0o002), (0o002, 0o077)], ids=lambda pair: f"{pair[0]:03o}-{pair[1]:03o}"
)
def users(request: pytest.FixtureRequest) -> tuple[User, User]:
    (one, two), (first, second) = USERS, request.param
    return User(*one, first), User(*two, second)


def test_both_read_publish_renew_and_delete(root: Path, users: tuple[User, User]) -> None:
    ann, bob = users
    run(ann, root, "backend.put('ab' * 32, b'of ann'); backend.put('cd' * 32, b'of ann')")
    old = time.time() - 9 * 86400
    os.utime(root / "v1" / "ab" / ("ab" * 32), (old, old))
    run(
        bob,
        root,
        """
assert backend.get("ab" * 32) == b"of ann"
assert time.time() - next(r.used for r in backend.scan() if r.digest == "ab" * 32) < 3600, "a reader renews"
backend.put("ab" * 32, b"of bob")
backend.put("ab" + "0" * 62, b"of bob")
assert backend.delete("cd" * 32)
""",
    )
    run(
        ann,
        root,
        """
assert backend.get("ab" * 32) == b"of bob"
backend.put("ab" + "0" * 62, b"of ann")
assert sorted(r.digest for r in backend.scan()) == sorted(["ab" * 32, "ab" + "0" * 62])
""",
    )


def test_stores_publish_and_leases_exclude(root: Path, users: tuple[User, User]) -> None:
    ann, bob = users
    code = "store = open_store(f'file://{root}?shared=true', strict=True)\n"
    holder = run(
        ann,
        root,
        code + "with store.claim(key(1)) as outcome:\n    print(outcome[0], flush=True)\n    input()\n"
        "    store.publish(key(1), ANSWER, 0.5)\nprint('done', flush=True)\n",
        wait=False,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "analyse\n", holder.stderr and holder.stderr.read()
    run(bob, root, "assert backend.lease(key(1).digest).try_acquire() is False")
    talk, trouble = holder.communicate("\n", timeout=240)
    assert (holder.returncode, talk) == (0, "done\n"), trouble
    run(
        bob,
        root,
        code + "assert store.lookup(key(1)) == ANSWER\n"
        "with store.claim(key(2)) as outcome:\n    assert outcome[0] == 'analyse'\n"
        "    store.publish(key(2), OTHER, 0.5)\nassert store.counters.snapshot()['faults'] == {}\n",
    )
    run(ann, root, code + "assert store.lookup(key(2)) == OTHER")


def test_the_group_may_and_others_get_what_the_umask_leaves(root: Path, users: tuple[User, User]) -> None:
    for number, user in enumerate(users):
        run(user, root / f"{number}", "backend.put('ab' * 32, b'x'); assert backend.lease('ab' * 32).try_acquire()")
        for path in (root / f"{number}").rglob("*"):
            found = path.stat()
            assert found.st_gid == GROUP, path
            others = 0 if user.umask == 0o077 else 0o5 if path.is_dir() else 0o4
            wanted = (0o2770 if path.is_dir() else 0o660) | others
            if path.parent.name == "locks":
                wanted = 0o660
            assert stat.S_IMODE(found.st_mode) == wanted, path


def test_what_is_not_shared_stays_private(root: Path) -> None:
    own = root.parent / "own"
    FilesBackend(str(own)).put("ab" * 32, b"x")
    for path in own.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
