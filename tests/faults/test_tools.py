"""The tools themselves: a kill comes at the very call, an error is what the program gets, a mount is real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.conftest import python

PRELUDE = """
import errno, json, os, signal, sys
from tests.support.fault_trace import CHANGES, FILES, count, run
folder = sys.argv[1]
path = os.path.join(folder, "file")
def work():
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"0123456789")
    os.close(descriptor)
    os.rename(path, path + ".new")
    return b"done"
def at(call, after, what):
    return lambda stop: what if (stop.call, stop.after) == (call, after) else None
"""


def said(tmp_path: Path, code: str) -> object:
    done = python("-c", PRELUDE + code, str(tmp_path))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_all_calls_are_seen_and_the_work_is_untouched(tmp_path: Path) -> None:
    code = """
done = run(work)
calls = [(stop.call, stop.after) for stop in done.stops if stop.call in FILES]
print(json.dumps([done.code, done.said.decode(), calls, [stop.call for stop in count(work, only=CHANGES)]]))
"""
    both = [[call, after] for call in ("openat", "write", "close", "rename") for after in (False, True)]
    assert said(tmp_path, code) == [0, "done", both, ["openat", "write", "close", "rename"]]
    assert (tmp_path / "file.new").read_text() == "0123456789"


@pytest.mark.parametrize(
    ("call", "after", "left"),
    [
        ("openat", False, {}),
        ("openat", True, {"file": ""}),
        ("write", False, {"file": ""}),
        ("write", True, {"file": "0123456789"}),
        ("rename", False, {"file": "0123456789"}),
        ("rename", True, {"file.new": "0123456789"}),
    ],
)
@pytest.mark.parametrize("chosen", [False, True])
def test_a_kill_comes_where_it_should(
    tmp_path: Path, call: str, after: bool, left: dict[str, str], chosen: bool
) -> None:
    """Chosen calls are stopped at before they are made, so that nothing is killed after one."""
    code = f"""
done = run(work, at({call!r}, {after}, "kill"), only={"FILES" if chosen else None})
print(json.dumps([done.code, done.said.decode()]))
"""
    expected: list[object] = [0, "done"] if chosen and after else [-9, ""]
    assert said(tmp_path, code) == expected
    if not (chosen and after):
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == left


def test_an_error_is_what_the_program_gets(tmp_path: Path) -> None:
    code = """
def guarded():
    try:
        return work()
    except OSError as error:
        return errno.errorcode[error.errno].encode()
print(json.dumps([run(guarded, at(call, False, getattr(errno, error)), only=FILES).said.decode()
    for call, error in (("openat", "EMFILE"), ("write", "ENOSPC"), ("close", "EIO"), ("rename", "ESTALE"))]))
"""
    assert said(tmp_path, code) == ["EMFILE", "ENOSPC", "EIO", "ESTALE"]


def test_a_short_write_a_signal_and_a_folder_to_look_at(tmp_path: Path) -> None:
    code = """
short = run(work, at("write", False, "short"), only=FILES)
size = os.path.getsize(path + ".new")
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupted = run(work, at("write", False, signal.SIGINT), only=FILES)
elsewhere = run(work, only=FILES, under="/no/such/folder")
here = run(work, only=FILES, under=folder)
print(json.dumps([short.code, size, interrupted.code, "KeyboardInterrupt" in interrupted.said.decode(),
    len(elsewhere.stops), [stop.path for stop in here.stops]]))
"""
    path = str(tmp_path / "file")
    assert said(tmp_path, code) == [0, 5, 1, True, 0, [path] * 4]


def test_mounts_are_real_and_end_with_their_block(tmp_path: Path) -> None:
    code = """
from pathlib import Path
from tests.support.fault_mounts import become, own_namespace, read_only, tmpfs
own_namespace()
found = []
def failing(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
with tmpfs(Path(folder) / "full", "size=4k") as disk:
    found.append(failing(lambda: (disk / "x").write_bytes(bytes(1 << 20))))
with read_only(Path(folder)):
    found.append(failing(lambda: (Path(folder) / "x").touch()))
found.append(failing(lambda: (Path(folder) / "x").touch()))
become(54321)
found.append(os.geteuid())
print(json.dumps(found))
"""
    assert said(tmp_path, code) == ["ENOSPC", "EROFS", None, 54321]
