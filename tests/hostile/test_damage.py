"""Every damage meets every reader: a miss or a sentence, never a traceback, never a wait, never much memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.damages import ALL, FILES, OTHERS, mortal
from tests.support.records import full_record
from tests.support.synthetic import entry, fill, place
from tests.test_store import SimpleKey, without_seconds
from tritonstore import runrecord
from tritonstore.entry import encode
from tritonstore.maintenance.bundle import write
from tritonstore.runrecord import FileName
from tritonstore.settings import Settings
from tritonstore.store import open_store

MADE = entry(1)
KEY = SimpleKey(MADE.digest, MADE.parts, MADE.detail)


def damaged(root: Path, name: str) -> Path:
    """A store of three entries, one of them damaged; where that one lies."""
    fill(str(root), [entry(0), entry(2)])
    path = Path(place(str(root), MADE.digest))
    path.parent.mkdir(exist_ok=True)
    for folder in (root, root / "v1", path.parent):
        folder.chmod(0o700)
    ALL[name](path, encode(MADE))
    return path


@pytest.mark.parametrize("name", list(ALL))
def test_a_look_up_is_a_counted_miss_that_heals(name: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    path = damaged(root, name)
    with mortal():
        store = open_store(str(root), strict=False)
        assert store.lookup(KEY) is None
        assert without_seconds(store)["misses"] == 1
        faults = without_seconds(store).get("faults", {})
        kind = {"another entry": "mismatch", "unreadable": "file-get"}.get(name, "format")
        assert faults == ({} if name in OTHERS or name in ("too large", "sparse") else {kind: 1})
        store.publish(KEY, MADE.access, 1.0)
        healed = open_store(str(root)).lookup(KEY)
    if name == "full folder":  # somebody's; it costs a fault each time
        assert healed is None
        assert without_seconds(store)["faults"] == {"file-put": 1}
        assert (path / "work").read_bytes() == b"somebody's"
    else:
        assert healed == MADE.access
    if name == "link to an entry":
        assert (tmp_path / "elsewhere").read_bytes() == encode(MADE)


@pytest.mark.parametrize("name", list(ALL))
def test_every_command_copes(name: str, tmp_path: Path, cli: Any) -> None:
    root = tmp_path / "store"
    path = damaged(root, name)
    record = full_record()
    owner = FileName(int(record.started * 1000), record.run, "host-1-ff")
    runrecord.write(os.path.join(Settings.load().cache_folder, "runs"), owner, runrecord.encode(record))
    with mortal():
        assert cli("ls").code == 0
        assert len(cli("ls", "--json").out.splitlines()) == 2
        assert cli("show", MADE.digest).code == (3 if name == "unreadable" else 1)
        assert cli("explain", "--last").code == 0
        assert cli("explain", "--last", "--json").code == 0
        assert cli("stats").code == 0
        assert cli("doctor", "--quick").code == 0
        done = cli("save", str(tmp_path / "saved.tsb"))
        assert (done.code, "2 entries" in done.out) == (0, True)
        for filtered in (["--kernel", "nothing"], ["--stale-toolchains"], ["--max-age", "1d"], []):
            assert cli("prune", "--dry-run", *filtered).code == 0
        found = name in FILES or name == "unreadable"
        done = cli("verify")
        assert (done.code, done.out.count(MADE.digest)) == ((1, 1) if found else (0, 0))
        done = cli("verify", "--fix")
        assert done.code == (1 if name == "unreadable" else 0)
        assert os.path.lexists(path) is (name not in FILES)


@pytest.mark.parametrize("name", list(ALL))
def test_a_bundle_is_loaded_over_it(name: str, tmp_path: Path, cli: Any) -> None:
    root = tmp_path / "store"
    path = damaged(root, name)
    bundle = str(tmp_path / "made.tsb")
    write(bundle, [(MADE.digest, encode(MADE))], "test")
    with mortal():
        done = cli("load", bundle)
        if name == "full folder":
            assert done.code == 3
            assert done.err.startswith("tritonstore: error: ")
        else:
            assert (done.code, "1 new stored" in done.out) == (0, True)
            assert path.read_bytes() == encode(MADE)


PROGRAM = """
import resource, sys, tracemalloc
from pathlib import Path
from tests.hostile.damages import ALL, mortal
from tests.hostile.test_damage import KEY
from tests.support.synthetic import entry, fill, place
from tritonstore.cli.main import main
from tritonstore.entry import encode
from tritonstore.store import open_store
root = sys.argv[1]

def everybody():
    store = open_store(root, strict=False)
    for number in range(100, 100 + len(ALL)):
        made = entry(number)
        assert store.lookup(KEY._replace(digest=made.digest, parts=made.parts)) is None or number == 100
    for arguments in ("ls", "verify", "prune --dry-run --kernel none", f"save {root}/../b.tsb", "doctor --quick"):
        main([*arguments.split(), "--store", f"file://{root}"])

fill(root, [entry(100)])
everybody()
for number, damage in enumerate(ALL.values(), start=100):
    made = entry(number)
    path = Path(place(root, made.digest))
    path.parent.mkdir(exist_ok=True, parents=True)
    path.unlink(missing_ok=True)
    damage(path, encode(made))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tracemalloc.start()
with mortal():
    everybody()
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print("MEMORY", tracemalloc.get_traced_memory()[1], grown * 1024)
"""


def test_in_little_memory(tmp_path: Path, root: Path) -> None:
    """Ten gigabytes in an entry's place take no more room than an entry may."""
    (tmp_path / "store").mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store")], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    traced, resident = map(int, done.stdout.rsplit("MEMORY ", 1)[1].split())
    assert traced < 8 << 20
    assert resident < 32 << 20  # with the tables of tracemalloc
